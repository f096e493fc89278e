"""Embedded clients, async and sync: DeerFlow in your own process, without a server."""

from deerflow.client.blocking import DeerFlowClient
from deerflow.client.embedded import AsyncDeerFlowClient
from deerflow.client.events import ClientEvent, RunFailedError, answer_of, text_of

__all__ = ["AsyncDeerFlowClient", "ClientEvent", "DeerFlowClient", "RunFailedError", "answer_of", "text_of"]
