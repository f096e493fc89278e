"""The commands: what they say when all is well, and what to do when it is not."""

import ast
import io
import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from support.gateway import write_config
from support.model_server import ScriptedModel, call, status, text

from deerflow.cli import commands
from deerflow.cli.startup import StatusLine, end_on_interrupt

REPORT = "/mnt/user-data/outputs/[red]report.md"


@pytest.fixture
def config(home: Path, model: ScriptedModel) -> Path:
    return write_config(home, model.base_url)


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        (("--help",), ["run", "serve", "doctor"]),
        (
            ("run", "--help"),
            ["--file", "--model", "--thread", "--no-subagents", "--plan", "--json", "Ctrl-C"],
        ),
        (("serve", "-h"), ["--host", "--port", "GATEWAY_PORT"]),
        (("doctor", "--help"), ["--config"]),
        (("--version",), ["deerflow 3."]),
    ],
)
def test_help_names_everything(deerflow: Any, words: tuple[str, ...], shown: list[str]) -> None:
    result = deerflow(*words)

    assert result.exit_code == 0
    assert [word for word in shown if word not in result.stdout] == []


def test_help_flows_at_any_width(deerflow: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "500")

    shown = deerflow("run", "--help").stdout

    assert "1 when it failed, 130 when it was stopped with Ctrl-C; what was done until then is kept" in shown
    assert "{task} [FILE]...  " in shown


def test_no_command_is_a_wish_for_help(deerflow: Any) -> None:
    assert "doctor" in deerflow().output


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("run", ""), "the task is empty"),
        (("run", "  \n"), "the task is empty"),
        (("run", "x", "--file", "missing.md"), "no such file or folder: missing.md"),
        (("run", "x", "gone-1", "gone-2"), "gone-1, gone-2"),
        (("run", "x", "--file", "pipe"), "no such file or folder: pipe"),
        (("run", "x", "--thread", "../up"), "thread id '../up' may only have"),
        (
            ("run", "x", "--thread", "t1"),
            "there is no thread 't1'.\nTo start a new thread of this id, add --new.",
        ),
        (("run", "x", "--new"), "--new needs the id of the new thread; add --thread"),
        (("run", "x", "--config", "missing.yaml"), "missing.yaml"),
        (("run", "x", "--model", "nope"), "model 'nope' not found; there are: scripted"),
        (("doctor", "--config", "missing.yaml"), "missing.yaml"),
        (("serve", "--host", "0.0.0.0"), "DEER_FLOW_AUTH_DISABLED=1"),
        (("tasks", "list", "--url", "nonsense"), "--url 'nonsense' is no address; write it like http://"),
        (
            ("tasks", "list", "--url", "http://127.0.0.1:9"),
            "127.0.0.1:9: the connection was refused. Start",
        ),
        (("serve", "--config", "broken.yaml"), "sandbox.use"),
    ],
)
def test_a_mistake_gets_one_sentence_and_exit_code_1(
    deerflow: Any, home: Path, config: Path, words: tuple[str, ...], said: str
) -> None:
    os.mkfifo(home / "pipe")
    (home / "broken.yaml").write_text("sandbox: {use: 7}")

    result = deerflow(*words)

    assert (result.exit_code, said in result.output) == (1, True), result.output
    assert "Traceback" not in result.output


def test_a_job_prints_the_answer_the_use_and_the_artifacts(
    deerflow: Any, model: ScriptedModel, config: Path, home: Path
) -> None:
    model.will_say(
        call("write_file", description="w", path=REPORT, content="x"),
        call("present_files", filepaths=[REPORT]),
        text("All **done**."),
    )

    result = deerflow("run", "Write a report", "--thread", "t1", "--new")

    assert result.exit_code == 0, result.output
    assert result.stdout == "All **done**.\n"
    path = home / ".deer-flow/users/default/threads/t1/user-data/outputs/[red]report.md"
    assert f"artifact  {path}" in result.stderr
    assert "tokens" in result.stderr
    assert "thread    t1" in result.stderr


