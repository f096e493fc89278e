#!/usr/bin/env python3
"""Validate a skill and pack it as NAME.skill, a ZIP archive with the skill's folder.

The same content gives the same bytes. Litter such as __pycache__ is left out; links are refused.
Exit code 0: packed; 1: the skill has errors; 2: an input is wrong.
"""

import argparse
import hashlib
import sys
import zipfile
from pathlib import Path

from validate import LITTER, findings_of

EPOCH = (1980, 1, 1, 0, 0, 0)


def main() -> int:
    """Check, pack, and print path, size and digest."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path, help="the skill's folder")
    parser.add_argument("--out", type=Path, required=True, help="folder that gets NAME.skill")
    options = parser.parse_args()
    folder = options.folder.resolve()
    if not folder.is_dir():
        print(f"error: {options.folder} is not a folder", file=sys.stderr)
        return 2
    errors = [text for kind, text in findings_of(folder) if kind == "error"]
    if errors:
        print("\n".join(f"error: {text}" for text in errors))
        print("nothing was packed: repair these first")
        return 1
    try:
        options.out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        print(f"error: {options.out} cannot be made: {error}", file=sys.stderr)
        return 2
    target = options.out / f"{folder.name}.skill"
    files = [file for file in sorted(folder.rglob("*")) if file.is_file()]
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for file in files:
            path = file.relative_to(folder)
            if LITTER.intersection(path.parts):
                continue
            info = zipfile.ZipInfo(f"{folder.name}/{path.as_posix()}", EPOCH)
            info.compress_type = zipfile.ZIP_DEFLATED
            info.external_attr = (0o100755 if file.stat().st_mode & 0o100 else 0o100644) << 16
            archive.writestr(info, file.read_bytes())
    data = target.read_bytes()
    print(f"{target}  {len(data)} bytes  sha256 {hashlib.sha256(data).hexdigest()}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
