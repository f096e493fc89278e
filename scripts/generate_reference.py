"""Writes the generated files: config.example.yaml, docs/reference/settings.md and docs/reference/http-api.md.

The first two come from the descriptions in deerflow.config, the last from the gateway's OpenAPI document.

`--check` writes nothing and fails when a file is out of date.
"""

import sys
import textwrap
from pathlib import Path
from typing import Any, NoReturn

import yaml
from pydantic.fields import FieldInfo

from deerflow.config.check import sections_in, slot_of
from deerflow.config.effect import RESTART_ONLY, WAITING
from deerflow.config.environment import VARIABLES
from deerflow.config.extensions import ExtensionsSettings
from deerflow.config.section import Section
from deerflow.config.settings import Settings
from deerflow.gateway.app import create_app

ROOT = Path(__file__).resolve().parent.parent

EXAMPLE_HEAD = """\
## DeerFlow's settings. Copy this file to config.yaml and change what you want to be different.
##
## Every setting is optional. Lines with one `#` show a setting with its default: take the `# ` away to
## change it. Lines with two say what it means. `$NAME` as a whole value is the variable NAME of the
## environment or of the file .env beside this one. Edits count from the next run, except where a section
## says that it needs a restart. The reference is docs/reference/settings.md.
"""

REFERENCE_HEAD = """\
# Settings

Everything that `config.yaml` and `extensions_config.json` may say. This page is generated from the
code by `scripts/generate_reference.py`. How to use it: [configure](../howto/configure.md).

Every section and, unless it is marked *needed*, every key is optional. Edits count from the next
run; where a section says *restart*, from the next start.
"""

HTTP_API_HEAD = """\
# HTTP API

Every route of the gateway, by subject. This page is generated from the code by
`scripts/generate_reference.py`. Parameters, bodies, answers and errors of each route, with examples, are in
the OpenAPI document of a running server: `/openapi.json` for programs, `/docs` and `/redoc` for people. None
of them needs the internet. Names in the last column are the document's operation ids, which generated
clients use.

All routes below `/api` also answer below `/api/langgraph`, where LangGraph's clients expect them. Errors
have a `detail` for people and mostly a `code` for programs. Lists have the header `X-Pagination-Total`, and
`X-Pagination-Next` with the `offset` of the next page where there is one. What a request means where it says
nothing: [whose defaults requests have](compatibility.md).

Two routes are WebSockets, which OpenAPI does not describe: `/api/threads/{thread_id}/stream/events` is
[the thread protocol](../explanation/thread-protocol.md), and `/api/threads/{thread_id}/browser/stream` always
closes, since browser control is not available on this server.
"""

NO_EFFECT = "*Checked, but without effect in this version.*"

LEFT_OUT = ("config_version", "checkpointer", "extensions")
"""Settings that only older or unusual files have."""

EXAMPLES: dict[str, str] = {
    "guardrails.rules": """\
- {tool: bash, pattern: "git (status|diff|log)( [a-z-]+)*", action: allow}
- {tool: bash, pattern: "shutdown|reboot", action: deny}
- {tool: "mail_*", action: ask}
""",
    "models": """\
- name: gpt-5
  use: langchain_openai:ChatOpenAI
  model: gpt-5
  api_key: $OPENAI_API_KEY
  supports_vision: true
  supports_reasoning_effort: true
  fallbacks: [claude]
- name: claude
  use: langchain_anthropic:ChatAnthropic
  model: claude-sonnet-4-5
  api_key: $ANTHROPIC_API_KEY
  max_tokens: 8192
- name: deepseek
  use: deerflow.models.patched_deepseek:PatchedChatDeepSeek
  model: deepseek-reasoner
  api_base: https://api.deepseek.com/v1
  api_key: $DEEPSEEK_API_KEY
  supports_thinking: true
  when_thinking_enabled: {extra_body: {thinking: {type: enabled}}}
- name: local
  use: langchain_openai:ChatOpenAI
  model: qwen3:8b
  base_url: http://127.0.0.1:11434/v1
  api_key: ollama
""",
    "tools": """\
- name: web_search
  group: web
  use: tavily
  api_key: $TAVILY_API_KEY
  max_results: 5
- name: web_fetch
  group: web
- name: image_search
  group: web
  use: ddg
- name: grep
  max_results: 100
""",
    "tool_groups": """\
- name: file:read
""",
    "sandbox.mounts": """\
- host_path: /srv/datasets
  container_path: /mnt/datasets
  read_only: true
""",
    "sandbox.environment": "LANG: C.UTF-8\nGITHUB_TOKEN: $GITHUB_TOKEN\n",
    "subagents.agents": "general-purpose: {timeout_seconds: 1800, max_turns: 200}\n",
    "subagents.custom_agents": """\
reviewer:
  description: Reads code and says what is wrong with it.
  system_prompt: You review code. Name file and line of everything you find.
  tools: [ls, read_file, grep, glob]
""",
}
"""What stands for lists and mappings whose default is empty."""


def main(arguments: list[str]) -> int:
    """Write the generated files, or with `--check` say which are out of date."""
    files = {
        ROOT / "config.example.yaml": example(),
        ROOT / "docs" / "reference" / "settings.md": reference(),
        ROOT / "docs" / "reference" / "http-api.md": http_api(),
    }
    stale = [path for path, text in files.items() if not path.exists() or path.read_text("utf-8") != text]
    if "--check" in arguments:
        for path in stale:
            print(f"{path.relative_to(ROOT)} is out of date: run scripts/generate_reference.py")
        return 1 if stale else 0
    for path in stale:
        path.write_text(files[path], "utf-8")
        print(f"wrote {path.relative_to(ROOT)}")
    return 0


