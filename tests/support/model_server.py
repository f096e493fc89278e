"""An OpenAI-compatible model server that plays scripts over real HTTP, faults included.

    with ScriptedModel() as model:
        model.will_say(call("bash", command="echo 42"), text("It is 42."))
        model.on("part 1", text("one"))            # parallel sub-agents: by what they were asked

A reply is chosen in this order: the first `on` rule that matches, a `[[bench …]]` directive in the last
user message that has one, the `will_say` queue. With nothing left the answer is a 500 that says so.
It runs in a thread with a loop of its own; `python tests/support/model_server.py --port N` runs it alone.

    [[bench answer n=100 first=0 gap=10]]           n tokens, milliseconds before and between them
    [[bench tools k=20 n=10]]                       k steps with one file tool call each, then n tokens
    [[bench fanout total=3 per=3 sub=200 n=10]]     `task` calls, `per` at a time, whose prompts are answers
    [[bench script BASE64]]                         JSON list of {"text"} / {"calls": [{"name", "args"}]}
"""

import argparse
import asyncio
import base64
import itertools
import json
import re
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Self

Json = dict[str, Any]
DIRECTIVE = re.compile(r"\[\[bench (\w+)([^\]]*)\]\]")
TOKEN = re.compile(r"\s*\S{1,12}\s*|\s+")
FILE_TOOLS = ("write_file", "read_file", "ls")


@dataclass(frozen=True, slots=True)
class Fault:
    """How a reply goes wrong, and after how many tokens."""

    kind: Literal["status", "cut", "end", "malformed", "error", "silence", "disconnect"]
    after: int = 0
    code: int = 500
    message: str = ""
    error_code: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Reply:
    """One scripted answer; parts are joined with `+`."""

    text: str = ""
    reasoning: str = ""
    tool_calls: tuple[tuple[str, str], ...] = ()
    """Names and arguments, the latter as JSON text."""
    usage: Json | None = None
    first: float = 0
    """Seconds before the first token."""
    delay: float = 0
    """Seconds between tokens."""
    gate: threading.Event | None = None
    """Nothing more is sent until this is set."""
    gate_after: int = 0
    fault: Fault | None = None
    finish: str | None = None
    """Why the answer ended, where it is not what the parts say."""

    def __add__(self, other: "Reply") -> "Reply":
        """Return one reply with the parts of both."""
        return Reply(
            text=self.text + other.text,
            reasoning=self.reasoning + other.reasoning,
            tool_calls=self.tool_calls + other.tool_calls,
            usage=other.usage or self.usage,
            first=self.first or other.first,
            delay=self.delay or other.delay,
            gate=self.gate or other.gate,
            gate_after=self.gate_after or other.gate_after,
            fault=self.fault or other.fault,
            finish=self.finish or other.finish,
        )

    def held(self, gate: threading.Event, *, after: int = 0) -> "Reply":
        """Return this reply stopping after so many tokens until `gate` is set."""
        return replace(self, gate=gate, gate_after=after)


def text(content: str, *, delay: float = 0, first: float = 0) -> Reply:
    """Say `content` token by token, with `delay` seconds between tokens and `first` before them."""
    return Reply(text=content, delay=delay, first=first)


def call(name: str, /, **arguments: Any) -> Reply:
    """Call one tool."""
    return Reply(tool_calls=((name, json.dumps(arguments)),))


def raw_call(name: str, arguments: str, /) -> Reply:
    """Call one tool with arguments that need not be JSON."""
    return Reply(tool_calls=((name, arguments),))


def calls(*replies: Reply) -> Reply:
    """Call several tools at once: `calls(call("ls", path="/"), call("bash", command="ls"))`."""
    return sum(replies, Reply())


def reasoning(content: str) -> Reply:
    """Think before the rest of the reply: `reasoning("hm") + text("yes")`."""
    return Reply(reasoning=content)


def usage(prompt: int, completion: int, **details: Json) -> Reply:
    """Report these token counts: `text("yes") + usage(10, 2)`."""
    counts = {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}
    return Reply(usage={**counts, **details})


def finished(reason: str) -> Reply:
    """End for this reason: `text("Once upon") + finished("length")`."""
    return Reply(finish=reason)


