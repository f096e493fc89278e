"""Which tool calls are found in the text of an answer, however it is cut into pieces."""

import random
import time

import pytest

from deerflow.models.text_calls import CallFinder, FoundCalls, OfferedTools, fitted

TEXT = {"type": "string"}
NUMBER = {"anyOf": [{"type": "integer"}, {"type": "null"}]}
FIELDS = {"description": TEXT, "path": TEXT}
PATH = {"type": "object", "properties": FIELDS, "required": ["description", "path"]}
LINES = {**PATH, "properties": {**FIELDS, "start_line": NUMBER}}
TOOLS = OfferedTools(
    [
        {"type": "function", "function": {"name": "ls", "parameters": PATH}},
        {"name": "read_file", "input_schema": LINES},
    ]
)
LS = '{"name": "ls", "arguments": {"description": "look", "path": "/a"}}'
READ = '{"name": "read_file", "arguments": {"path": "/b"}}'


def found(text: str, *, finds_untagged: bool = True, is_cut: bool = False) -> FoundCalls:
    """Read a text in pieces of several sizes; all must come to the same."""
    results = []
    for size in (1, 2, 3, 7, 1000):
        finder = CallFinder(TOOLS, finds_untagged=finds_untagged)
        shown = "".join(finder.feed(text[at : at + size]) for at in range(0, len(text), size))
        rest = finder.finish(is_cut=is_cut)
        results.append(FoundCalls(shown + rest.text, rest.calls, rest.raw))
    assert all(each == results[0] for each in results)
    return results[0]


@pytest.mark.parametrize(
    ("text", "shown", "names"),
    [
        (LS, "", ["ls"]),
        (f"```json\n{LS}\n```", "", ["ls"]),
        (f"Sure.\n```\n{LS}\n```\nI will tell you then.", "Sure.\n", ["ls"]),
        (f"```tool_call\n{LS}\n```", "", ["ls"]),
        (f"I look: <tool_call>\n{LS}\n</tool_call>", "I look: ", ["ls"]),
        (f"<tools>\n{LS}\n{READ}\n</tools>", "", ["ls", "read_file"]),
        (f"<tool-result>{LS}</tool-result>", "", ["ls"]),
        (f"<tool_call>{LS}</tool_call><tool_call>{READ}</tool_call>", "", ["ls", "read_file"]),
        (f"<tool_call>{LS}</tool_call>\n" + "A result that was made up. " * 40, "", ["ls"]),
        (f"{LS}\n{READ}", "", ["ls", "read_file"]),
        (f"[{LS}, {READ}]", "", ["ls", "read_file"]),
        (f"```json\n{LS},\n{READ}\n```", "", ["ls", "read_file"]),
        (f"```json\n{LS}\n```\nThen\n```json\n{READ}\n```\n", "", ["ls", "read_file"]),
        ('{"function": {"name": "ls", "arguments": "{\\"path\\": \\"/x\\"}"}}', "", ["ls"]),
        ('{"type": "function", "function": {"name": "ls", "parameters": {"path": "/"}}}', "", ["ls"]),
        ('{\n "function": "ls",\n "arguments": {"path": "/x\ny"}\n}', "", ["ls"]),
        ('{"tool": "read_file", "parameters": {"file_path": "/x", "start_line": "3"}}', "", ["read_file"]),
        ('{"tool": "read_file", "path": "/x"}', "", ["read_file"]),
        (f'{{"tool_calls": [{LS}]}}', "", ["ls"]),
        (LS[:-1], "", ["ls"]),
        (f"```json\n{LS[:-1]}\n```", "", ["ls"]),
    ],
)
def test_calls_are_found_in_the_forms_that_models_write(text: str, shown: str, names: list[str]) -> None:
    result = found(text)

    assert (result.text, [call.name for call in result.calls]) == (shown, names)
    assert result.raw
    assert text.startswith(shown + result.raw[:20])


