"""Shows a document (.docx, .pdf, .md, .txt) as numbered blocks with their place; Markdown text or JSON."""

import argparse
import json
from pathlib import Path

from _document import comments, read_blocks, tracked_changes


def main() -> None:
    """Print the blocks."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("document", type=Path, help="the document")
    parser.add_argument("--first", type=int, default=1, help="number of the first block to show")
    parser.add_argument("--count", type=int, default=200, help="how many blocks to show (default 200)")
    parser.add_argument("--json", action="store_true", help="print JSON")
    options = parser.parse_args()
    blocks = read_blocks(options.document)
    shown = blocks[max(options.first, 1) - 1 :][: options.count]
    notes, changes = comments(options.document), tracked_changes(options.document)
    if options.json:
        report = {
            "blocks": [block.as_dict() for block in shown],
            "total": len(blocks),
            "comments": notes,
            "tracked_changes": changes,
        }
        print(json.dumps(report, ensure_ascii=False, indent=1))
        return
    place = ""
    for block in shown:
        if block.place != place:
            place = block.place
            print(f"\n[{place}]")
        print(f"{block.id} {'# ' if block.kind == 'heading' else ''}{block.text}")
    words = sum(len(block.text.split()) for block in blocks)
    print(f"\n{len(shown)} of {len(blocks)} blocks, {words} words in all")
    if changes:
        print(
            f"The document has {changes} tracked changes: deleted text is not shown, inserted text may "
            "be missing."
        )
    for note in notes:
        print(f"Comment of {note['author']}: {note['text']}")


if __name__ == "__main__":
    main()
