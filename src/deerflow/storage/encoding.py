"""Encode values for database columns: JSON, compressed bodies and times.

Bodies are compressed with zlib and a preset dictionary of the text that most rows share. Without the
dictionary a thread of `benchmarks/history` grows 63 % faster with short answers (8.9 instead of 5.5 KB per
turn) and 30 % faster with long ones, at the same CPU time.
"""

import functools
import time
import zlib
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import orjson
from pydantic import TypeAdapter

from deerflow.domain import RunRequest, SkillUse, TokenUse
from deerflow.errors import InvalidInputError

UNCOMPRESSED_BYTES = 64
"""Bodies up to this many bytes are stored uncompressed."""
_SMALL_WINDOW_BYTES = 8192
# First byte of a zlib stream with an 8 KB or 32 KB window; no uncompressed body starts with it.
_ZLIB_FIRST_BYTES = (0x58, 0x78)
LATER = "CASE WHEN ? > updated_at THEN ? ELSE updated_at + 1 END"
"""SQL for the new `updated_at` of a row: now, and always later than before. Takes the values of `later`."""


def compress(body: bytes) -> bytes:
    """Return the body as stored: compressed where that is smaller."""
    must = body[:1] in (b"\x58", b"\x78")
    if len(body) <= UNCOMPRESSED_BYTES and not must:
        return body
    # A small window costs 10 µs, the default one 70 µs: zlib clears it for every body.
    bits, memory, level = (13, 5, 6) if len(body) <= _SMALL_WINDOW_BYTES else (15, 8, 3)
    compressor = zlib.compressobj(level, zlib.DEFLATED, bits, memory, zdict=DICTIONARY)
    compressed = compressor.compress(body) + compressor.flush()
    return compressed if must or len(compressed) < len(body) else body


def decompress(stored: bytes) -> bytes:
    """Return the body that `compress` encoded."""
    if not stored or stored[0] not in _ZLIB_FIRST_BYTES:
        return stored
    # The dictionary's checksum follows zlib's two-byte header.
    dictionary = _DICTIONARIES[int.from_bytes(stored[2:6], "big")]
    return zlib.decompressobj(zdict=dictionary).decompress(stored)


def without_nul(text: str) -> str:
    """Return free text without NUL, which databases cannot store in text columns."""
    return text.replace("\x00", "\ufffd")


def now_us() -> int:
    """Return the current time in microseconds, as stored in columns."""
    return time.time_ns() // 1000


def later() -> tuple[int, int]:
    """Return the parameters for `LATER`."""
    now = now_us()
    return now, now


def time_of(us: int) -> datetime:
    """Return the time stored in a column."""
    return datetime.fromtimestamp(us / 1_000_000, UTC)


def dump_request(request: RunRequest) -> bytes:
    """Return the request as JSON; `InvalidInputError` names the value that is not JSON-serializable."""
    return dump_json(request, what="the run request")


def load_request(data: bytes) -> RunRequest:
    """Return the request that `dump_request` encoded; fields of newer versions are ignored."""
    request: RunRequest = _adapter(RunRequest).validate_json(data)
    return request


def dump_usage(usage: TokenUse) -> str:
    """Return token usage as JSON."""
    return orjson.dumps(usage).decode()


def load_usage(text: str | None) -> TokenUse:
    """Return the token usage that `dump_usage` encoded."""
    usage: TokenUse = _adapter(TokenUse).validate_json(text or "{}")
    return usage


def dump_skills(skills: Sequence[SkillUse]) -> str:
    """Return the skills that a run used as JSON."""
    return orjson.dumps(skills).decode()


def load_skills(text: str | None) -> tuple[SkillUse, ...]:
    """Return the skills that `dump_skills` encoded."""
    return () if text is None else tuple(SkillUse(**skill) for skill in orjson.loads(text))


def dump_interrupts(interrupts: Mapping[str, Any]) -> str | None:
    """Return the interrupts of a thread as JSON; None when there are none."""
    return dump_json(interrupts, what="an interrupt").decode() if interrupts else None


def dump_json(value: Any, *, what: str, is_sorted: bool = False) -> bytes:
    """Return `value` as JSON; with sorted keys, equal values give equal bytes."""
    try:
        return orjson.dumps(value, default=_to_dict, option=orjson.OPT_SORT_KEYS if is_sorted else None)
    except orjson.JSONEncodeError as error:
        raise InvalidInputError(f"{what} holds something that is not JSON: {error}") from error


def _to_dict(value: Any) -> Any:
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"a value of type {type(value).__name__}")


@functools.cache  # built when first used: it takes some 10 ms
def _adapter(kind: type[Any]) -> TypeAdapter[Any]:
    return TypeAdapter(kind)


