"""Settings of the memory across threads."""

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import Field, model_validator

from deerflow.config.section import OpenSection, Section

LEGACY_KEYS = frozenset(
    {
        "storage_path",
        "storage_class",
        "strict_user_scope",
        "manifest_filename",
        "file_lock_timeout_seconds",
        "retrieval_adapter",
        "debounce_seconds",
        "queue_max_depth",
        "model",
        "model_name",
        "max_facts",
        "fact_confidence_threshold",
        "fact_eviction_policy",
        "fact_eviction_shadow_enabled",
        "max_injection_tokens",
        "token_counting",
        "guaranteed_categories",
        "guaranteed_token_budget",
        "watermark_max_keys",
        "patterns_dir",
        "prompts_dir",
    }
)
NOOP = "noop"
_LEGACY_PREFIXES = ("eviction_", "staleness_", "consolidation_")


class MemoryModelSettings(OpenSection):
    """The model that extracts facts, when it is not one of `models:`."""

    provider: str | None = Field(None, description="The provider's name.")
    model: str | None = Field(None, description="The provider's own name of the model.")
    api_key: str | None = Field(None, description="The provider's key.")
    base_url: str | None = Field(None, description="The provider's address.")
    temperature: float | None = Field(None, ge=0, le=2, description="How freely it writes.")


class MemoryBackendSettings(Section):
    """How the memory works."""

    storage_path: str = Field("", description="Where older versions keep facts; here it is the database.")
    debounce_seconds: float = Field(
        30, ge=1, le=300, description="Quiet seconds before a talk is learnt from."
    )
    queue_max_depth: int = Field(1000, ge=0, description="Talks waiting to be learnt from; 0: any number.")
    model_name: str | None = Field(None, description="Model that extracts facts; absent: the run's.")
    model: MemoryModelSettings | None = Field(None, description="Or a model of its own.")
    max_facts: int = Field(100, ge=10, le=500, description="Facts kept per user.")
    fact_confidence_threshold: float = Field(0.7, ge=0, le=1, description="How sure a fact must be.")
    max_injection_tokens: int = Field(
        2000, ge=100, le=8000, description="Tokens of memory that the model reads."
    )
    token_counting: Literal["tiktoken", "char"] = Field(
        "tiktoken", description="How these are counted: exactly, or by length."
    )
    guaranteed_categories: tuple[str, ...] = Field(
        ("correction",), description="Kinds of facts that come first."
    )
    guaranteed_token_budget: int = Field(500, ge=50, le=2000, description="Tokens set aside for them.")


class MemorySettings(Section):
    """What is remembered between threads."""

    enabled: bool = Field(True, description="Remember facts about a user between threads.")
    mode: Literal["middleware", "tool"] = Field(
        "middleware", description="Learn from every talk, or only when the model calls a tool."
    )
    injection_enabled: bool = Field(True, description="Tell the model what is remembered.")
    shutdown_flush_timeout_seconds: float = Field(
        30, ge=1, le=300, description="Seconds to finish learning when the server stops."
    )
    manager_class: str = Field(
        "deermem", description="`noop` remembers nothing; with any other name the built-in memory is used."
    )
    backend_config: MemoryBackendSettings = Field(
        MemoryBackendSettings.model_construct(), description="How it works."
    )

    @property
    def is_on(self) -> bool:
        """Whether memory is enabled."""
        return self.enabled and self.manager_class != NOOP

    @model_validator(mode="before")
    @classmethod
    def _older_files_have_them_flat(cls, data: Any) -> Any:
        """Move keys that older files have directly under `memory:` to `backend_config`."""
        if not isinstance(data, Mapping):
            return data
        flat = {key: value for key, value in data.items() if _is_legacy(key)}
        backend = data.get("backend_config") or {}
        if not flat or not isinstance(backend, Mapping):
            return data
        rest = {key: value for key, value in data.items() if key not in flat}
        return {**rest, "backend_config": {**flat, **backend}}


def _is_legacy(key: str) -> bool:
    return key in LEGACY_KEYS or key.startswith(_LEGACY_PREFIXES)
