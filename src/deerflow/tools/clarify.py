"""`ask_clarification`: asks the user and ends the turn; the answer starts the next one.

Arguments that are too long or malformed are truncated or dropped, never rejected: the turn ends after this
tool, so a rejection would leave the user with an error instead of a question.
"""

import json
from typing import Annotated, Any, Literal, get_args

from pydantic import BaseModel, BeforeValidator, Field, model_validator

from deerflow.tools.define import Runtime, tool_of

MAX_FIELDS = 16
MAX_OPTIONS = 24
MAX_LABEL_CHARS = 200
MAX_REQUEST_BYTES = 16 * 1024
MAX_TEXT_BYTES = 4 * 1024
FALLBACK_QUESTION = "Can you tell me more about what you need?"

ClarificationType = Literal[
    "missing_info", "ambiguous_requirement", "approach_choice", "risk_confirmation", "suggestion"
]
FieldType = Literal["text", "textarea", "number", "date", "checkbox", "select", "multi_select"]


class FormField(BaseModel):
    """One thing that a form asks for."""

    name: str = Field(description="The answer's name, such as start_date.")
    label: str = Field("", description="What the user reads.")
    type: FieldType = Field("text", description="What kind of answer it is.")
    required: bool = Field(False, description="The form cannot be sent without it.")
    placeholder: str | None = Field(None, description="An example answer.")
    options: list[str] | None = Field(None, description="The choices of select and multi_select.")


def _labels(value: Any) -> list[str]:
    """Parse options in any form a model writes: a list, its JSON, one per line, or objects with labels."""
    if isinstance(value, str):
        value = _from_json(value) or value.splitlines()
    if not isinstance(value, list):
        return []
    return [label for item in value if (label := _label(item))][:MAX_OPTIONS]


def _label(item: Any) -> str:
    if isinstance(item, dict):
        item = item.get("label") or item.get("value") or item.get("name") or ""
    return _clip(str(item).strip(), MAX_LABEL_CHARS) if item is not None else ""


def _from_json(text: str) -> list[Any] | None:
    try:
        value = json.loads(text)
    except ValueError:
        return None
    return value if isinstance(value, list) else None


def _fields(value: Any) -> list[dict[str, Any]]:
    """Return the valid fields of a form, without duplicate names."""
    if isinstance(value, str):
        value = _from_json(value)
    fields: dict[str, dict[str, Any]] = {}
    for item in value if isinstance(value, list) else []:
        if isinstance(item, dict) and (name := _label(item.get("name") or item.get("label"))):
            fields.setdefault(name, _field(name, item))
    return list(fields.values())[:MAX_FIELDS]


def _field(name: str, item: dict[str, Any]) -> dict[str, Any]:
    options = _labels(item.get("options"))
    kind = item.get("type")
    if kind not in get_args(FieldType) or (kind in ("select", "multi_select") and not options):
        kind = "select" if options else "text"
    field = {
        "name": name,
        "label": _label(item.get("label")) or name,
        "type": kind,
        "required": item.get("required") is True,
    }
    if placeholder := _label(item.get("placeholder")):
        field["placeholder"] = placeholder
    return {**field, "options": options} if options else field


class ClarificationArguments(BaseModel):
    """What `ask_clarification` takes."""

    question: str = Field(description="The question, specific and complete.")
    clarification_type: ClarificationType = Field(
        description="Why you ask: something is missing, the request has several meanings, there are several "
        "ways, the next step is risky, or you suggest something and want a yes."
    )
    context: str | None = Field(None, description="Why the answer matters, in a sentence.")
    options: Annotated[list[str] | None, BeforeValidator(_labels)] = Field(
        None, description="Answers to choose from; the user can also write another."
    )
    fields: list[FormField] | None = Field(
        None, description="A form, when you need several answers at once; instead of options."
    )

    @model_validator(mode="before")
    @classmethod
    def _normalise(cls, values: Any) -> Any:
        if not isinstance(values, dict):
            return values
        kind = values.get("clarification_type")
        return {
            "question": _text(values.get("question")) or _text(values.get("context")) or FALLBACK_QUESTION,
            "clarification_type": kind if kind in get_args(ClarificationType) else "missing_info",
            "context": _text(values.get("context")) or None,
            "options": values.get("options") or [],
            "fields": _fields(values.get("fields")),
        }


