"""Counts tokens: estimated by length first, exactly only where it matters.

The exact counter is real byte-pair encoding and needs no network. It is loaded in a thread, by the first
conversation that comes near its limit. If it is not installed, the estimate is used, which errs on the high
side.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from importlib.machinery import PathFinder
from importlib.util import find_spec, module_from_spec

from langchain_core.messages import BaseMessage, HumanMessage

from deerflow.agents.messages import is_ai
from deerflow.config import install_hint

logger = logging.getLogger(__name__)

BYTES_PER_TOKEN = 1.9
"""Lower than in real texts (English 4, dense code 2), so that an estimate is rarely too low."""
MESSAGE_TOKENS = 6
IMAGE_TOKENS = 1200
MAX_CACHED = 20_000

Encode = Callable[[str], int]


def estimate(messages: Iterable[BaseMessage]) -> int:
    """Estimate the tokens of `messages`, too high rather than too low."""
    tokens = 0
    for message in messages:  # the whole conversation, before every call: plain text has a fast path
        content = message.content
        is_plain = type(message) is HumanMessage or not (is_ai(message) and message.tool_calls)
        is_ascii = is_plain and type(content) is str and content.isascii()
        tokens += MESSAGE_TOKENS + int((len(content) if is_ascii else _bytes(message)) / BYTES_PER_TOKEN)
    return tokens


def measure(messages: Iterable[BaseMessage]) -> int:
    """Return the tokens of `messages`, exactly if the counter is installed."""
    return TokenCounter().count_now(messages)


def measure_text(text: str) -> int:
    """Return the tokens of a text, exactly if the counter is installed."""
    encode = encoder()
    return int(_utf8(text) / BYTES_PER_TOKEN) if encode is None else encode(_whole(text))


class TokenCounter:
    """Counts tokens exactly and caches the count of each text."""

    def __init__(self) -> None:
        self._known: dict[int, int] = {}

    async def count(self, messages: Iterable[BaseMessage]) -> int:
        """Return the tokens of `messages`; counted in a thread, since long texts take a while."""
        return await asyncio.to_thread(self.count_now, list(messages))

    def count_now(self, messages: Iterable[BaseMessage]) -> int:
        """Return the tokens of `messages`, counted in the calling thread."""
        encode = encoder()
        if encode is None:
            return estimate(messages)
        return sum(
            MESSAGE_TOKENS
            + sum(self._tokens(text, encode) for text in _texts(message))
            + IMAGE_TOKENS * _images(message)
            for message in messages
        )

    def _tokens(self, text: str, encode: Encode) -> int:
        key = hash(text)  # strings cache their hash, so a lookup costs nothing
        found = self._known.get(key)
        if found is None:
            if len(self._known) >= MAX_CACHED:
                self._known.clear()
            found = self._known[key] = encode(_whole(text))
        return found


@cache
def encoder() -> Encode | None:
    """Return the exact counter, loaded once; None if it is not installed."""
    package = find_spec("bpe_openai")
    # Only the compiled module: importing the package loads all its tables in Python, which takes a second.
    spec = package and PathFinder.find_spec("_bindings", package.submodule_search_locations)
    if not spec or spec.loader is None:
        logger.info("tokens are estimated; to count them exactly: %s", install_hint("bpe_openai"))
        return None
    bindings = module_from_spec(spec)
    spec.loader.exec_module(bindings)
    count: Encode = bindings.tokenizer_for_encoding("o200k_base").count
    return count


def _bytes(message: BaseMessage) -> int:
    content = message.content
    if isinstance(content, str) and not (is_ai(message) and message.tool_calls):
        return _utf8(content)
    size = IMAGE_TOKENS * _images(message) * BYTES_PER_TOKEN
    return int(size) + sum(_utf8(text) for text in _texts(message))


def _whole(text: str) -> str:
    """Return `text` without lone surrogates, which cannot be encoded."""
    return text if text.isascii() else text.encode(errors="replace").decode()


def _utf8(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode(errors="replace"))


def _texts(message: BaseMessage) -> Iterator[str]:
    content = message.content
    if isinstance(content, str):
        yield content
    else:
        for block in content:
            text = block if isinstance(block, str) else block.get("text") or block.get("thinking")
            if isinstance(text, str):
                yield text
    if is_ai(message):
        for call in message.tool_calls:
            yield call["name"]
            yield from (value if isinstance(value, str) else repr(value) for value in call["args"].values())


def _images(message: BaseMessage) -> int:
    content = message.content
    if isinstance(content, str):
        return 0
    return sum(isinstance(block, dict) and block.get("type") in ("image", "image_url") for block in content)
