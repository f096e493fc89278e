"""Settings of tools and of tool results."""

from pydantic import Field

from deerflow.config.section import OpenSection, Section


class ToolSettings(OpenSection):
    """One entry of `tools:`; keys not listed here go to the tool as they are."""

    name: str = Field(min_length=1, description="The name that the model calls.")
    group: str | None = Field(
        None,
        min_length=1,
        description="The group it belongs to. An agent that is limited to groups gets only their tools. "
        "Default: the group of the built-in tool of this name, else none.",
    )
    use: str | None = Field(
        None,
        min_length=1,
        description="The tool as `module:name`, or the name of an installed plug-in. Default: `name`.",
    )


class ToolGroupSettings(OpenSection):
    """One entry of `tool_groups:`."""

    name: str = Field(min_length=1, description="The group's name.")


class ToolSearchSettings(Section):
    """Whether the tools of MCP servers are found by searching, to keep the prompt small."""

    enabled: bool = Field(False, description="Name these tools only; `tool_search` loads their schemas.")
    auto_promote_top_k: int = Field(
        3, ge=1, le=5, description="Tools that the words of `routing` load without a search, at most."
    )


class ToolOutputSettings(Section):
    """What happens to tool results that are too long for the model."""

    enabled: bool = Field(True, description="Keep long results out of the conversation.")
    externalize_min_chars: int = Field(
        12_000,
        ge=0,
        description="Characters from which a result goes to a file, with a synopsis in its place.",
    )
    preview_head_chars: int = Field(2000, ge=0, description="Characters shown of its start.")
    preview_tail_chars: int = Field(1000, ge=0, description="Characters shown of its end.")
    fallback_max_chars: int = Field(30_000, ge=0, description="Characters kept where no file can be written.")
    fallback_head_chars: int = Field(8000, ge=0, description="Of these, from the start.")
    fallback_tail_chars: int = Field(3000, ge=0, description="Of these, from the end.")
    storage_subdir: str = Field(
        ".tool-results", description="Folder of these files, in the thread's outputs."
    )
    exempt_tools: tuple[str, ...] = Field(
        ("read_file", "read_file_tool"), description="Tools whose results always stay whole."
    )
    tool_overrides: dict[str, int] = Field({}, description="`externalize_min_chars` by tool's name.")


class ToolProgressSettings(Section):
    """How an agent that makes no headway is told so."""

    enabled: bool = Field(False, description="Look for it.")
    stagnation_threshold: int = Field(3, ge=1, description="Similar results in a row that count as none.")
    warn_escalation_count: int = Field(2, ge=1, description="Warnings before the last one.")
    inject_assessment: bool = Field(True, description="Tell the agent what was seen.")
    jaccard_similarity_threshold: float = Field(0.8, ge=0, le=1, description="How alike results must be.")
    min_word_count_for_similarity: int = Field(10, ge=0, description="Words from which results are compared.")
    exempt_tools: tuple[str, ...] = Field((), description="Tools that are left out.")
    max_tracked_threads: int = Field(100, ge=1, description="Threads remembered at once.")


class ReadBeforeWriteSettings(Section):
    """Whether a file must be read before it is overwritten."""

    enabled: bool = Field(True, description="Refuse to overwrite a file that the agent has not read.")
