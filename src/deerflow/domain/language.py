"""Detect the language for messages that the server writes itself."""

import re

_HAN = re.compile(r"[\u3400-\u4dbf\u4e00-\u9fff]")
_KANA = re.compile(r"[\u3040-\u30ff]")


def is_chinese(text: str) -> bool:
    """Return whether a text is Chinese; Japanese, which shares characters with it, is not."""
    return bool(_HAN.search(text)) and not _KANA.search(text)
