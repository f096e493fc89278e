"""`useStream` of npm's `@langchain/react`, unmodified, on a page of another origin in a real browser."""

import functools
import json
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from support.gateway import Gateway, running_gateway
from support.model_server import ScriptedModel, call, status, text
from typing_extensions import override
from web.browser import WEB, Browser, PageUnavailableError, find_chromium

from deerflow.gateway.app import GatewayOptions

JS = Path(__file__).parent / "js"
DELEGATING = {"configurable": {"subagent_enabled": True}}
LOOK = call("ls", description="look", path="/mnt/user-data/workspace")


class _Quiet(SimpleHTTPRequestHandler):
    @override
    def log_message(self, format: str, *args: Any) -> None:
        pass


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """Serve a folder for the length of a block; yields its origin."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(_Quiet, directory=str(folder)))
    thread = threading.Thread(target=server.serve_forever, name="page")
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture(scope="module")
def origin(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    vite = WEB / "node_modules/.bin/vite"
    if not vite.exists() or not (JS / "node_modules/@langchain/react").is_dir():
        pytest.skip("needs the packages of web and tests/e2e/js: run scripts/prepare_tests.py")
    out = tmp_path_factory.mktemp("page")
    command = [str(vite), "build", "react", "--outDir", str(out), "--emptyOutDir", "--logLevel", "error"]
    subprocess.run(command, cwd=JS, check=True, timeout=300, stdout=subprocess.DEVNULL)
    with served(out) as address:
        yield address


@pytest.fixture(scope="module")
def gate() -> threading.Event:
    return threading.Event()


@pytest.fixture(scope="module")
def second_gate() -> threading.Event:
    return threading.Event()


@pytest.fixture(scope="module")
def gateway(
    tmp_path_factory: pytest.TempPathFactory,
    origin: str,
    gate: threading.Event,
    second_gate: threading.Event,
) -> Iterator[Gateway]:
    home, host = tmp_path_factory.mktemp("home"), {"use": "local", "allow_host_bash": True}
    with ScriptedModel() as model:
        model.on("go", LOOK, text("done now"))
        model.on("gated", text("one two three four").held(gate, after=2))
        model.on("ask", call("bash", description="Step", command="echo hi"), text("said"))
        delegated = call("task", description="part", prompt="sub work", subagent_type="general-purpose")
        model.on("deleg", delegated, text("lead is done").held(second_gate, after=1))
        model.on("sub work", LOOK, text("sub is done").held(gate))
        model.on("break", status(401, message="wrong key"))
        model.on("slow", text("word " * 500, delay=0.05))
        options = GatewayOptions(origins=(origin,))
        with running_gateway(home, model.base_url, sandbox=host, options=options) as running:
            yield running


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    try:
        opened = Browser(find_chromium())
    except PageUnavailableError as reason:
        pytest.skip(str(reason))
    yield opened
    opened.close()


def submit(page: Browser, words: str, **options: Any) -> None:
    given = json.dumps({"messages": [{"type": "human", "content": words}]})
    page.evaluate(f"void window.stream.submit({given}, {json.dumps(options)})")


def rests(page: Browser) -> None:
    page.waits_for("#state:text('idle')")


@pytest.mark.parametrize("transport", ["sse", "websocket"])
def test_the_hook_streams_asks_delegates_stops_and_loads_again(
    browser: Browser,
    gateway: Gateway,
    origin: str,
    gate: threading.Event,
    second_gate: threading.Event,
    transport: str,
) -> None:
    page = browser
    gate.clear()
    address = f"{origin}/?api={gateway.api}/langgraph&transport={transport}"
    page.open(origin)
    page.do("goto", url=address)
    page.waits_for("#state")

    submit(page, "go")
    page.sees("done now")
    rests(page)
    assert page.text(".call") == "ls finished"

    submit(page, "gated")
    page.waits_for(".message.ai:text-is('one two')")
    gate.set()
    page.sees("one two three four")
    rests(page)

    submit(page, "ask")
    page.waits_for(".question")
    decision = "{decisions: [{type: 'approve', hash: window.stream.interrupt.value.hash}]}"
    page.evaluate(f"void window.stream.respond({decision})")
    page.waits_for(".message.ai:text-is('said')")
    rests(page)
    assert page.count(".question") == 0

    # The hook ends its subscriptions with the run, also one whose stream is not open yet: hold the end.
    second_gate.clear()
    submit(page, "deleg", config=DELEGATING)
    page.waits_for(".subagent:text('general-purpose complete: part||(empty)|sub is done')")
    second_gate.set()
    page.sees("lead is done")
    rests(page)

    submit(page, "break")
    page.waits_for("#error:not(:empty)")
    rests(page)

    submit(page, "slow")
    page.sees("word word")
    page.evaluate("void window.stream.stop()")
    rests(page)

    said = page.count(".message.human")
    page.do("goto", url=f"{address}&thread={page.text('#thread')}")
    page.waits_for(".message.ai:text-is('lead is done')")
    assert page.count(".message.human") == said == 6
    assert [trouble for trouble in page.troubles if not trouble.startswith("request: ")] == []


def test_a_sub_agent_that_ends_before_its_own_stream_opens_is_shown_whole(
    browser: Browser, gateway: Gateway, origin: str, gate: threading.Event, second_gate: threading.Event
) -> None:
    page = browser
    gate.clear()
    second_gate.clear()
    page.open(origin)
    page.do("goto", url=f"{origin}/?api={gateway.api}/langgraph&transport=sse&held=tools:")
    page.waits_for("#state")

    submit(page, "deleg", config=DELEGATING)
    page.waits_for(".subagent.found")
    gate.set()
    page.waits_for(".subagent:text('general-purpose complete')")
    page.evaluate("window.open_streams()")
    page.waits_for(".subagent:text('general-purpose complete: part||(empty)|sub is done')")
    second_gate.set()
    page.sees("lead is done")
    rests(page)
