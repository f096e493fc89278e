"""A person talks to the agent in the browser."""

import threading
from pathlib import Path

from support.gateway import Gateway
from support.model_server import ScriptedModel, call, calls, reasoning, status, text
from web.browser import Browser

ANSWER = "## Result\n\nIt is **42**.\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\n```python\nprint(42)\n```"


def test_an_answer_streams_in_and_is_drawn_as_markdown(page: Browser, model: ScriptedModel) -> None:
    gate = threading.Event()
    model.will_say(reasoning("Let me think.") + text(ANSWER).held(gate, after=6))

    page.say("What is the answer?")

    page.sees("Result")
    page.waits_for("article[aria-busy=true]")
    gate.set()
    page.waits_for(".markdown table")
    page.waits_until_idle()
    assert page.text("article[aria-label=You]") == "What is the answer?"
    assert page.text(".markdown strong") == "42"
    assert page.text("pre code").strip() == "print(42)"
    assert page.count("article[aria-busy=true]") == 0
    assert "#/threads/" in page.do("address")


def test_steps_show_what_tools_do_and_print(page: Browser, model: ScriptedModel, tmp_path: Path) -> None:
    seen = tmp_path / "seen"
    count = f"echo one; until [ -e {seen} ]; do sleep 0.1; done; echo two"
    model.will_say(
        calls(
            call(
                "write_file",
                description="Keep a note",
                path="/mnt/user-data/workspace/note.txt",
                content="hi",
            ),
            call("bash", description="Count slowly", command=count),
        ),
        text("All done."),
    )

    page.say("Work a little.")

    page.sees("Keep a note")
    page.waits_for("pre:has-text('one')")  # while the command still runs
    seen.touch()
    page.sees("All done.")
    page.click("Count slowly")
    page.waits_for("section:has-text('Result') pre:has-text('two')")
    page.evaluate("navigator.clipboard.writeText = async (text) => { window.copied = text; }")
    page.click("Copy: Arguments")
    page.do("until", script="window.copied !== undefined")
    assert page.evaluate("window.copied") == count


def test_sub_agents_have_cards_with_their_latest_step_and_result(page: Browser, model: ScriptedModel) -> None:
    gate = threading.Event()
    names = ("Alpha", "Beta")
    asked = [
        call("task", description=f"Study {name}", prompt=f"about {name}", subagent_type="general-purpose")
        for name in names
    ]
    model.on(
        "about Alpha",
        call("ls", description="Look around", path="/mnt/user-data/workspace"),
        text("Alpha is fine."),
    )
    model.on(
        "about Beta",
        call("ls", description="Look twice", path="/mnt/user-data"),
        text("Beta it is.").held(gate),
    )
    model.on("Compare", calls(*asked), text("Both were studied."))

    page.say("Compare them.")

    page.waits_for("[data-status=completed]:has-text('Alpha is fine.')")
    page.waits_for("[data-status=running]:has-text('ls')")
    gate.set()
    page.sees("Both were studied.")
    assert page.count("[data-status=completed]") == 2
    page.click("Study Beta")
    page.sees("ls: Look twice")


def test_a_question_is_answered_with_a_button(page: Browser, model: ScriptedModel) -> None:
    options = ["A table", "A list"]
    asked = {"question": "Which form?", "clarification_type": "approach_choice", "options": options}
    model.will_say(call("ask_clarification", **asked), text("A list, then."))

    page.say("Summarise it.")
    page.click("A list")

    page.sees("A list, then.")
    assert page.text("section[aria-label='DeerFlow asks'] > p") == "You answered: A list"
    assert page.count("article[aria-label=You]") == 1
    assert model.requests[-1].asked.endswith("A list")


def test_a_form_asks_for_several_things_at_once(page: Browser, model: ScriptedModel) -> None:
    fields = [
        {"name": "city", "label": "City", "type": "text", "required": True},
        {"name": "pace", "label": "Pace", "type": "select", "options": ["calm", "busy"]},
    ]
    model.will_say(
        call("ask_clarification", question="Where?", clarification_type="missing_info", fields=fields),
        text("Noted."),
    )

    page.say("Plan a trip.")
    page.do("fill", target={"label": "City"}, value="Oslo")
    page.do("choose", target={"label": "Pace"}, value="calm")
    page.click("Send", within={"css": "section[aria-label='DeerFlow asks']"})

    page.sees("Noted.")
    assert "City: Oslo\nPace: calm" in model.requests[-1].asked


