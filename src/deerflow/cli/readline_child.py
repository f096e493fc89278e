"""The script of the child process of `edit_line`: edits the text in a file with readline.

Only this process imports readline, because that changes how the terminal is read.
"""

import sys
from typing import BinaryIO

try:
    import readline
except ImportError:  # some builds of Python lack it: the line starts empty
    HAS_READLINE = False
else:
    HAS_READLINE = True


def edit(file: BinaryIO, prompt: str) -> None:
    """Replace the file's text by the line that the user makes of it."""
    file.seek(0)
    text = file.read().decode()
    if HAS_READLINE:
        readline.set_startup_hook(lambda: readline.insert_text(text))
    line = input(prompt).encode(errors="replace")
    file.seek(0)
    file.truncate()
    file.write(line)


if __name__ == "__main__":
    try:
        with open(int(sys.argv[1]), "r+b", closefd=False) as shared:
            edit(shared, sys.argv[2])
    except (EOFError, KeyboardInterrupt):
        print()
        sys.exit(1)
