"""Readers: whatever they do, and whenever they come back, each gets every event once, byte for byte."""

import asyncio
import random
import threading
import uuid
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import aiohttp
import psutil
import pytest
from support.gateway import Gateway, GatewayProcess, model_entry
from support.model_server import ScriptedModel, text
from support.postgres import PostgresServer
from support.sse import NO_LIMIT, Frame, deaf_reader, drop, frames_of, joined, read_stream
from support.waiting import until

MODES = ["values", "messages-tuple", "updates", "custom"]
QUERY = "stream_mode=values,messages-tuple,updates,custom"
MIB = 1024 * 1024


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[GatewayProcess, ScriptedModel]]:
    """One server for all tests that leave it as it is: what they measure is theirs, their threads too."""
    with ScriptedModel() as scripted:
        process = GatewayProcess(tmp_path_factory.mktemp("readers"), scripted.base_url).start()
        yield process, scripted
        process.kill()


@pytest.fixture
def server(shared: tuple[GatewayProcess, ScriptedModel]) -> GatewayProcess:
    return shared[0]


@pytest.fixture
def server_model(shared: tuple[GatewayProcess, ScriptedModel]) -> ScriptedModel:
    shared[1].reset()
    return shared[1]


@pytest.fixture
async def session() -> AsyncIterator[aiohttp.ClientSession]:
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector, timeout=NO_LIMIT) as opened:
        yield opened


def words(count: int) -> str:
    return "".join(f"w{number} " for number in range(count))


def said(frames: list[Frame]) -> str:
    """Return what the model said, put together from its pieces."""
    pieces = [frame.data[0] for frame in frames if frame.kind == "messages"]
    return "".join(piece["content"] for piece in pieces if piece["type"] == "AIMessageChunk")


async def start(session: aiohttp.ClientSession, api: str, question: str, *, thread: str | None = None) -> str:
    """Start a run, in a new thread unless one is named, and return the address of its stream."""
    thread = thread or uuid.uuid4().hex
    message = {"type": "human", "content": question}
    body = {"input": {"messages": [message]}, "stream_mode": MODES, "on_disconnect": "continue"}
    async with session.post(f"{api}/threads/{thread}/runs", json=body) as response:
        run: dict[str, Any] = await response.json()
    return f"{api}/threads/{thread}/runs/{run['run_id']}/stream?{QUERY}"


async def read_with_breaks(session: aiohttp.ClientSession, url: str, luck: random.Random) -> list[Frame]:
    """Read a stream to its end, leaving every few events and coming back behind the last one."""
    frames: list[Frame] = []
    while not frames or frames[-1].kind != "end":
        after = frames[-1].id if frames else None
        frames += await read_stream(session, url, after=after, most=luck.randint(1, 60))
    return frames


async def read_from_everywhere(session: aiohttp.ClientSession, url: str, whole: list[Frame]) -> None:
    """Come back behind every event of a run, and compare the rest byte by byte."""
    ways = asyncio.Semaphore(4)
    everything, place = joined(whole), 0
    places = [place := place + len(frame.raw) + 2 for frame in whole]

    async def come_back(index: int) -> None:
        async with ways, session.get(url, headers={"Last-Event-ID": whole[index].id}) as response:
            rest = await response.read()
        assert rest == everything[places[index] :], f"behind event {index}"

    await asyncio.gather(*(come_back(index) for index in range(len(whole))))


@pytest.fixture
def chatty_server(tmp_path: Path, model: ScriptedModel) -> Iterator[GatewayProcess]:
    """A server that makes one event of each token: ours puts together what comes together."""
    process = GatewayProcess(tmp_path, model.base_url, models=[chatty(model)]).start()
    yield process
    process.kill()


def chatty(model: ScriptedModel) -> dict[str, Any]:
    return model_entry(model.base_url, "m", transport="sdk")