# Later entries are cheaper to refer to, so the most frequent ones stand at the end. Rows carry the
# dictionary's checksum: a released dictionary is never edited, a better one is added to `_DICTIONARIES`.
DICTIONARY = b"".join(
    (
        # run requests
        b'{"thread_id":"","user_id":"default","assistant_id":"lead_agent","input":{"messages":[{"type":"human",',
        b'"role":"user","content":[{"type":"text","text":""}],"id":""}]},"command":null,"options":{"model_name":',
        b'null,"mode":null,"thinking_enabled":true,"reasoning_effort":null,"is_plan_mode":false,',
        b'"subagent_enabled":false,"max_concurrent_subagents":3,"max_total_subagents":null,"agent_name":null,',
        b'"is_bootstrap":false},"context":{},"metadata":{},"stream_modes":["values","messages-tuple","updates",',
        b'"custom"],"stream_subgraphs":false,"on_disconnect":"cancel","multitask_strategy":"reject",',
        b'"checkpoint_id":null,"recursion_limit":100,"interrupt_before":[],"interrupt_after":[],',
        b'"is_interactive":true}',
        # events and their fragments
        b'"langgraph_step":,"langgraph_node":"model","langgraph_triggers":["branch:to:model"],"langgraph_path":',
        b'["__pregel_pull","model"],"langgraph_checkpoint_ns":"model:","checkpoint_ns":"","ls_provider":"openai",',
        b'"ls_model_name":"","ls_model_type":"chat","ls_temperature":null,"lc_agent_name":"',
        b'{"title":"","thread_data":{"workspace_path":"/mnt/user-data/workspace","uploads_path":',
        b'"/mnt/user-data/uploads","outputs_path":"/mnt/user-data/outputs"},"sandbox":{"sandbox_id":"local"},',
        b'"artifacts":[],"todos":[],"uploaded_files":[],"viewed_images":{},"run_id":"","attempt":1}',
        b'"type":"tool","name":"bash","tool_call_id":"call_","artifact":null,"status":"success"}',
        b'"tool_calls":[{"name":"","args":{},"id":"call_","type":"tool_call"}],"invalid_tool_calls":[],',
        b'"usage_metadata":{"input_tokens":,"output_tokens":,"total_tokens":},"tool_call_chunks":[],',
        b'"chunk_position":null}"messages","values","custom","metadata","updates","end"',
        b'{"content":"","additional_kwargs":{},"response_metadata":{"finish_reason":"stop","model_name":"",',
        b'"model_provider":"openai"},"type":"AIMessageChunk","name":null,"id":"lc_run--","type":"human","type":"ai"',
        # writes
        b"\xa9__error__\xad__interrupt__\xae__pregel_tasks\xa5tools\xbclangchain_core.messages.tool\xabToolMessage",
        b"\xaetool_call_id\xd9\xa8artifact\xc0\xa6status\xa7success\xa4tool\xa9tool_call\xa4args\x81\xa7command",
        b"\xb1additional_kwargs\x80\xb1response_metadata\x80\xa4type\xa5human\xa4name\xc0\xa2id\xd9$\xb3",
        b"model_validate_json\x91\x93\x00\xa8messages\xc5\x01\x91\x91\xc7\x05\x94\xbdlangchain_core.messages.human",
        b"\xacHumanMessage\x86\xa7content\xbalangchain_core.messages.ai\xa9AIMessage\x89\xa7content\xd9",
        b"\xb1additional_kwargs\x80\xb1response_metadata\x83\xadfinish_reason\xa4stop\xaamodel_name\xaemodel_provider",
        b"\xa6openai\xa4type\xa2ai\xa4name\xc0\xa2id\xd9,lc_run--\xaatool_calls\x90\xb2invalid_tool_calls\x90",
        b"\xaeusage_metadata\x85\xacinput_tokens\xadoutput_tokens\xactotal_tokens\xb3input_token_details\x80",
        b"\xb4output_token_details\x80\xb3model_validate_json",
        # checkpoints
        b"\xa7sandbox\xabthread_data\x83\xaeworkspace_path\xb9/mnt/user-data/workspace\xacuploads_path",
        b"\xb7/mnt/user-data/uploads\xacoutputs_path\xb7/mnt/user-data/outputs\xa9artifacts\x90\xa5todos",
        b"\xaeuploaded_files\xadviewed_images\xadls_integration\xb6langchain_create_agent\xadlc_agent_name",
        b"\x91\x98\x86\xa6source\xa5input\xa4loop\xa4step\xa7parents\x80\xbdcounters_since_delta_snapshot\x81",
        b"\xa8messages\x92\xa6run_id\xd9$\xa7user_id\xa7default\x04\xd9 2026-11-15T12:00:00.000000+00:00",
        b"\xa5title\xa9__start__\xa8messages\xafbranch:to:tools\xafbranch:to:model\x84\xa9__input__\x80",
        b"\xa9__start__\x81\xa9__start__\xa5model\x81\xafbranch:to:model",
    )
)
_DICTIONARIES: dict[int, bytes] = {zlib.adler32(DICTIONARY): DICTIONARY}
