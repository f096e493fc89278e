"""Converts a run's events to another format, for readers that need it."""

from collections.abc import AsyncIterator, Callable

from deerflow.domain import StreamEvent

Teller = Callable[[StreamEvent], list[StreamEvent]]
"""Returns an event in the other format."""


async def retold(
    batches: AsyncIterator[list[StreamEvent]], *tellers: Teller, after_seq: int = -1
) -> AsyncIterator[list[StreamEvent]]:
    """Yield a run's events converted by each of the `tellers` in turn.

    Args:
        batches: The run's events from the first one on.
        after_seq: Events up to this number update the converters' state, and are not yielded.
    """
    async for batch in batches:
        told = batch
        for tell in tellers:
            told = [frame for event in told for frame in tell(event)]
        shown = [event for event in told if event.seq > after_seq]
        if shown or not batch:
            yield shown
