"""Shows what a .pptx holds, slide by slide: titles, texts, tables, charts, pictures, notes."""

import argparse
import json
from pathlib import Path
from typing import Any

from _slides import open_deck, placed


def main() -> None:
    """Print the contents."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("deck", type=Path, help="the .pptx")
    parser.add_argument("--json", action="store_true", help="print JSON instead of Markdown")
    options = parser.parse_args()
    slides = [_slide(number, slide) for number, slide in enumerate(open_deck(options.deck).slides, 1)]
    print(
        json.dumps(slides, ensure_ascii=False, indent=1)
        if options.json
        else "\n".join(map(_markdown, slides))
    )


def _slide(number: int, slide: Any) -> dict[str, Any]:
    title = slide.shapes.title
    content: list[dict[str, Any]] = []
    for one in placed(slide.shapes):
        shape = one.shape
        if title is not None and shape.shape_id == title.shape_id:
            continue
        if getattr(shape, "has_chart", False):
            plot = shape.chart.plots[0]
            series = {str(entry.name): list(entry.values) for entry in plot.series}
            content.append(
                {
                    "chart": shape.chart.chart_type.name,
                    "x": [str(name) for name in plot.categories],
                    "series": series,
                }
            )
        elif getattr(shape, "has_table", False):
            content.append({"table": [[cell.text for cell in row.cells] for row in shape.table.rows]})
        elif hasattr(shape, "image"):
            content.append({"picture": shape._element.nvPicPr.cNvPr.get("descr") or shape.name})
        elif shape.has_text_frame and shape.text_frame.text.strip():
            content.append(
                {
                    "text": [
                        paragraph.text for paragraph in shape.text_frame.paragraphs if paragraph.text.strip()
                    ]
                }
            )
    notes = slide.notes_slide.notes_text_frame.text if slide.has_notes_slide else ""
    words = title.text_frame.text if title is not None else ""
    return {
        "slide": number,
        "layout": slide.slide_layout.name,
        "title": words,
        "content": content,
        "notes": notes,
    }


def _markdown(slide: dict[str, Any]) -> str:
    lines = [f"## {slide['slide']}. {slide['title'] or '(no title)'}", ""]
    for one in slide["content"]:
        if "text" in one:
            lines += [f"- {text}" for text in one["text"]]
        elif "table" in one:
            lines += ["| " + " | ".join(row) + " |" for row in one["table"]]
        elif "chart" in one:
            lines.append(f"[chart {one['chart']}: {one['x']} {one['series']}]")
        else:
            lines.append(f"[picture: {one['picture']}]")
    if slide["notes"]:
        lines += ["", f"> {slide['notes']}"]
    return "\n".join([*lines, ""])


if __name__ == "__main__":
    main()