def test_a_slash_activates_a_skill_or_says_why_not(
    deerflow: Any, model: ScriptedModel, config: Path, home: Path
) -> None:
    folder = home / "skills" / "custom" / "tea-tasting"
    folder.mkdir(parents=True)
    (folder / "SKILL.md").write_text("---\nname: tea-tasting\ndescription: Tea.\n---\nSmell it first.\n")
    model.will_say(text("Oolong."))

    known = deerflow("run", "/tea-tasting of this one", "--json")
    mistyped = deerflow("run", "/tea-tastign of this one")

    assert (known.exit_code, mistyped.exit_code) == (0, 0), mistyped.output
    assert "Smell it first." in str(model.requests[0].body)
    assert '"activated_by":"slash"' in known.stdout
    assert mistyped.stdout == "There is no skill “tea-tastign”. Did you mean /tea-tasting?\n"
    assert len(model.requests) == 1


def test_a_mistyped_thread_is_not_a_new_one(deerflow: Any, model: ScriptedModel, config: Path) -> None:
    model.will_say(text("Fine."), text("A title"))
    deerflow("run", "Write a report", "--thread", "quarterly-report", "--new")

    mistyped = deerflow("run", "go on", "--thread", "quartely-report")
    start = deerflow("run", "go on", "--thread", "quart")
    unlike = deerflow("run", "go on", "--thread", "zzz")
    again = deerflow("run", "anew", "--thread", "quarterly-report", "--new")

    assert "Did you mean:\n  quarterly-report" in mistyped.stderr
    assert "Did you mean:\n  quarterly-report" in start.stderr
    assert "The latest ones are:\n  quarterly-report" in unlike.stderr
    assert "there is a thread 'quarterly-report' already; leave --new out" in again.stderr
    assert [each.exit_code for each in (mistyped, start, unlike, again)] == [1] * 4
    assert "go on" not in [request.asked for request in model.requests]


def test_a_job_says_at_once_that_it_is_loading(home: Path) -> None:
    """Before the agent's libraries are imported, and nothing of them is needed for that."""
    code = (
        "import sys; from deerflow.cli import commands\n"
        "def load(name): print(name, sorted({'langchain_core', 'deerflow.app', 'rich'} & set(sys.modules)))\n"
        "commands.import_module = load\n"
        "commands.app(['run', 'x'])"
    )

    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False
    )

    assert done.stderr.startswith("Loading DeerFlow…\n")
    assert done.stdout == "deerflow.cli.run []\n"


def test_help_loads_nothing_of_what_it_describes() -> None:
    code = (
        "import contextlib, io, sys; from deerflow.cli import commands\n"
        "for words in ['--help'], ['--version'], ['run', '--help'], ['tasks', 'cancel', '--help']:\n"
        "    with contextlib.suppress(SystemExit), contextlib.redirect_stdout(io.StringIO()) as shown:\n"
        "        commands.app(words)\n"
        "    assert shown.getvalue()\n"
        "print(sorted({name.partition('.')[0] for name in sys.modules}))\n"
        "print(sorted(name for name in sys.modules if name.startswith('deerflow')))"
    )

    third, own = map(ast.literal_eval, loaded(code))

    unneeded = {
        "aiohttp",
        "fastapi",
        "httpx",
        "langchain",
        "langchain_core",
        "langgraph",
        "sqlalchemy",
        "uvicorn",
    }
    assert unneeded & set(third) == set()
    assert set(own) == {
        "deerflow",
        "deerflow.cli",
        "deerflow.cli.commands",
        "deerflow.cli.startup",
        "deerflow.errors",
    }


