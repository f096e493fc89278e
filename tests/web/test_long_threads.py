"""A long thread, and one whose answers broke off: what people saw is what they see again."""

import threading

import httpx
from support.gateway import Gateway
from support.model_server import Request, ScriptedModel, reasoning, status, text
from web.browser import Browser

TURNS = 250
SHOWN = "[...document.querySelectorAll('main article')].map((each) => each.textContent)"
BOX = "document.querySelector('main [role=group][tabindex]')"


def told(gateway: Gateway, thread: str) -> None:
    """Make a thread of 500 messages, more than the model is shown."""
    with httpx.Client(base_url=gateway.api, trust_env=False, timeout=60) as api:
        api.post("/threads", json={"thread_id": thread}).raise_for_status()
        messages = [
            {"type": kind, "id": f"{thread}-{kind}-{turn}", "content": f"{kind} {turn} " + "word " * 100}
            for turn in range(TURNS)
            for kind in ("human", "ai")
        ]
        api.post(f"/threads/{thread}/state", json={"values": {"messages": messages}}).raise_for_status()


def has_more(page: Browser, count: int) -> None:
    """Wait until more than so many messages are there."""
    page.do("see", target={"css": f":nth-match(main article, {count + 1})"}, state="attached")


def all_shown(page: Browser, count: int) -> list[str]:
    """Scroll up until everything is there."""
    while page.evaluate(f"{SHOWN}.length") < count:
        before = page.evaluate(f"{SHOWN}.length")
        page.evaluate(f"{BOX}.scrollTop = 0")
        has_more(page, before)
    return [" ".join(each.split()[:2]) for each in page.evaluate(SHOWN)]


def test_a_conversation_that_was_summed_up_stays_whole_with_a_mark(
    page: Browser, model: ScriptedModel, gateway: Gateway
) -> None:
    told(gateway, "long")
    model.on(_is_summary, text("A SHORT SUMMARY"))
    model.on("And now?", text("Nothing new."))
    page.do("goto", url=f"{gateway.url}/#/threads/long")
    page.sees(f"ai {TURNS - 1} word")
    page.say("And now?")
    page.sees("Nothing new.")
    page.waits_until_idle()
    with httpx.Client(base_url=gateway.api, trust_env=False) as api:
        state = api.get("/threads/long/state").json()["values"]
    assert len(state["messages"]) < 50, "the model's view was to be summed up"

    expected = [f"{who} {turn}" for turn in range(TURNS) for who in ("human", "ai")]
    for _ in range(2):  # as it went on, and after a reload
        page.waits_for("[data-mark=summary]")
        shown = all_shown(page, 2 * TURNS + 2)
        assert shown == [*expected, "And now?", "Nothing new."]
        page.do("click", target={"css": "[data-mark=summary] summary"})
        page.sees("A SHORT SUMMARY")
        kept = page.count(".item:has([data-mark=summary]) ~ .item article")
        assert 0 < kept <= len(state["messages"])
        assert page.hindrances == []
        page.do("reload")
        page.sees("Nothing new.")


def test_what_is_read_stays_in_sight_while_earlier_messages_come(page: Browser, gateway: Gateway) -> None:
    told(gateway, "longer")
    page.do("goto", url=f"{gateway.url}/#/threads/longer")
    page.sees(f"ai {TURNS - 1} word")
    first = "document.querySelector('main article')"
    page.evaluate(f"{BOX}.scrollTop = 0; window.read = {first}; window.count = {SHOWN}.length")

    has_more(page, page.evaluate("window.count"))

    assert abs(page.evaluate("window.read.getBoundingClientRect().top")) < 200
    assert page.evaluate(f"{first} !== window.read")


def test_a_stopped_answer_is_there_after_a_reload_with_its_thoughts_and_a_mark(
    page: Browser, model: ScriptedModel
) -> None:
    gate = threading.Event()
    model.will_say(reasoning("Deep thoughts. ") + text("Half of it " + "and more " * 50).held(gate, after=6))
    page.say("Begin")
    page.sees("Half of it")

    page.click("Stop")
    page.waits_for("[data-ended=stopped]")
    page.waits_until_idle()
    gate.set()
    page.do("reload")

    page.waits_for("article:has-text('Half of it') [data-ended=stopped]")
    page.click("Thoughts")
    page.sees("Deep thoughts.")
    assert page.count("article[aria-label=DeerFlow]") == 1

    model.will_say(text("All of it."))
    page.click("Answer again")
    page.sees("All of it.")
    page.waits_until_idle()
    page.do("reload")
    page.sees("All of it.")
    assert page.count("article[aria-label=DeerFlow]") == 1
    assert page.count("[data-ended]") == 0


def test_why_an_answer_failed_is_told_in_the_pages_language_and_goes_once_it_worked(
    page: Browser, model: ScriptedModel, gateway: Gateway
) -> None:
    model.will_say(status(401, message="bad key"), text("Now it works."))
    page.open(gateway.url, locale="zh-CN")
    page.do("fill", target={"css": "#message"}, value="Say something")
    page.do("press", target={"css": "#message"}, key="Enter")
    page.sees("这次回答失败了。")

    page.click("重试")
    page.sees("Now it works.")
    page.sees_no("这次回答失败了。")
    page.do("reload")

    page.sees("Now it works.")
    page.sees_no("这次回答失败了。")


def _is_summary(request: Request) -> bool:
    return not request.tools
