"""A page that is reloaded, cut off or opened twice goes on with the run."""

import threading
from pathlib import Path

import httpx
from support.gateway import Gateway
from support.model_server import ScriptedModel, call, text
from web.browser import Browser
from web.line import Line

UNREACHED = "main [role=alert]:has-text('The server cannot be reached. Is it running?')"
"""What the conversation says of a message that did not arrive; the list of threads says the same, earlier."""


def test_a_reload_in_the_middle_goes_on_where_the_run_is(page: Browser, model: ScriptedModel) -> None:
    gate = threading.Event()
    model.will_say(
        call("ls", description="Look first", path="/mnt/user-data/workspace"),
        text("alpha beta gamma delta epsilon").held(gate, after=3),
    )
    page.say("Go.")
    page.sees("alpha beta")

    page.do("reload")

    page.sees("Look first")
    page.sees("alpha beta")
    page.waits_for("button[aria-label=Stop]")
    gate.set()
    page.sees("alpha beta gamma delta epsilon")
    page.waits_until_idle()
    assert page.count("article[aria-label=DeerFlow]") == 1
    assert page.count("article[aria-label=You]") == 1


def test_a_reload_after_the_end_shows_the_whole_thread(page: Browser, model: ScriptedModel) -> None:
    task = call("task", description="Study it", prompt="about it", subagent_type="general-purpose")
    look = call("ls", description="Look around", path="/mnt/user-data/workspace")
    model.on("about it", look, text("It is fine."))
    model.on("Study", task, text("Studied."))
    page.say("Study.")
    page.sees("Studied.")
    page.waits_until_idle()

    page.do("reload")

    page.sees("Studied.")
    page.waits_for("[data-status=completed]:has-text('It is fine.')")
    page.click("Study it")
    page.sees("ls: Look around")


def test_a_lost_network_is_waited_out(page: Browser, model: ScriptedModel, gateway: Gateway) -> None:
    gate = threading.Event()
    model.will_say(text("before the gap after the gap").held(gate, after=3))
    with Line(int(gateway.url.rpartition(":")[2])) as line:
        page.open(line.url)
        page.say("Go.")
        page.sees("before the")

        line.cut()
        page.sees("The connection was lost")
        page.waits_for("nav [role=alert]:has-text('Is it running?')")
        line.mend()

        page.sees_no("The connection was lost")
        page.sees_no("Is it running?")
        gate.set()
        page.sees("before the gap after the gap")
        page.waits_until_idle()
        assert page.count("article[aria-label=DeerFlow]") == 1


def test_a_server_that_is_down_is_said_to_be_down(
    page: Browser, model: ScriptedModel, gateway: Gateway
) -> None:
    model.will_say(text("Here again."))
    with Line(int(gateway.url.rpartition(":")[2])) as line:
        page.open(line.url)
        page.sees("What should get done?")
        line.cut()
        page.say("Hello?")
        page.waits_for(UNREACHED)

        line.mend()
        page.click("Try again")

        page.sees("Here again.")


def test_a_message_that_did_not_arrive_survives_a_reload(
    page: Browser, model: ScriptedModel, gateway: Gateway
) -> None:
    model.on("A precious thought", text("It arrived."))
    with Line(int(gateway.url.rpartition(":")[2])) as line:
        page.open(line.url)
        page.sees("What should get done?")
        line.cut()
        page.say("A precious thought")
        page.waits_for(UNREACHED)
        line.mend()

        page.do("reload")

        page.sees("This message has not reached the server.")
        assert page.text("article[aria-label=You]") == "A precious thought"
        page.click("Try again")
        page.sees("It arrived.")
        page.waits_until_idle()
        page.do("reload")
        page.sees("It arrived.")
        page.sees_no("This message has not reached the server.")
        assert page.count("article[aria-label=You]") == 1


def test_an_approval_that_did_not_arrive_is_given_again(
    page: Browser, model: ScriptedModel, gateway: Gateway, tmp_path: Path
) -> None:
    mark = tmp_path / "mark"
    model.on("Ask me", call("bash", description="Ask", command=f"echo may-i; touch {mark}"), text("Ran it."))
    with Line(int(gateway.url.rpartition(":")[2])) as line:
        page.open(line.url)
        page.say("Ask me first.")
        page.sees("May this run?")
        page.waits_until_idle()
        line.cut()
        page.click("Run it")
        page.waits_for(UNREACHED)
        line.mend()

        page.click("Try again")

        page.sees("Ran it.")
        assert mark.exists()


def test_a_stop_without_a_line_is_sent_when_the_line_is_back(
    page: Browser, model: ScriptedModel, gateway: Gateway
) -> None:
    gate = threading.Event()
    model.will_say(text("one two three four five").held(gate, after=2))
    with Line(int(gateway.url.rpartition(":")[2])) as line:
        page.open(line.url)
        page.say("Count.")
        page.sees("one two")
        line.cut()
        page.sees("The connection was lost")

        page.click("Stop")
        page.sees("Stopping…")
        line.mend()

        page.sees("Stopped. What was done so far is kept.")
        page.sees_no("Try again")
    gate.set()


def test_a_page_that_comes_back_into_sight_shows_what_happened_elsewhere(
    page: Browser, model: ScriptedModel, gateway: Gateway
) -> None:
    model.on("Here", text("Said here."))
    model.on("Elsewhere", text("Said elsewhere."))
    page.say("Here")
    page.sees("Said here.")
    page.waits_until_idle()
    thread = page.do("address").rpartition("/")[2]
    body = {"assistant_id": "lead_agent", "input": {"messages": [{"role": "user", "content": "Elsewhere"}]}}
    answer = httpx.post(f"{gateway.api}/threads/{thread}/runs/wait", json=body, timeout=120, trust_env=False)
    assert answer.status_code == 200

    page.evaluate("void document.dispatchEvent(new Event('visibilitychange'))")

    page.sees("Said elsewhere.")


def test_a_second_tab_follows_the_same_run(page: Browser, model: ScriptedModel, gateway: Gateway) -> None:
    gate = threading.Event()
    model.will_say(text("shared words for all").held(gate, after=2))
    page.say("Go.")
    page.sees("shared")
    address = page.do("address")

    page.open(gateway.url)  # a clean profile knows nothing of the run
    page.do("goto", url="about:blank")
    page.do("goto", url=address)

    page.sees("shared")
    gate.set()
    page.sees("shared words for all")


def test_an_unknown_thread_says_so(page: Browser, gateway: Gateway) -> None:
    page.do("goto", url="about:blank")
    page.do("goto", url=f"{gateway.url}/#/threads/no-such-thread")

    page.sees("This thread does not exist")
