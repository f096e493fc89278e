"""Settings of tools, their results, uploads and guardrails."""

from typing import Literal

from pydantic import Field, field_validator

from deerflow.config.auth import ProviderSettings
from deerflow.config.section import OpenSection, Section


class ToolSettings(OpenSection):
    """One tool; further keys are passed to it."""

    name: str = Field(min_length=1, description="Name by which the model calls the tool.")
    group: str | None = Field(
        None,
        min_length=1,
        description="Group of the tool. An agent that is limited to groups gets only their tools. Absent: "
        "the group of the built-in tool of this name, else none.",
    )
    use: str | None = Field(
        None,
        min_length=1,
        description="The tool as `module:name`, or the name of an installed plug-in; for `web_search`, "
        "`web_fetch` and `image_search` also the name of a provider, such as `tavily` or `ddg` "
        "(`docs/howto/web.md`). Absent: `name`.",
    )


class ToolGroupSettings(OpenSection):
    """One group of tools."""

    name: str = Field(min_length=1, description="Name of the group.")


class ToolSearchSettings(Section):
    """Loading the schemas of MCP tools on demand, which keeps the prompt small."""

    enabled: bool = Field(
        False, description="List these tools by name only; the tool `tool_search` loads their schemas."
    )
    auto_promote_top_k: int = Field(
        3, ge=1, le=5, description="Maximum number of tools loaded by the keywords of `routing`."
    )


class ToolOutputSettings(Section):
    """Tool results that are too long for the model."""

    enabled: bool = Field(True, description="Shorten long results in the conversation.")
    externalize_min_chars: int = Field(
        12_000,
        ge=0,
        description="Size in characters from which a result is written to a file; the model gets a preview.",
    )
    preview_head_chars: int = Field(2000, ge=0, description="Characters of the start in the preview.")
    preview_tail_chars: int = Field(1000, ge=0, description="Characters of the end in the preview.")
    fallback_max_chars: int = Field(
        30_000, ge=0, description="Maximum size in characters of a result when no file can be written."
    )
    fallback_head_chars: int = Field(8000, ge=0, description="Characters kept of its start.")
    fallback_tail_chars: int = Field(3000, ge=0, description="Characters kept of its end.")
    storage_subdir: str = Field(
        ".tool-results", description="Folder for these files below the thread's outputs."
    )
    exempt_tools: tuple[str, ...] = Field(
        ("read_file", "read_file_tool"), description="Tools whose results are never shortened."
    )
    tool_overrides: dict[str, int] = Field(
        {}, description="`externalize_min_chars` of single tools, by the tool's name."
    )


class ToolProgressSettings(Section):
    """Warning agents whose tool calls bring nothing new."""

    enabled: bool = Field(False, description="Compare the results of tool calls.")
    stagnation_threshold: int = Field(
        3, ge=1, description="Number of similar results in a row that count as no progress."
    )
    warn_escalation_count: int = Field(2, ge=1, description="Number of warnings before the final one.")
    inject_assessment: bool = Field(True, description="Include the findings in the warning.")
    jaccard_similarity_threshold: float = Field(
        0.8, ge=0, le=1, description="Jaccard similarity of the words from which results count as similar."
    )
    min_word_count_for_similarity: int = Field(
        10, ge=0, description="Minimum number of words of results that are compared."
    )
    exempt_tools: tuple[str, ...] = Field((), description="Tools whose results are not compared.")