def status(
    code: int, *, retry_after: float | str | None = None, message: str = "", error_code: str | None = None
) -> Reply:
    """Refuse with an HTTP status; `error_code` is the code in the body."""
    headers = {} if retry_after is None else {"retry-after": str(retry_after)}
    words = message or f"scripted status {code}"
    return Reply(fault=Fault("status", code=code, message=words, error_code=error_code, headers=headers))


def cut(content: str = "", *, after: int = 0, delay: float = 0) -> Reply:
    """Close the connection in the middle of the answer, after so many tokens."""
    return Reply(text=content, delay=delay, fault=Fault("cut", after=after))


def unfinished(content: str = "", *, after: int = 0) -> Reply:
    """End the stream neatly but with neither a finish reason nor `[DONE]`."""
    return Reply(text=content, fault=Fault("end", after=after))


def malformed(content: str = "", *, after: int = 0) -> Reply:
    """Send JSON that breaks off."""
    return Reply(text=content, fault=Fault("malformed", after=after))


def broken(message: str, content: str = "", *, after: int = 0) -> Reply:
    """Send an error object inside the stream."""
    return Reply(text=content, fault=Fault("error", after=after, message=message))


def silence(content: str = "", *, after: int = 0) -> Reply:
    """Go quiet for good: before the headers, or after so many tokens."""
    return Reply(text=content, fault=Fault("silence", after=after))


def disconnect() -> Reply:
    """Close the connection before any header."""
    return Reply(fault=Fault("disconnect"))


@dataclass(frozen=True, slots=True)
class Request:
    """One call that the server received."""

    path: str
    headers: Mapping[str, str]
    body: Json

    @property
    def messages(self) -> list[Json]:
        return list(self.body.get("messages", []))

    @property
    def last_message(self) -> str:
        """The text of the last message."""
        return _text_of(self.messages[-1]) if self.messages else ""

    @property
    def asked(self) -> str:
        """The text of the last user message."""
        return next((_text_of(m) for m in reversed(self.messages) if m.get("role") == "user"), "")

    @property
    def system(self) -> str:
        """The text of all system messages."""
        return "\n".join(_text_of(m) for m in self.messages if m.get("role") in ("system", "developer"))

    @property
    def step(self) -> int:
        """How often the model has already answered since the last user message."""
        roles = [m.get("role") for m in self.messages]
        since = len(roles) - 1 - roles[::-1].index("user") if "user" in roles else 0
        return roles[since:].count("assistant")

    @property
    def tools(self) -> list[str]:
        """The names of the tools on offer."""
        return [tool.get("function", {}).get("name", "") for tool in self.body.get("tools") or []]


Answer = Reply | Callable[[Request], Reply]
Predicate = str | Callable[[Request], bool]


@dataclass(frozen=True, slots=True)
class Rule:
    """Replies for the requests that match."""

    matches: Callable[[Request], bool]
    answers: tuple[Answer, ...]

    def reply(self, request: Request) -> Reply:
        answer = self.answers[min(request.step, len(self.answers) - 1)]
        return answer if isinstance(answer, Reply) else answer(request)


