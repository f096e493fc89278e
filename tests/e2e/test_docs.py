"""What the documents promise: their Python runs, their links lead somewhere."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from support.gateway import environment

ROOT = Path(__file__).parents[2]
DOCUMENTS = [
    ROOT / "README.md",
    ROOT / "README_zh.md",
    ROOT / "AGENTS.md",
    *sorted((ROOT / "docs").rglob("*.md")),
]
NOTES = {
    "redis.md": "Redis lists give us a simple queue with very low latency.",
    "postgres.md": "We already run PostgreSQL, so a queue table adds no new service.",
    "kafka.md": "Kafka keeps a durable log, but it is costly to operate.",
}


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_to_files_that_exist(document: Path) -> None:
    text = re.sub(r"```.*?```|`[^`\n]*`", "", document.read_text(), flags=re.DOTALL)
    links = [link for link in re.findall(r"\]\(([^)#\s]+)[^)]*\)", text) if "://" not in link]
    missing = [
        link for link in links if not link.startswith("/mnt/") and not (document.parent / link).exists()
    ]

    assert missing == []


def test_the_python_of_the_tutorial_runs(tmp_path: Path) -> None:
    tutorial = (ROOT / "docs/tutorial/first-report.md").read_text()
    code = re.findall(r"```python\n(.*?)```", tutorial, flags=re.DOTALL)
    (tmp_path / "notes").mkdir()
    for name, note in NOTES.items():
        (tmp_path / "notes" / name).write_text(note + "\n")

    done = subprocess.run(
        [sys.executable, "-c", "\n".join(code)],
        cwd=tmp_path,
        env=environment(tmp_path),
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    assert "citation:redis.md:1" in done.stdout
    assert "# Compare the approaches in these notes" in done.stdout
