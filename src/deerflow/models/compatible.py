"""`ChatOpenAI` for all OpenAI-compatible servers: DeepSeek, Moonshot, Qwen, vLLM and others.

It adds the lean transport, and the fields that these servers send in addition to the text. Their reasoning
is kept in `additional_kwargs["reasoning_content"]`, streamed, and sent back with the tool calls that followed
it, since several servers reject a conversation without it.
"""

import asyncio
import inspect
import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal, Self

import httpx2
import openai
from langchain_core.language_models import BaseChatModel, LanguageModelInput
from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    BaseMessage,
    BaseMessageChunk,
    HumanMessage,
    SystemMessage,
    ToolCallChunk,
)
from langchain_core.messages.tool import tool_call_chunk
from langchain_core.outputs import ChatGenerationChunk, ChatResult
from langchain_openai import ChatOpenAI
from pydantic import Field, PrivateAttr, SecretStr, model_validator
from typing_extensions import override

from deerflow.models.fallback import FallbackChatModel
from deerflow.models.openai_transport import Endpoint, LeanCompletions
from deerflow.models.pool import SessionPool
from deerflow.models.tool_call_assembly import BROKEN_CALLS, is_json

DEFAULT_RETRIES = 2
CONNECT_SECONDS = 10.0
READ_SECONDS = 600.0
CLIENT_ARGUMENTS = ("http_async_client", "http_client", "openai_proxy")
OTHER_SYSTEM_ROLE = re.compile(r"o\d")
"""Models for which LangChain changes the role of system messages."""
CALL_EXTRAS = "tool_call_extras"
"""Key for the extra content of tool calls, by call id (Gemini signs its calls)."""
_TEXT_KEYS, _IMAGE_KEYS = frozenset({"type", "text"}), frozenset({"type", "image_url"})
READ_CHARS = 200
MORE = frozenset({"name", "tool_calls", "function_call", "audio", "__openai_role__"})
"""Keys of `additional_kwargs` that LangChain sends in addition to a message's content."""
ROLES: Mapping[type[BaseMessage], str] = {
    HumanMessage: "user",
    AIMessage: "assistant",
    SystemMessage: "system",
}


