"""Compares two versions of a document and shows what was added, removed and changed, word by word."""

import argparse
import difflib
import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

from _document import Block, normal, read_blocks

SIMILAR = 0.5


def main() -> None:
    """Print the differences as Markdown or JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("old", type=Path, help="the earlier version")
    parser.add_argument("new", type=Path, help="the later version")
    parser.add_argument("--json", action="store_true", help="print JSON")
    options = parser.parse_args()
    changes = compare(read_blocks(options.old), read_blocks(options.new))
    counts = dict(Counter(change["kind"] for change in changes))
    if options.json:
        print(json.dumps({"counts": counts, "changes": changes}, ensure_ascii=False, indent=1))
        return
    print(
        f"{len(changes)} differences: "
        f"{', '.join(f'{number} {kind}' for kind, number in counts.items()) or 'none'}\n"
    )
    for change in changes:
        where = " → ".join(part for part in (change.get("old_block"), change.get("new_block")) if part)
        print(f"- **{change['kind']}** ({where}, {change['place']}): {change['text']}")


def compare(old: list[Block], new: list[Block]) -> list[dict[str, Any]]:
    """Return the differences in the order of the new version."""
    before, after = [normal(block.text) for block in old], [normal(block.text) for block in new]
    matcher = difflib.SequenceMatcher(None, before, after, autojunk=False)
    found: list[dict[str, Any]] = []
    for tag, a, b, c, d in matcher.get_opcodes():
        if tag != "equal":
            found += _pairs(old[a:b], new[c:d])
    return _moved(found)


def _pairs(old: list[Block], new: list[Block]) -> list[dict[str, Any]]:
    """Pair the most similar blocks of a changed region; what has no partner was added or removed."""
    rest = list(old)
    found: list[dict[str, Any]] = []
    for block in new:
        best = max(rest, key=lambda other: _likeness(other, block), default=None)
        if best is None or _likeness(best, block) < SIMILAR:
            found.append({"kind": "added", "new_block": block.id, "place": block.place, "text": block.text})
            continue
        rest.remove(best)
        text = _words(best.text, block.text)
        found.append(
            {
                "kind": "changed",
                "old_block": best.id,
                "new_block": block.id,
                "place": block.place,
                "text": text,
            }
        )
    found += [
        {"kind": "removed", "old_block": block.id, "place": block.place, "text": block.text} for block in rest
    ]
    return found


def _likeness(a: Block, b: Block) -> float:
    return difflib.SequenceMatcher(
        None, normal(a.text).split(), normal(b.text).split(), autojunk=False
    ).ratio()


def _words(old: str, new: str) -> str:
    """Return the new text with ~~removed~~ and **added** words marked."""
    a, b = (re.findall(r"\s+|[\u3400-\u9fff]|[^\s\u3400-\u9fff]+", normal(text)) for text in (old, new))
    parts = []
    for tag, i, j, k, m in difflib.SequenceMatcher(None, a, b, autojunk=False).get_opcodes():
        removed, added = "".join(a[i:j]), "".join(b[k:m])
        if tag == "equal":
            parts.append(added)
            continue
        parts.append(f"~~{removed.strip()}~~ " if removed.strip() else "")
        parts.append(f"**{added.strip()}** " if added.strip() else added)
    return " ".join("".join(parts).split())


def _moved(changes: list[dict[str, Any]]) -> list[dict[str, Any]]:
    removed = {normal(change["text"]): change for change in changes if change["kind"] == "removed"}
    result = []
    gone: list[dict[str, Any]] = []
    for change in changes:
        partner = removed.get(normal(change["text"])) if change["kind"] == "added" else None
        if partner is not None:
            gone.append(partner)
            result.append(change | {"kind": "moved", "old_block": partner["old_block"]})
        else:
            result.append(change)
    return [change for change in result if change not in gone]


if __name__ == "__main__":
    main()