def test_an_idle_server_holds_no_modules_that_only_some_need() -> None:
    """Patterns of rules and pretty terminals each take megabytes of every server."""
    code = (
        "import sys; from deerflow.cli import commands\n"
        "real = commands.import_module\n"
        "def load(name):\n"
        "    module = real(name)\n"
        "    module.execute = lambda **_: module.create_app(None) and 0\n"
        "    return module\n"
        "commands.import_module = load\n"
        "commands.app(['serve'], standalone_mode=False)\n"
        "print(sorted(sys.modules))"
    )

    (names,) = map(ast.literal_eval, loaded(code))

    assert "deerflow.gateway.app" in names
    unneeded = {
        "deerflow.models.offline",
        "openai",
        "pygments",
        "regex",
        "rich",
    }
    assert unneeded & set(names) == set()


def test_a_job_loads_no_more_than_its_first_token_needs(model: ScriptedModel, config: Path) -> None:
    """The answer's Markdown is rendered at the end; a model that is not used is not loaded."""
    model.will_say(text("Hello there."))
    code = (
        "import sys; from deerflow.cli import commands\n"
        "real = commands.import_module\n"
        "def load(name):\n"
        "    module = real(name)\n"
        "    module._print_json = lambda event: event.event == 'messages' and print(sorted(sys.modules))\n"
        "    return module\n"
        "commands.import_module = load\n"
        f"commands.app(['run', 'Say hello', '--json', '--config', {str(config)!r}])"
    )

    names = ast.literal_eval(loaded(code)[0])

    assert "langchain_openai" in names
    unneeded = {"deerflow.gateway", "deerflow.models.offline", "fastapi", "markdown_it", "pygments", "regex"}
    assert unneeded & set(names) == set()


def loaded(code: str) -> list[str]:
    """Return the lines that a process prints of the modules that it has loaded."""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    return done.stdout.splitlines()


def test_a_status_is_one_line_of_a_terminal() -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    stream = Terminal()
    line = StatusLine(stream)
    line.say("Loading")
    line.say("Opening")
    line.clear()
    line.clear()

    assert stream.getvalue() == "\r\x1b[KLoading…\r\x1b[KOpening…\r\x1b[K"


def test_every_event_is_a_line_of_json(deerflow: Any, model: ScriptedModel, config: Path) -> None:
    model.will_say(text("Hello there."))

    result = deerflow("run", "-", "--json", input="Say hello")

    events = [json.loads(line) for line in result.stdout.splitlines()]
    assert [event["event"] for event in events][:1] + [event["event"] for event in events][-1:] == [
        "metadata",
        "end",
    ]
    assert model.requests[0].asked == "Say hello"
    said = "".join(e["data"][0]["content"] for e in events if e["event"] == "messages")
    assert said == "Hello there."


def test_a_run_that_fails_says_why_even_in_brackets(
    deerflow: Any, model: ScriptedModel, config: Path
) -> None:
    model.will_say(status(400, message="bad tag [/INST] in [bold]prompt"))

    result = deerflow("run", "go")

    assert result.exit_code == 1
    assert "The run failed: " in result.stderr
    assert "[/INST] in [bold]prompt" in result.stderr


def test_a_thread_goes_on_and_flags_reach_the_agent(
    deerflow: Any, model: ScriptedModel, config: Path, home: Path
) -> None:
    (home / "folder").mkdir()
    (home / "folder/a.md").write_text("in the folder")
    (home / "folder/link").symlink_to("/etc/passwd")
    (home / "b.md").write_text("a file")
    # An answer about uploads that none of them was read for is asked for again.
    reads = call("read_file", description="Read", path="/mnt/user-data/uploads/b.md")
    model.will_say(reads, text("one"), text("two"))

    first = deerflow("run", "first", "--thread", "t1", "--new", "--file", "folder", "b.md")
    second = deerflow("run", "second", "--thread", "t1", "--no-subagents")

    assert (first.exit_code, second.exit_code) == (0, 0), first.output + second.output
    assert "/mnt/user-data/workspace/folder/" in model.requests[0].asked
    assert "b.md" in json.dumps(model.requests[0].body)
    assert ["task" in request.tools for request in model.requests] == [True, True, False]
    data = home / ".deer-flow/users/default/threads/t1/user-data"
    assert sorted(path.name for path in (data / "workspace/folder").iterdir()) == ["a.md"]
    assert [path.name for path in (data / "uploads").iterdir()] == ["b.md"]