@pytest.mark.timeout(300)
async def test_a_reader_can_come_back_at_every_event_while_it_runs_and_after_a_crash(
    chatty_server: GatewayProcess, model: ScriptedModel, session: aiohttp.ClientSession
) -> None:
    server = chatty_server
    model.on("go", text(words(600), delay=0.004))
    url = await start(session, server.api, "go")
    late: list[tuple[int, asyncio.Task[list[Frame]]]] = []
    restless = [asyncio.create_task(read_with_breaks(session, url, random.Random(seed))) for seed in range(3)]

    live: list[Frame] = []
    async with session.get(url) as response:
        async for frame in frames_of(response):
            live.append(frame)
            if len(live) % 25 == 1:
                joining = asyncio.create_task(read_stream(session, url, after=frame.id))
                late.append((len(live), joining))

    assert len(live) > 600
    assert said(live) == words(600)
    assert [frame.seq for frame in live] == list(range(len(live)))
    assert live[-1].kind == "end"
    for index, joining in late:
        assert joined(await joining) == joined(live[index:]), f"joined behind event {index - 1}"
    for reader in restless:
        assert joined(await reader) == joined(live)

    await read_from_everywhere(session, url, live)
    for unknown in ("-1", "nonsense", "1700000000000-999999999"):
        assert joined(await read_stream(session, url, after=unknown)) == joined(live)
    server.kill()
    server.start()
    await read_from_everywhere(session, url, live)


@pytest.mark.timeout(300)
async def test_a_reader_can_come_back_at_every_event_through_another_gateway(
    tmp_path: Path, model: ScriptedModel, postgres: PostgresServer, session: aiohttp.ClientSession
) -> None:
    database = {"backend": "postgres", "postgres_url": postgres.url, "postgres_schema": "readers"}
    sections = {"database": database, "models": [chatty(model)]}
    here, there = (GatewayProcess(tmp_path, model.base_url, **sections) for _ in range(2))
    model.on("go", text(words(600), delay=0.004))
    try:
        await asyncio.gather(asyncio.to_thread(here.start), asyncio.to_thread(there.start))
        url = await start(session, here.api, "go")
        elsewhere = url.replace(here.api, there.api)
        reading = [asyncio.create_task(read_stream(session, address)) for address in (url, elsewhere)]
        restless = asyncio.create_task(read_with_breaks(session, elsewhere, random.Random(1)))

        live, followed = await asyncio.gather(*reading)

        assert said(live) == words(600)
        assert joined(followed) == joined(live)
        assert joined(await restless) == joined(live)
        here.kill()
        await read_from_everywhere(session, elsewhere, live)
    finally:
        here.kill()
        there.kill()


@pytest.mark.parametrize("readers", [1, 20])
async def test_a_burst_of_a_thousand_tokens_reaches_every_reader(
    server: GatewayProcess, server_model: ScriptedModel, session: aiohttp.ClientSession, readers: int
) -> None:
    gate = threading.Event()
    server_model.on("go", text(words(1000)).held(gate))
    url = await start(session, server.api, "go")
    reading = [asyncio.create_task(read_stream(session, url)) for _ in range(readers)]
    await server_model.until(lambda scripted: scripted.in_flight == 1)
    gate.set()

    seen = await asyncio.gather(*reading)

    assert said(seen[0]) == words(1000)
    assert seen[0][-1].kind == "end"
    assert [frame.seq for frame in seen[0]] == list(range(len(seen[0])))
    assert {joined(frames) for frames in seen} == {joined(seen[0])}


