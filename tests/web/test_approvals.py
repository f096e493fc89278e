"""A person at the page decides whether a command may run."""

from typing import Any

from support.model_server import ScriptedModel, call, calls, text
from web.browser import Browser

CARD = "section[aria-label='May this run?']"


def bash(command: str) -> Any:
    return call("bash", description="Step", command=command)


def told(model: ScriptedModel) -> str:
    return str(model.requests[-1])


def test_a_command_waits_for_the_person_and_outlives_a_reload(page: Browser, model: ScriptedModel) -> None:
    model.will_say(bash("echo may-i ran-\\\n  $((40+2)) \u202e# \u3164p\u0430y"), text("It ran."))

    page.say("Work.")
    page.waits_for(CARD)
    page.evaluate("location.reload()")
    shown = "\\\\u202e# \\\\u3164p\\\\u0430y"
    page.waits_for(f"{CARD} pre:has-text('{shown}')")
    page.click("Change it")
    page.waits_for(f"{CARD} [role=note] pre:has-text('{shown}')")
    page.click("Cancel", within={"css": CARD})
    page.waits_for("main [aria-label='waits for your answer']")
    page.click("Run it")

    page.sees("It ran.")
    assert page.count(CARD) == 0
    assert "ran- 42" in told(model)


def test_a_refusal_gives_its_reason_and_a_change_runs_as_written(page: Browser, model: ScriptedModel) -> None:
    model.will_say(calls(bash("echo may-i one"), bash("echo may-i two")), text("Understood."))

    page.say("Work.")
    page.waits_for(f"{CARD}:has-text('two')")
    page.do("fill", target={"css": f"{CARD}:has-text('may-i one') input"}, value="not today")
    page.do("click", target={"css": f"{CARD}:has-text('may-i one') form button"})
    page.click("Change it")
    page.do("fill", target={"css": f"{CARD} textarea"}, value="echo a second thought")
    page.click("Cancel", within={"css": CARD})
    page.waits_for(f"{CARD} pre:has-text('may-i two')")
    page.click("Change it")
    page.do("fill", target={"css": f"{CARD} textarea"}, value="echo some-$((1+1))-thing")
    page.click("Run it like this")

    page.sees("Understood.")
    assert "not today" in told(model)
    assert "some-2-thing" in told(model)
    assert page.count(CARD) == 0


def test_a_call_is_allowed_for_good_and_that_is_taken_back(page: Browser, model: ScriptedModel) -> None:
    task = call("task", description="Look inside", prompt="about inside", subagent_type="general-purpose")
    model.on("about inside", bash("echo may-i again"), text("Seen."))
    model.on("Begin", task, text("First."))
    model.on("Go on", bash("echo may-i again"), text("Second."))
    model.on("Once more", bash("echo may-i again"), text("Third."))

    page.say("Begin.")
    page.waits_for(f"{CARD}:has-text('The sub-agent “Look inside” asks.')")
    page.waits_for(f"{CARD}:has-text('you decide about calls like this one (rule 1 of guardrails.rules)')")
    page.click("Always allow", exact=True)
    page.sees("First.")
    page.say("Go on.")
    page.sees("Second.")
    page.click("Allowed calls")
    page.waits_for("dialog li:has-text('in all threads'):has-text('echo may-i again')")
    page.click("Take back")
    page.sees("Nothing is allowed for good")
    page.click("Close", within={"css": "dialog"})
    page.do("choose", target={"label": "Language"}, value="zh")
    page.do("fill", target={"css": "#message"}, value="Once more.")
    page.do("press", target={"css": "#message"}, key="Enter")

    page.waits_for("section:has-text('服务器设置要求由你决定这类调用（guardrails.rules 第 1 条规则）。')")


def test_a_new_message_declines_what_waits_and_the_step_says_so(page: Browser, model: ScriptedModel) -> None:
    model.on("Begin", bash("echo may-i begin"), text("Never said."))
    model.on("Something else", text("Else it is."))

    page.say("Begin.")
    page.waits_for(CARD)
    assert (
        page.count("section[aria-label='DeerFlow asks']") == 0
    )  # the card for older clients is not drawn too
    page.do("reload")
    page.waits_for(CARD)
    assert page.count("section[aria-label='DeerFlow asks']") == 0
    page.say("Something else.")

    page.sees("Else it is.")
    assert page.count(CARD) == 0
    page.waits_for("ol button:has-text('not allowed') [aria-label=failed]")


def test_the_list_marks_a_thread_that_waits_until_it_is_answered(page: Browser, model: ScriptedModel) -> None:
    mark = "nav li:has-text('Mark this one') [aria-label='waits for your answer']"
    question = call("ask_clarification", question="Which deer?", clarification_type="missing_info")
    model.will_say(bash("echo may-i go"), question, text("All deer."))
    page.say("Mark this one")
    page.waits_for(CARD)
    page.waits_for(mark)

    page.click("New chat")
    page.waits_for(mark)
    page.do("click", target={"css": "nav button[title='Mark this one']"})
    page.click("Run it")
    page.sees("Which deer?")
    page.waits_for(mark)
    page.say("All of them")

    page.sees("All deer.")
    page.do("see", target={"css": mark}, state="detached")
