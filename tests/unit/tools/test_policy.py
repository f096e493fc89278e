"""Rules about tool calls: what fits, what does not, and what happens without any."""

from pathlib import Path
from typing import Any, ClassVar

import pytest
from langchain_core.tools import BaseTool, tool

from deerflow.config import SandboxSettings
from deerflow.config.auth import ProviderSettings
from deerflow.config.tools import GuardrailRule, GuardrailsSettings
from deerflow.domain import ThreadFolders
from deerflow.errors import ConfigError
from deerflow.sandbox.local import LocalSandbox, files_of
from deerflow.sandbox.paths import thread_paths
from deerflow.tools.edits import edit_files_tool
from deerflow.tools.files import read_file_tool, write_file_tool
from deerflow.tools.policy import ACTS_OUTSIDE, Policy, PolicyCall, all_texts, whole_text
from deerflow.tools.policy_provider import (
    AllowlistProvider,
    GuardrailDecision,
    GuardrailRequest,
    ask_provider,
    make_provider,
    words,
)
from deerflow.tools.shell import bash_tool, python_tool


@tool
def send(text: str, description: str = "") -> str:
    """Send something."""
    return text


def decide(rules: list[dict[str, Any]], name: str = "bash", /, **args: Any) -> str:
    policy = Policy([GuardrailRule.model_validate(rule) for rule in rules])
    return policy.decide(PolicyCall(name, args)).action


def of(tool: BaseTool | None, name: str = "bash", **args: Any) -> PolicyCall:
    return PolicyCall.of(name, args, tool, sandbox=None)  # type: ignore[arg-type]


def test_the_first_rule_that_fits_decides() -> None:
    rules = [{"tool": "bash", "pattern": "ls", "action": "allow"}, {"tool": "*", "action": "deny"}]

    assert decide(rules, command="ls") == "allow"
    assert decide(rules, command="rm") == "deny"
    assert decide(list(reversed(rules)), command="ls") == "deny"


@pytest.mark.parametrize(
    ("tool", "name", "fits"),
    [
        ("bash", "bash", True),
        ("bash", "bashful", False),
        ("mail_*", "mail_send", True),
        ("mail_*", "email_send", False),
        ("*_send", "mail_send", True),
        ("a*c", "abbbc", True),
        ("*", "anything", True),
        ("b.sh", "bash", False),
        ("[b]ash", "bash", False),
    ],
)
def test_a_star_stands_for_any_part_of_a_tools_name_and_nothing_else_is_special(
    tool: str, name: str, fits: bool
) -> None:
    assert (decide([{"tool": tool, "action": "deny"}], name) == "deny") is fits


@pytest.mark.parametrize(
    "command",
    ["git status; id", "id; git status", "git status\nid", "git status && git status", "git statusx"],
)
def test_an_allow_lets_nothing_ride_along(command: str) -> None:
    rules = [{"tool": "bash", "pattern": "git status", "action": "allow"}, {"tool": "*", "action": "deny"}]

    assert decide(rules, command="git status") == "allow"
    assert decide(rules, command=command) == "deny"


def test_an_allow_does_not_fit_when_arguments_are_added() -> None:
    rules = [{"tool": "bash", "pattern": "git status", "action": "allow"}, {"tool": "*", "action": "ask"}]

    assert decide(rules, command="id", note="git status") == "ask"
    assert decide(rules, command="git status", note="") == "ask"


@pytest.mark.parametrize("action", ["deny", "ask"])
@pytest.mark.parametrize(
    "args",
    [
        {"command": "echo `shutdown`"},
        {"command": "x\nshutdown"},
        {"command": "x", "more": "shutdown"},
        {"deep": {"list": [1, {"text": "shutdown"}]}},
        {"deep": {"shutdown": 1}},
    ],
)
def test_a_deny_or_an_ask_finds_its_part_wherever_it_stands(action: str, args: dict[str, Any]) -> None:
    assert decide([{"tool": "*", "pattern": "shutdown", "action": action}], **args) == action


def test_an_anchored_deny_is_not_lost_by_an_added_argument() -> None:
    assert decide([{"tool": "*", "pattern": "^rm ", "action": "deny"}], command="rm -r", more="x") == "deny"


def test_several_arguments_are_read_as_json_with_sorted_keys() -> None:
    assert whole_text({"path": "/a", "content": 'x "y"'}) == '{"content":"x \\"y\\"","path":"/a"}'
    assert whole_text({"count": 3}) == '{"count":3}'
    assert whole_text({}) == "{}"
    assert list(all_texts({"a": "b"})) == ["b", "b"]


def test_the_label_of_our_own_tools_is_no_part_of_a_call_but_others_arguments_are() -> None:
    one = of(bash_tool, command="ls", description="Look")
    other = of(bash_tool, command="ls", description="See")

    assert one.hash == other.hash
    assert one.args == {"command": "ls"}
    assert (
        of(send, "send", text="x", description="a").hash != of(send, "send", text="x", description="b").hash
    )