class ScriptedModel:
    """The server: what it will say, what it was asked, and how many calls were open at once."""

    def __init__(self, *, port: int = 0, models: Iterable[str] = ("scripted",)) -> None:
        self.port = port
        self.models = list(models)
        self.requests: list[Request] = []
        self.connections = 0
        self.in_flight = 0
        self.most_in_flight = 0
        self.aborted = 0
        """Calls whose client went away before the answer was complete."""
        self._queue: deque[Reply] = deque()
        self._rules: list[Rule] = []
        self._changed = threading.Condition()
        self._open: set[_Connection] = set()
        self._call_ids = itertools.count(1)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    @property
    def base_url(self) -> str:
        """The address to give to a client as `base_url`."""
        return f"http://127.0.0.1:{self.port}/v1"

    def will_say(self, *replies: Reply) -> None:
        """Add replies that are given one after the other, whoever asks."""
        self._queue.extend(replies)

    def on(self, predicate: Predicate, *answers: Answer) -> None:
        """Answer matching requests; a string matches when the last user message contains it.

        Several answers are given by the step of the conversation, that is by how often the model has
        answered since the last user message; the last one repeats.
        """
        matches = (lambda request: predicate in request.asked) if isinstance(predicate, str) else predicate
        self._rules.append(Rule(matches, answers))

    @property
    def open_connections(self) -> int:
        """How many clients are connected right now."""
        return len(self._open)

    @property
    def unsaid(self) -> int:
        """How many queued replies nobody has asked for."""
        return len(self._queue)

    def reset(self) -> None:
        """Forget script, requests and counters."""
        self._queue.clear()
        self._rules.clear()
        self.requests.clear()
        self.most_in_flight = self.in_flight
        self.aborted = self.connections = 0

    def wait_for(self, condition: Callable[["ScriptedModel"], bool], *, timeout: float = 120) -> None:
        """Block until the counters fulfil `condition`: `wait_for(lambda m: m.aborted == 1)`."""
        with self._changed:
            if not self._changed.wait_for(lambda: condition(self), timeout):
                raise TimeoutError(f"the model server saw no such thing in {timeout:g} s: {self.stats()}")

    async def until(self, condition: Callable[["ScriptedModel"], bool], *, timeout: float = 120) -> None:
        """Wait until the counters fulfil `condition`."""
        await asyncio.to_thread(self.wait_for, condition, timeout=timeout)

    def stats(self) -> Json:
        """Return the counters, as `GET /stats` does."""
        names = ("connections", "in_flight", "most_in_flight", "aborted", "unsaid")
        return {"requests": len(self.requests), **{name: getattr(self, name) for name in names}}

    def start(self) -> Self:
        """Listen; returns when the port is known."""
        started = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve(started)), daemon=True)
        self._thread.start()
        if not started.wait(60) or self._loop is None:
            raise RuntimeError(f"the model server could not listen on port {self.port}")
        return self

    def stop(self) -> None:
        """Close every connection and the port."""
        loop, thread = self._loop, self._thread
        self._loop = self._thread = None
        if loop is not None and thread is not None:
            loop.call_soon_threadsafe(self._stopping.set)
            thread.join(60)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *error: object) -> None:
        self.stop()

    async def _serve(self, started: threading.Event) -> None:
        self._stopping = asyncio.Event()
        loop = asyncio.get_running_loop()
        try:
            server = await loop.create_server(
                lambda: _Connection(self), "127.0.0.1", self.port, backlog=2048, reuse_address=True
            )
        except OSError:
            started.set()
            raise
        self.port = server.sockets[0].getsockname()[1]
        self._loop = loop
        started.set()
        await self._stopping.wait()
        server.close()
        for connection in list(self._open):
            connection.abort()
        await asyncio.sleep(0)

    def choose(self, request: Request) -> Reply:
        """Return what to answer."""
        for rule in self._rules:
            if rule.matches(request):
                return rule.reply(request)
        directed = directed_reply(request)
        if directed is not None:
            return directed
        try:
            return self._queue.popleft()
        except IndexError:
            asked = request.last_message[:200]
            return status(500, message=f"the model's script is exhausted; the last message was: {asked!r}")

    def next_call_id(self) -> str:
        """Return an id for a tool call."""
        return f"call_{next(self._call_ids):06d}"

    def begun(self, request: Request) -> None:
        """Count a call; nobody who waits sees it among the requests and not yet in flight."""
        with self._changed:
            self.requests.append(request)
            self.changed(in_flight=1)

    def changed(self, **deltas: int) -> None:
        """Add to the counters and wake those who wait for them."""
        with self._changed:
            for name, delta in deltas.items():
                setattr(self, name, getattr(self, name) + delta)
            self.most_in_flight = max(self.most_in_flight, self.in_flight)
            self._changed.notify_all()


