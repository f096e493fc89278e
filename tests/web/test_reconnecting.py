"""A page that is reloaded, cut off or opened twice goes on with the run."""

import threading

from support.gateway import Gateway
from support.model_server import ScriptedModel, call, text
from web.browser import Browser
from web.line import Line


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
        page.sees("The server cannot be reached. Is it running?")

        line.mend()
        page.click("Try again")

        page.sees("Here again.")


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