def test_a_host_of_another_machine_is_named_with_the_way_out(
    deerflow: Any, config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DEER_FLOW_AUTH_DISABLED", "1")

    result = deerflow("serve", "--host", "192.0.2.1")  # an address for documents: nobody has it

    assert result.exit_code == 1
    assert "cannot listen on 192.0.2.1:2026" in result.output
    assert "Choose an address of this machine with --host" in result.output


def test_a_port_in_use_is_named_with_the_way_out(deerflow: Any, config: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        result = deerflow("serve", "--port", port)

    assert result.exit_code == 1
    assert f"127.0.0.1:{port}" in result.output
    assert "--port" in result.output


def test_the_doctor_is_content_with_good_settings(deerflow: Any, config: Path, home: Path) -> None:
    result = deerflow("doctor")

    assert result.exit_code == 0, result.output
    assert "Everything that is configured works." in result.output
    for word in (str(config), "scripted (langchain_openai:ChatOpenAI)", "database", "GB free"):
        assert word in result.output
    assert "sk-test" not in result.output


def test_the_doctor_names_what_is_broken(deerflow: Any, home: Path) -> None:
    write_config(home, None, models=[{"name": "x", "use": "no_such_package:Model", "model": "m"}])
    unbuildable = deerflow("doctor")
    (home / "config.yaml").write_text("sandbox: {use: local}\nmodels: [{name: x}]\n")
    invalid = deerflow("doctor")
    (home / "config.yaml").write_text("sandbox: {use: local}\nsandboxes: 1\n")
    odd = deerflow("doctor")

    assert (unbuildable.exit_code, "no_such_package" in unbuildable.output) == (1, True), unbuildable.output
    assert (invalid.exit_code, "models[0]" in invalid.output or "models.0" in invalid.output) == (1, True)
    assert "thing(s) to fix" in invalid.output
    assert (odd.exit_code, "did you mean sandbox" in odd.output) == (1, True), odd.output


def test_the_doctor_reports_skills_with_file_line_and_reason(deerflow: Any, config: Path, home: Path) -> None:
    texts = {"good": "name: good\ndescription: Works.", "bad": "name: bad\ndescription: [a"}
    texts["odd"] = "name: odd\ndescription: Use when: odd"
    for name, matter in texts.items():
        folder = home / "skills" / "public" / name
        folder.mkdir(parents=True)
        (folder / "SKILL.md").write_text(f"---\n{matter}\n---\n")

    result = deerflow("doctor")

    lines = [line for line in result.output.splitlines() if " skills  " in line]
    assert result.exit_code == 0, result.output  # everything works without the one that is skipped
    assert any("2 found, 2 enabled" in line for line in lines), lines
    assert any("skipped: " in line and "bad/SKILL.md line 3: " in line for line in lines), lines
    assert any("warning: " in line and "odd/SKILL.md line 3: 'description'" in line for line in lines), lines


def test_the_doctor_says_what_to_do_about_tools_that_are_not_there(deerflow: Any, home: Path) -> None:
    web = {"web_capture": "browserless", "browser_click": "browser_automation"}
    tools = [
        {"name": name, "group": "web", "use": f"deerflow.community.{package}.tools:{name}_tool"}
        for name, package in web.items()
    ]
    mine = {"name": "mine", "group": "own", "use": "module_of_mine.tools:mine"}
    write_config(home, None, tools=[*tools, mine])

    lines = deerflow("doctor").output.splitlines()

    first = next(number for number, line in enumerate(lines) if "tools[" in line)
    for line, tool in zip(lines[first:], tools, strict=False):
        said = f"use: '{tool['use']}' is of DeerFlow 2, and this version does not have it"
        assert line == f"  ✗ tools[{tool['name']}]  left out: {said}"
    assert lines[first + 2].startswith(
        "    → take the entry out; an MCP server can offer such a tool instead"
    )
    assert "for a module of your own, add its folder to PYTHONPATH" in lines[first + 3]
    assert "pip install" not in "".join(lines[first : first + 3])


def test_the_doctor_names_a_search_provider_without_a_key(deerflow: Any, home: Path) -> None:
    keyless = {"name": "web_search", "use": "deerflow.community.tavily.tools:web_search_tool"}
    local = [
        {"name": "web_fetch"},
        {"name": "image_search", "use": "searxng", "base_url": "http://127.0.0.1:9"},
    ]
    write_config(home, None, tools=[keyless, *local])
    said = deerflow("doctor").output
    (home / ".env").write_text("TAVILY_API_KEY=tvly-x\n")
    then = deerflow("doctor").output

    assert "tools[web_search]  tavily has no key: it will refuse requests" in said
    assert "set `api_key` of the entry, or the variable TAVILY_API_KEY" in said
    assert "tools[" not in then


def test_the_doctor_asks_the_servers_of_all_models(deerflow: Any, home: Path) -> None:
    gone = {
        "use": "langchain_openai:ChatOpenAI",
        "model": "m",
        "base_url": "http://me:hunter2@127.0.0.1:9/v1",
    }
    offline = {"name": "offline", "use": "deerflow.models.offline:OfflineChatModel", "model": "offline"}
    write_config(home, None, models=[{"name": "gone", "api_key": "sk-x", **gone}, offline])
    needed = deerflow("doctor")
    write_config(home, None, models=[offline, {"name": "gone", "api_key": "sk-x", **gone}])
    beside = deerflow("doctor")

    said = "gone: http://(hidden)@127.0.0.1:9/v1 cannot be reached; check `base_url`"
    assert (needed.exit_code, said in needed.output) == (1, True), needed.output
    assert (beside.exit_code, said in beside.output) == (1, True), beside.output
    assert "hunter2" not in needed.output + beside.output


def test_the_doctor_finds_a_database_that_is_none(deerflow: Any, config: Path, home: Path) -> None:
    (home / ".deer-flow/data").mkdir(parents=True)
    (home / ".deer-flow/data/deerflow.db").write_bytes(b"this is no database at all" * 100)

    result = deerflow("doctor")

    assert (result.exit_code, "✗" in result.output) == (1, True), result.output
    assert "Traceback" not in result.output


def test_ctrl_c_while_a_command_is_loaded_ends_without_a_traceback(
    deerflow: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    during = []

    def load(name: str) -> Any:
        during.append(signal.getsignal(signal.SIGINT))
        return SimpleNamespace(execute=work)

    def work(**options: Any) -> int:
        during.append(signal.getsignal(signal.SIGINT))
        return 0

    before = signal.getsignal(signal.SIGINT)
    monkeypatch.setattr(commands, "import_module", load)

    with end_on_interrupt():
        result = deerflow("doctor")

    assert result.exit_code == 0
    assert during == [signal.SIG_DFL, signal.default_int_handler]
    assert signal.getsignal(signal.SIGINT) is before


def test_ctrl_c_before_the_command_line_is_loaded_ends_without_a_traceback(home: Path) -> None:
    # Its own first import of note sends the signal: that is as early as a person can be too early.
    early = """
import os, signal, sys

class Finder:
    def find_spec(self, name, *rest):
        if name == "typer":
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Finder())
from deerflow.cli import main
main()
"""

    ended = subprocess.run([sys.executable, "-c", early], capture_output=True, text=True, check=False)

    assert (ended.returncode, ended.stdout, ended.stderr) == (-signal.SIGINT, "", "")