class WebSettings(Section):
    """Searching the web and reading its pages, for the tools `web_search`, `image_search` and `web_fetch`."""

    cache_seconds: float = Field(
        900,
        ge=0,
        description="Seconds for which a run, its sub-agents included, reuses the results of a search and "
        "the text of a page. 0: only for requests at the same time.",
    )
    timeout_seconds: float = Field(
        30, gt=0, description="Maximum duration of fetching one page, with redirects and retries."
    )
    extract_seconds: float = Field(
        20, gt=0, description="Maximum duration of extracting the text of one page, in its own process."
    )
    max_bytes: int = Field(
        10_485_760, ge=1024, description="Maximum size of a page in bytes, after decompression."
    )
    max_redirects: int = Field(10, ge=0, le=30, description="Maximum number of redirects of one page.")
    max_parallel: int = Field(
        16, ge=1, description="Maximum number of pages that one process fetches at the same time."
    )
    page_chars: int = Field(
        8000,
        ge=500,
        le=10_000,
        description="Characters of a page that one call of `web_fetch` returns by default; further calls "
        "read on. The whole text is stored as a file of the thread.",
    )
    respect_robots: bool = Field(
        True, description="Fetch no page that the site's `robots.txt` forbids to `DeerFlow` or to all robots."
    )
    user_agent: str = Field(
        "Mozilla/5.0 (compatible; DeerFlow/3.0)",
        min_length=1,
        pattern=r"^[\x20-\x7e]+$",
        description="The `User-Agent` header of requests for pages.",
    )
    allow_private_hosts: tuple[str, ...] = Field(
        (),
        description="Hosts that may have private addresses, such as `wiki.example.org`, `*.corp.example` or "
        "`127.0.0.1:8000`. All other hosts must have public addresses.",
    )
    allow_cidrs: tuple[str, ...] = Field(
        (), description="Private networks that pages may be fetched from, such as `10.1.0.0/16`."
    )


class ReadBeforeWriteSettings(Section):
    """Reading a file before overwriting it."""

    enabled: bool = Field(True, description="Refuse to overwrite a file that the agent has not read.")


class UploadSettings(Section):
    """Limits and conversion of uploads."""

    max_files: int = Field(10, ge=1, description="Maximum number of files in an upload.")
    max_file_size: int = Field(52_428_800, ge=1, description="Maximum size of a file in bytes.")
    max_total_size: int = Field(104_857_600, ge=1, description="Maximum size of an upload in bytes.")
    auto_convert_documents: bool = Field(
        True, description="Convert uploaded PDF and office files to Markdown files next to them."
    )
    pdf_converter: Literal["auto", "pymupdf4llm", "markitdown"] = Field(
        "auto",
        description="Library that converts PDF files. `auto`: pymupdf4llm if it is installed, else pypdf.",
    )


class GuardrailRule(Section):
    """One rule; the first that matches a tool call decides."""

    tool: str = Field(min_length=1, description="Name of the tool; `*` matches any part of it.")
    pattern: str | None = Field(
        None,
        description="Regular expression for the arguments. Absent: any arguments. For `allow` it must match "
        "the whole text: the only argument if that is text (the command of `bash`), else the arguments as "
        "JSON with sorted keys. For `deny` and `ask` a match inside that text, or inside any text among the "
        "arguments, suffices. The argument `description` of built-in tools is ignored.",
    )
    action: Literal["allow", "deny", "ask"] = Field(
        description="What happens to a matching call; `ask` waits for a person's approval."
    )

    @field_validator("pattern")
    @classmethod
    def _is_an_expression(cls, pattern: str | None) -> str | None:
        if pattern is None:
            return None
        import regex  # noqa: PLC0415 - takes 3 MB, and most settings have no patterns

        try:
            regex.compile(pattern)
        except regex.error as error:
            raise ValueError(f"must be a regular expression: {error}") from error
        return pattern


class GuardrailsSettings(Section):
    """Approval of tool calls."""

    enabled: bool = Field(False, description="Ask `provider` before every tool call.")
    fail_closed: bool = Field(True, description="Deny a call when the provider fails.")
    passport: str | None = Field(None, description="Text that identifies the agent to the provider.")
    provider: ProviderSettings | None = Field(None, description="Class that allows or denies tool calls.")
    rules: tuple[GuardrailRule, ...] = Field(
        (),
        description="Rules by tool and arguments; they apply also if `enabled` is false. Calls that match no "
        "rule are allowed, except commands on the host without isolation and tools with effects outside the "
        "sandbox, which need an approval.",
    )
    ask_timeout_seconds: float = Field(
        86_400,
        gt=0,
        description="Seconds to wait for an approval; then the call is rejected and the run continues.",
    )
