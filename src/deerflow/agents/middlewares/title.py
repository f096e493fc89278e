"""Sets a thread's title.

Without a model the title is cut from the first question. With one, the model writes it concurrently with the
first answer, in a separate context: its tokens appear in no run's stream, and its failure fails no run.
"""

import asyncio
import re
from collections.abc import Callable, Sequence
from typing import Self, cast

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage
from typing_extensions import override

from deerflow.agents.middlewares.base import AgentKind, ChainMiddleware, ModelByName, with_update
from deerflow.agents.side_calls import SideAnswer, framed, side_call
from deerflow.agents.state import ThreadState
from deerflow.agents.types import ModelAnswer, ModelCall, ModelHandler
from deerflow.config import Settings, TitleSettings
from deerflow.domain.tags import FRAMEWORK_TAGS

GRACE_SECONDS = 5.0
"""How much longer than the first answer the title may take."""
MAX_QUESTION_CHARS = 2000
TAGS = re.compile(rf"<think>.*?(?:</think>|\Z)|</?(?:{'|'.join(FRAMEWORK_TAGS)})>", re.DOTALL)
LINKS = re.compile(r"\[([^\]]*)\]\([^)]*\)")
LINE_STARTS = re.compile(r"^[ \t]*(?:#+|>+|[-+*])(?=\s)", re.MULTILINE)
PAIRS = re.compile(
    r"(`{1,3}|~~)(.{1,200}?)\1|(?<![\w*])(\*{1,3})(?=[^\s*])(.{1,200}?)(?<=[^\s*])\3(?![\w*])", re.DOTALL
)
"""Code, struck-out and emphasised text; a lone `*` is kept, as in 17*23."""
ONLY_MARKUP = re.compile(r"[\s*_`~#>+-]*")
QUOTES = (('"', '"'), ("'", "'"), ("“", "”"), ("‘", "’"), ("「", "」"), ("《", "》"))
PARAGRAPHS = re.compile(r"\n\s*\n")
NAMES = re.compile(r"\{(max_words|max_chars|user_msg|question|assistant_msg)\}")
WIDE = re.compile(r"[\u2e80-\u9fff\uac00-\ud7af\uf900-\ufaff\uff00-\uffef]")


class TitleMiddleware(ChainMiddleware):
    """Has a model write the title while the first answer is generated."""

    applies_to = AgentKind.LEAD

    def __init__(
        self,
        model: Callable[[], BaseChatModel],
        *,
        settings: TitleSettings,
        grace_seconds: float = GRACE_SECONDS,
    ) -> None:
        super().__init__()
        self._grace_seconds = grace_seconds
        self._model = model
        self._settings = settings

    @classmethod
    def from_settings(cls, settings: Settings, model: ModelByName) -> Self | None:
        name = settings.title.model_name
        if name is None or not settings.title.enabled:
            return None
        return cls(lambda: model(name), settings=settings.title)

    @override
    async def awrap_model_call(self, request: ModelCall, handler: ModelHandler) -> ModelAnswer:
        question = first_question(request.messages)
        if question is None or self._is_named(request):
            return await handler(request)
        prompt = title_prompt(question, self._settings)
        writing = asyncio.create_task(side_call(prompt, self._model(), what="a title"))
        try:
            response = await handler(request)
            await asyncio.wait([writing], timeout=self._grace_seconds)
        finally:
            writing.cancel()
            await asyncio.wait([writing])
        answer = SideAnswer() if writing.cancelled() else writing.result()
        if answer.usage:
            request.runtime.context.spend(self._settings.model_name, answer.usage)
        title = clean_title(answer.text, self._settings)
        if not title:
            return response
        return with_update(response, {"title": title})

    def _is_named(self, request: ModelCall) -> bool:
        """Return whether the thread has a title other than the one cut from its question."""
        title = cast("ThreadState", request.state).get("title")
        return bool(title) and title != title_from_question(request.messages, self._settings)


def first_question(messages: Sequence[AnyMessage]) -> str | None:
    """Return the question's text if this is a thread's first model call."""
    if any(isinstance(message, AIMessage) for message in messages):
        return None
    return next((message.text for message in messages if isinstance(message, HumanMessage)), None)


def title_from_question(messages: Sequence[AnyMessage], settings: TitleSettings) -> str:
    """Return a title cut from the first user message with text; empty if there is none."""
    texts = (message.text for message in messages if isinstance(message, HumanMessage))
    return next((title for text in texts if (title := clean_title(text, settings))), "")


def clean_title(text: str, settings: TitleSettings) -> str:
    """Return `text` as a title: its first paragraph in one line, without markup, within the settings' limits.

    Later paragraphs are left out: they are pasted text or DeerFlow's list of files.
    """
    paragraphs = PARAGRAPHS.split(TAGS.sub(" ", text[:MAX_QUESTION_CHARS]))
    plain = next((found for each in paragraphs if (found := _without_markup(each))), "")
    words = plain.split()
    line = " ".join(words[: settings.max_words])
    # A wide character carries about as much meaning and width as two narrow ones.
    limit = settings.max_chars
    cut = _fit(line, limit)
    is_cut = len(cut) < len(line) or len(words) > settings.max_words
    return f"{cut.rstrip(' ,.;:，。；：、')}…" if is_cut else cut


def _without_markup(paragraph: str) -> str:
    """Return a paragraph without markup; empty if there is nothing but markup."""
    text = LINE_STARTS.sub("", LINKS.sub(r"\1", paragraph))
    text = PAIRS.sub(lambda pair: pair[2] or pair[4], text)
    if not text.isprintable():
        text = "".join(character if character.isprintable() else " " for character in text)
    line = text.strip()
    for opening, closing in QUOTES:
        if len(line) > 1 and line[0] == opening and line.find(closing, 1) == len(line) - 1:
            line = line[1:-1].strip()
    return "" if ONLY_MARKUP.fullmatch(line) else line


def _fit(line: str, limit: int) -> str:
    if not WIDE.search(line):
        return line[:limit]
    width = 0
    for position, character in enumerate(line):
        width += 2 if WIDE.match(character) else 1
        if width > limit:
            return line[:position]
    return line


def title_prompt(question: str, settings: TitleSettings) -> str:
    """Return the prompt: the settings' template, else the default."""
    shown = question[:MAX_QUESTION_CHARS]
    if settings.prompt_template:
        return _filled(settings.prompt_template, shown, settings)
    return (
        f"Write a title of at most {settings.max_words} words for a conversation that starts with the "
        "message below. Use the message's language. Answer with the title alone: no quotes, no full stop.\n\n"
        f"{framed(shown, 'message')}"
    )


def _filled(template: str, question: str, settings: TitleSettings) -> str:
    """Fill in the placeholders of DeerFlow 2's templates; other braces are left as they are."""
    values = {"max_words": str(settings.max_words), "max_chars": str(settings.max_chars)}
    # Title and answer are generated concurrently, so there is no answer yet.
    values |= {"user_msg": question, "question": question, "assistant_msg": ""}
    filled = NAMES.sub(lambda name: values[name[1]], template)
    return filled if question in filled else f"{filled}\n\n{question}"
