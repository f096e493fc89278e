"""Decides by rule whether a tool call is allowed, denied or needs approval.

Rules match a call in two ways. An `allow` must match the whole of the arguments, so that nothing else passes
with them; a `deny` or an `ask` only has to match a part, anywhere in the arguments.

Paths are normalised before matching: `//outputs` and `/x/../outputs` are `/outputs`. A pattern that times out
on a model's arguments decides for caution: it denies or asks, and allows nothing.

Without a rule, approval is needed to write a file that programs on the host load on their own. That controls
what the next harmless command does: a `.git/config` can name a program that `git status` runs.
"""

import hashlib
import itertools
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, cast

import orjson
from langchain_core.tools import BaseTool

from deerflow.config.tools import GuardrailRule
from deerflow.sandbox import Sandbox
from deerflow.sandbox.local import LocalSandbox
from deerflow.tools.define import AsksFirst, Described
from deerflow.tools.edits import normal_path, patch_paths
from deerflow.tools.shell import BashArguments, PythonArguments

if TYPE_CHECKING:
    import regex

Action = Literal["allow", "deny", "ask"]
ReasonCode = Literal[
    "", "rule", "host", "outside", "obeyed_file", "skill_create", "skill_change", "skill_delete"
]

ACTS_OUTSIDE = "acts_outside"
"""Metadata key of a tool that sends, pays or changes something outside."""
_OUTSIDE_HINTS = (ACTS_OUTSIDE, "destructiveHint")
"""DeerFlow's own metadata key, and the hint of MCP servers."""
_LABEL = "description"
PATTERN_SECONDS = 2.0
EDIT_FILES = "edit_files"
_WRITING = frozenset({"write_file", "str_replace", EDIT_FILES})
_PATH_TOOLS = frozenset({"present_files", "view_image"})
SHELL = "bash"
PYTHON = "python"


@dataclass(frozen=True, slots=True)
class PolicyCall:
    """One tool call as it would run."""

    name: str
    args: Mapping[str, Any]
    """The arguments without the step's label, which has no effect."""
    is_on_host: bool = False
    acts_outside: bool = False
    stands_for: str = ""
    """Another tool whose rules also apply: what `bash` may not do, a Python program must not do either."""
    paths: tuple[str, ...] = ()
    """The files that DeerFlow's own tools would access, as written in the call."""
    asked_about: ReasonCode = ""
    """Why the tool itself wants a person's approval of this call; empty if it wants none."""
    obeyed_file: str = ""
    """A file that it would write on the host and that other programs execute or read as configuration."""

    @classmethod
    def of(cls, name: str, args: Mapping[str, Any], tool: BaseTool | None, sandbox: Sandbox) -> "PolicyCall":
        """Return the call of `tool` in `sandbox`; None means that the tool does not exist."""
        paths = _paths_in(name, args) if _has_label(tool) or name in _PATH_TOOLS else ()
        writes = name in _WRITING and _is_bare(sandbox)
        return cls(
            name,
            {key: value for key, value in args.items() if key != _LABEL or not _has_label(tool)},
            is_on_host=_takes(tool, BashArguments, PythonArguments) and _is_bare(sandbox),
            acts_outside=_acts_outside(tool),
            asked_about=_asked_about(tool, args),
            stands_for=SHELL if _takes(tool, PythonArguments) else "",
            paths=paths,
            obeyed_file=next((path for path in paths if is_auto_loaded(path)), "") if writes else "",
        )

    @property
    def hash(self) -> str:
        """Identifies exactly this call: a SHA-256 over its name and arguments."""
        whole = orjson.dumps([self.name, self.args], option=_SORTED, default=str)
        return hashlib.sha256(whole).hexdigest()


@dataclass(frozen=True, slots=True)
class PolicyDecision:
    """The decision about a call, and its reason."""

    action: Action
    reason: str = ""
    """As text for people."""
    code: ReasonCode = ""
    """As a code, for clients with their own texts."""
    rule: int = 0
    """The 1-based number of the rule that decided; 0 if none did."""