@pytest.mark.parametrize(
    "text",
    [
        '{"name": "Alice", "arguments": {}}',
        '{"name": "rm", "arguments": {"path": "/"}}',
        '{"name": "ls", "arguments": {"depth": 1}}',
        '{"name": "ls", "arguments": {"path": 7}}',
        '{"name": "ls", "arguments": "broken"}',
        f"```python\nx = 1\n{LS}\n```\nfine",
        f'```json\n{{"tools": [\n{LS}\n]}}\n```\nx',
        f"```json\n// a call\n{LS}\n```",
        f"<pre>\n{LS}\n</pre>",
        f"<think>\n{LS}\n</think>\nHello",
        f"- item {LS}",
        f"The call `{LS}` is it.",
        f"```json\n{LS}\n```\n" + "This is what each of the keys is for. " * 20,
        "a < b and <b>c</b> [1] {x} `y`\n  [2] z\n```\ncode\n```\nend {",
        "Hello {name}\n[link](http://x)\n\n  indented\n<",
    ],
)
def test_what_is_shown_on_purpose_stays_text(text: str) -> None:
    assert found(text) == FoundCalls(text)


INVENTED = [
    '<tool-result>\n{\n "description": "Read them.",\n "path": "/mnt/user-data"\n}\n</tool-result>',
    'Well.\n\n<tool-result>\n  {\n "path": "/a.md",\n "content": "Alpha."\n  }\n</tool-result>\n',
]
"""Results that a model of 1.5 billion parameters made up instead of a call; they look like arguments."""


@pytest.mark.parametrize("text", INVENTED)
def test_a_result_that_was_made_up_is_no_call_of_whatever_its_keys_fit(text: str) -> None:
    written = {"type": "object", "properties": {**FIELDS, "content": TEXT}, "required": ["path", "content"]}
    finder = CallFinder(OfferedTools([{"name": "write_file", "input_schema": written}]))

    assert (finder.feed(text), finder.finish()) == (text, FoundCalls())
    assert found(text) == FoundCalls(text)


def test_an_answer_that_was_cut_makes_no_call_of_its_last_object() -> None:
    assert found(LS[:-1], is_cut=True) == FoundCalls(LS[:-1])


def test_where_json_may_be_wanted_only_tagged_calls_count() -> None:
    fenced = f"```json\n{LS}\n```"

    assert found(fenced, finds_untagged=False) == FoundCalls(fenced)
    assert found(LS, finds_untagged=False) == FoundCalls(LS)
    assert len(found(f"<tools>{LS}\n{READ}</tools>", finds_untagged=False).calls) == 2


def test_arguments_are_put_right_where_it_is_clear_what_was_meant() -> None:
    assert fitted({"file_path": "/x", "start_line": "3"}, LINES) == {
        "path": "/x",
        "start_line": 3,
        "description": "",
    }
    assert fitted({"path": "/x", "depth": 1}, PATH) is None
    assert fitted({}, PATH) is None


def test_ordinary_text_is_not_held_back() -> None:
    finder = CallFinder(TOOLS)

    shown = [finder.feed(piece) for piece in ("Hello ", "you\n", '{"na', 'me": "Al', 'ice", "age"', ": 3}")]

    assert shown == ["Hello ", "you\n", "", "", '{"name": "Alice", "age"', ": 3}"]


def test_no_text_is_lost_whatever_it_is() -> None:
    chance = random.Random(7)
    parts = [
        '{"name"',
        ":",
        '"ls"',
        "}",
        "[",
        "]",
        "```",
        "json",
        "\n",
        "<",
        "tool>",
        "</",
        " ",
        ",",
        "\\",
        "x",
    ]
    for _ in range(500):
        text = "".join(chance.choice(parts) for _ in range(30))

        result = found(text)

        assert result.calls or result.text == text


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("word <b> {x}\n" * 40_000, id="prose"),
        pytest.param("{" * 200_000, id="braces"),
        pytest.param("<tool_call>\n" * 20_000, id="tags"),
        pytest.param("```\n" * 50_000, id="fences"),
        pytest.param('{"name":"ls","arguments":' * 9000, id="open calls"),
    ],
)
def test_reading_takes_time_in_proportion_to_the_text(text: str) -> None:
    finder = CallFinder(TOOLS)
    started = time.thread_time()

    for at in range(0, len(text), 20):
        finder.feed(text[at : at + 20])
    finder.finish()

    assert time.thread_time() - started < 5
