"""Every call that DeerFlow's own frontend makes while its pages are browsed, through its own rewrites.

The calls are listed in the order in which a person would cause them. What one answers may be needed by a
later one: `keep` names a part of the answer, `$name` in a path or body stands for it. Nothing may be refused
except what is really absent, and every field that the frontend reads has the type that it expects.
"""

import io
import json
import threading
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from string import Template
from typing import Any, Literal

import httpx
from support.documented import Documented
from support.gateway import Gateway, parse_sse, running_gateway
from support.model_server import ScriptedModel, call, text
from support.shapes import misfits
from websockets.asyncio.client import connect
from websockets.typing import Origin

from deerflow.domain import new_id

PAGE = "localhost:3000"
PROXIED = {
    # what Next.js sends on: the page's Origin, and where the browser sent the request
    "Origin": f"http://{PAGE}",
    "X-Forwarded-Host": PAGE,
    "X-Forwarded-For": "127.0.0.1",
    "X-Forwarded-Port": "3000",
    "X-Forwarded-Proto": "http",
    "X-CSRF-Token": "t",
    "Cookie": "csrf_token=t; access_token=old",
}
REPORT = "/mnt/user-data/outputs/report.md"
SKILL = "/mnt/user-data/uploads/tidy.skill"
MATTER = "---\nname: tidy-notes\ndescription: Keeps notes tidy.\n---\n# Tidy\n"

Via = Literal["json", "form", "files", "text", "sse", "socket", "held"]


@dataclass(frozen=True, slots=True)
class Call:
    """One call of the frontend, and what it relies on in the answer."""

    method: str
    path: str
    shape: Any = object
    body: Any = None
    status: int = 200
    keep: Mapping[str, str] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    via: Via = "json"
    absent: str = ""
    """Why this is refused, where it is: the feature or thing is not there."""


