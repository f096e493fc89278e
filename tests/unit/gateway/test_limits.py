"""Bodies that are too large are refused: announced, lied about or not announced at all."""

import asyncio
import json
import time
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
from fastapi import Body, FastAPI, Request
from support.gateway import Gateway
from support.loop_watch import LoopWatch

from deerflow.domain.json_counter import JsonCounter
from deerflow.gateway.limits import BodyLimit, Bound

MOST = 1000
JSON = {"content-type": "application/json"}


@pytest.fixture
async def client() -> AsyncIterator[httpx.AsyncClient]:
    app = FastAPI()

    @app.post("/json")
    async def take(body: dict[str, Any] = Body()) -> int:  # noqa: B008
        return len(body)

    @app.post("/form")
    async def form(request: Request) -> int:
        async with request.form() as fields:
            return len(fields)

    app.add_middleware(BodyLimit, bound=lambda method, path: Bound(MOST, 50, 10))
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://x") as client:
        yield client


async def trickle(size: int, start: bytes = b'{"a": "') -> AsyncIterator[bytes]:
    yield start
    for _ in range(size // 100):
        yield b"x" * 100
    yield b'"}'


async def test_a_body_within_the_limit_passes(client: httpx.AsyncClient) -> None:
    assert (await client.post("/json", json={"a": "x" * 900})).json() == 1
    headers = {"Content-Type": "application/json"}
    assert (await client.post("/json", content=trickle(900), headers=headers)).json() == 1


async def test_an_announced_body_above_it_is_refused(client: httpx.AsyncClient) -> None:
    answer = await client.post("/json", json={"a": "x" * 1000})

    assert (answer.status_code, answer.headers["connection"]) == (413, "close")
    assert "1,000 bytes" in answer.json()["detail"]


async def test_a_body_that_keeps_coming_is_refused(client: httpx.AsyncClient) -> None:
    part = b'--b\r\nContent-Disposition: form-data; name="files"; filename="a.txt"\r\n\r\n'
    as_json = await client.post("/json", content=trickle(5000), headers={"Content-Type": "application/json"})
    as_form = await client.post(
        "/form", content=trickle(5000, part), headers={"Content-Type": "multipart/form-data; boundary=b"}
    )

    for answer in (as_json, as_form):
        assert (answer.status_code, "1,000 bytes" in answer.text) == (413, True), answer.text


@pytest.mark.parametrize(
    ("body", "status", "said"),
    [
        (json.dumps({"a": list(range(40))}).encode(), 200, ""),
        (json.dumps({"a": list(range(60))}).encode(), 413, "more than 50 values"),
        (b'{"a": ' + b"[" * 20 + b"]" * 20 + b"}", 400, "more than 10 levels"),
        (json.dumps({"a": '[[[[,,,,{{{{\\"' * 40}).encode(), 200, ""),
        (json.dumps({"a": 1}).encode("utf-16"), 400, "UTF-8"),
        (json.dumps({"a": 1}).encode("utf-32-le"), 400, "UTF-8"),
    ],
)
async def test_the_values_and_levels_of_json_are_counted(
    client: httpx.AsyncClient, body: bytes, status: int, said: str
) -> None:
    answer = await client.post("/json", content=body, headers={"Content-Type": "application/json"})

    assert (answer.status_code, said in answer.text) == (status, True), answer.text


@pytest.mark.parametrize("step", [1, 2, 3, 7, 1000])
def test_json_is_counted_alike_in_any_pieces(step: int) -> None:
    body = json.dumps([{"a\\": 'x,"y,\\', "b": [1, 2, {}]}, "\\\\", "[", "é\n"]).encode()
    counter = JsonCounter()

    for start in range(0, len(body), step):
        counter.feed(body[start : start + step])

    commas, openings = 3 + 1 + 2, 4
    assert (counter.count, counter.depth) == (commas + openings, 4)


def messages_of(*contents: object) -> bytes:
    return json.dumps(
        {"input": {"messages": [{"role": "user", "content": each} for each in contents]}}
    ).encode()


HEAVY = [
    (json.dumps({"input": {str(number): 1 for number in range(1_300_000)}}).encode(), 413, "100,000 values"),
    (messages_of(*["word " * 60] * 60_000), 413, "100,000 values"),
    (messages_of([{"type": "text", "text": "word"}] * 25_000), 400, "a message may have 1000"),
    (b'{"input": ' + b"[" * 101 + b"]" * 101 + b"}", 400, "100 levels"),
]


@pytest.mark.parametrize(("body", "status", "words"), HEAVY, ids=["keys", "messages", "blocks", "levels"])
async def test_no_body_holds_the_loop(body: bytes, status: int, words: str, site: Gateway) -> None:
    assert site.loop is not None
    done = asyncio.Event()

    async def watch() -> None:
        async with LoopWatch(clock=time.thread_time):
            await done.wait()

    watched = asyncio.run_coroutine_threadsafe(watch(), site.loop)
    async with site.client() as api:
        try:
            answer = await api.post("/threads/t1/runs/wait", content=body, headers=JSON)
        except (httpx.WriteError, httpx.ReadError):
            assert status == 413  # cut off while it was still sending
        else:
            assert (answer.status_code, words in answer.text) == (status, True), answer.text[:300]
        finally:
            site.loop.call_soon_threadsafe(done.set)
    await asyncio.wrap_future(watched)