async def test_hundreds_of_idle_readers_cost_the_active_ones_nothing(
    server: GatewayProcess, server_model: ScriptedModel, session: aiohttp.ClientSession
) -> None:
    gate = threading.Event()
    server_model.on("hold", text("late").held(gate))
    server_model.on("go", text(words(200), delay=0.005))
    process = psutil.Process(server.pid)
    held = await start(session, server.api, "hold", thread="held")
    idle = [asyncio.create_task(read_stream(session, held)) for _ in range(250)]
    quiet = [f"{server.api}/threads/quiet{number}" for number in range(250)]
    for number in range(250):
        body = {"thread_id": f"quiet{number}"}
        async with session.post(f"{server.api}/threads", json=body) as made:
            assert made.status == 200
    waiting = [await session.get(f"{url}/stream") for url in quiet]

    sizes = []
    for round_number in range(4):  # the first one warms up: what the server loads and caches is no leak
        urls = await asyncio.gather(
            *(start(session, server.api, "go", thread=f"a{round_number}-{n}") for n in range(50))
        )
        seen = await asyncio.gather(*(read_stream(session, url) for url in urls))
        assert [said(frames) for frames in seen] == [words(200)] * 50
        sizes.append(process.memory_info().rss)
    assert not any(reader.done() for reader in idle)
    gate.set()
    ends = await asyncio.gather(*idle)

    assert {joined(frames) for frames in ends} == {joined(ends[0])}
    assert said(ends[0]) == "late"
    assert sizes[-1] - sizes[1] < 20 * MIB, f"{[size // MIB for size in sizes]} MiB"
    assert all(not response.closed for response in waiting)
    for response in waiting:
        response.close()
    assert "Traceback" not in server.log


async def test_readers_that_never_read_cost_the_others_nothing(
    server: GatewayProcess, server_model: ScriptedModel, session: aiohttp.ClientSession
) -> None:
    long = "x" * 20_000
    server_model.on("go", text(f"{long} " + words(3000), delay=0.0003))
    process = psutil.Process(server.pid)
    server_model.on("warm up", text("ready"))
    await read_stream(session, await start(session, server.api, "warm up"))
    url = await start(session, server.api, "go")
    deaf = [await deaf_reader(url) for _ in range(50)]
    before = process.memory_info().rss

    live = await read_stream(session, url)
    grown = process.memory_info().rss - before

    whole = await read_stream(session, url)
    assert said(live).endswith(words(3000))
    assert joined(live) == joined(whole)
    # 50 readers of several MB each: what is held for one that does not read is a buffer, not its stream.
    assert grown < 150 * MIB, f"{grown // MIB} MiB for {len(joined(live)) // MIB} MiB of events"
    for reader in deaf:
        reader.close()


async def test_readers_that_die_leave_nothing_behind(
    gateway: Gateway, model: ScriptedModel, session: aiohttp.ClientSession
) -> None:
    gate = threading.Event()
    model.on("go", text(words(400)).held(gate, after=200))
    url = await start(session, gateway.api, "go")
    await read_up_to(session, url, "w199 ")  # from here on it stands still
    before = await tasks_of(gateway)

    dead = [await deaf_reader(url) for _ in range(100)]
    for reader in dead:
        await asyncio.get_running_loop().sock_recv(reader, 1000)
        drop(reader)
    left = [await read_stream(session, url, most=3) for _ in range(20)]

    await settled(gateway, before)
    gate.set()
    whole = await read_stream(session, url)
    assert said(whole) == words(400)
    assert all(joined(frames) == joined(whole[:3]) for frames in left)


async def read_up_to(session: aiohttp.ClientSession, url: str, word: str) -> None:
    """Read a stream until the model has said a word, and leave."""
    seen: list[Frame] = []
    async with session.get(url) as response:
        async for frame in frames_of(response):
            seen.append(frame)
            if word in said(seen):
                return


async def tasks_of(gateway: Gateway) -> int:
    """Return how many tasks the gateway's loop has."""

    async def count() -> int:
        return len(asyncio.all_tasks())

    assert gateway.loop is not None
    return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(count(), gateway.loop))


async def settled(gateway: Gateway, most: int) -> None:
    """Wait until the gateway has as few tasks as before: nobody tells when the last one is gone."""

    async def is_settled() -> bool:
        return await tasks_of(gateway) <= most

    await until(is_settled)