OFF = "the feature is not on this server"
ERROR = {"detail": str}
ACCOUNT_ERROR = {"detail": {"code": str, "message": str}}
MESSAGE = {"type": ("human", "ai", "tool"), "id": str, "content": (str, list), "additional_kwargs": dict}
VALUES = {"messages": [MESSAGE, ...], "title": (str, None), "artifacts?": [str], "todos?": (list, None)}
THREAD = {
    "thread_id": str,
    "created_at": str,
    "updated_at": str,
    "status": ("idle", "busy", "interrupted", "error"),
    "metadata": dict,
}
RUN = {
    "run_id": str,
    "thread_id": str,
    "status": ("pending", "running", "success", "error", "timeout", "interrupted"),
    "created_at": str,
    "updated_at": str,
    "metadata": dict,
}
ROWS = {
    "data": [
        {
            "run_id": str,
            "seq": int,
            "content": MESSAGE,
            "metadata": {"caller": str},
            "created_at": str,
            "feedback?": {"feedback_id": str, "rating": int, "comment": (str, None)},
        },
        ...,
    ],
    "has_more": bool,
    "next_before_seq": (int, None),
}
NO_ROWS = {"data": [], "has_more": False, "next_before_seq": None}
SUMMARY_KEYS = ("created", "modified", "deleted", "symlink_created", "additions", "deletions")
CHANGES = {
    "available": bool,
    "version": int,
    "summary": {**dict.fromkeys(SUMMARY_KEYS, int), "truncated": bool},
    "files": [
        {
            "path": str,
            "status": ("created", "modified", "deleted"),
            "binary": bool,
            "sensitive": bool,
            "diff": str,
            "diff_truncated": bool,
            "additions": int,
            "deletions": int,
        },
        ...,
    ],
    "limits": dict,
}
STEPS = [
    {
        "seq": int,
        "content": {
            "task_id": str,
            "message_index": int,
            "kind": ("ai", "tool"),
            "text": str,
            "tool_calls?": list,
            "tool_name?": str,
        },
    },
    ...,
]
USAGE = {
    "total_tokens": int,
    "total_input_tokens": int,
    "total_output_tokens": int,
    "by_model": dict,
    "by_caller": {"lead_agent": int, "subagent": int, "middleware": int},
    "context_usage": (
        {"token_count": int, "max_context_tokens": (int, None), "percentage": (float, None)},
        None,
    ),
}
GOAL = {
    "goal": (
        {
            "objective": str,
            "status": str,
            "continuation_count": int,
            "max_continuations": int,
            "no_progress_count": int,
            "max_no_progress_continuations": int,
            "last_evaluation?": (dict, None),
        },
        None,
    )
}
PREPARED = {
    "input": {"messages": [{"type": str, "id": str, "content": (str, list)}]},
    "checkpoint": {"checkpoint_ns": "", "checkpoint_id": (str, None), "checkpoint_map": (dict, None)},
    "metadata": dict,
    "target_run_id": str,
}
MODELS = {
    "models": [
        {
            "name": str,
            "model": str,
            "display_name": (str, None),
            "description": (str, None),
            "supports_thinking": bool,
            "supports_reasoning_effort": bool,
        },
        ...,
    ],
    "token_usage": {"enabled": bool},
}
SKILL_ROW = {
    "name": str,
    "description": str,
    "category": str,
    "license": (str, None),
    "enabled": bool,
    "editable": bool,
}
MCP = {"mcp_servers": dict}
PART = {"summary": str, "updatedAt": str}
MEMORY = {
    "version": str,
    "lastUpdated": str,
    "user": {"workContext": PART, "personalContext": PART, "topOfMind": PART},
    "history": {"recentMonths": PART, "earlierContext": PART, "longTermBackground": PART},
    "facts": [
        {
            "id": str,
            "content": str,
            "category": str,
            "confidence": float,
            "createdAt": str,
            "source": str,
        }
    ],
}
AGENT = {
    "name": str,
    "description": str,
    "model": (str, None),
    "tool_groups": (list, None),
    "skills": (list, None),
    "soul?": (str, None),
}
UPLOAD = {
    "filename": str,
    "size": int,
    "path": str,
    "virtual_path": str,
    "artifact_url": str,
    "extension": (str, None),
    "modified": float,
}
TASK = {
    "id": str,
    "thread_id": (str, None),
    "context_mode": ("fresh_thread_per_run", "reuse_thread"),
    "title": str,
    "prompt": str,
    "schedule_type": ("once", "cron"),
    "schedule_spec": dict,
    "timezone": str,
    "status": str,
    "next_run_at": (str, None),
    "last_run_at": (str, None),
    "last_error": (str, None),
    "run_count": int,
    "created_at": str,
    "updated_at": str,
}
TASK_RUN = {
    "id": str,
    "task_id": str,
    "thread_id": (str, None),
    "run_id": (str, None),
    "scheduled_for": str,
    "trigger": str,
    "status": str,
    "error": (str, None),
    "created_at": str,
}
LARK = {
    **dict.fromkeys(("installed", "app_configured", "runtime_version_mismatch"), bool),
    **dict.fromkeys(("version", "install_path"), str),
    **dict.fromkeys(("skills_expected", "skills_installed"), int),
    **dict.fromkeys(("manifest_version", "latest_available_version", "app_id", "app_brand"), (str, None)),
    "installed_skills": [str],
    "enabled_skills": [str],
    "cli": {"available": bool, "path": (str, None), "version": (str, None), "error": (str, None)},
    "auth": {
        "status": ("authenticated", "not_authorized", "not_configured", "unavailable", "error"),
        "message": (str, None),
        "user": (str, None),
        "verified": bool,
    },
    "sandbox_runtime_mode": ("none", "gateway-download", "init-container", "broker"),
    "sandbox_runtime_ready": bool,
    "sandbox_runtime_detail": (str, None),
}
ASKED = {
    "assistant_id": "lead_agent",
    "input": {
        "messages": [
            {
                "type": "human",
                "content": [{"type": "text", "text": "Write the report"}],
                "additional_kwargs": {
                    "files": [{"filename": "tidy.skill", "size": 1, "path": SKILL, "status": "uploaded"}]
                },
            }
        ]
    },
    "config": {"recursion_limit": 1000},
    "context": {
        "model_name": "scripted",
        "mode": "ultra",
        "thinking_enabled": True,
        "is_plan_mode": True,
        "subagent_enabled": True,
        "reasoning_effort": "high",
        "thread_id": "$thread",
    },
    "stream_mode": ["messages-tuple", "values", "updates", "custom"],
    "on_disconnect": "continue",
}
EDITED = {**ASKED, "input": "$input", "checkpoint": "$checkpoint", "metadata": "$metadata"}
NIGHTLY = {
    "title": "Tidy up",
    "prompt": "tick",
    "context_mode": "fresh_thread_per_run",
    "schedule_type": "cron",
    "schedule_spec": {"cron": "0 3 * * *"},
    "timezone": "Europe/Berlin",
}
SERVERS = {"demo": {"enabled": False, "type": "stdio", "command": "npx", "args": [], "description": "Demo"}}
EMAIL = {"email": "a@example.org", "password": "long enough"}

GRAPH = "/langgraph/threads/$thread"
THREAD_REST = "/threads/$thread"

