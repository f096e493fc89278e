"""Single steps of the offline model, seen through hand-made messages."""

from typing import Any

import pytest
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage, ToolMessage

from deerflow.models.offline.conversation import KEPT_OF_RUN, Reply, read_conversation
from deerflow.models.offline.lead import decide
from deerflow.models.offline.reading import FileText, aligned
from deerflow.models.offline.results import Hit, Page
from deerflow.models.offline.tasks import TaskPart, parse_part

PATH = "/mnt/user-data/uploads/a.md"
QUESTION = f"<uploaded_files>\n- {PATH} (1 KB)\n</uploaded_files>\n\nWhat is the budget of the team?"
FILE_TOOLS = ("read_file", "write_file", "present_files")


def step(name: str, args: dict[str, Any], result: str, *, status: str = "success") -> list[BaseMessage]:
    call = {"name": name, "args": args, "id": f"{name}-{len(result)}"}
    answer = ToolMessage(result, tool_call_id=call["id"], status=status)
    return [AIMessage("", tool_calls=[call]), answer]


def reply(*messages: BaseMessage, tools: tuple[str, ...] = FILE_TOOLS) -> Reply:
    return decide(read_conversation([HumanMessage(QUESTION), *messages], tools=tools))


def read_step(result: str, **options: Any) -> list[BaseMessage]:
    return step("read_file", {"path": PATH, "start_line": 1, "end_line": 400}, result, **options)


def test_an_interrupted_call_is_made_again() -> None:
    lost = read_step("This call was interrupted and has no result. Make it again if you still need it.")

    assert [call.name for call in reply(*lost).calls] == ["read_file"]


def test_a_refusal_without_a_status_is_no_content() -> None:
    answer = reply(*read_step(f"{PATH} does not exist; list its parent folder to see what does"))

    assert answer.calls == ()
    assert "does not exist" in answer.text


def test_a_refused_report_is_tried_under_another_name_and_then_told() -> None:
    read = read_step("The budget of the team is nine euros.\n")
    first = reply(*read).calls[0]
    refused = step("write_file", first.args, "Error: the file exists; read it first", status="error")
    second = reply(*read, *refused).calls[0]
    again = step("write_file", second.args, "Error: the disk is full", status="error")

    last = reply(*read, *refused, *again)

    assert first.args["path"] != second.args["path"]
    assert last.calls == ()
    assert "the disk is full" in last.text
    assert "The budget of the team is nine euros. [citation:a.md:1]" in last.text


def test_a_run_with_a_plan_keeps_it_up_to_date() -> None:
    tools = (*FILE_TOOLS, "write_todos")
    first = reply(tools=tools)
    planned = step("write_todos", first.calls[0].args, "ok")

    then = reply(*planned, *read_step("The budget of the team is nine euros.\n"), tools=tools)

    assert [call.name for call in first.calls] == ["write_todos", "read_file"]
    assert [call.name for call in then.calls] == ["write_todos", "write_file"]
    assert [item["status"] for item in then.calls[0].args["todos"]] == [
        "completed",
        "completed",
        "in_progress",
    ]


def test_folders_are_listed_with_ls_where_there_is_no_glob() -> None:
    messages = [HumanMessage("Summarise the notes in /mnt/user-data/workspace/notes")]
    listing = step(
        "ls", {"path": "/mnt/user-data/workspace/notes"}, "/mnt/user-data/workspace/notes/b.md\nsub/"
    )

    first = decide(read_conversation(messages, tools=("ls", "read_file")))
    then = decide(read_conversation([*messages, *listing], tools=("ls", "read_file")))

    assert [call.name for call in first.calls] == ["ls"]
    assert then.calls[0].args["path"] == "/mnt/user-data/workspace/notes/b.md"


def test_without_any_reading_tool_it_says_so() -> None:
    assert "cannot answer" in reply(tools=("bash",)).text


@pytest.mark.parametrize(
    ("prompt", "limit"),
    [('<subagent_system limit="5">', 5), ("no tag", 3), ('<subagent_system limit="0">', 1)],
)
def test_the_number_of_sub_agents_comes_from_the_prompt(prompt: str, limit: int) -> None:
    assert read_conversation([SystemMessage(prompt), HumanMessage("x")], tools=()).limit == limit


@pytest.mark.parametrize(
    ("topic", "title"),
    [
        ("Cost", "runs.md: Cost"),
        ("What happens to a run when the server is killed", "runs.md: What happens to a run when the…"),
        ("服务器被杀死时正在执行的任务会怎样，以及之后由谁接着做完它们，为什么是这样", None),
    ],
)
def test_a_title_has_whole_words(topic: str, title: str | None) -> None:
    part = TaskPart(topic, (topic,), ("/mnt/user-data/uploads/runs.md",))

    assert part.title == (title or f"runs.md：{topic[:32]}…")


@pytest.mark.parametrize("question", ["What is the cost?", "成本是多少？", "Files: x Question: y Aspects: z"])
def test_a_part_is_read_back_from_its_prompt(question: str) -> None:
    part = TaskPart(question, ("Cost", "What is the risk"), (PATH, "/mnt/user-data/uploads/b (1).md"))

    assert parse_part(part.prompt) == part


def test_other_prompts_are_no_parts() -> None:
    assert parse_part("Question: what?\nFiles: none") is None


def test_lines_are_moved_to_where_grep_saw_them() -> None:
    text = FileText(PATH, [Page(1, ("a header of the tool", "alpha line", "beta line"), None, is_last=True)])
    hits = [Hit(PATH, 1, "alpha line"), Hit(PATH, 2, "beta line"), Hit(PATH, 40, "far away")]

    assert aligned(text, hits) == [(1, "alpha line"), (2, "beta line"), (40, "far away")]


def test_a_message_with_several_parts_is_read_whole() -> None:
    blocks = [
        {"type": "text", "text": QUESTION.split("\n\n")[0]},
        {"type": "text", "text": "What is the budget?"},
    ]

    conversation = read_conversation([HumanMessage(blocks)], tools=FILE_TOOLS)  # type: ignore[arg-type]

    assert conversation.current.uploads == (PATH,)
    assert conversation.current.question == "What is the budget?"


@pytest.mark.parametrize("run", ["-", "_", "a", "Zm9v", "研究"])
def test_long_runs_that_are_no_words_are_not_searched_for_words(run: str) -> None:
    said = f"Summarise my notes {run * 50_000} please"

    question = read_conversation([HumanMessage(said)], tools=()).current.question

    assert question == f"Summarise my notes {(run * 100)[:KEPT_OF_RUN]} please"


def test_folders_of_a_project_are_read_and_those_of_tools_are_not() -> None:
    messages = [HumanMessage("Summarise the files in /mnt/user-data/workspace")]
    listing = step(
        "ls",
        {"path": "/mnt/user-data/workspace"},
        "/mnt/user-data/workspace/packages/core/a.md\n/mnt/user-data/workspace/site-packages/b.md",
    )

    then = decide(read_conversation([*messages, *listing], tools=("ls", "read_file")))

    assert [call.args["path"] for call in then.calls] == ["/mnt/user-data/workspace/packages/core/a.md"]
