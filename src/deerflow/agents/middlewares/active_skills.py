"""Knows which skills are active, and gives the model their text, the limits of their tools and their secrets.

A skill becomes active when the user begins a message with `/name`, when the agent reads its `SKILL.md` or
uses its files in a command, and with a skill that depends on it. It stays active until the user's next
message; a reply to a question of the agent continues the turn. The text of a skill stays in the conversation
after that, and an active skill's text is repeated when a summary has removed it.

A turn without skills costs a look at the first character of its message.
"""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, Literal, cast

from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, ToolMessage
from typing_extensions import override

from deerflow.agents.agent_skills import AgentSkills, slash_answer
from deerflow.agents.messages import NOTE, is_human, is_result
from deerflow.agents.middlewares.base import ChainMiddleware, error_result, with_update
from deerflow.agents.middlewares.reminder import reminder
from deerflow.agents.middlewares.tool_call_removal import ASK_CLARIFICATION
from deerflow.agents.middlewares.tool_offer import SHELLS
from deerflow.agents.state import ActiveSkill, ThreadState
from deerflow.agents.types import ModelAnswer, ModelCall, ModelHandler, ToolHandler, ToolRequest, ToolResult
from deerflow.context import RunContext
from deerflow.domain import SkillUse, new_id
from deerflow.observability.logs import Redactor
from deerflow.skills import Skill, package_digest
from deerflow.skills.activation import skill_text, slash_name, with_dependencies
from deerflow.skills.secrets import CommandSecrets
from deerflow.skills.tool_rules import ALWAYS_ALLOWED, ToolRules

USED = "skills"
"""Key in a tool result's `additional_kwargs` with the names of the skills that the call used."""
EVENT = "skills"
ActivatedBy = Literal["slash", "read", "dependency"]
BY_USER = "The user activated the skill {name} for this message. Follow its instructions:"
ALSO_NEEDED = "The skill {name} depends on these skills; their instructions apply too:"
MISSING = "The skill {name} also needs these skills, which are missing here: {missing}. Say so if it matters."
STILL_ACTIVE = "This skill is still active:"
REFUSED = (
    "{tool} was not called: {skills} only these tools: {allowed}. Beside them you may always use {always}, "
    "and read files below {root}. Use one of these, or tell the user what the skill does not allow."
)
COMMANDS = " Of a line of commands, each must be allowed; substitutions and redirections to files are not."


@dataclass(slots=True)
class _Turn:
    """The skills of a model call, and what changes in the state with its answer."""

    active: list[ActiveSkill]
    texts: dict[str, str]
    update: dict[str, Any] = field(default_factory=dict)
    answer: str | None = None
    """The answer to a message that names a skill which cannot be used."""