START = (
    Call(
        "GET",
        "/v1/auth/me",
        {"id": str, "email": str, "system_role": "admin", "needs_setup": False, "oauth_provider": None},
    ),
    Call("GET", "/v1/auth/setup-status", {"needs_setup": False, "registration_enabled": bool}),
    Call("GET", "/v1/auth/providers", {"providers": [{"id": str, "display_name": str, "type": str}]}),
    Call(
        "GET",
        "/features",
        {
            "agents_api": {"enabled": True},
            "browser_control": {"enabled": bool},
            "mcp_tasks": {"enabled": bool},
        },
    ),
    Call("GET", "/models", MODELS),
    Call("GET", "/skills", {"skills": [SKILL_ROW]}),
    Call("GET", "/suggestions/config", {"enabled": bool, "max_suggestions": int}),
    Call("GET", "/channels/providers", {"enabled": False, "providers": []}),
    Call("GET", "/channels/connections", {"connections": []}),
    Call("GET", "/integrations/lark/status", LARK),
    Call("GET", "/memory", MEMORY),
    Call("GET", "/memory/export", MEMORY, keep={"memory": ""}),
    Call("GET", "/mcp/config", MCP, keep={"servers": "mcp_servers"}),
    Call("GET", "/agents", {"agents": [AGENT]}),
    Call("GET", "/scheduled-tasks", [TASK]),
    Call("POST", "/langgraph/threads/search", [THREAD], {"limit": 50, "offset": 0}),
)
NEW_CHAT = (
    # The page has chosen an id; nothing is stored under it yet.
    Call("POST", f"{GRAPH}/history", [], {"limit": 1}),
    Call("GET", f"{THREAD_REST}/messages/page", NO_ROWS),
    Call("GET", f"{THREAD_REST}/goal", {"goal": None}),
    Call("GET", f"{THREAD_REST}/mcp-tasks?limit=20", []),
    Call(
        "GET",
        f"{THREAD_REST}/uploads/limits",
        {"max_files": int, "max_file_size": int, "max_total_size": int},
    ),
    Call(
        "POST",
        f"{THREAD_REST}/uploads",
        {"success": True, "files": [UPLOAD], "skipped_files": list},
        via="files",
    ),
    Call("POST", "/langgraph/threads", {**THREAD, "thread_id": "$thread"}, {"thread_id": "$thread"}),
    Call("POST", f"{GRAPH}/runs/stream", None, ASKED, via="sse", keep={"run": "run"}),
    Call("PATCH", GRAPH, THREAD, {"metadata": {"agent_name": "lead_agent"}}),
    Call("POST", f"{GRAPH}/history", [{"values": VALUES}, ...], {"limit": 1}),
    Call("GET", f"{THREAD_REST}/messages/page", ROWS),
    Call("GET", f"{THREAD_REST}/messages/page?before_seq=1", NO_ROWS),
    Call("GET", f"{THREAD_REST}/token-usage", USAGE),
    Call(
        "POST",
        f"{THREAD_REST}/suggestions",
        {"suggestions": [str, ...]},
        {"messages": [{"role": "user", "content": "hi"}], "n": 3, "model_name": "scripted"},
    ),
)
CHAT = (
    Call("GET", GRAPH, {**THREAD, "values": VALUES, "metadata": {"agent_name": str}}),
    Call(
        "GET",
        f"{GRAPH}/state",
        {"values": VALUES, "checkpoint": dict},
        keep={"human": "values.messages.0.id", "ai": "values.messages.-1.id"},
    ),
    Call("GET", f"{GRAPH}/runs", [RUN, ...]),
    Call("GET", f"{GRAPH}/runs/$run", RUN),
    Call("GET", f"{GRAPH}/runs/$run/stream", None, headers={"Last-Event-ID": "-1"}, via="sse"),
    Call(
        "GET",
        f"{THREAD_REST}/runs/$run/events?event_types=subagent.step&limit=500",
        STEPS,
        keep={"subtask": "0.content.task_id"},
    ),
    Call(
        "GET",
        f"{THREAD_REST}/runs/$run/events?event_types=subagent.step&task_id=$subtask&limit=500&after_seq=0",
        STEPS,
    ),
    Call("GET", f"{THREAD_REST}/runs/$run/workspace-changes?include_files=true&include_diff=true", CHANGES),
    Call(
        "PUT",
        f"{THREAD_REST}/runs/$run/feedback",
        {"feedback_id": str, "rating": 1, "comment": (str, None)},
        {"rating": 1, "comment": None},
    ),
    Call("DELETE", f"{THREAD_REST}/runs/$run/feedback"),
    Call(
        "GET",
        f"{THREAD_REST}/artifacts{REPORT}",
        None,
        status=206,
        headers={"Range": "bytes=0-1048575"},
        via="text",
        keep={"sha": "etag"},
    ),
    Call("GET", f"{THREAD_REST}/artifacts{REPORT}?download=true", None, via="text"),
    Call(
        "PUT",
        f"{THREAD_REST}/artifacts{REPORT}",
        {"path": REPORT, "sha256": str, "size": int},
        {"content": "# Better", "expected_sha256": "$sha"},
    ),
    Call("GET", f"{THREAD_REST}/artifacts{SKILL}/SKILL.md", None, via="text"),
    Call(
        "POST",
        "/skills/install",
        {"success": True, "skill_name": "tidy-notes", "message": str},
        {"thread_id": "$thread", "path": SKILL},
    ),
    Call("PUT", "/skills/tidy-notes", SKILL_ROW, {"enabled": False}),
    Call("GET", f"{THREAD_REST}/uploads/list", {"files": [UPLOAD], "count": 1}),
    Call("DELETE", f"{THREAD_REST}/uploads/tidy.skill", {"success": True}),
    Call(
        "POST",
        "/input-polish",
        {"rewritten_text": str, "changed": bool},
        {"text": "pls do", "locale": "en-US", "thread_id": "$thread"},
    ),
    Call("PUT", f"{THREAD_REST}/goal", GOAL, {"objective": "Finish"}),
    Call("GET", f"{THREAD_REST}/goal", GOAL),
    Call("DELETE", f"{THREAD_REST}/goal", {"goal": None}),
    Call("GET", f"{THREAD_REST}/mcp-tasks?limit=20", []),
    Call("GET", f"{THREAD_REST}/mcp-tasks/m1", ERROR, status=404, absent="there is no such task"),
    Call("POST", f"{THREAD_REST}/mcp-tasks/m1/cancel", ERROR, status=404, absent="there is no such task"),
    Call("GET", f"{THREAD_REST}/scheduled-tasks", [TASK]),
    Call("POST", f"{GRAPH}/state", dict, {"values": {"title": "Renamed"}}),
    Call("PATCH", THREAD_REST, {**THREAD, "metadata": dict}, {"metadata": {"deerflow_pinned": True}}),
    Call(
        "POST",
        "/langgraph/threads/search",
        [{**THREAD, "values": {"title": "Renamed"}, "metadata": {"deerflow_pinned": True}}, ...],
        {
            "limit": 50,
            "offset": 0,
            "sort_by": "updated_at",
            "sort_order": "desc",
            "select": ["thread_id", "updated_at", "created_at", "status", "values", "metadata"],
        },
    ),
    Call(
        "POST",
        "/threads",
        THREAD,
        {"metadata": {"deerflow_sidecar": True, "parent_thread_id": "$thread"}},
        keep={"sidecar": "thread_id"},
    ),
    Call(
        "POST",
        f"{THREAD_REST}/branches",
        {"thread_id": str},
        {"message_id": "$ai", "message_ids": ["$ai"], "title": "Fork"},
        keep={"branch": "thread_id"},
    ),
    # The branch's messages carry the run of the thread that it came from.
    Call("GET", "/threads/$branch/messages/page", ROWS),
    Call("GET", "/threads/$branch/runs/$run/workspace-changes?include_files=true", CHANGES),
    Call("GET", "/threads/$branch/runs/$run/events?event_types=subagent.step&limit=500", STEPS),
    Call("PUT", "/threads/$branch/runs/$run/feedback", {"rating": -1}, {"rating": -1, "comment": "no"}),
    Call("POST", f"{THREAD_REST}/runs/regenerate/prepare", PREPARED, {"message_id": "$ai"}),
    Call(
        "POST",
        f"{THREAD_REST}/runs/edit-regenerate/prepare",
        {**PREPARED, "replacement_human_message_id": str, "source_message_ids": [str]},
        {"human_message_id": "$human", "replacement_text": "Say it again"},
        keep={"input": "input", "checkpoint": "checkpoint", "metadata": "metadata"},
    ),
    Call("POST", f"{GRAPH}/runs/stream", None, EDITED, via="sse"),
    Call("POST", f"{GRAPH}/runs/$held/cancel?wait=0&action=interrupt", status=202, via="held"),
    Call(
        "POST",
        f"{THREAD_REST}/compact",
        {"compacted": bool, "reason": (str, None), "removed_message_count": int, "total_tokens": int},
        {"force": True, "model_name": "scripted"},
    ),
    Call("POST", f"{THREAD_REST}/browser/navigate", ERROR, {"url": "https://x.org"}, status=501, absent=OFF),
    Call("GET", f"{THREAD_REST}/browser/stream", status=4501, via="socket", absent=OFF),
)
SETTINGS = (
    Call("PUT", "/mcp/config", MCP, {"mcp_servers": "$servers"}),
    Call(
        "PATCH",
        "/mcp/config",
        {"mcp_servers": {"demo": {"enabled": False, "description": "Demo"}}},
        {"server_name": "demo", "enabled": False},
    ),
    Call(
        "POST",
        "/memory/facts",
        MEMORY,
        {"content": "Likes tea", "category": "preference", "confidence": 0.8},
        keep={"fact": "facts.0.id"},
    ),
    Call(
        "PATCH",
        "/memory/facts/$fact",
        MEMORY,
        {"content": "Likes green tea", "category": "preference", "confidence": 0.9},
    ),
    Call("DELETE", "/memory/facts/$fact", MEMORY),
    Call("POST", "/memory/import", MEMORY, "$memory"),
    Call("DELETE", "/memory", MEMORY),
    Call("GET", "/agents/check?name=poet", {"available": True, "name": "poet"}),
    Call(
        "POST", "/agents", AGENT, {"name": "poet", "description": "Rhymes", "soul": "You rhyme."}, status=201
    ),
    Call("GET", "/agents/poet", {**AGENT, "soul": "You rhyme."}),
    Call("PUT", "/agents/poet", AGENT, {"description": "Writes"}),
    Call("DELETE", "/agents/poet", status=204, via="text"),
    Call("POST", "/scheduled-tasks", TASK, NIGHTLY, keep={"task": "id"}),
    Call("GET", "/scheduled-tasks/$task", TASK),
    Call("PATCH", "/scheduled-tasks/$task", {**TASK, "title": "Tidier"}, {"title": "Tidier"}),
    Call("POST", "/scheduled-tasks/$task/pause", {**TASK, "status": "paused"}),
    Call("POST", "/scheduled-tasks/$task/resume", {**TASK, "status": "enabled"}),
    Call("POST", "/scheduled-tasks/$task/trigger", {"id": str, "triggered": True}),
    Call("GET", "/scheduled-tasks/$task/runs?limit=20", [TASK_RUN, ...]),
    Call("DELETE", "/scheduled-tasks/$task", {"id": str, "deleted": True}),
    Call("POST", "/channels/slack/connect", ERROR, status=503, absent=OFF),
    Call("POST", "/channels/slack/runtime-config", ERROR, {"values": {}}, status=503, absent=OFF),
    Call("DELETE", "/channels/slack/runtime-config", ERROR, status=503, absent=OFF),
    Call("DELETE", "/channels/connections/c1", ERROR, status=404, absent="there is no such connection"),
    *(
        Call("POST", f"/integrations/lark/{path}", ERROR, {}, status=503, absent=OFF)
        for path in (
            "install",
            "config/start",
            "config/complete",
            "config/credentials",
            "auth/start",
            "auth/complete",
        )
    ),
    Call(
        "POST",
        "/v1/auth/login/local",
        ACCOUNT_ERROR,
        {"username": "a@example.org", "password": "x", "remember_me": "true"},
        status=403,
        via="form",
        absent=OFF,
    ),
    Call("POST", "/v1/auth/register", ACCOUNT_ERROR, EMAIL, status=403, absent=OFF),
    Call("POST", "/v1/auth/initialize", ACCOUNT_ERROR, EMAIL, status=409, absent=OFF),
    Call(
        "POST",
        "/v1/auth/change-password",
        ACCOUNT_ERROR,
        {"current_password": "x", "new_password": "long enough"},
        status=400,
        absent=OFF,
    ),
    Call("GET", "/v1/auth/oauth/google?next=/workspace", ACCOUNT_ERROR, status=404, absent=OFF),
    Call("POST", "/v1/auth/logout", {"message": str}),
)
END = (
    *(
        one
        for thread in ("$sidecar", "$branch", "$thread")
        for one in (
            Call("DELETE", f"/langgraph/threads/{thread}"),
            Call("DELETE", f"/threads/{thread}", ERROR, status=404, absent="it is deleted already"),
        )
    ),
)
CALLS = (*START, *NEW_CHAT, *CHAT, *SETTINGS, *END)