class Policy:
    """The rules of one version of the settings; the first that matches decides."""

    def __init__(self, rules: Sequence[GuardrailRule] = ()) -> None:
        self._rules = [_Rule.of(rule, number) for number, rule in enumerate(rules, 1)]

    @property
    def has_patterns(self) -> bool:
        """Whether a rule has a pattern, so that deciding may be slow."""
        return any(rule.pattern is not None for rule in self._rules)

    def decide(self, call: PolicyCall, *, seconds: float = PATTERN_SECONDS) -> PolicyDecision:
        """Return the decision about a call.

        Args:
            seconds: The timeout for all patterns together; after it, rules decide for caution.
        """
        until = time.monotonic() + seconds
        for rule in self._rules:
            if rule.fits(call, until):
                words = _BY_RULE[rule.action].format(number=rule.number)
                return PolicyDecision(rule.action, words, "rule", rule.number)
        if call.is_on_host:
            return PolicyDecision(
                "ask", "the command would run on the host itself, without any isolation", "host"
            )
        if call.obeyed_file:
            words = f"programs on the host execute or obey {call.obeyed_file}"
            return PolicyDecision("ask", words, "obeyed_file")
        if call.acts_outside:
            return PolicyDecision(
                "ask", "the tool changes something outside that cannot be taken back", "outside"
            )
        if call.asked_about:
            return PolicyDecision("ask", _ASKED_ABOUT[call.asked_about], call.asked_about)
        return PolicyDecision("allow")


_ASKED_ABOUT: Mapping[ReasonCode, str] = {
    "skill_create": "the agent would add a skill, which all later conversations can use",
    "skill_change": "the agent would change a skill for all later conversations, without a comparison",
    "skill_delete": "the agent would delete a skill",
}
_BY_RULE: Mapping[Action, str] = {
    "allow": "rule {number} of guardrails.rules allows it",
    "ask": "rule {number} of guardrails.rules leaves calls like this one to a person",
    "deny": "rule {number} of guardrails.rules does not allow it",
}


@dataclass(frozen=True, slots=True)
class _Rule:
    number: int
    tool: re.Pattern[str]
    pattern: "regex.Pattern[str] | None"
    action: Action

    @classmethod
    def of(cls, rule: GuardrailRule, number: int) -> "_Rule":
        parts = [re.escape(part) for part in rule.tool.split("*")]
        return cls(number, re.compile(".*".join(parts), re.DOTALL), _compiled(rule.pattern), rule.action)

    def fits(self, call: PolicyCall, until: float) -> bool:
        if not any(self.tool.fullmatch(name) for name in (call.name, call.stands_for) if name):
            return False
        if self.pattern is None:
            return True
        try:
            return self._is_matched(self.pattern, call, until)
        except TimeoutError:
            return self.action != "allow"

    def _is_matched(self, pattern: "regex.Pattern[str]", call: PolicyCall, until: float) -> bool:
        def left() -> float:
            return max(until - time.monotonic(), 0.001)

        # `concurrent` releases the GIL, so that a long search does not block other threads.
        if self.action == "allow":
            if any(path != normal_path(path) for path in call.paths):
                return False  # the path as written is not the path that would be accessed
            text = whole_text(call.args)
            return pattern.fullmatch(text, timeout=left(), concurrent=True) is not None
        texts = itertools.chain(all_texts(call.args), map(normal_path, call.paths))
        return any(pattern.search(text, timeout=left(), concurrent=True) for text in texts)


def _compiled(pattern: str | None) -> "regex.Pattern[str] | None":
    if pattern is None:
        return None
    import regex  # noqa: PLC0415 - takes 3 MB, and most settings have no patterns

    return regex.compile(pattern)


_SORTED = orjson.OPT_SORT_KEYS | orjson.OPT_NON_STR_KEYS


def whole_text(args: Mapping[str, Any]) -> str:
    """Return the arguments as text: the only argument if it is text, else JSON with sorted keys."""
    values = list(args.values())
    if len(values) == 1 and isinstance(values[0], str):
        return values[0]
    return orjson.dumps(args, option=_SORTED, default=str).decode()


