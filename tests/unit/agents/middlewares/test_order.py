"""The chain's order is declared by its members and checked when it is built."""

from typing import get_args

import pytest
from pydantic import ValidationError

from deerflow.agents.middlewares import AgentKind, ChainMiddleware, check_order
from deerflow.agents.middlewares.tool_failures import DanglingToolCallMiddleware
from deerflow.agents.middlewares.untrusted_text import InputSanitizingMiddleware
from deerflow.agents.middlewares.uploads import UploadsMiddleware
from deerflow.config import Settings, Switchable
from deerflow.config.agents import MiddlewaresSettings
from deerflow.lead.chain import build_chain


def chain(kind: AgentKind) -> list[ChainMiddleware]:
    return build_chain(Settings(), kind=kind, model=lambda name: None, subagent_limit=3)  # type: ignore[arg-type,return-value]


def test_a_chain_in_the_wrong_order_is_refused_with_what_to_move() -> None:
    with pytest.raises(ValueError, match="InputSanitizingMiddleware must come before UploadsMiddleware"):
        check_order([UploadsMiddleware(), InputSanitizingMiddleware()])
    with pytest.raises(ValueError, match="UploadsMiddleware must come before DanglingToolCallMiddleware"):
        check_order([DanglingToolCallMiddleware(), UploadsMiddleware()])


def test_middlewares_that_are_switched_off_do_not_matter() -> None:
    check_order([DanglingToolCallMiddleware()])


def test_a_declaration_that_names_nobody_is_refused() -> None:
    lost = DanglingToolCallMiddleware()
    lost.before = ("NobodyMiddleware",)  # type: ignore[misc]

    with pytest.raises(ValueError, match="NobodyMiddleware, which is no middleware"):
        check_order([lost])


@pytest.mark.parametrize("kind", [AgentKind.LEAD, AgentKind.SUBAGENT])
def test_each_kind_of_agent_gets_only_what_is_for_it(kind: AgentKind) -> None:
    built = chain(kind)

    assert all(kind in middleware.applies_to for middleware in built)
    assert len({type(middleware) for middleware in built}) == len(built)


def test_the_chain_has_at_most_one_node() -> None:
    hooks = ("before_agent", "before_model", "after_model", "after_agent")
    nodes = [
        middleware
        for middleware in chain(AgentKind.LEAD)
        if any(
            getattr(type(middleware), name) is not getattr(ChainMiddleware, name)
            for hook in hooks
            for name in (hook, f"a{hook}")
        )
    ]

    assert [type(middleware).__name__ for middleware in nodes] == ["TurnStartMiddleware"]


@pytest.mark.parametrize("name", get_args(Switchable))
@pytest.mark.parametrize("kind", [AgentKind.LEAD, AgentKind.SUBAGENT])
def test_each_effect_can_be_left_out_alone(name: Switchable, kind: AgentKind) -> None:
    settings = Settings(middlewares=MiddlewaresSettings(off=(name,)))

    left = build_chain(settings, kind=kind, model=lambda name: None, subagent_limit=3)  # type: ignore[arg-type,return-value]

    gone = {type(middleware) for middleware in chain(kind)} - {type(middleware) for middleware in left}
    [switched] = [each for each in ChainMiddleware.__subclasses__() if each.switch == name]
    assert gone == ({switched} if kind in switched.applies_to else set())


def test_settings_that_leave_out_what_does_not_exist_say_what_does() -> None:
    with pytest.raises(ValidationError, match="'input_sanitizing'"):
        MiddlewaresSettings.model_validate({"off": ["guardrail"]})