HELLO = {"input": {"messages": [{"type": "human", "content": "Hello"}]}}
NOTE = {"namespace": ["notes"], "key": "one"}
RUN_START = {"id": 1, "method": "run.start", "params": {"assistant_id": "lead_agent", **HELLO}}
TEAM = {"team": {"goal": "Say hello", "steps": [{"id": "a", "role": "code_assistant", "task": "Say hello"}]}}
OTHERS = (
    # What the frontend does not call: here for the answers, which are held against the OpenAPI document.
    *(
        Call("GET", path)
        for path in ("/ok", "/info", "/models/scripted", "/teams/roles", "/skills/tidy-notes")
    ),
    *(Call("GET", f"/memory/{part}") for part in ("config", "status", "recall?query=tea")),
    *(Call("POST", path) for path in ("/memory/reload", "/mcp/cache/reset", "/skills/reload")),
    Call("GET", "/skills/search?q=notes"),
    Call("GET", "/skills/tidy-notes/export", None, via="text"),
    *(Call("GET", f"/skills/custom{path}") for path in ("", "/tidy-notes", "/tidy-notes/history")),
    Call("GET", "/skills/tidy-notes/secrets"),
    Call("PUT", "/skills/custom/tidy-notes", dict, {"content": f"{MATTER}More.\n"}),
    Call("GET", "/skills/custom/tidy-notes/diff?from_version=1&to_version=2"),
    Call("POST", "/skills/custom/tidy-notes/rollback", dict, {}),
    Call("DELETE", "/skills/custom/tidy-notes"),
    *(Call("GET", path) for path in ("/allowed-calls", "/mcp/status")),
    Call("GET", "/metrics", None, via="text"),
    Call("GET", f"{THREAD_REST}/artifacts"),
    Call("GET", f"{THREAD_REST}/artifacts?zip", None, via="text"),
    Call("GET", f"{THREAD_REST}/runs/$run/messages"),
    Call("GET", "/runs/$run/messages"),
    Call("GET", f"{THREAD_REST}/messages"),
    Call("GET", f"{THREAD_REST}/runs/$run/tasks?steps=true", [dict], keep={"step": "0.task_id"}),
    Call("GET", f"{THREAD_REST}/runs/$run/tasks/$step"),
    Call("POST", f"{THREAD_REST}/runs/$run/stream", None, via="text"),
    Call("POST", f"{THREAD_REST}/runs/$run/feedback", dict, {"rating": 1}, keep={"word": "feedback_id"}),
    Call("GET", f"{THREAD_REST}/runs/$run/feedback"),
    Call("GET", f"{THREAD_REST}/runs/$run/feedback/stats"),
    Call("GET", "/runs/$run/feedback"),
    Call("DELETE", f"{THREAD_REST}/runs/$run/feedback/$word"),
    Call("GET", f"{THREAD_REST}/storage"),
    Call("GET", f"{THREAD_REST}/history?limit=2", list, keep={"state": "0.checkpoint_id"}),
    Call("GET", f"{THREAD_REST}/state/$state?select=next"),
    Call("POST", f"{THREAD_REST}/state/checkpoint", dict, {"checkpoint": {"checkpoint_id": "$state"}}),
    Call("POST", f"{THREAD_REST}/copy", THREAD, keep={"copy": "thread_id"}),
    Call("POST", "/threads/$copy/runs/wait", dict, HELLO),
    Call(
        "POST", "/threads/$copy/commands", {"type": "success"}, RUN_START, keep={"started": "result.run_id"}
    ),
    Call("GET", "/threads/$copy/runs/$started/join"),
    Call("DELETE", "/threads/$copy/runs/$started", status=204),
    Call("POST", "/threads/count", int, {}),
    Call("POST", "/threads/prune", {"pruned_count": 1}, {"thread_ids": ["$copy"]}),
    Call("POST", "/runs", RUN, HELLO, keep={"own": "thread_id", "background": "run_id"}),
    Call("GET", "/threads/$own/runs/$background/join"),
    Call("POST", "/runs/cancel", status=204, body={"thread_id": "$own", "status": "all"}),
    Call("POST", "/runs/wait", dict, HELLO),
    Call("POST", "/runs/stream", None, HELLO, via="text"),
    Call("POST", "/runs/batch", list, [HELLO, {"input": {"nothing": 1}}]),
    Call("POST", "/threads/$own/teams/runs", RUN, TEAM, keep={"team": "run_id"}),
    Call("GET", "/threads/$own/runs/$team/join"),
    Call("POST", "/threads/$own/teams/runs/stream", None, TEAM, via="text"),
    Call("POST", "/assistants", dict, {"name": "Analyst"}, keep={"assistant": "assistant_id"}),
    Call("POST", "/assistants/search", [dict, ...], {"select": ["name", "version"]}),
    Call("POST", "/assistants/count", int, {}),
    Call("PATCH", "/assistants/$assistant", {"version": 2}, {"name": "Senior analyst"}),
    Call("POST", "/assistants/$assistant/versions", [dict, ...], {}),
    Call("POST", "/assistants/$assistant/latest", {"version": 1}, {"version": 1}),
    *(Call("GET", f"/assistants/$assistant{part}") for part in ("", "/graph", "/schemas", "/subgraphs")),
    Call("GET", "/assistants/lead_agent/subgraphs/tools"),
    Call("DELETE", "/assistants/$assistant", status=204),
    Call(
        "POST", "/threads/$own/runs/crons", dict, {"schedule": "0 3 * * *", **HELLO}, keep={"cron": "cron_id"}
    ),
    Call("POST", "/runs/crons", dict, {"schedule": "0 4 * * *", **HELLO}),
    Call("POST", "/runs/crons/search", [dict, dict], {}),
    Call("POST", "/runs/crons/count", 2, {}),
    Call("GET", "/runs/crons/$cron"),
    Call("PATCH", "/runs/crons/$cron", {"enabled": False}, {"enabled": False}),
    Call("DELETE", "/runs/crons/$cron", status=204),
    Call("PUT", "/store/items", body={**NOTE, "value": {"text": "first"}}, status=204),
    Call("GET", "/store/items?namespace=notes&key=one", {"value": {"text": "first"}}),
    Call("GET", "/store/items?namespace=notes&key=none", None),
    Call("POST", "/store/items/search", {"items": [dict]}, {"namespace_prefix": ["notes"]}),
    Call("POST", "/store/namespaces", {"namespaces": [["notes"]]}, {}),
    Call("DELETE", "/store/items", body=NOTE, status=204),
)
PROVEN_ELSEWHERE = {
    "approve_mcp_tools",
    "cancel_run_task",
    "copy_skill",
    "delete_skill_draft",
    "delete_skill_secrets",
    "download_skill_archive",
    "download_skill_text",
    "get_health",
    "get_skill_draft",
    "get_skill_index",
    "join_thread_stream",
    "promote_skill_draft",
    "record_skill_case",
    "revoke_allowed_call",
    "set_skill_secrets",
    "stream_thread_events",
    "test_mcp_server",
}
"""What needs more than a call: another server, a question, or a stream that does not end."""