class _Connection(asyncio.Protocol):
    """One HTTP/1.1 connection, kept alive; a client that leaves ends its call at once."""

    def __init__(self, model: ScriptedModel) -> None:
        self._model = model
        self._buffer = bytearray()
        self._task: asyncio.Task[None] | None = None
        self.transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self._model._open.add(self)
        self._model.changed(connections=1)

    def connection_lost(self, exc: Exception | None) -> None:
        self._model._open.discard(self)
        self._model.changed()
        if self._task is not None:
            # A call that came just before is begun first, so that it counts.
            asyncio.get_running_loop().call_soon(self._task.cancel)

    def abort(self) -> None:
        self.transport.abort()

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        if self._task is None:
            self._next()

    def _next(self) -> None:
        """Start on the next request once all of it is here."""
        self._task = None
        end = self._buffer.find(b"\r\n\r\n")
        if end < 0:
            return
        lines = self._buffer[:end].decode("latin-1").split("\r\n")
        headers = {k.strip().lower(): v.strip() for k, _, v in (line.partition(":") for line in lines[1:])}
        size = end + 4 + int(headers.get("content-length", "0"))
        if len(self._buffer) < size:
            return
        raw = bytes(self._buffer[end + 4 : size])
        del self._buffer[:size]
        target = lines[0].split(" ")[1]
        self._task = asyncio.ensure_future(self._answer(target, headers, raw))

    async def _answer(self, target: str, headers: Mapping[str, str], raw: bytes) -> None:
        path = target.partition("?")[0]
        if path.endswith("/chat/completions"):
            await self._complete(target, headers, raw)
        elif path.endswith("/stats"):
            self._json(200, self._model.stats())
        elif path.endswith("/reset"):
            self._model.reset()
            self._json(200, self._model.stats())
        elif path.endswith("/models"):
            data = [{"id": name, "object": "model"} for name in self._model.models]
            self._json(200, {"object": "list", "data": data})
        elif path.endswith("/api/tags"):
            self._json(200, {"models": [{"name": name, "model": name} for name in self._model.models]})
        else:
            self._json(404, {"error": {"message": f"nothing at {path}"}})
        if not self.transport.is_closing():
            self._next()

    async def _complete(self, path: str, headers: Mapping[str, str], raw: bytes) -> None:
        try:
            body = json.loads(raw)
        except ValueError:
            self._json(400, {"error": {"message": "the request body is not JSON"}})
            return
        request = Request(path, headers, body)
        self._model.begun(request)
        is_aborted = 0
        try:
            reply = self._model.choose(request)
            if body.get("stream"):
                await self._stream(request, reply)
            else:
                await self._whole(request, reply)
        except asyncio.CancelledError:
            is_aborted = 1
        finally:
            self._model.changed(in_flight=-1, aborted=is_aborted)

    async def _whole(self, request: Request, reply: Reply) -> None:
        """Answer without streaming."""
        tokens = TOKEN.findall(reply.text)
        await self._pause(reply.first + reply.delay * len(tokens))
        await self._wait_at_gate(reply)
        if reply.fault is not None:
            await self._fail(reply.fault, is_started=False)
            return
        message: Json = {"role": "assistant", "content": reply.text or None}
        if reply.reasoning:
            message["reasoning_content"] = reply.reasoning
        if reply.tool_calls:
            message["tool_calls"] = [
                _tool_call(self._model.next_call_id(), *made) for made in reply.tool_calls
            ]
        finish = reply.finish or ("tool_calls" if reply.tool_calls else "stop")
        choice = {"index": 0, "message": message, "finish_reason": finish}
        counts = _usage(request, reply)
        self._json(200, {**_envelope("chat.completion", request), "choices": [choice], "usage": counts})

    async def _stream(self, request: Request, reply: Reply) -> None:
        """Answer token by token."""
        fault = reply.fault
        await self._pause(reply.first)
        if reply.gate_after == 0:
            await self._wait_at_gate(reply)
        if fault is not None and not fault.after and fault.kind in ("status", "silence", "disconnect"):
            await self._fail(fault, is_started=False)
            return
        self.transport.write(STREAM_HEAD + _chunk(request, {"role": "assistant", "content": ""}))
        if not await self._say(request, reply):
            return
        for index, made in enumerate(reply.tool_calls):
            for delta in _call_deltas(index, self._model.next_call_id(), *made):
                self.transport.write(_chunk(request, delta))
        tail = _chunk(request, {}, finish=reply.finish or ("tool_calls" if reply.tool_calls else "stop"))
        if (request.body.get("stream_options") or {}).get("include_usage"):
            tail += _frame({**_chunk_envelope(request), "choices": [], "usage": _usage(request, reply)})
        self.transport.write(tail + DONE)

    async def _say(self, request: Request, reply: Reply) -> bool:
        """Send the tokens on their schedule; False when the reply's fault ended it."""
        fault, number = reply.fault, 0
        frames = list(_text_frames(request, reply))
        if not (reply.delay or reply.gate or fault):
            self.transport.write(b"".join(frames))
            return True
        due = asyncio.get_running_loop().time()
        for number, frame in enumerate(frames):
            if fault is not None and number >= fault.after:
                break
            if number == reply.gate_after:
                await self._wait_at_gate(reply)
            self.transport.write(frame)
            due += reply.delay
            await self._pause(due - asyncio.get_running_loop().time() if reply.delay else 0)
        if reply.gate_after >= len(frames):
            await self._wait_at_gate(reply)
        if fault is not None:
            await self._fail(fault, is_started=True)
        return fault is None

    async def _fail(self, fault: Fault, *, is_started: bool) -> None:
        match fault.kind:
            case "status":
                code = fault.error_code or fault.code
                error = {"error": {"message": fault.message, "type": "scripted", "code": code}}
                self._json(fault.code, error, headers=fault.headers)
            case "cut" if not is_started:
                self.transport.write(b"HTTP/1.1 200 OK\r\ncontent-length: 9999\r\n\r\n{")
                self.transport.close()
            case "malformed" if is_started:
                self.transport.write(
                    _raw_frame(b'data: {"choices": [{"index": 0, "delta": {"cont\n\n') + DONE
                )
            case "malformed":
                self.transport.write(b'HTTP/1.1 200 OK\r\ncontent-length: 12\r\n\r\n{"choices": ')
            case "error" if is_started:
                self.transport.write(_frame({"error": {"message": fault.message, "code": 500}}) + DONE)
            case "error":
                self._json(200, {"error": {"message": fault.message, "code": 500}})
            case "end" if is_started:
                self.transport.write(b"0\r\n\r\n")
            case "silence":
                await asyncio.Event().wait()
            case _:
                self.transport.close()

    async def _wait_at_gate(self, reply: Reply) -> None:
        # The gate belongs to another thread, so there is no asyncio event to wait for.
        while reply.gate is not None and not reply.gate.is_set():  # noqa: ASYNC110
            await asyncio.sleep(0.002)

    async def _pause(self, seconds: float) -> None:
        if seconds > 0:
            await asyncio.sleep(seconds)

    def _json(self, code: int, body: Json, *, headers: Mapping[str, str] | None = None) -> None:
        raw = json.dumps(body).encode()
        lines = [f"HTTP/1.1 {code} Scripted", "content-type: application/json", f"content-length: {len(raw)}"]
        lines += [f"{name}: {value}" for name, value in (headers or {}).items()]
        self.transport.write("\r\n".join(lines).encode() + b"\r\n\r\n" + raw)