class ActiveSkillsMiddleware(ChainMiddleware):
    """Activates skills, adds their text to requests, and checks tool calls against their `allowed-tools`."""

    before = ("GuardrailMiddleware",)  # nobody is asked about a call that no active skill allows

    def __init__(self, skills: AgentSkills) -> None:
        super().__init__()
        self._skills = skills

    @override
    async def awrap_model_call(self, request: ModelCall, handler: ModelHandler) -> ModelAnswer:
        state, context = cast("ThreadState", request.state), request.runtime.context
        active, texts = state.get("active_skills"), state.get("skill_texts")
        question = _new_question(state["messages"])
        if question is not None:
            has_slash = context.task_id is None and _begins_with_slash(question)
            if not active and not texts and not has_slash:
                return await handler(request)
            turn = await self._new_turn(state, context, question, has_slash=has_slash)
        else:
            used = used_skills(state["messages"])
            if not active and not texts and not used:
                return await handler(request)
            turn = await self._next_step(state, context, used)
        if turn.answer is not None:
            return AIMessage(turn.answer, id=new_id())
        await self._repeat_removed(turn, request.messages, state.get("dropped_results") or ())
        messages = with_texts(request.messages, turn.texts, turn.active)
        response = await handler(request.override(messages=messages))
        return with_update(response, turn.update) if turn.update else response

    async def _new_turn(
        self, state: ThreadState, context: RunContext, question: HumanMessage, *, has_slash: bool
    ) -> _Turn:
        before = state.get("active_skills") or []
        turn = _Turn(_continued(before, state["messages"], question), dict(state.get("skill_texts") or {}))
        if turn.active != before:
            turn.update["active_skills"] = turn.active
        name = slash_name(question.text) if has_slash else None
        if name is None or any(each["name"] == name for each in turn.active):
            return turn
        skill = self._skills.by_name.get(name)
        turn.answer = await slash_answer(self._skills, name, question.text, context)
        if skill is not None and turn.answer is None:
            await self._activate(turn, [skill], context, question, by="slash")
            paths = [*(state.get("skill_context") or ()), skill.path]
            turn.update["skill_context"] = paths
        return turn

    async def _next_step(
        self, state: ThreadState, context: RunContext, used: Mapping[str, ToolMessage]
    ) -> _Turn:
        turn = _Turn(list(state.get("active_skills") or ()), dict(state.get("skill_texts") or {}))
        known = {each["name"] for each in turn.active}
        new = [skill for name in used if name not in known and (skill := self._skills.by_name.get(name))]
        if new:
            question = next(message for message in reversed(state["messages"]) if is_human(message))
            last = next(message for message in reversed(state["messages"]) if is_result(message))
            await self._activate(turn, new, context, question, by="read", results=used, anchor=last)
        return turn

    async def _activate(
        self,
        turn: _Turn,
        skills: Sequence[Skill],
        context: RunContext,
        question: HumanMessage,
        *,
        by: ActivatedBy,
        results: Mapping[str, ToolMessage] | None = None,
        anchor: AnyMessage | None = None,
    ) -> None:
        """Add skills and their dependencies to a turn, store them with the run, and tell clients.

        Args:
            results: Tool results that show the instructions of skills, by name.
            anchor: The message after which other instructions are added; by default before the question.
        """
        anchor = anchor or question
        parts: list[str] = []
        uses: list[SkillUse] = []
        for skill in skills:
            needed = with_dependencies(skill, self._skills.by_name)
            blocks: list[str] = []
            for each in needed.skills:
                if any(known["name"] == each.name for known in turn.active):
                    continue
                digest, text = await asyncio.to_thread(_read, each)
                result = (results or {}).get(each.name)
                activated_by: ActivatedBy = by if each is skill or result else "dependency"
                use = SkillUse(each.name, digest, each.version, activated_by)
                text_id = (result or anchor).id or ""
                turn.active.append(_entry(each, use, turn_id=question.id or "", text_id=text_id))
                uses.append(use)
                if result is None:
                    blocks.append(text)
            parts += _explained(skill, blocks, by=by)
            if needed.missing:
                parts.append(MISSING.format(name=skill.name, missing=", ".join(needed.missing)))
            if note := await self._skills.missing_secrets(skill, context):
                parts.append(note)
        if parts:
            key = anchor.id or ""
            known_text = [turn.texts[key]] if key in turn.texts else []
            turn.texts[key] = "\n\n".join([*known_text, *parts])
            turn.update["skill_texts"] = {key: turn.texts[key]}
        turn.update["active_skills"] = turn.active
        await context.record_skills(uses)
        _publish(context, uses)

    async def _repeat_removed(
        self, turn: _Turn, messages: Sequence[AnyMessage], dropped: Iterable[str]
    ) -> None:
        """Add the text of active skills whose message is no longer part of the conversation."""
        gone = set(dropped)
        present = {message.id for message in messages if message.id not in gone}
        for index, each in enumerate(turn.active):
            if each["text_id"] in present or each["text_id"] in turn.texts:
                continue
            skill = self._skills.by_name.get(each["name"])
            if skill is None:
                continue
            key = f"skill:{skill.name}"
            _, text = await asyncio.to_thread(_read, skill)
            turn.texts[key] = f"{STILL_ACTIVE}\n\n{text}"
            turn.active[index] = {**each, "text_id": key}
            turn.update["skill_texts"] = {**turn.update.get("skill_texts", {}), key: turn.texts[key]}
            turn.update["active_skills"] = turn.active

    @override
    async def awrap_tool_call(self, request: ToolRequest, handler: ToolHandler) -> ToolResult:
        call = request.tool_call
        active: list[ActiveSkill] = request.state.get("active_skills") or []
        if active and (refusal := refused(call["name"], call["args"], active, self._skills.paths.root)):
            return error_result(call, refusal)
        code = call["args"].get("command", call["args"].get("code")) if call["name"] in SHELLS else None
        named = self._skills.paths.in_code(code) if isinstance(code, str) else []
        context = cast("RunContext", request.runtime.context)
        if self._skills.has_secrets(context) or any(skill.required_secrets for skill in named):
            secrets = await self._skills.command_secrets(context, code, active, named)
            if isinstance(secrets, str):
                return error_result(call, secrets)
            result = _masked(await handler(_with_secrets(request, context, secrets)), secrets)
        else:
            result = await handler(request)
        if not isinstance(result, ToolMessage):
            return result
        used = await self._used(call["name"], call["args"], code, named, result)
        if not used:
            return result
        kwargs = {**result.additional_kwargs, USED: [skill.name for skill in used]}
        return result.model_copy(update={"additional_kwargs": kwargs})

    async def _used(
        self, tool: str, args: Mapping[str, Any], code: object, named: Sequence[Skill], result: ToolMessage
    ) -> list[Skill]:
        """Return the skills whose instructions a call showed, or whose files its command used."""
        paths = self._skills.paths
        has_failed = result.status == "error"
        if not isinstance(code, str):
            skill = paths.file(args.get("path")) if tool in self._skills.readers and not has_failed else None
            return [] if skill is None else [skill]
        if not has_failed and (used := [skill for skill in named if paths.uses_files(code, skill)]):
            return used
        if not paths.may_show(code):
            return []
        return await asyncio.to_thread(paths.shown, result.text)


def _new_question(messages: Sequence[AnyMessage]) -> HumanMessage | None:
    """Return the user's message if the model has not answered it yet."""
    last = messages[-1] if messages else None
    return last if last is not None and is_human(last) and NOTE not in last.additional_kwargs else None


