#!/usr/bin/env python3
"""Write the folder of a new skill: SKILL.md, evals/evals.json and, if wanted, a script and a reference.

Every place to complete says FILL IN; validate.py reports those that are left. Nothing is overwritten.
Exit code 0: written; 2: an input is wrong.
"""

import argparse
import json
import re
import sys
from pathlib import Path
from typing import NoReturn

MARK = "FILL" + " IN:"
"""Stands where the templates have <?>; written in parts, so that this file itself is not incomplete."""
NAME = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")

SKILL = """\
---
name: {name}
description: {description}
license: MIT
metadata:
  version: "1.0"
---

# {title}

<?> the purpose in two sentences: which job, what a good result is.

## Decide first

| case | do |
|---|---|
| <?> the ordinary case | the steps below |
| <?> too little information | ask with `ask_clarification`, one question, with options |

## Steps

1. <?> read the inputs in `/mnt/user-data/uploads`.
2. <?> the work, with exact commands.
{script_step}3. Write the result to `/mnt/user-data/outputs/` (<?> its name) and show it with `present_files`.

## When something is missing

- <?> a missing input, program or package, and what to do then.

## Checklist

- [ ] <?> what must hold before the result is shown.
{reference_line}"""

SCRIPT_STEP = """\
   ```bash
   python3 {place}/scripts/{module}.py INPUT
   ```
"""

SCRIPT = '''\
#!/usr/bin/env python3
"""<?> what it does in one sentence.

Exit code 0: fine; 2: an input is wrong.
"""

import argparse
import json
import sys
from pathlib import Path


def main() -> int:
    """Read the input, print the result, return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("input", type=Path, help="<?> which file")
    options = parser.parse_args()
    try:
        text = options.input.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        print(f"error: {options.input} cannot be read: {error}", file=sys.stderr)
        return 2
    print(json.dumps({"lines": len(text.splitlines())}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
'''


def fail(message: str) -> NoReturn:
    """Report a wrong input and exit with code 2."""
    print(f"error: {message}", file=sys.stderr)
    sys.exit(2)


def evals(name: str) -> str:
    """Return the evals to complete: three cases and the trigger queries."""
    case = {
        "prompt": "<?> what a user would write",
        "expected_output": "<?> what a good result has",
        "files": [],
        "assertions": ["<?> a fact that can be checked"],
    }
    cases = [{"id": kind, **case} for kind in ("ordinary", "difficult", "broken-input")]
    triggers = {
        "should": [f"<?> query {number} that needs it" for number in range(1, 11)],
        "should_not": [f"<?> near miss {number}" for number in range(1, 11)],
    }
    return json.dumps({"skill_name": name, "evals": cases, "triggers": triggers}, indent=2) + "\n"


def main() -> int:
    """Write the folder and list its files."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("name", help="lower-case letters, digits and single hyphens, at most 64")
    parser.add_argument("--out", type=Path, required=True, help="folder that gets the skill's folder")
    parser.add_argument("--description", default="<?> what it does. Use for <?> users' words.")
    parser.add_argument("--with-script", action="store_true", help="add a script to start from")
    parser.add_argument("--with-reference", action="store_true", help="add a reference to start from")
    options = parser.parse_args()
    name = options.name
    if len(name) > 64 or NAME.fullmatch(name) is None:
        fail(f"name {name!r}: use lower-case letters, digits and single hyphens, at most 64")
    description = " ".join(options.description.split())
    if not description or len(description) > 1024:
        fail(f"the description has {len(description)} characters; use 1 to 1024")
    folder = options.out / name
    if folder.exists():
        fail(f"{folder} exists already; edit it or choose another name")
    module = name.replace("-", "_")
    place = f"/mnt/skills/custom/{name}"
    files = {
        "SKILL.md": SKILL.format(
            name=name,
            description=json.dumps(description, ensure_ascii=False),
            title=name.replace("-", " ").capitalize(),
            script_step=SCRIPT_STEP.format(place=place, module=module) if options.with_script else "",
            reference_line="\nRead `references/details.md` when <?> in which case.\n"
            if options.with_reference
            else "",
        ),
        "evals/evals.json": evals(name),
    }
    if options.with_script:
        files[f"scripts/{module}.py"] = SCRIPT
    if options.with_reference:
        files["references/details.md"] = "# <?> what only some tasks need\n"
    for path, text in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text.replace("<?>", MARK), encoding="utf-8")
        print(folder / path)
    return 0


if __name__ == "__main__":
    sys.exit(main())