def test_stop_ends_the_run_and_keeps_what_was_said(page: Browser, model: ScriptedModel) -> None:
    model.will_say(text("one two three four five six seven eight").held(threading.Event(), after=3))
    page.say("Count.")
    page.sees("one two")

    page.click("Stop")

    page.sees("Stopped.")
    page.waits_until_idle()
    assert "one two" in page.text("main")
    model.wait_for(lambda scripted: scripted.aborted == 1)


def test_a_failed_run_says_why_and_can_be_tried_again(page: Browser, model: ScriptedModel) -> None:
    model.will_say(status(401, message="the key is not valid"), text("Better now."))
    page.say("Hello?")
    page.waits_for("[role=alert]")
    assert page.text("[role=alert] p").startswith("The run failed.")

    page.click("Try again")

    page.sees("Better now.")
    assert page.count("[role=alert]") == 0
    assert page.count("article[aria-label=You]") == 1


def test_the_next_question_goes_on_in_the_same_thread(
    page: Browser, model: ScriptedModel, gateway: Gateway
) -> None:
    model.will_say(text("First answer."), text("Second answer."))
    page.say("One?")
    page.sees("First answer.")
    page.waits_until_idle()

    page.say("Two?")

    page.sees("Second answer.")
    said = [message["content"] for message in model.requests[-1].messages if message["role"] == "assistant"]
    assert said == ["First answer."]


def test_modes_and_model_are_sent_along(page: Browser, model: ScriptedModel) -> None:
    model.will_say(text("Without help."))
    page.click("Sub-agents")

    page.say("Alone, please.")

    page.sees("Without help.")
    assert "task" not in model.requests[-1].tools
    assert "bash" in model.requests[-1].tools


def test_failed_steps_show_in_their_row_in_the_fold_and_on_a_sub_agents_card(
    page: Browser, model: ScriptedModel
) -> None:
    steps = [call("bash", description=f"Step {number}", command="true") for number in range(5)]
    failing = call("bash", description="Step that breaks", command="echo oh; exit 3")
    task = call("task", description="Try it", prompt="about trying", subagent_type="general-purpose")
    model.on("about trying", failing, text("Tried."))
    model.on("Break something", calls(failing, *steps), task, text("It broke."))

    page.say("Break something.")

    page.sees("It broke.")
    page.waits_for("article[data-task]:has-text('1 step, 1 failed')")
    fold = page.text("ol button:has-text('earlier steps')")
    assert fold == "3 earlier steps, 1 failed"
    page.click("3 earlier steps, 1 failed")
    row = "button:has-text('Step that breaks'):has-text('exit code 3')"
    page.waits_for(f"{row} [aria-label=failed]")
    assert page.count("ol [aria-label=failed]") == 1
    page.do("click", target={"css": "article[data-task] button"})
    page.waits_for("article[data-task] li:has-text('Exit code: 3') [aria-label=failed]")


def test_a_slash_offers_skills_and_activates_the_chosen_one(
    page: Browser, model: ScriptedModel, gateway: Gateway
) -> None:
    folder = gateway.home / "skills" / "custom" / "tea-tasting"
    folder.mkdir(parents=True)
    (folder / "SKILL.md").write_text("---\nname: tea-tasting\ndescription: Tea.\n---\nSmell it first.\n")
    model.will_say(text("Oolong."))
    message = {"label": "Message to DeerFlow"}

    page.do("fill", target=message, value="/tea")
    page.waits_for("li[role=option][aria-selected=true]:has-text('/tea-tasting')")
    hindrances = page.hindrances
    page.do("press", target=message, key="Enter")
    chosen = page.evaluate("document.querySelector('textarea').value")
    page.say("/tea-tasting of this one")
    page.sees("Oolong.")
    page.waits_until_idle()
    page.say("/tea-tastign of this one")
    page.sees("Did you mean /tea-tasting?")

    assert hindrances == []
    assert chosen == "/tea-tasting "
    assert page.count("li[role=option]") == 0
    assert page.text("article[aria-label=You] >> nth=0") == "/tea-tasting of this one"
    assert "Smell it first." in str(model.requests[0].body)
