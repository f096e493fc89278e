"""Token estimates and reading of text files; used by the scripts beside it."""

import re
import sys
from pathlib import Path
from typing import NoReturn

WIDE = re.compile(r"[\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff]")
CHARS_PER_TOKEN = 4


def fail(message: str) -> NoReturn:
    """Report a wrong input and exit with code 2."""
    print(f"error: {message}", file=sys.stderr)
    sys.exit(2)


def tokens(text: str) -> int:
    """Estimate the tokens: one per Chinese, Japanese or Korean character, one per four others."""
    wide = len(WIDE.findall(text))
    return wide + -(-(len(text) - wide) // CHARS_PER_TOKEN)


def read(path: Path, encoding: str) -> str:
    """Return a file's text with '\\n' line ends, or fail with what to do."""
    try:
        data = path.read_bytes()
    except OSError as error:
        fail(f"{path} cannot be read: {error.strerror}")
    if b"\0" in data[:8192] and not encoding.lower().startswith("utf-16"):
        fail(f"{path} is a binary file; convert it to text first (PDF: pdftotext, Word: pandoc -t markdown)")
    try:
        text = data.decode(encoding)
    except UnicodeDecodeError as error:
        fail(f"{path} is not {encoding} (byte {error.start}); try --encoding gb18030 or latin-1")
    except LookupError:
        fail(f"there is no encoding '{encoding}'; use utf-8, gb18030, latin-1 or another that Python knows")
    return text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")
