"""The list of threads: find, open, rename, delete."""

import threading
from pathlib import Path

import httpx
from support.gateway import Gateway, running_gateway
from support.model_server import ScriptedModel, text
from web.browser import Browser

ROW = "nav li:has-text('{}')"


def test_threads_are_listed_opened_renamed_and_deleted(page: Browser, model: ScriptedModel) -> None:
    model.on("first", text("Answer one."))
    model.on("second", text("Answer two."))
    page.say("The first question")
    page.sees("Answer one.")
    page.waits_until_idle()
    page.click("New chat")
    page.say("The second question")
    page.sees("Answer two.")
    page.waits_until_idle()

    page.click("The first question", exact=True)
    page.sees("Answer one.")
    page.do("hover", target={"css": ROW.format("The first question")})
    page.click("Rename", within={"css": ROW.format("The first question")})
    page.do("fill", target={"label": "Thread title"}, value="A better name")
    page.do("press", target={"label": "Thread title"}, key="Enter")
    page.waits_for(ROW.format("A better name"))

    page.do("hover", target={"css": ROW.format("A better name")})
    page.click("Delete", within={"css": ROW.format("A better name")})
    page.click("Cancel", within={"css": "dialog"})
    assert page.count(ROW.format("A better name")) == 1
    page.do("hover", target={"css": ROW.format("A better name")})
    page.click("Delete", within={"css": ROW.format("A better name")})
    page.click("Delete", within={"css": "dialog"})

    page.do("see", target={"css": ROW.format("A better name")}, state="detached")
    page.sees("What should get done?")
    page.do("reload")
    page.waits_for(ROW.format("The second question"))
    assert page.count("nav li button[title]") >= 1
    assert page.count(ROW.format("A better name")) == 0


def test_leaving_a_thread_leaves_its_run_alone(page: Browser, model: ScriptedModel) -> None:
    gate = threading.Event()
    model.will_say(text("slow but sure answer").held(gate, after=2))
    page.say("Take your time")
    page.sees("slow")

    page.click("New chat")
    page.sees("What should get done?")
    gate.set()
    page.do("click", target={"css": "nav li:first-child button[title]", "nth": 0})

    page.sees("slow but sure answer")


def test_a_draft_survives_a_look_at_another_thread(page: Browser, model: ScriptedModel) -> None:
    model.will_say(text("Short answer."))
    page.say("A short question")
    page.sees("Short answer.")
    page.waits_until_idle()
    page.do("fill", target={"label": "Message to DeerFlow"}, value="half a thought")

    page.click("New chat")
    page.sees("What should get done?")
    page.do("until", script="document.getElementById('message').value === ''")
    page.do("click", target={"css": "nav li:first-child button[title]", "nth": 0})

    page.sees("Short answer.")
    page.do("until", script="document.getElementById('message').value === 'half a thought'")


def test_the_page_speaks_chinese_and_remembers_light_or_dark(page: Browser, gateway: Gateway) -> None:
    page.open(gateway.url, locale="zh-CN", colorScheme="dark")

    page.sees("想完成什么任务？")
    page.do("until", script="document.documentElement.dataset.theme === 'dark'")
    page.do("until", script="document.documentElement.lang === 'zh'")
    page.do("choose", target={"label": "语言"}, value="en")
    page.click("Theme: System")
    page.do("reload")

    page.sees("What should get done?")
    page.do("until", script="document.documentElement.dataset.theme === 'light'")


def test_a_narrow_screen_has_the_threads_in_a_drawer(page: Browser, gateway: Gateway) -> None:
    page.open(gateway.url, viewport={"width": 390, "height": 780})
    page.sees("What should get done?")
    page.do("until", script="document.querySelector('nav').inert")

    page.click("Show threads")

    page.do("until", script="!document.querySelector('nav').inert")
    page.do("press", target={"css": "body"}, key="Escape")
    page.do("until", script="document.querySelector('nav').inert")
    page.click("Show threads")
    page.do("until", script="!document.querySelector('nav').inert")
    page.click("New chat")
    page.do("until", script="document.querySelector('nav').inert")
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_a_new_chat_on_a_small_screen_is_read_from_its_top(page: Browser, gateway: Gateway) -> None:
    page.open(gateway.url, viewport={"width": 375, "height": 500})

    page.sees("What should get done?")
    page.do("until", script="document.querySelector('h1').getBoundingClientRect().top > 0")
    scrolled = page.evaluate(
        "new Promise((resolve) => requestAnimationFrame(() => requestAnimationFrame(() =>"
        " resolve(document.querySelector('main .overflow-y-auto').scrollTop))))"
    )
    assert scrolled == 0


def test_a_thread_that_is_not_listed_yet_can_still_be_found(page: Browser, tmp_path: Path) -> None:
    with running_gateway(tmp_path, None) as gateway, httpx.Client(timeout=120, trust_env=False) as client:
        for number in range(60):
            client.post(f"{gateway.api}/threads", json={"thread_id": f"t{number}"}).raise_for_status()
            titled = {"values": {"title": f"Number {number:02}"}}
            client.post(f"{gateway.api}/threads/t{number}/state", json=titled).raise_for_status()
        page.open(gateway.url)
        page.waits_for(ROW.format("Number 59"))

        page.do("fill", target={"label": "Find a thread"}, value="number 03")
        page.click("Show more")

        page.waits_for(ROW.format("Number 03"))
        page.do("goto", url="about:blank")
