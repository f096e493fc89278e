"""Ask the user at the terminal the clarification questions of the agent."""

from collections.abc import Mapping
from typing import Any

from deerflow.cli.approve import Person
from deerflow.domain.visible_text import printable

Request = Mapping[str, Any]


def question_in(values: Mapping[str, Any]) -> Request | None:
    """Return the question that ended a thread's last turn; None when it did not end with one."""
    messages = values.get("messages") or [{}]
    artifact = messages[-1].get("artifact")
    request = artifact.get("human_input") if isinstance(artifact, Mapping) else None
    return request if isinstance(request, Mapping) else None


async def reply_to(request: Request, person: Person) -> str:
    """Ask the user and return the answer; empty when they do not answer."""
    if request.get("context"):
        person.show(f"\n{printable(str(request['context']))}")
    person.show(f"\n{printable(str(request.get('question', '')))}", style="bold")
    if request.get("fields"):
        return await _form(request["fields"], person)
    labels = [str(option["label"]) for option in request.get("options") or ()]
    for number, label in enumerate(labels, start=1):
        person.show(f"  {number}. {printable(label)}")
    hint = "A number, or an answer of your own" if labels else "Your answer"
    return chosen(await person.line(f"{hint} (Enter: not now): "), labels)


async def _form(fields: list[Mapping[str, Any]], person: Person) -> str:
    """Ask for one field after the other; empty when a required one is left out."""
    answers = []
    for field in fields:
        labels = [str(option) for option in field.get("options") or ()]
        choices = "".join(f"  {number}. {printable(label)}\n" for number, label in enumerate(labels, start=1))
        name = printable(str(field.get("label") or field["name"]))
        note = "" if field.get("required") else " (optional)"
        given = await person.line(f"{choices}{name}{note}: ")
        # Several choices may be given, separated by commas.
        is_many = field.get("type") == "multi_select"
        parts = given.split(",") if is_many else [given]
        value = ", ".join(filter(None, (chosen(part, labels) for part in parts)))
        if value:
            answers.append(f"{name}: {value}")
        elif field.get("required"):
            return ""
    return "\n".join(answers)


def chosen(line: str, labels: list[str]) -> str:
    """Return the option with that number, else the line itself."""
    text = line.strip()
    number = int(text) if text.isdecimal() else 0
    return labels[number - 1] if 0 < number <= len(labels) else text