def test_a_hash_stands_for_name_and_arguments_whatever_their_order() -> None:
    assert PolicyCall("a", {"x": 1, "y": 2}).hash == PolicyCall("a", {"y": 2, "x": 1}).hash
    assert len({PolicyCall(n, a).hash for n, a in [("a", {"x": 1}), ("b", {"x": 1}), ("a", {"x": "1"})]}) == 3


def test_without_rules_only_the_host_and_the_outside_are_asked_about() -> None:
    policy = Policy()

    assert policy.decide(PolicyCall("bash", {})).action == "allow"
    assert policy.decide(PolicyCall("bash", {}, is_on_host=True)).action == "ask"
    assert policy.decide(PolicyCall("pay", {}, acts_outside=True)).action == "ask"


@pytest.mark.parametrize(
    ("hints", "outside"),
    [
        ({ACTS_OUTSIDE: True}, True),
        ({"destructiveHint": True}, True),
        ({"destructiveHint": False}, False),
        ({"destructiveHint": "yes"}, False),
        ({}, False),
    ],
)
def test_a_tool_says_itself_that_it_acts_outside(hints: dict[str, Any], outside: bool) -> None:
    assert of(send.model_copy(update={"metadata": hints}), "send").acts_outside is outside
    assert of(send.model_copy(update={"extras": hints}), "send").acts_outside is outside


@pytest.mark.parametrize(
    ("rules", "action"),
    [
        ([{"tool": "bash", "action": "deny"}], "deny"),
        ([{"tool": "bash", "pattern": "shutdown", "action": "ask"}], "ask"),
        (
            [
                {"tool": "bash", "pattern": "git status", "action": "allow"},
                {"tool": "bash", "action": "deny"},
            ],
            "deny",
        ),
        ([{"tool": "python", "action": "allow"}, {"tool": "bash", "action": "deny"}], "allow"),
        ([{"tool": "read_*", "action": "deny"}], "allow"),
    ],
)
def test_what_a_shell_may_not_do_a_program_may_not_do_for_it(
    rules: list[dict[str, Any]], action: str
) -> None:
    policy = Policy([GuardrailRule.model_validate(rule) for rule in rules])

    assert policy.decide(of(python_tool, "python", code="import os; os.system('shutdown')")).action == action


def test_a_rule_can_allow_what_would_be_asked() -> None:
    rules = [GuardrailRule(tool="bash", action="allow")]

    assert Policy(rules).decide(PolicyCall("bash", {"command": "id"}, is_on_host=True)).action == "allow"


@pytest.mark.parametrize(
    ("config", "tool", "allowed"),
    [
        ({}, "bash", True),
        ({"denied_tools": ["bash"]}, "bash", False),
        ({"allowed_tools": ["ls"]}, "bash", False),
        ({"allowed_tools": ["ls"]}, "ls", True),
        ({"allowed_tools": []}, "ls", False),
        ({"allowed_tools": ["ls"], "denied_tools": ["ls"]}, "ls", False),
    ],
)
async def test_the_allowlist_provider_knows_names(config: dict[str, Any], tool: str, allowed: bool) -> None:
    decision = await ask_provider(AllowlistProvider(**config), GuardrailRequest(tool, {}))

    assert decision.allow is allowed
    assert allowed or tool in words(decision)


class Later:
    seen: ClassVar[list[GuardrailRequest]] = []

    async def aevaluate(self, request: GuardrailRequest) -> GuardrailDecision:
        self.seen.append(request)
        return GuardrailDecision(False)


class Mute:
    def evaluate(self, request: GuardrailRequest) -> None:
        """Return nothing."""


async def test_who_denies_the_shell_denies_programs_too() -> None:
    provider = AllowlistProvider(denied_tools=["bash"])

    decision = await ask_provider(provider, GuardrailRequest("python", {"code": "1"}))

    assert (decision.allow, words(decision)) == (False, "bash is in denied_tools")


async def test_a_provider_may_be_async_and_must_decide() -> None:
    assert words(await ask_provider(Later(), GuardrailRequest("x", {}))) == (
        "the guardrail provider gave no reason"
    )
    with pytest.raises(TypeError, match="Mute returned no decision"):
        await ask_provider(Mute(), GuardrailRequest("x", {}))


