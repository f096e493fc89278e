"""Defaults for absent request fields: DeerFlow 2 and LangGraph's server differ in a few."""

from dataclasses import dataclass
from typing import Literal

from deerflow.app import DeerFlow
from deerflow.domain import DisconnectMode, MultitaskStrategy


@dataclass(frozen=True, slots=True)
class Contract:
    """The defaults of one of the two; docs/reference/compatibility.md lists them in a table."""

    multitask_strategy: MultitaskStrategy
    """For a run on a thread that has one in flight."""
    on_disconnect: DisconnectMode
    """For a run whose client disconnects."""
    if_not_exists: Literal["create", "reject"]
    """For a run on a thread that does not exist."""
    on_completion: Literal["delete", "keep"]
    """For the thread created for a stateless run."""
    missing_is_empty: bool
    """The history of a missing thread is empty; otherwise it is a 404."""
    cancels_to_delete: bool
    """Deleting a thread cancels its runs; otherwise a run in flight is a 409."""
    lists_titles: bool
    """In the thread list that DeerFlow's frontend polls every few seconds, `values` holds only the title."""


CONTRACTS = {
    "deerflow": Contract(
        multitask_strategy=MultitaskStrategy.REJECT,
        on_disconnect=DisconnectMode.CANCEL,
        if_not_exists="create",
        on_completion="keep",
        missing_is_empty=True,
        cancels_to_delete=False,
        lists_titles=True,
    ),
    "langgraph": Contract(
        multitask_strategy=MultitaskStrategy.ENQUEUE,
        on_disconnect=DisconnectMode.CONTINUE,
        if_not_exists="reject",
        on_completion="delete",
        missing_is_empty=False,
        cancels_to_delete=True,
        lists_titles=False,
    ),
}


def contract_of(deerflow: DeerFlow) -> Contract:
    """Return the defaults that the settings choose."""
    return CONTRACTS[deerflow.settings.compatibility]