class CompatibleChatOpenAI(ChatOpenAI):
    """A chat model on an OpenAI-compatible server."""

    transport: Literal["lean", "sdk"] = "lean"
    """Transport of chat completions: our own or the SDK's."""
    reasoning_key: Literal["reasoning_content", "reasoning", "reasoning_details"] = "reasoning_content"
    """The field in which this server expects its reasoning in later requests."""
    cumulative_stream_usage: bool = False
    """Accepted for vLLM entries; no effect: the lean transport always uses a stream's last token counts."""
    pool: SessionPool | None = Field(default=None, exclude=True)
    """The connection pool; None creates a pool for this model."""
    _own_pool: SessionPool | None = PrivateAttr(default=None)

    @model_validator(mode="before")
    @classmethod
    def _bound_and_owned(cls, values: dict[str, Any]) -> dict[str, Any]:
        """Give the SDK a timeout, which it lacks by default, and a client that is closed with the pool."""
        values = dict(values)
        pool = values.get("pool")
        if values.get("timeout") is None and values.get("request_timeout") is None:
            values["timeout"] = READ_SECONDS
        if isinstance(pool, SessionPool) and not any(values.get(name) for name in CLIENT_ARGUMENTS):
            values["http_async_client"] = pool.shared(
                "sdk", lambda: openai.DefaultAsyncHttpxClient(verify=pool.tls)
            )
        return values

    @model_validator(mode="after")
    def _use_transport(self) -> Self:
        if self.root_async_client is None or self.transport == "sdk":
            return self
        if self.pool is None:
            self._own_pool = SessionPool()
        self.async_client = LeanCompletions(self._endpoint(), self.pool or self._own_pool or SessionPool())
        # The lean transport enforces the chunk timeout itself; the adapter's costs a task per chunk.
        self.stream_chunk_timeout = None
        return self

    @classmethod
    @override
    def is_lc_serializable(cls) -> bool:
        return False

    async def aclose(self) -> None:
        """Close the connections that only this model uses."""
        if self._own_pool is not None:
            await self._own_pool.aclose()
        # With a proxy LangChain creates clients for this model only; otherwise they are shared.
        if self.openai_proxy and self.http_async_client is not None:
            await self.http_async_client.aclose()
        if self.openai_proxy and self.http_client is not None:
            self.http_client.close()

    @override
    def _convert_chunk_to_generation_chunk(
        self, chunk: dict[str, Any], default_chunk_class: type, base_generation_info: dict[str, Any] | None
    ) -> ChatGenerationChunk | None:
        choices = chunk.get("choices") or [{}]
        delta = choices[0].get("delta") or {}
        pieces = _later_pieces(delta)
        if pieces:
            chunk = {**chunk, "choices": [{**choices[0], "delta": {**delta, "tool_calls": None}}]}
        generation = super()._convert_chunk_to_generation_chunk(
            chunk, default_chunk_class, base_generation_info
        )
        if generation is not None and delta:
            if pieces and isinstance(generation.message, AIMessageChunk):
                generation.message.tool_call_chunks = pieces
            _keep_extra_fields(generation.message, delta)
        return generation

    @override
    def _create_chat_result(
        self, response: dict[str, Any] | openai.BaseModel, generation_info: dict[str, Any] | None = None
    ) -> ChatResult:
        result = super()._create_chat_result(response, generation_info)
        body = response if isinstance(response, dict) else response.model_dump(warnings=False)
        for generation, choice in zip(result.generations, body.get("choices") or (), strict=False):
            _keep_extra_fields(generation.message, choice.get("message") or {})
        return result

    @override
    def _get_request_payload(
        self, input_: LanguageModelInput, *, stop: list[str] | None = None, **kwargs: Any
    ) -> dict[str, Any]:
        messages = self._convert_input(input_).to_messages()
        said = [_plain(message) for message in messages]
        if OTHER_SYSTEM_ROLE.match(self.model_name):
            said = [None if plain and plain["role"] == "system" else plain for plain in said]
        rest = [message for message, plain in zip(messages, said, strict=True) if plain is None]
        payload: dict[str, Any] = super()._get_request_payload(rest, stop=stop, **kwargs)
        if "messages" not in payload:  # the Responses API has a different payload
            return super()._get_request_payload(messages, stop=stop, **kwargs)
        for message, sent in zip(rest, payload["messages"], strict=True):
            if isinstance(message, AIMessage) and sent.get("tool_calls"):
                _send_extra_fields(message, sent, self.reasoning_key)
        others = iter(payload["messages"])
        payload["messages"] = [plain or next(others) for plain in said]
        return payload

    def _endpoint(self) -> Endpoint:
        client = self.root_async_client
        connect, read = _timeouts(self.request_timeout)
        return Endpoint(
            url=f"{str(client.base_url).rstrip('/')}/chat/completions",
            model=self.model_name,
            headers=self._headers,
            query={key: str(value) for key, value in (self.default_query or {}).items()},
            proxy=self.openai_proxy or None,
            max_retries=DEFAULT_RETRIES if self.max_retries is None else self.max_retries,
            connect_seconds=connect,
            read_seconds=read,
            chunk_seconds=self.stream_chunk_timeout or None,
        )

    async def _headers(self) -> Mapping[str, str]:
        client = self.root_async_client
        optional = {"OpenAI-Organization": client.organization, "OpenAI-Project": client.project}
        return {
            "Content-Type": "application/json",
            "Accept": "application/json, text/event-stream",
            "User-Agent": "deerflow",
            "Authorization": f"Bearer {await self._key()}",
            **{name: value for name, value in optional.items() if value},
            **(self.default_headers or {}),
        }

    async def _key(self) -> str:
        key = self.openai_api_key
        if isinstance(key, SecretStr):
            return key.get_secret_value()
        if key is None:
            return str(self.root_async_client.api_key)
        value = key()
        return str(await value if inspect.isawaitable(value) else value)


def _plain(message: BaseMessage) -> dict[str, Any] | None:
    """Return the payload of a message that has only text and images; None for all other messages.

    Most messages of a long conversation are of this kind, and LangChain's conversion scans their whole text.
    """
    role = ROLES.get(type(message))
    fields = message.__dict__  # faster than attribute access on a pydantic object
    content = fields["content"]
    if (
        role is None
        or not (isinstance(content, str) or _has_openai_format(content))
        or fields["name"]
        or not fields["additional_kwargs"].keys().isdisjoint(MORE)
        or fields.get("tool_calls")
        or fields.get("invalid_tool_calls")
    ):
        return None
    return {"role": role, "content": content}


