"""Converts the request body of a run into a `RunRequest`."""

from deerflow.app import DeerFlow
from deerflow.domain import LEAD_AGENT, RunRequest
from deerflow.gateway.contract import contract_of
from deerflow.gateway.wire import RunCreate


async def to_request(
    deerflow: DeerFlow,
    user: str,
    thread_id: str,
    body: RunCreate,
    *,
    key: str | None = None,
    is_stateless: bool = False,
) -> RunRequest:
    """Build the run request with the defaults of its assistant; `NotFoundError` for an unknown assistant.

    Args:
        key: The idempotency key of the request.
        is_stateless: The thread is created for this run.
    """
    if body.webhook:
        await deerflow.webhooks.check(body.webhook)
    name = body.assistant_id or LEAD_AGENT
    is_agent = name == LEAD_AGENT or await deerflow.is_custom_agent(name, user)
    return body.to_request(
        thread_id,
        user,
        most_steps=deerflow.settings.max_recursion_limit,
        idempotency_key=key,
        defaults=None if is_agent else await deerflow.storage.assistants.get(name, user),
        is_stateless=is_stateless,
        contract=contract_of(deerflow),
    )
