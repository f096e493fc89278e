"""Settings of memory."""

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import Field, model_validator

from deerflow.config.section import OpenSection, Section, section

NOOP = "noop"
MAX_FACTS = 20_000
_REMOVED_KEYS = {
    *("storage_path", "storage_class", "strict_user_scope", "manifest_filename", "file_lock_timeout_seconds"),
    *("retrieval_adapter", "fact_eviction_policy", "fact_eviction_shadow_enabled", "watermark_max_keys"),
    *("patterns_dir", "prompts_dir"),
}
_REMOVED_PREFIXES = ("eviction_", "staleness_", "consolidation_")


class MemoryModelSettings(OpenSection):
    """A model for extracting facts that is not in `models:`."""

    provider: str | None = Field(None, description="Name of the provider.")
    model: str | None = Field(None, description="The provider's name for the model.")
    api_key: str | None = Field(None, description="API key.")
    base_url: str | None = Field(None, description="Base URL of the API.")
    temperature: float | None = Field(None, ge=0, le=2, description="Sampling temperature.")


class MemoryBackendSettings(Section):
    """Extraction, storage and use of facts."""

    debounce_seconds: float = Field(
        30, ge=1, le=300, description="Seconds without a new message after which facts are extracted."
    )
    queue_max_depth: int = Field(
        1000, ge=0, description="Maximum number of conversations waiting for extraction; 0: no limit."
    )
    model_name: str | None = Field(
        None, description="Model of `models:` that extracts facts. Absent: the run's model."
    )
    model: MemoryModelSettings | None = Field(None, description="Extracting model outside of `models:`.")
    max_facts: int = Field(
        100,
        ge=10,
        le=MAX_FACTS,
        description="Maximum number of facts per user. Facts are recalled by relevance, so that many of them "
        "do not fill the prompt.",
    )
    fact_confidence_threshold: float = Field(
        0.7, ge=0, le=1, description="Minimum confidence of a fact that is stored."
    )
    max_injection_tokens: int = Field(
        2000, ge=100, le=8000, description="Maximum size in tokens of the memory in the prompt."
    )
    token_counting: Literal["tiktoken", "char"] = Field(
        "tiktoken",
        description="How tokens are counted: `tiktoken` exactly if the extra `tokens` is installed, `char` "
        "by length.",
    )
    guaranteed_categories: tuple[str, ...] = Field(
        ("correction",), description="Categories of facts that are included first."
    )
    guaranteed_token_budget: int = Field(
        500, ge=50, le=2000, description="Tokens of `max_injection_tokens` reserved for these categories."
    )


class MemorySettings(Section):
    """Facts about a user that are remembered across threads."""

    enabled: bool = Field(True, description="Remember facts about a user across threads.")
    mode: Literal["middleware", "tool"] = Field(
        "middleware",
        description="When facts are stored: `middleware` extracts them from every conversation, `tool` only "
        "stores what the model passes to a tool.",
    )
    injection_enabled: bool = Field(True, description="Include remembered facts in the prompt.")
    shutdown_flush_timeout_seconds: float = Field(
        30, ge=1, le=300, description="Seconds that pending extractions may take when the server stops."
    )
    manager_class: str = Field(
        "deermem",
        description="Store of the memory: `deermem` is the database, `noop` disables the memory, the name "
        "of an installed plug-in selects its store; any other name selects the database. Needs "
        "a restart.",
    )
    backend_config: MemoryBackendSettings = section(MemoryBackendSettings)
    store_config: dict[str, Any] = Field({}, description="Settings of a plug-in's store.")

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
    """Return whether older files have a key directly under `memory:` instead of `backend_config`."""
    return (
        key in MemoryBackendSettings.model_fields or key in _REMOVED_KEYS or key.startswith(_REMOVED_PREFIXES)
    )