@tool_of(
    "ask_clarification",
    ClarificationArguments,
    return_direct=True,
    with_artifact=True,
    is_safe_to_repeat=True,
)
async def ask_clarification_tool(
    *,
    question: str,
    clarification_type: ClarificationType,
    context: str | None,
    options: list[str],
    fields: list[FormField],
    runtime: Runtime,
) -> tuple[str, dict[str, Any]]:
    """Ask the user a question and wait: your turn ends here and the answer is the next message.

    Ask before you start when something essential is missing, the request can mean several things, there
    are several valid ways, or the next step cannot be undone. Call no other tool beside it.
    """
    request: dict[str, Any] = {
        "version": 2 if fields else 1,
        "kind": "human_input_request",
        "source": "ask_clarification",
        "request_id": f"clarification:{runtime.tool_call_id}",
        "tool_call_id": runtime.tool_call_id,
        "clarification_type": clarification_type,
        "question": question,
        "input_mode": "form" if fields else "choice_with_other" if options else "free_text",
    }
    if context:
        request["context"] = context
    if fields:
        request["fields"] = [field.model_dump(exclude_none=True) for field in fields]
    elif options:
        request["options"] = [
            {"id": f"option-{number}", "label": label, "value": label}
            for number, label in enumerate(options, start=1)
        ]
    fitted = _fit(request)
    return _readable(fitted), {"human_input": fitted}


def _fit(request: dict[str, Any]) -> dict[str, Any]:
    """Reduce a request to the size limit: truncate long texts, then shorten lists."""
    fitted = {**request, "question": _clip_bytes(request["question"], MAX_TEXT_BYTES)}
    if "context" in fitted:
        fitted["context"] = _clip_bytes(fitted["context"], MAX_TEXT_BYTES)
    while len(json.dumps(fitted, ensure_ascii=False).encode()) > MAX_REQUEST_BYTES:
        key = "fields" if "fields" in fitted else "options"
        fitted[key] = _shorter(fitted[key])
    return fitted


def _shorter(items: list[dict[str, Any]]) -> list[dict[str, Any]]:
    *others, last = items
    options = last.get("options", ())
    return [*others, {**last, "options": options[: len(options) // 2]}] if len(options) > 1 else others


def _readable(request: dict[str, Any]) -> str:
    """Return the question as text, for clients without forms and for the model's next turn."""
    parts = [request["context"]] if "context" in request else []
    parts.append(request["question"])
    lines = [
        f"{number}. {option['label']}" for number, option in enumerate(request.get("options", ()), start=1)
    ]
    lines += [f"- {_field_line(field)}" for field in request.get("fields", ())]
    return "\n\n".join([*parts, "\n".join(lines)] if lines else parts)


def _field_line(field: dict[str, Any]) -> str:
    choices = f" ({', '.join(field['options'])})" if "options" in field else ""
    return f"{field['label']}{choices}{'' if field['required'] else ' (optional)'}"


def _text(value: Any) -> str:
    return value.strip() if isinstance(value, str) else ""


def _clip(text: str, limit: int) -> str:
    clean = text.encode("utf-8", "replace").decode()  # a lone surrogate would break the event log
    return clean if len(clean) <= limit else f"{clean[: limit - 1]}…"


def _clip_bytes(text: str, limit: int) -> str:
    data = text.encode("utf-8", "replace")
    return data.decode() if len(data) <= limit else f"{data[: limit - 3].decode(errors='ignore')}…"
