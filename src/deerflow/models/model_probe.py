"""Checks whether a model's server is reachable and accepts the API key, without calling the model."""

import asyncio

import openai
from langchain_core.language_models import BaseChatModel
from langchain_openai import ChatOpenAI

from deerflow.models.fallback import FallbackChatModel

PATIENCE_SECONDS = 5.0


async def reaching_problem(model: BaseChatModel, *, patience_seconds: float = PATIENCE_SECONDS) -> str | None:
    """Return why a model's server cannot be used; None if it can, or if that cannot be determined.

    Listing the models is free, and every OpenAI-compatible server checks the key for it. A server without a
    model list still responds, which proves that it is reachable.
    """
    first = model.members[0] if isinstance(model, FallbackChatModel) else model
    if not isinstance(first, ChatOpenAI) or first.root_async_client is None:
        return None
    client = first.root_async_client.with_options(max_retries=0, timeout=patience_seconds)
    where = str(client.base_url).rstrip("/")
    try:
        async with asyncio.timeout(patience_seconds):
            await client.models.list()
    except (openai.AuthenticationError, openai.PermissionDeniedError):
        return f"{where} refuses the key; check `api_key`"
    except (TimeoutError, openai.APITimeoutError):
        return f"{where} did not answer within {patience_seconds:g} s; check `base_url` and the network"
    except openai.APIConnectionError:
        return f"{where} cannot be reached; check `base_url` and the network"
    except openai.APIError:
        return None
    return None
