"""An assistant: an agent with defaults of its own, kept under a name and in versions."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from deerflow.domain.runs import LEAD_AGENT


@dataclass(frozen=True, slots=True)
class Assistant:
    """What runs of this assistant start from, in one version of it."""

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