def all_texts(args: Mapping[str, Any]) -> Iterator[str]:
    """Yield every text that a rule may search: the whole, then each string at any depth."""
    yield whole_text(args)
    waiting: list[Any] = list(args.values())
    while waiting:
        value = waiting.pop()
        if isinstance(value, str):
            yield value
        elif isinstance(value, Mapping):
            waiting += [*value.keys(), *value.values()]
        elif isinstance(value, list | tuple):
            waiting += value


def _paths_in(name: str, args: Mapping[str, Any]) -> tuple[str, ...]:
    if name == EDIT_FILES:
        edits = args.get("edits")
        raw = (
            [each.get("path") for each in edits if isinstance(each, Mapping)]
            if isinstance(edits, list)
            else []
        )
        patch = args.get("patch")
        raw += patch_paths(patch) if isinstance(patch, str) else []
    else:
        found = args.get("filepaths", args.get("path", args.get("image_path")))
        raw = _listed(found) or [found]
    return tuple(path for path in raw if isinstance(path, str))


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _has_label(tool: BaseTool | None) -> bool:
    return _takes(tool, Described)


def _takes(tool: BaseTool | None, *arguments: type) -> bool:
    schema = tool.args_schema if tool is not None else None
    return isinstance(schema, type) and issubclass(schema, arguments)


def _is_bare(sandbox: Sandbox) -> bool:
    """Return whether commands would run on the host; if none can run, the tool itself reports why."""
    return isinstance(sandbox, LocalSandbox) and sandbox.refusal is None


def _asked_about(tool: BaseTool | None, args: Mapping[str, Any]) -> ReasonCode:
    schema = tool.args_schema if tool is not None else None
    if not isinstance(schema, type) or not issubclass(schema, AsksFirst):
        return ""
    return cast("ReasonCode", schema.asked_about(args))


def _acts_outside(tool: BaseTool | None) -> bool:
    hints = {**(tool.metadata or {}), **(tool.extras or {})} if tool is not None else {}
    return any(hints.get(hint) is True for hint in _OUTSIDE_HINTS)


_FOLDER_NAMES = """
.git .hg .svn .bzr .jj .husky .githooks hooks .vscode .idea .devcontainer .zed .fleet .config .ssh
.gnupg .aws .docker .kube .direnv .mise .asdf .cargo .npm .yarn .m2 .gradle .bundle .claude .agents
.cursor .codex bin sbin site-packages dist-packages autostart systemd launchagents
"""
_FILE_NAMES = """
.bashrc .bash_profile .bash_login .bash_logout .bash_aliases .profile .zshrc .zshenv .zprofile
.zlogin .zlogout .kshrc .cshrc .tcshrc .login .logout .inputrc .xinitrc .xprofile .xsession .vimrc
.gvimrc .exrc .nvimrc .nanorc .emacs .dir-locals.el .screenrc .tmux.conf .gitconfig .gitattributes
.gitmodules .hgrc .envrc .env .npmrc .yarnrc .yarnrc.yml .pnpmfile.cjs .pnp.cjs .pypirc .pythonrc
.pythonrc.py sitecustomize.py usercustomize.py .curlrc .wgetrc .netrc .gdbinit .lldbinit .ripgreprc
.editorconfig .tool-versions .pre-commit-config.yaml
"""
AUTO_LOADED_FOLDERS = frozenset(_FOLDER_NAMES.split())
"""Folders whose files programs read as configuration, or run."""
AUTO_LOADED_FILES = frozenset(_FILE_NAMES.split())
"""Files that shells, editors and other programs read automatically."""
AUTO_LOADED_ENDINGS = (".pth",)


def is_auto_loaded(path: str) -> bool:
    """Return whether a path is such a file; case-insensitive, like some file systems."""
    *folders, name = normal_path(path).casefold().split("/")
    return (
        name in AUTO_LOADED_FILES
        or name.endswith(AUTO_LOADED_ENDINGS)
        or not AUTO_LOADED_FOLDERS.isdisjoint([*folders, name])
    )