def _begins_with_slash(message: HumanMessage) -> bool:
    content = message.content
    return (content if isinstance(content, str) else message.text)[:1] == "/"


def _continued(
    active: list[ActiveSkill], messages: Sequence[AnyMessage], question: HumanMessage
) -> list[ActiveSkill]:
    """Return the skills that stay active with a message: of the same turn, or if it answers a question."""
    if not active or active[0]["turn"] == question.id:
        return list(active)
    earlier = messages[-2] if len(messages) > 1 else None
    if not isinstance(earlier, ToolMessage) or earlier.name != ASK_CLARIFICATION:
        return []
    return [{**each, "turn": question.id or ""} for each in active]


def used_skills(messages: Sequence[AnyMessage]) -> dict[str, ToolMessage]:
    """Return the skills that the last tool calls used, each with its result."""
    found: dict[str, ToolMessage] = {}
    for message in reversed(messages):
        if is_result(message):
            for name in message.additional_kwargs.get(USED, ()):
                found.setdefault(name, message)
        elif NOTE not in message.additional_kwargs:
            break
    return found


def _read(skill: Skill) -> tuple[str, str]:
    """Return a skill's digest and text; a package that was removed meanwhile is said in the text."""
    try:
        return package_digest(skill.folder), skill_text(skill)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or type(error).__name__  # its text has a path of this host
        return "", f"The skill {skill.name} cannot be read any more: {reason}."


def _entry(skill: Skill, use: SkillUse, *, turn_id: str, text_id: str) -> ActiveSkill:
    return ActiveSkill(
        name=skill.name,
        path=skill.path,
        version=use.version,
        digest=use.digest,
        activated_by=use.activated_by,
        allowed_tools=None if skill.allowed_tools is None else list(skill.allowed_tools),
        turn=turn_id,
        text_id=text_id,
    )


def _explained(skill: Skill, blocks: Sequence[str], *, by: ActivatedBy) -> list[str]:
    """Return the texts of a skill and its dependencies with a sentence that says why they are there."""
    if not blocks:
        return []
    intro = BY_USER if by == "slash" else ALSO_NEEDED
    return [intro.format(name=skill.name), *blocks]


def _publish(context: RunContext, uses: Sequence[SkillUse]) -> None:
    skills = [
        {
            "name": use.name,
            "version": use.version,
            "digest": use.digest,
            "activated_by": use.activated_by,
        }
        for use in uses
    ]
    context.publish({"type": EVENT, "skills": skills, "task_id": context.task_id})


def with_texts(
    messages: Sequence[AnyMessage], texts: Mapping[str, str], active: Sequence[ActiveSkill]
) -> list[AnyMessage]:
    """Return `messages` with each text beside its message; texts of removed ones only for active skills."""
    present = {message.id for message in messages}
    needed = dict.fromkeys(each["text_id"] for each in active)
    found: list[AnyMessage] = [reminder(texts[key]) for key in needed if key in texts and key not in present]
    for message in messages:
        text = texts.get(message.id or "")
        if text is None:
            found.append(message)
        elif is_human(message):
            found += [reminder(text), message]
        else:
            found += [message, reminder(text)]
    return found


def refused(tool: str, args: Mapping[str, Any], active: Iterable[ActiveSkill], root: str) -> str | None:
    """Return why the active skills do not allow a call; None if they do."""
    limits = {
        each["name"]: tuple(each["allowed_tools"]) for each in active if each["allowed_tools"] is not None
    }
    if not limits:
        return None
    rules = _rules(tuple(entry for entries in limits.values() for entry in entries), root)
    if rules.permits(tool, args):
        return None
    names = " and ".join(limits)
    text = REFUSED.format(
        tool=tool,
        skills=f"the active skill {names} allows" if len(limits) == 1 else f"the active skills {names} allow",
        allowed=str(rules),
        always=", ".join(sorted(ALWAYS_ALLOWED)),
        root=root,
    )
    return text + COMMANDS if rules.has_patterns(tool) else text


@lru_cache(maxsize=256)
def _rules(entries: tuple[str, ...], root: str) -> ToolRules:
    return ToolRules(entries, skills_path=root)


def _with_secrets(request: ToolRequest, context: RunContext, secrets: CommandSecrets | None) -> ToolRequest:
    """Return a request whose tool gets the secrets with its context."""
    runtime = replace(cast("Any", request.runtime), context=replace(context, command_secrets=secrets))
    return replace(request, runtime=runtime)


def _masked(result: ToolResult, secrets: CommandSecrets | None) -> ToolResult:
    """Return a result without the secrets of the user's skills."""
    if secrets is None or not isinstance(result, ToolMessage):
        return result
    content = result.content
    if isinstance(content, str):
        return result.model_copy(update={"content": secrets.redact.known(content)})
    return result.model_copy(update={"content": [_masked_block(block, secrets.redact) for block in content]})


def _masked_block(block: Any, redact: Redactor) -> Any:
    if isinstance(block, str):
        return redact.known(block)
    if isinstance(block, dict) and isinstance(block.get("text"), str):
        return {**block, "text": redact.known(block["text"])}
    return block