def filled(value: Any, known: Mapping[str, Any]) -> Any:
    """Return a path, body or shape with what earlier calls answered in place of `$name`."""
    match value:
        case str() if value.startswith("$") and value[1:] in known:
            return known[value[1:]]
        case str():
            return Template(value).safe_substitute({key: str(item) for key, item in known.items()})
        case dict():
            return {key: filled(item, known) for key, item in value.items()}
        case list() | tuple():
            return type(value)(filled(item, known) for item in value)
    return value


def picked(value: Any, path: str) -> Any:
    for part in path.split(".") if path else ():
        value = value[int(part)] if isinstance(value, list) else value[part]
    return value


class Frontend:
    """Plays calls, one after the other, and remembers what they answered."""

    def __init__(self, gateway: Gateway, api: httpx.AsyncClient, model: ScriptedModel) -> None:
        self._gateway, self._api, self._model = gateway, api, model
        self._known: dict[str, Any] = {"thread": new_id()}
        self.problems: list[str] = []

    async def play(self, one: Call) -> None:
        if one.via == "held":
            await self._start_a_run_that_waits()
        path, body = filled(one.path, self._known), filled(one.body, self._known)
        if one.via == "socket":
            self._check(one, await self._closed_with(path), {}, "")
            return
        answer = await self._api.request(one.method, path, headers=one.headers, **self._sent(one, body))
        self._check(one, answer.status_code, self._read(one, answer), answer.text)
        if one.via == "held":
            await self._api.get(filled("/threads/$thread/runs/$held/join", self._known))

    def _sent(self, one: Call, body: Any) -> dict[str, Any]:
        match one.via:
            case "form":
                return {"data": body}
            case "files":
                return {"files": [("files", ("tidy.skill", skill_archive()))]}
        return {} if body is None else {"json": body}

    def _read(self, one: Call, answer: httpx.Response) -> Any:
        match one.via:
            case "text":
                return {"etag": answer.headers.get("etag", "").strip('"')}
            case "sse":
                return self._streamed(one, answer)
        return answer.json() if answer.content else {}

    def _streamed(self, one: Call, answer: httpx.Response) -> Any:
        events = parse_sse(answer.text)
        kinds = {kind for kind, _, _ in events}
        if not {"metadata", "values", "end"} <= kinds or "error" in kinds:
            self.problems.append(f"{one.path}: events {sorted(kinds)}")
        location = answer.headers.get("content-location", "")
        if one.method == "POST" and not location.startswith(f"/api/threads/{self._known['thread']}/runs/"):
            self.problems.append(f"{one.path}: Content-Location is {location!r}")
        last = next((data for kind, data, _ in reversed(events) if kind == "values"), {})
        self.problems += [f"{one.path}: {wrong}" for wrong in misfits(last, VALUES)]
        return {"run": next((data["run_id"] for kind, data, _ in events if kind == "metadata"), "")}

    def _check(self, one: Call, status: int, answer: Any, shown: str) -> None:
        name = f"{one.method} {one.path}"
        if status != one.status:
            self.problems.append(f"{name}: {status}, not {one.status}: {shown[:300]}")
            return
        if one.shape is not None:
            shape = filled(one.shape, self._known)
            self.problems += [f"{name}: {wrong}" for wrong in misfits(answer, shape)]
        self._known |= {key: picked(answer, path) for key, path in one.keep.items()}

    async def _start_a_run_that_waits(self) -> None:
        body = {"input": {"messages": [{"type": "human", "content": "Wait for me"}]}}
        run = await self._api.post(f"/threads/{self._known['thread']}/runs", json=body)
        await self._model.until(lambda model: model.in_flight > 0)
        self._known["held"] = run.json()["run_id"]

    async def _closed_with(self, path: str) -> int:
        url = self._gateway.api.replace("http", "ws", 1) + path
        # Of a socket Next.js sends on the page's port, not its name.
        kept = {key: value for key, value in PROXIED.items() if key not in ("Origin", "X-Forwarded-Host")}
        origin = Origin(PROXIED["Origin"])
        async with connect(url, origin=origin, additional_headers=kept, proxy=None) as socket:
            await socket.wait_closed()
        return socket.close_code or 0