@pytest.mark.parametrize(
    ("use", "config", "words"),
    [
        ("deerflow.guardrails.builtin:AllowlistProvider", {"colour": "red"}, "does not fit"),
        ("builtins:dict", {}, "neither"),
        ("no_such_module:Thing", {}, "no_such_module"),
    ],
)
def test_a_provider_that_cannot_be_made_is_refused(use: str, config: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        make_provider(GuardrailsSettings(enabled=True, provider=ProviderSettings(use=use, config=config)))


def test_a_provider_is_only_made_when_it_is_switched_on() -> None:
    provider = ProviderSettings(use="no_such_module:Thing")

    assert make_provider(GuardrailsSettings(provider=provider)) is None
    assert make_provider(GuardrailsSettings(enabled=True)) is None


OUTPUTS = "/mnt/user-data/outputs"


@pytest.mark.parametrize(
    "path", [f"{OUTPUTS}/x.md", "//mnt/user-data//outputs/x.md", "/mnt/./user-data/a/../outputs/./x.md"]
)
@pytest.mark.parametrize("form", ["write", "edit", "patch", "present"])
def test_rules_see_paths_as_the_file_system_reads_them(path: str, form: str) -> None:
    called: dict[str, PolicyCall] = {
        "write": of(write_file_tool, "write_file", path=path, content="x", description=""),
        "edit": of(edit_files_tool, "edit_files", edits=[{"path": path, "old_str": "a", "new_str": "b"}]),
        "patch": of(edit_files_tool, "edit_files", patch=f"--- {path}\n+++ {path}\n@@ -1 +1 @@\n-a\n+b\n"),
        "present": of(None, "present_files", filepaths=[path]),
    }
    deny = GuardrailRule(tool="*", pattern=rf"{OUTPUTS}/x\.md", action="deny")
    allow = [GuardrailRule(tool="*", pattern=".*", action="allow"), GuardrailRule(tool="*", action="deny")]

    assert Policy([deny]).decide(called[form]).action == "deny"
    is_plain = path == f"{OUTPUTS}/x.md"
    assert Policy(allow).decide(called[form]).action == ("allow" if is_plain and form != "patch" else "deny")


@pytest.mark.parametrize(
    ("path", "obeyed"),
    [
        ("workspace/.git/config", True),
        ("workspace/sub/.GIT/hooks/pre-commit", True),
        ("workspace/x/../.bashrc", True),
        ("workspace/.vscode/tasks.json", True),
        ("workspace/bin/ls", True),
        ("workspace/lib/evil.pth", True),
        ("workspace/.git", True),
        ("workspace/git/config", False),
        ("outputs/report.md", False),
        ("workspace/Makefile", False),
    ],
)
def test_on_the_host_writes_to_files_that_programs_obey_are_asked_about(
    path: str, obeyed: bool, tmp_path: Path
) -> None:
    path = f"/mnt/user-data/{path}"
    patch = f"--- /dev/null\n+++ b{path}\n@@ -0,0 +1 @@\n+x\n"

    def action(sandbox: Any, name: str, tool: BaseTool, **args: Any) -> str:
        return Policy().decide(PolicyCall.of(name, args, tool, sandbox)).action

    with_shell = host_sandbox(tmp_path, allow_host_bash=True)
    without = host_sandbox(tmp_path, allow_host_bash=False)
    assert (action(with_shell, "write_file", write_file_tool, path=path, content="x") == "ask") is obeyed
    assert (action(with_shell, "edit_files", edit_files_tool, patch=patch) == "ask") is obeyed
    assert action(with_shell, "read_file", read_file_tool, path=path) == "allow"
    assert action(without, "write_file", write_file_tool, path=path, content="x") == "allow"


async def test_git_runs_nothing_that_a_repository_names(tmp_path: Path) -> None:
    sandbox = host_sandbox(tmp_path, allow_host_bash=True)
    planted = "core.fsmonitor 'touch /mnt/user-data/workspace/planted; false'"
    made = f"git init -q . && git config {planted} && git init -q --bare bare && git -C bare config {planted}"
    await sandbox.execute_command(f"cd /mnt/user-data/workspace && {made}", timeout=60)

    looked = await sandbox.execute_command(
        "git status --short; cd bare && git status --short; cd .. && ls", timeout=60
    )

    assert "planted" not in looked.output
    assert "bare" in looked.output


@pytest.mark.parametrize(("action", "decided"), [("deny", "deny"), ("ask", "ask"), ("allow", "deny")])
def test_a_pattern_that_takes_too_long_decides_for_caution(action: str, decided: str) -> None:
    slow = {"tool": "bash", "pattern": "(?:x+x+)+y", "action": action}
    policy = Policy([GuardrailRule.model_validate(rule) for rule in (slow, {"tool": "*", "action": "deny"})])

    assert policy.decide(PolicyCall("bash", {"command": "x" * 90_000}), seconds=0.05).action == decided


def host_sandbox(tmp_path: Path, *, allow_host_bash: bool) -> LocalSandbox:
    folders = ThreadFolders("t1", tmp_path)
    folders.create()
    settings = SandboxSettings(use="local", allow_host_bash=allow_host_bash)
    return LocalSandbox(files_of(thread_paths(folders)), settings)