def directed_reply(request: Request) -> Reply | None:
    """Return what the last directive in the conversation asks for."""
    messages = request.messages
    for index in range(len(messages) - 1, -1, -1):
        if messages[index].get("role") != "user":
            continue
        found = DIRECTIVE.findall(_text_of(messages[index]))
        if found:
            kind, arguments = found[-1]
            return _directed(kind, arguments, request, [m.get("role") for m in messages[index + 1 :]])
    return None


def _directed(kind: str, arguments: str, request: Request, roles: list[str]) -> Reply | None:
    options = dict(re.findall(r"(\w+)=(\S+)", arguments))
    done = roles.count("tool")
    answer = Reply(
        text="".join(f"zq{number} " for number in range(int(options.get("n", 10)))),
        first=float(options.get("first", 0)) / 1000,
        delay=float(options.get("gap", 0)) / 1000,
    )
    match kind:
        case "answer":
            return answer
        case "tools":
            return (
                answer
                if done >= int(options.get("k", 20))
                else _file_step(request, done) + Reply(first=answer.first)
            )
        case "fanout":
            made = list(_task_calls(options, request, done))
            return calls(*made) + Reply(first=answer.first) if made else answer
        case "script":
            steps = json.loads(base64.b64decode(arguments.strip()))
            return _scripted_step(steps[min(roles.count("assistant"), len(steps) - 1)], request)
    return None


def _file_step(request: Request, done: int) -> Reply:
    name, turn = FILE_TOOLS[done % 3], done // 3
    folder = "/mnt/user-data/workspace" if turn % 2 or name != "ls" else "/mnt/user-data/outputs"
    path = folder if name == "ls" else f"{folder}/bench_{turn}.txt"
    return _fitting(request, name, description=f"step {done}", path=path, content=f"line {done}\n" * 20)