def skill_archive() -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("tidy/SKILL.md", MATTER)
    return packed.getvalue()


def script(model: ScriptedModel, gate: threading.Event) -> None:
    model.on("JSON array", text(json.dumps(["What next?"])))
    model.on("about to send", text("Please do it."))
    model.on("Look closely", text("Nothing found."))
    model.on(
        "Write the report",
        call("task", description="Look", prompt="Look closely", subagent_type="general-purpose"),
        call("write_file", description="write", path=REPORT, content="# Report"),
        call("present_files", filepaths=[REPORT]),
        text("The report is written."),
    )
    model.on("Say it again", text("Again."))
    model.on("Wait for me", text("Waiting").held(gate))
    model.on(lambda request: True, text("Fine."))


def test_what_does_not_fit_is_named() -> None:
    shape = {"a": int, "b?": [str, ...], "c": ({"d": bool}, None), "e": "on", "f": []}

    assert misfits({"a": 1, "c": None, "e": "on", "f": []}, shape) == []
    wrong = misfits({"a": True, "b": [], "c": {"d": 1}, "e": "off", "f": [1]}, shape)
    assert [found.split()[0] for found in wrong] == ["$.a", "$.b", "$.c", "$.e", "$.f"]
    assert misfits([], shape) == ["$ is [], no object"]
    assert misfits({}, {"a": int}) == ["$.a is missing"]


def test_all_calls_are_listed() -> None:
    assert len(CALLS) >= 92
    refused = [one for one in CALLS if one.status >= 400]
    assert [one.path for one in refused if not one.absent] == []


async def test_the_frontend_finds_everything_as_documented(
    tmp_path: Path, model: ScriptedModel, gate: threading.Event
) -> None:
    script(model, gate)
    sections: dict[str, Any] = {
        "agents_api": {"enabled": True},
        "summarization": {"enabled": True},
        "input_polish": {"enabled": True},
        "scheduler": {"enabled": True},
    }
    (tmp_path / "extensions_config.json").write_text(json.dumps({"mcpServers": SERVERS}))
    documented = Documented()
    with running_gateway(tmp_path, model.base_url, **sections) as gateway:
        hooks = {"response": [documented.check]}
        async with gateway.client(headers=PROXIED, event_hooks=hooks) as api:
            frontend = Frontend(gateway, api, model)
            for one in (*CALLS[: -len(END)], *OTHERS, *END):
                await frontend.play(one)
            gate.set()

    assert "\n".join(frontend.problems) == ""
    assert "\n".join(documented.problems) == ""
    assert documented.unproven == PROVEN_ELSEWHERE
