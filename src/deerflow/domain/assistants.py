"""An assistant: a named, versioned set of defaults for runs of an agent."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from deerflow.domain.runs import LEAD_AGENT


@dataclass(frozen=True, slots=True)
class Assistant:
    """One version of an assistant: the defaults of its runs."""

    id: str
    user_id: str
    created_at: datetime
    updated_at: datetime
    version: int = 1
    graph_id: str = LEAD_AGENT
    name: str = "Untitled"
    description: str | None = None
    config: Mapping[str, Any] = field(default_factory=dict)
    context: Mapping[str, Any] = field(default_factory=dict)
    metadata: Mapping[str, Any] = field(default_factory=dict)
