"""Tells a run's events again in another form, for readers that know no other."""

from collections.abc import AsyncIterator, Callable

from deerflow.domain import StreamEvent

Teller = Callable[[StreamEvent], list[StreamEvent]]
"""Returns what an event is in the other form."""


async def retold(
    batches: AsyncIterator[list[StreamEvent]], *tellers: Teller, after_seq: int = -1
) -> AsyncIterator[list[StreamEvent]]:
    """Yield a run's events as the tellers tell them, one after the other.

    Args:
        batches: The run's events from the first one on.
        after_seq: Events up to this number are read for what they add, and not passed on.
    """
    async for batch in batches:
        told = batch
        for tell in tellers:
            told = [frame for event in told for frame in tell(event)]
        shown = [event for event in told if event.seq > after_seq]
        if shown or not batch:
            yield shown
