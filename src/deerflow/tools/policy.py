"""Decides by rule whether a tool call may run, must not, or needs a person's word.

Rules see a call in two forms. An `allow` must describe the whole of what it lets through, so that nothing
can ride along; a `deny` or an `ask` only has to find its part, wherever in the arguments it stands.
"""

import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import orjson
from langchain_core.tools import BaseTool

from deerflow.config.guardrails import GuardrailRule
from deerflow.sandbox import Sandbox
from deerflow.sandbox.local import LocalSandbox
from deerflow.tools.define import Described
from deerflow.tools.python import PythonArguments
from deerflow.tools.shell import BashArguments

Action = Literal["allow", "deny", "ask"]
ReasonCode = Literal["", "rule", "host", "outside"]

ACTS_OUTSIDE = "acts_outside"
"""The key of a tool's metadata that says: it sends, pays or changes something out in the world."""
_OUTSIDE_HINTS = (ACTS_OUTSIDE, "destructiveHint")
"""Ours, and what MCP servers say of their tools."""
_LABEL = "description"
SHELL = "bash"
PYTHON = "python"


@dataclass(frozen=True, slots=True)
class Call:
    """One tool call as it would run."""

    name: str
    args: Mapping[str, Any]
    """Without the step's label, which changes nothing about what happens."""
    is_on_host: bool = False
    acts_outside: bool = False
    stands_for: str = ""
    """Another tool whose rules count as well: what a shell may not do, a program must not do for it."""

    @classmethod
    def of(cls, name: str, args: Mapping[str, Any], tool: BaseTool | None, sandbox: Sandbox) -> "Call":
        """Return the call of `tool` in `sandbox`; None stands for a tool that does not exist."""
        return cls(
            name,
            {key: value for key, value in args.items() if key != _LABEL or not _has_label(tool)},
            is_on_host=_takes(tool, BashArguments, PythonArguments) and _is_bare(sandbox),
            acts_outside=_acts_outside(tool),
            stands_for=SHELL if _takes(tool, PythonArguments) else "",
        )

    @property
    def hash(self) -> str:
        """What stands for exactly this call: a SHA-256 over its name and arguments."""
        whole = orjson.dumps([self.name, self.args], option=_SORTED, default=str)
        return hashlib.sha256(whole).hexdigest()


@dataclass(frozen=True, slots=True)
class Verdict:
    """What is to happen to a call, and why."""

    action: Action
    reason: str = ""
    """In words."""
    code: ReasonCode = ""
    """For clients that have words of their own."""
    rule: int = 0
    """The number of the rule that decided, from 1; 0 when none did."""


class Policy:
    """The rules of one value of the settings; the first that fits decides."""

    def __init__(self, rules: Sequence[GuardrailRule] = ()) -> None:
        self._rules = [_Rule.of(rule, number) for number, rule in enumerate(rules, 1)]

    def decide(self, call: Call) -> Verdict:
        """Return what is to happen to a call."""
        for rule in self._rules:
            if rule.fits(call):
                words = _BY_RULE[rule.action].format(number=rule.number)
                return Verdict(rule.action, words, "rule", rule.number)
        if call.is_on_host:
            return Verdict("ask", "the command would run on the host itself, without any isolation", "host")
        if call.acts_outside:
            return Verdict("ask", "the tool changes something outside that cannot be taken back", "outside")
        return Verdict("allow")


_BY_RULE: Mapping[Action, str] = {
    "allow": "the settings allow it (guardrails.rules, number {number})",
    "ask": "the settings say that a person decides about it (guardrails.rules, number {number})",
    "deny": "the settings do not allow it (guardrails.rules, number {number})",
}


@dataclass(frozen=True, slots=True)
class _Rule:
    number: int
    tool: re.Pattern[str]
    pattern: re.Pattern[str] | None
    action: Action

    @classmethod
    def of(cls, rule: GuardrailRule, number: int) -> "_Rule":
        parts = [re.escape(part) for part in rule.tool.split("*")]
        pattern = None if rule.pattern is None else re.compile(rule.pattern)
        return cls(number, re.compile(".*".join(parts), re.DOTALL), pattern, rule.action)

    def fits(self, call: Call) -> bool:
        if not any(self.tool.fullmatch(name) for name in (call.name, call.stands_for) if name):
            return False
        if self.pattern is None:
            return True
        if self.action == "allow":
            return self.pattern.fullmatch(whole_text(call.args)) is not None
        return any(self.pattern.search(text) for text in all_texts(call.args))


_SORTED = orjson.OPT_SORT_KEYS | orjson.OPT_NON_STR_KEYS


def whole_text(args: Mapping[str, Any]) -> str:
    """Return all that a call says: its only argument where that is text, else JSON with sorted keys."""
    values = list(args.values())
    if len(values) == 1 and isinstance(values[0], str):
        return values[0]
    return orjson.dumps(args, option=_SORTED, default=str).decode()


def all_texts(args: Mapping[str, Any]) -> Iterator[str]:
    """Return everything in a call that a rule may search: the whole, then each text at any depth."""
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


def _has_label(tool: BaseTool | None) -> bool:
    return _takes(tool, Described)


def _takes(tool: BaseTool | None, *arguments: type) -> bool:
    schema = tool.args_schema if tool is not None else None
    return isinstance(schema, type) and issubclass(schema, arguments)


def _is_bare(sandbox: Sandbox) -> bool:
    """Tell whether commands would run on the host; where none can run, the tool itself says why."""
    return isinstance(sandbox, LocalSandbox) and sandbox.refusal is None


def _acts_outside(tool: BaseTool | None) -> bool:
    hints = {**(tool.metadata or {}), **(tool.extras or {})} if tool is not None else {}
    return any(hints.get(hint) is True for hint in _OUTSIDE_HINTS)