def example() -> str:
    """Return config.example.yaml."""
    blocks = [EXAMPLE_HEAD]
    for name, field in Settings.model_fields.items():
        if name not in WAITING and name not in LEFT_OUT:
            restart = " Needs a restart." if name in RESTART_ONLY else ""
            lines = [*_comment(f"{field.description}{restart}"), *_setting(name, field.get_default(), name)]
            blocks.append("\n".join(lines) + "\n")
    return "\n".join(blocks)


def _setting(name: str, default: Any, path: str) -> list[str]:
    """Return the lines of one setting, without indentation."""
    if isinstance(default, Section):
        lines = [f"{name}:"]
        for inner_name, inner in type(default).model_fields.items():
            inner_path = f"{path}.{inner_name}"
            if inner_path not in WAITING:
                value = getattr(default, inner_name)
                below = [*_comment(inner.description or ""), *_setting(inner_name, value, inner_path)]
                lines += [f"  {line}" for line in below]
        return lines
    if path in EXAMPLES:
        return [f"# {name}:", *[f"#   {line}" for line in EXAMPLES[path].rstrip("\n").split("\n")]]
    return [f"# {name}: {_yaml(default)}".rstrip()]


def _comment(text: str) -> list[str]:
    return [f"## {line}" for line in textwrap.wrap(text, 100)]


def reference() -> str:
    """Return docs/reference/settings.md."""
    lines = [
        REFERENCE_HEAD,
        *_table(Settings, "", only_plain=True),
    ]
    for name, field in Settings.model_fields.items():
        if name == "extensions":  # the same keys as the file, which has a chapter of its own
            lines += ["## extensions", "", f"{field.description} Its keys are the file's, below.", ""]
            continue
        for section in sections_in(field.annotation):
            lines += _chapter(_title(name, field), section, _notes(name, field), level=2)
    about = "The file beside `config.yaml`; also `mcp_config.json`. An unset `$VAR` is an empty text here."
    lines += _chapter("extensions_config.json", ExtensionsSettings, about, level=2)
    lines += ["## Environment", "", "| Variable | Meaning |", "|---|---|"]
    lines += [f"| `{name}` | {meaning} |" for name, meaning in VARIABLES.items()]
    return "\n".join(lines) + "\n"


def _chapter(title: str, section: type[Section], notes: str, *, level: int) -> list[str]:
    lines = [f"{'#' * level} {title}", "", notes]
    if section.passes_extra_keys:
        lines += ["", "Keys that are not listed are handed on as they are."]
    lines += ["", *_table(section, f"{title}.")]
    for name, field in section.model_fields.items():
        for inner in sections_in(field.annotation):
            inner_title = f"{title}.{_title(field.alias or name, field)}"
            lines += _chapter(inner_title, inner, _first_line(inner), level=min(level + 1, 4))
    return lines


def _table(section: type[Section], prefix: str, *, only_plain: bool = False) -> list[str]:
    lines = ["| Key | Takes | Default | Meaning |", "|---|---|---|---|"]
    for name, field in section.model_fields.items():
        if only_plain and list(sections_in(field.annotation)):
            continue
        meaning = _cell(field.description)
        if f"{prefix}{name}" in WAITING:
            meaning += f" {NO_EFFECT}"
        lines.append(
            f"| `{field.alias or name}` | {_cell(slot_of(field).allowed)} | {_default(field)} | {meaning} |"
        )
    return [*lines, ""]


def _title(name: str, field: FieldInfo) -> str:
    default = field.get_default()
    if isinstance(default, tuple):
        return f"{name}[]"
    return f"{name}.NAME" if isinstance(default, dict) else name


def _notes(name: str, field: FieldInfo) -> str:
    marks = ["*Restart.*"] if name in RESTART_ONLY else []
    marks += [NO_EFFECT] if name in WAITING else []
    return " ".join([field.description or "", *marks])


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "*needed*"
    default = field.get_default()
    if default is None or isinstance(default, Section) or default in ("", (), {}):
        return "–"
    return f"`{_cell(_yaml(default))}`"


def _yaml(value: Any) -> str:
    if value is None:
        return ""
    text: str = yaml.safe_dump(_plain(value), default_flow_style=True, width=1000, allow_unicode=True)
    return text.removesuffix("\n").removesuffix("...").strip()


def _plain(value: Any) -> Any:
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    return value.model_dump(exclude_unset=True) if isinstance(value, Section) else value


def _cell(text: str | None) -> str:
    return (text or "").replace("|", "\\|").replace("\n", " ")


def _first_line(section: type[Section]) -> str:
    return (section.__doc__ or "").strip().split("\n")[0]


def http_api() -> str:
    """Return docs/reference/http-api.md."""
    document = create_app(_never_opened).openapi()
    rows: dict[str, list[str]] = {tag["name"]: [] for tag in document["tags"]}
    for path, methods in sorted(document["paths"].items()):
        for method, operation in methods.items():
            cells = (
                f"`{method.upper()} {path}`",
                _cell(operation["summary"]),
                f"`{operation['operationId']}`",
            )
            rows[operation["tags"][0]].append(f"| {' | '.join(cells)} |")
    lines = [HTTP_API_HEAD]
    for tag in document["tags"]:
        lines += [f"## {tag['name'].capitalize()}", "", tag["description"], ""]
        lines += ["| Route | What it does | Name |", "|---|---|---|", *rows[tag["name"]], ""]
    return "\n".join(lines)


def _never_opened() -> NoReturn:
    raise RuntimeError("nothing is served here")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
