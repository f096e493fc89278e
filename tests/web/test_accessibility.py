"""People who do not see the page, or do not point at it, can use it: checked by axe-core and by keys."""

import pytest
from support.gateway import Gateway
from support.model_server import ScriptedModel, call, calls, reasoning, status, text
from web.browser import Browser

WIDE = "| " + " | ".join(f"a rather long column name {number}" for number in range(12)) + " |"
ANSWER = f"""\
#### A late start

# Top

- [x] done
- [ ] open

{WIDE}
|{"---|" * 12}
|{" 1 |" * 12}

```sh
echo a long line {"x" * 300}
```

> ## Quoted

See /mnt/user-data/outputs/report.md, \\(a_1\\) and ![a picture](https://pictures.example/x.png).
"""
REPORT = "/mnt/user-data/outputs/report.md"
WORK = (
    call("write_todos", todos=[{"content": "Look", "status": "in_progress"}]),
    calls(
        call("bash", description="Break", command="exit 3"),
        call("write_file", description="Write", path=REPORT, content="# Report\n\n### Part"),
    ),
    calls(
        *(
            call("task", description=f"Study {name}", prompt=f"about {name}", subagent_type="general-purpose")
            for name in ("Alpha", "Beta")
        )
    ),
    call("present_files", filepaths=[REPORT]),
    reasoning("I think. " * 400) + text(ANSWER),
)
LOOKS = [("en-US", "light"), ("zh-CN", "dark")]
MESSAGE = {"css": "#message"}


def say(page: Browser, words: str) -> None:
    page.do("fill", target=MESSAGE, value=words)
    page.do("press", target=MESSAGE, key="Enter")


def opens(page: Browser, css: str) -> None:
    page.do("click", target={"css": f"{css}[aria-expanded=false]", "nth": 0})


@pytest.mark.parametrize(("locale", "scheme"), LOOKS)
def test_every_view_is_free_of_hindrances(
    chromium: Browser, gateway: Gateway, model: ScriptedModel, locale: str, scheme: str
) -> None:
    page = chromium
    page.open(gateway.url, locale=locale, colorScheme=scheme)
    question = call(
        "ask_clarification",
        question="## Which?",
        clarification_type="approach_choice",
        options=["One", "Two"],
        context="It matters.",
    )
    model.on("about Alpha", call("bash", description="Break", command="exit 3"), text("# Alpha\n\nFine."))
    model.on("about Beta", text("Beta is fine."))
    model.on("Work on all", *WORK)
    model.on("Then run", call("bash", description="Ask", command="echo may-i \u202e"), question)
    model.on("Then fail", status(401, message="the key is not valid"))

    page.waits_for("main h1")
    assert page.hindrances == []

    say(page, "Work on all of it.")
    page.waits_for("article:has-text('A late start') .markdown table")
    page.waits_for("article[data-task]")
    for button in (
        "main li div > button",
        "article[data-task] > button",
        "main article button",
        "main section > button",
    ):
        opens(page, button)
    assert page.hindrances == []
    headings = page.evaluate("[...document.querySelectorAll('h1,h2,h3,h4,h5,h6')].map((h) => h.tagName)")
    assert headings.count("H1") == 1
    assert page.evaluate("[...document.querySelectorAll('h1,h2,h3')].every((h) => h.textContent.trim())")

    page.do("click", target={"css": "main header button[aria-expanded]"})
    page.do("click", target={"css": "aside li button", "nth": 0})
    page.waits_for("aside .markdown h3")
    assert page.hindrances == []
    page.do("press", target={"css": "body"}, key="Escape")

    say(page, "Then run it.")
    page.waits_for("main form")
    page.waits_for("section pre:has-text('u202e')")
    assert page.hindrances == []
    page.do("click", target={"css": "section:has(pre:has-text('u202e')) button.bg-accent", "nth": 0})
    page.waits_for("section:has-text('It matters.') form")
    assert page.hindrances == []

    say(page, "Then fail.")
    page.waits_for("[role=alert]")
    assert page.hindrances == []
    page.do("hover", target={"css": "nav li:has([aria-current])"})
    page.do("click", target={"css": "nav li:has([aria-current]) [role=group] button", "nth": 1})
    page.waits_for("dialog")
    assert page.hindrances == []
    page.do("press", target={"css": "dialog"}, key="Escape")
    page.do("click", target={"css": "nav > [role=group] > button", "nth": 1})
    page.waits_for("#allowed-title")
    assert page.hindrances == []
    assert page.troubles == []
    page.do("goto", url="about:blank")


def test_the_threads_are_one_stop_of_the_tab_key(page: Browser, model: ScriptedModel) -> None:
    for number in (1, 2, 3):
        model.on(f"Thread {number}", text(f"Answer {number}."))
        page.say(f"Thread {number}")
        page.sees(f"Answer {number}.")
        page.waits_until_idle()
        page.click("New chat")
    focused = "document.activeElement.title || document.activeElement.innerText"
    new_chat = {"role": "button", "name": "New chat"}
    page.waits_for("nav li button[title='Thread 3']")

    page.do("press", target=new_chat, key="Tab")
    if page.count("nav input[type=search]"):
        page.do("press", target={"css": "nav input[type=search]"}, key="Tab")
    seen = [page.evaluate(focused)]
    for key in (
        "ArrowDown",
        "ArrowDown",
        "ArrowUp",
        "ArrowRight",
        "ArrowRight",
        "ArrowLeft",
        "ArrowUp",
        "Home",
    ):
        page.do("press", target={"css": "*:focus"}, key=key)
        seen.append(page.evaluate(focused))

    first = ["Thread 3", "Thread 2", "Thread 1", "Thread 2"]
    assert seen == [*first, "Rename", "Delete", "Rename", "Thread 3", "Thread 3"]
    page.do("press", target={"css": "*:focus"}, key="Tab")
    assert page.evaluate("document.activeElement.closest('li') === null")

    rename = "nav li:has(button[title='Thread 2']) [role=group] button"
    page.do("hover", target={"css": "nav li:has(button[title='Thread 2'])"})
    for key, name in (("Escape", "Thread 2"), ("Enter", "Thread 2"), ("Enter", "Another name")):
        page.do("press", target={"css": rename, "nth": 0}, key="Enter")
        page.do("fill", target={"label": "Thread title"}, value=name)
        page.do("press", target={"label": "Thread title"}, key=key)
        page.waits_for(f"nav li button[title='{name}']:focus")
    assert page.count("nav [aria-current]") == 0, "the row is not opened"
