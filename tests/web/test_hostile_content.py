"""Whatever a model, a file or a name contains, it stays text. (The `page` fixture sees to the rest.)"""

import pytest
from support.gateway import Gateway
from support.model_server import ScriptedModel, call, text
from web.browser import Browser

HTML = '<img src=x onerror="window.hacked=1"><script>window.hacked=1</script><svg onload="window.hacked=1">'
MARKDOWN = f"""{HTML}

[click me](javascript:window.hacked=1) [or me](data:text/html,<script>1</script>) <javascript:window.hacked=1>

![pixel](https://evil.example/pixel.png) ![inline](data:image/svg+xml,<svg/onload=1>)

<iframe src="https://evil.example"></iframe><form action="https://evil.example"><input></form>

[citation:{HTML}](javascript:window.hacked=1)
"""


def test_an_answer_cannot_act_on_the_page(page: Browser, model: ScriptedModel) -> None:
    model.will_say(text(f"{MARKDOWN}\n\nend of answer"))

    page.say(HTML)

    page.sees("end of answer")
    page.do("click", target={"text": "click me"})
    page.do("click", target={"text": "or me"})
    assert page.evaluate("window.hacked === undefined")
    assert page.count(".markdown :is(img, iframe, form, script, svg:not(.lucide))") == 0
    assert page.count(".markdown a") == 0


def test_tool_results_titles_and_sub_agents_cannot_either(page: Browser, model: ScriptedModel) -> None:
    model.on("sub work", text(MARKDOWN))
    model.will_say(
        call("write_file", description=HTML, path="/mnt/user-data/workspace/x.txt", content=HTML),
        call("task", description=HTML[:60], prompt="sub work", subagent_type="general-purpose"),
        text("finished work"),
    )

    page.say(f"title {HTML}")

    page.sees("finished work")
    page.do("click", target={"css": "article[data-task] button", "nth": 0})
    page.do("click", target={"css": "ol li button[aria-expanded]", "nth": 0})
    assert page.evaluate("window.hacked === undefined")


@pytest.mark.parametrize(
    "name", ["<img src=x onerror=window.hacked=1>.txt", "'\"><svg onload=window.hacked=1>.md"]
)
def test_a_file_name_is_only_a_name(page: Browser, model: ScriptedModel, name: str) -> None:
    model.will_say(text("Got it."))

    page.do("attach", files=[{"name": name, "content": HTML}])
    page.do("see", target={"css": "progress"}, state="detached")
    page.say("Here.")

    page.sees("Got it.")
    assert page.evaluate("window.hacked === undefined")


def test_a_refused_file_says_why_and_holds_the_message_back(page: Browser, model: ScriptedModel) -> None:
    model.will_say(text("Never mind."))
    page.do("attach", files=[{"name": "a</script>.md", "content": HTML}])

    page.say("Here.")
    page.waits_for("form [role=alert]:has-text('slash')")
    assert model.requests == []
    page.click("Remove a</script>.md")
    page.do("press", target={"label": "Message to DeerFlow"}, key="Enter")

    page.sees("Never mind.")
    assert page.evaluate("window.hacked === undefined")


def test_a_markdown_artifact_is_as_harmless_as_an_answer(page: Browser, model: ScriptedModel) -> None:
    path = "/mnt/user-data/outputs/a #1?.md"
    model.will_say(
        call("write_file", description="w", path=path, content=MARKDOWN),
        call("present_files", filepaths=[path]),
        text("There."),
    )
    page.say("Write.")
    page.sees("There.")

    page.click("Open a #1?.md", nth=0)

    page.waits_for("aside .markdown")
    assert page.evaluate("window.hacked === undefined")
    assert page.count("aside .markdown :is(img, iframe, form, script, a)") == 0


def test_a_strange_address_opens_a_new_chat(page: Browser, gateway: Gateway) -> None:
    page.do("goto", url="about:blank")
    page.do("goto", url=f"{gateway.url}/#/threads/..%2F..%2Fapi<script>")

    page.sees("What should get done?")
