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
    ROOT / "SECURITY.md",
    *sorted((ROOT / "docs").rglob("*.md")),
]
TUTORIAL = ROOT / "docs/tutorial/first-report.md"
ENGLISH = [
    "three brokers cost 600 dollars a month. [citation:kafka.md:3]",
    "a managed instance costs 45 dollars a month. [citation:redis.md:3]",
    "the queue costs nothing more. [citation:postgres.md:3]",
    "loses the jobs of the last second, because writes are flushed once a second. [citation:redis.md:5]",
    "no job is lost as long as two of the three brokers are alive. [citation:kafka.md:5]",
    "since it is committed together with the order that it belongs to. [citation:postgres.md:5]",
]
CHINESE = [
    "三个节点每月 600 美元。 [citation:kafka.md:3]",
    "托管实例每月 45 美元。 [citation:redis.md:3]",
    "队列不增加成本。 [citation:postgres.md:3]",
    "崩溃时会丢失最近一秒的任务。 [citation:redis.md:5]",
    "只要三个节点中有两个正常，任务就不会丢失。 [citation:kafka.md:5]",
    "任务与所属订单一起提交，不会丢失。 [citation:postgres.md:5]",
]


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_to_files_that_exist(document: Path) -> None:
    text = re.sub(r"```.*?```|`[^`\n]*`", "", document.read_text(), flags=re.DOTALL)
    links = [link for link in re.findall(r"\]\(([^)#\s]+)[^)]*\)", text) if "://" not in link]
    missing = [
        link for link in links if not link.startswith("/mnt/") and not (document.parent / link).exists()
    ]

    assert missing == []


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_modules_that_a_document_names_exist(document: Path) -> None:
    text = document.read_text()
    examples = "".join(re.findall(r"```.*?```", text, flags=re.DOTALL))
    named = [name for name in set(re.findall(r"`([\w/]+\.py)`", text)) if name not in examples]

    folders = [ROOT / folder for folder in ("src", "tests", "docker")]
    missing = [name for name in named if not any(any(folder.rglob(name)) for folder in folders)]

    assert [name for name in missing if not (ROOT / name).is_file()] == []


def test_the_index_links_every_page() -> None:
    index = ROOT / "docs/README.md"
    pages = {path.relative_to(index.parent).as_posix() for path in index.parent.rglob("*.md")}
    linked = set(re.findall(r"\]\(([^)]+)\)", index.read_text()))

    missing = {page for page in pages - linked if "/notes" not in page}

    assert missing == {"README.md"}


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Return a folder like a fresh clone, whose home is its own and which has no settings."""
    for name in ("docs", "skills"):
        (tmp_path / name).symlink_to(ROOT / name)
    return tmp_path


def run(project: Path, *command: str) -> "subprocess.CompletedProcess[str]":
    done = subprocess.run(
        command,
        cwd=project,
        env=environment(project),
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done


def jobs_in(document: Path) -> list[str]:
    """Return the commands of a document that give DeerFlow work."""
    return re.findall(r"^\.venv/bin/(deerflow run .*)$", document.read_text(), flags=re.MULTILINE)


def do(project: Path, job: str) -> "subprocess.CompletedProcess[str]":
    return run(project, "bash", "-c", job.replace("deerflow", f"{sys.executable} -m deerflow", 1))


def python_of(document: Path) -> str:
    return "\n".join(re.findall(r"```python\n(.*?)```", document.read_text(), flags=re.DOTALL))


def test_the_examples_of_the_chinese_readme_convince(project: Path) -> None:
    document = ROOT / "README_zh.md"
    (job,) = jobs_in(document)

    answer = do(project, job).stdout
    asked = run(project, sys.executable, "-c", python_of(document)).stdout

    assert_holds(answer, CHINESE)
    assert_begins(asked, CHINESE[3])
    assert_promises(document, CHINESE)


EXAMPLES = """
from deerflow import DeerFlowClient
from pathlib import Path
import sys

folder, *tasks = sys.argv[1:]
with DeerFlowClient() as client:
    files = sorted(map(str, Path(folder).iterdir()))
    for task in tasks:
        print(client.chat(task, files=files, subagent_enabled=True), end="\\0")
"""


@pytest.mark.parametrize(("language", "notes"), [("en", "notes"), ("zh", "notes_zh")])
def test_the_tasks_that_the_page_suggests_are_answered_offline(
    project: Path, language: str, notes: str
) -> None:
    words = (ROOT / f"web/src/text/{language}.ts").read_text()
    tasks = re.findall(r'\{ title: "[^"]+", task: "([^"]+)" \}', words)

    said = run(project, sys.executable, "-c", EXAMPLES, f"docs/tutorial/{notes}", *tasks).stdout
    answers = said.split("\0")[:-1]

    assert len(answers) == len(tasks) == 3
    assert [task for task, answer in zip(tasks, answers, strict=True) if "[citation:" not in answer] == []


def assert_holds(answer: str, facts: list[str]) -> None:
    """Assert that an answer has these facts, and none beside them."""
    assert [fact for fact in facts if fact not in answer] == []
    assert answer.count("[citation:") == len(facts)


def assert_begins(answer: str, fact: str) -> None:
    """Assert that an answer's first quote is this fact."""
    assert fact in answer.partition("\n- ")[2].partition("\n")[0]


def assert_promises(document: Path, facts: list[str]) -> None:
    text = document.read_text()
    assert [fact for fact in facts if fact.partition(" [")[0] not in text] == []


def test_the_examples_of_the_tutorial_and_the_readme_convince(project: Path) -> None:
    first, then = jobs_in(TUTORIAL)
    readme = ROOT / "README.md"

    done = do(project, first)
    thread = re.findall(r"^thread +(\S+)$", done.stderr, flags=re.MULTILINE)[-1]
    report = Path(re.findall(r"^artifact +(.+)$", done.stderr, flags=re.MULTILINE)[-1]).read_text()
    again = do(project, then.replace("THREAD", thread)).stdout
    client = run(project, sys.executable, "-c", f"{python_of(TUTORIAL)}\nprint('====')\n{python_of(readme)}")
    tutorials, readmes = client.stdout.split("====")

    assert_holds(done.stdout, ENGLISH)
    assert done.stderr.count("▸ task") == 3
    assert "| File | Cost | Risk |" in report
    assert_begins(again, ENGLISH[3])
    assert [fact for fact in ENGLISH if fact not in tutorials] == []
    assert "# Compare these queues by cost and risk" in tutorials
    assert_begins(readmes, ENGLISH[3])
    assert jobs_in(readme) == [first]
    assert_promises(readme, ENGLISH)
    assert_promises(TUTORIAL, ENGLISH)
