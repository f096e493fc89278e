"""The scripts of the skill `recursive-summarizer` on long texts, in English and Chinese."""

import json
import os
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

SCRIPTS = Path(__file__).parents[2] / "skills" / "public" / "recursive-summarizer" / "scripts"


def run(folder: Path, script: str, *arguments: str, code: int = 0) -> str:
    done = subprocess.run(
        [sys.executable, str(SCRIPTS / script), *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == code, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    return done.stderr if code == 2 else done.stdout


def book() -> str:
    """Return a text of about 30,000 tokens: chapters, a code fence with '#', one line without any end."""
    parts = []
    for chapter in range(1, 16):
        parts.append(f"# Chapter {chapter}\n\n## Opening\n")
        parts += [
            f"Paragraph {number} of chapter {chapter} says that {number * 37} units were sold. It was so.\n\n"
            for number in range(60)
        ]
    parts.append(
        "```\n# no heading\n```\n" + "x" * 30_000 + "\f\n第十六章 结束\n" + "这是很长的一段话。" * 900
    )
    return "".join(parts)


def split(folder: Path, text: str, *arguments: str) -> dict[str, list[list[dict[str, object]]]]:
    (folder / "book.txt").write_text(text)
    run(folder, "recursive.py", "split", "book.txt", "--out", "work", *arguments)
    plan: dict[str, list[list[dict[str, object]]]] = json.loads((folder / "work" / "plan.json").read_text())
    return plan


def test_chunks_lose_nothing_and_keep_to_the_limit(tmp_path: Path) -> None:
    plan = split(tmp_path, book(), "--chunk-tokens", "1500")
    files = sorted((tmp_path / "work" / "chunks").iterdir())
    bodies = [file.read_text().split("\n", 1) for file in files]

    assert "".join(body for _, body in bodies) == book()
    assert len(files) == len(plan["chunks"]) > 15
    assert max(chunk["tokens"] for chunk in plan["chunks"]) <= 1500  # type: ignore[call-overload]
    assert bodies[0][0].startswith("<!-- book.txt lines 1-")
    assert "Chapter 2 > Opening" in "".join(head for head, _ in bodies)
    assert not any(body.rstrip().endswith("## Opening") for _, body in bodies)


def test_line_numbers_point_into_the_source(tmp_path: Path) -> None:
    plan = split(tmp_path, book(), "--chunk-tokens", "1500")
    lines = book().split("\n")
    for chunk in plan["chunks"]:
        first = chunk["lines"][0]  # type: ignore[call-overload]
        body = (tmp_path / "work" / chunk["file"]).read_text().split("\n", 1)[1]  # type: ignore[call-overload]
        assert body.split("\n")[0] in lines[first - 1]


def test_the_plan_is_worked_off_level_by_level(tmp_path: Path) -> None:
    plan = split(tmp_path, book(), "--chunk-tokens", "1500", "--fan-in", "5", "--target", "300")
    counts = [len(level) for level in plan["levels"]]
    assert counts[-1] == 1
    assert all(above <= -(-below // 5) for below, above in pairwise(counts))

    rounds = 0
    while rounds < 10:
        done = subprocess.run(
            [sys.executable, str(SCRIPTS / "recursive.py"), "status", "work", "--format", "json"],
            cwd=tmp_path, capture_output=True, text=True, check=False,
        )  # fmt: skip
        state = json.loads(done.stdout)
        if state["done"]:
            break
        assert done.returncode == 1
        assert len(state["ready"]) == counts[rounds]
        for node in state["ready"]:
            assert all((tmp_path / "work" / name).is_file() for name in node["inputs"])
            (tmp_path / "work" / node["output"]).write_text("Short.")
        rounds += 1
    assert rounds == len(counts)
    assert "done: work/final.md" in run(tmp_path, "recursive.py", "status", "work")


def test_a_long_summary_is_reported_and_blocks_its_merge(tmp_path: Path) -> None:
    plan = split(tmp_path, "One sentence here. " * 700, "--chunk-tokens", "2000")
    for node in plan["levels"][0]:
        (tmp_path / "work" / str(node["output"])).write_text("Short.")
    first = tmp_path / "work" / str(plan["levels"][0][0]["output"])
    first.write_text("Word " * 4000)

    said = run(tmp_path, "recursive.py", "status", "work", code=1)
    assert f"too long: work/summaries/{first.name} has 5000 tokens" in said
    assert "final.md" not in said
    first.write_text("Short.")
    assert "-> work/final.md (800 tokens)" in run(tmp_path, "recursive.py", "status", "work", code=1)


def test_counting_says_whether_to_split(tmp_path: Path) -> None:
    (tmp_path / "short.txt").write_text("字" * 1000 + "abcd" * 100)
    assert run(tmp_path, "recursive.py", "count", "short.txt").split()[0] == "1100"
    assert "read it whole" in run(tmp_path, "recursive.py", "count", "short.txt")
    (tmp_path / "long.txt").write_text("字" * 5000)
    assert "split it" in run(tmp_path, "recursive.py", "count", "long.txt")


def test_unreadable_inputs_are_refused_with_a_way_out(tmp_path: Path) -> None:
    (tmp_path / "a.pdf").write_bytes(b"%PDF\0\1")
    assert "pdftotext" in run(tmp_path, "recursive.py", "count", "a.pdf", code=2)
    (tmp_path / "gb.txt").write_bytes("中文内容".encode("gb18030"))
    assert "--encoding gb18030" in run(tmp_path, "recursive.py", "count", "gb.txt", code=2)
    assert run(tmp_path, "recursive.py", "count", "gb.txt", "--encoding", "gb18030").split()[0] == "4"
    assert "no plan.json" in run(tmp_path, "recursive.py", "status", "nowhere", code=2)
    assert "--fan-in" in run(
        tmp_path, "recursive.py", "split", "gb.txt", "--out", "o", "--fan-in", "1", code=2
    )
    split(tmp_path, "Text.")
    assert "--force" in run(tmp_path, "recursive.py", "split", "book.txt", "--out", "work", code=2)


def test_numbers_quotations_and_references_are_checked(tmp_path: Path) -> None:
    (tmp_path / "source.txt").write_text(
        "\n".join(f"Line {number}. Sales were 12,500 units in 2024." for number in range(1, 41))
        + '\nShe said "we will close the plant in May" to all. 利润为9.5亿元。\n'
    )
    (tmp_path / "good.md").write_text(
        "1. Sales were 12500.0 units [source.txt 1-40], 利润为9.5亿元 [source.txt 41].\n"
        "2. “We will close the plant in May.”\n"
    )
    assert "agree with the source" in run(tmp_path, "check_summary.py", "good.md", "--source", "source.txt")
    (tmp_path / "bad.md").write_text(
        "Sales were 13,500 in 2024 [source.txt 3] [source.txt 90-95]. "
        '"we will open the plant in June" 利润为88亿元。'
    )
    result = json.loads(
        run(tmp_path, "check_summary.py", "bad.md", "--source", "source.txt", "--format", "json", code=1)
    )
    assert result["numbers not in the source"] == ["13,500", "88"]
    assert result["quotations not in the source"] == ["we will open the plant in June"]
    assert result["wrong line references"] == ["[source.txt 90-95]: source.txt has 41 lines"]
    assert "source.txt lines 37-41" in result["parts without a reference"]
    assert "cannot be read" in run(tmp_path, "check_summary.py", "none.md", "--source", "source.txt", code=2)