def _task_calls(options: Mapping[str, str], request: Request, done: int) -> Iterator[Reply]:
    last = min(int(options.get("total", 3)), done + int(options.get("per", 3)))
    for number in range(done, last):
        prompt = f"Do part {number}. [[bench answer n=5 first={options.get('sub', '200')}]]"
        given = {"description": f"part {number}", "prompt": prompt, "subagent_type": "general-purpose"}
        yield _fitting(request, "task", **given)


def _scripted_step(step: Json, request: Request) -> Reply:
    made = [_fitting(request, one["name"], **one.get("args", {})) for one in step.get("calls", [])]
    timing = Reply(first=step.get("first", 0) / 1000, delay=step.get("gap", 0) / 1000)
    return calls(*made) + text(step.get("text", "" if made else "done.")) + timing


def _fitting(request: Request, name: str, /, **arguments: Any) -> Reply:
    """Return a call with only those arguments that the offered tool knows."""
    for tool in request.body.get("tools") or []:
        function = tool.get("function", {})
        if function.get("name") == name:
            known = (function.get("parameters") or {}).get("properties") or {}
            if "file_path" in known and "path" in arguments:
                arguments["file_path"] = arguments["path"]
            arguments = {key: value for key, value in arguments.items() if key in known}
    return call(name, **arguments)


def _text_of(message: Json) -> str:
    content = message.get("content")
    if isinstance(content, list):
        return " ".join(part.get("text", "") for part in content if isinstance(part, dict))
    return content if isinstance(content, str) else ""


def _tool_call(call_id: str, name: str, arguments: str) -> Json:
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


def _call_deltas(index: int, call_id: str, name: str, arguments: str) -> Iterator[Json]:
    """Yield a tool call in pieces, as providers send it."""
    yield {"tool_calls": [{"index": index, **_tool_call(call_id, name, "")}]}
    size = max(1, -(-len(arguments) // 3))
    for start in range(0, len(arguments), size):
        piece = {"arguments": arguments[start : start + size]}
        yield {"tool_calls": [{"index": index, "function": piece}]}


def _usage(request: Request, reply: Reply) -> Json:
    if reply.usage is not None:
        return reply.usage
    prompt = max(1, len(json.dumps(request.messages)) // 4)
    completion = len(TOKEN.findall(reply.text + reply.reasoning)) + 8 * len(reply.tool_calls)
    return {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}


def _envelope(kind: str, request: Request) -> Json:
    return {
        "id": "chatcmpl-scripted",
        "object": kind,
        "created": 1,
        "model": request.body.get("model", "scripted"),
    }


def _chunk_envelope(request: Request) -> Json:
    return _envelope("chat.completion.chunk", request)


def _raw_frame(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


def _frame(body: Json) -> bytes:
    return _raw_frame(b"data: " + json.dumps(body).encode() + b"\n\n")


def _chunk(request: Request, delta: Json, *, finish: str | None = None) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    return _frame({**_chunk_envelope(request), "choices": [choice]})


def _text_frames(request: Request, reply: Reply) -> Iterator[bytes]:
    for key, content in (("reasoning_content", reply.reasoning), ("content", reply.text)):
        if not content:
            continue
        # One frame serves as the mould of all, so that thousands of tokens cost the server little.
        mould = (
            b"data: "
            + json.dumps(
                {
                    **_chunk_envelope(request),
                    "choices": [{"index": 0, "delta": {key: "\0"}, "finish_reason": None}],
                }
            ).encode()
            + b"\n\n"
        )
        head, tail = mould.split(rb'"\u0000"')
        for token in TOKEN.findall(content):
            yield _raw_frame(head + json.dumps(token).encode() + tail)


DONE = _raw_frame(b"data: [DONE]\n\n") + b"0\r\n\r\n"
STREAM_HEAD = (
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n"
    b"transfer-encoding: chunked\r\nconnection: keep-alive\r\n\r\n"
)


def main() -> None:
    """Serve until the process is ended."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--port", type=int, default=0)
    model = ScriptedModel(port=parser.parse_args().port)
    model.on(lambda request: directed_reply(request) is None, directed_default)
    model.start()
    print(f"model server on {model.base_url}", flush=True)
    assert model._thread is not None
    model._thread.join()


def directed_default(request: Request) -> Reply:
    """Answer with ten tokens: what a request without a directive gets from the stand-alone server."""
    return text("".join(f"zq{number} " for number in range(10)))


if __name__ == "__main__":
    main()