def _has_openai_format(content: Sequence[Any]) -> bool:
    """Return whether all content blocks have OpenAI's format; LangChain's conversion takes 0.6 ms each."""
    return all(
        isinstance(block, dict)
        and (
            (block.keys() == _TEXT_KEYS and block["type"] == "text")
            or (block.keys() == _IMAGE_KEYS and block["type"] == "image_url")
        )
        for block in content
    )


def _later_pieces(delta: Mapping[str, Any]) -> list[ToolCallChunk]:
    """Return the tool call fragments of a chunk that only continues earlier calls; else an empty list.

    LangChain would parse each fragment as partial JSON, in time quadratic in its length.
    """
    calls = delta.get("tool_calls") or []
    if all(map(_begins, calls)) or not all("index" in call for call in calls):
        return []
    return [
        tool_call_chunk(
            name=call["function"].get("name"),
            args=call["function"].get("arguments"),
            id=call.get("id"),
            index=call["index"],
        )
        for call in calls
    ]


def _begins(call: Mapping[str, Any]) -> bool:
    """Return whether a fragment starts a call and is cheap for LangChain to parse."""
    arguments = call["function"].get("arguments") or ""
    return bool(call["function"].get("name")) and (len(arguments) <= READ_CHARS or is_json(arguments))


def _keep_extra_fields(message: BaseMessage | BaseMessageChunk, said: Mapping[str, Any]) -> None:
    """Keep what the server sent in addition to the text: reasoning, and extra content of tool calls."""
    reasoning = _reasoning_in(said)
    if reasoning:
        message.additional_kwargs["reasoning_content"] = reasoning
    if said.get(BROKEN_CALLS):
        message.additional_kwargs[BROKEN_CALLS] = said[BROKEN_CALLS]
    calls = said.get("tool_calls")
    if calls:
        extras = {
            one["id"]: one["extra_content"] for one in calls if one.get("id") and one.get("extra_content")
        }
        if extras:
            message.additional_kwargs[CALL_EXTRAS] = extras


def _reasoning_in(said: Mapping[str, Any]) -> str:
    for key in ("reasoning_content", "reasoning"):
        value = said.get(key)
        if isinstance(value, str) and value:
            return value
    details = said.get("reasoning_details")
    if isinstance(details, list):
        return "".join(one.get("text") or "" for one in details if isinstance(one, dict))
    return ""


def _send_extra_fields(message: AIMessage, sent: dict[str, Any], reasoning_key: str) -> None:
    """Write the kept fields into a request message where the server expects them."""
    reasoning = message.additional_kwargs.get("reasoning_content")
    if reasoning and reasoning_key == "reasoning_details":
        sent[reasoning_key] = [{"type": "reasoning.text", "text": reasoning}]
    elif reasoning:
        sent[reasoning_key] = reasoning
    extras = message.additional_kwargs.get(CALL_EXTRAS) or {}
    for call in sent["tool_calls"]:
        if call.get("id") in extras:
            call["extra_content"] = extras[call["id"]]


def _timeouts(timeout: object) -> tuple[float, float | None]:
    """Return the connect and read timeouts in seconds from any form that the SDK accepts."""
    if isinstance(timeout, int | float):
        return min(CONNECT_SECONDS, float(timeout)), float(timeout)
    if isinstance(timeout, httpx2.Timeout):
        return timeout.connect or CONNECT_SECONDS, timeout.read
    return CONNECT_SECONDS, READ_SECONDS


PROBE_SECONDS = 5.0


async def connection_problem(model: BaseChatModel, *, timeout_seconds: float = PROBE_SECONDS) -> str | None:
    """Return why a model's server cannot be used; None if it can, or if that cannot be determined.

    Listing the models is free, and every OpenAI-compatible server checks the key for it. A server without a
    model list still responds, which proves that it is reachable.
    """
    first = model.members[0] if isinstance(model, FallbackChatModel) else model
    if not isinstance(first, ChatOpenAI) or first.root_async_client is None:
        return None
    client = first.root_async_client.with_options(max_retries=0, timeout=timeout_seconds)
    where = str(client.base_url).rstrip("/")
    try:
        async with asyncio.timeout(timeout_seconds):
            await client.models.list()
    except (openai.AuthenticationError, openai.PermissionDeniedError):
        return f"{where} refuses the key; check `api_key`"
    except (TimeoutError, openai.APITimeoutError):
        return f"{where} did not answer within {timeout_seconds:g} s; check `base_url` and the network"
    except openai.APIConnectionError:
        return f"{where} cannot be reached; check `base_url` and the network"
    except openai.APIError:
        return None
    return None
