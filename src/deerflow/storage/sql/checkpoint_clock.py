"""Ids of checkpoints that grow along a thread, whatever the clocks of those who write it say.

The newest checkpoint of a thread is the one with the largest id, and LangGraph makes ids of the time. Where a
clock is set back, or a machine's clock is behind that of another, a whole turn would be put before the last
one, where nobody looks. So whoever reads a checkpoint counts on from it: a process never makes an id that is
smaller than the ones it has seen.

Like the serializer this leans on a part of LangGraph without a promise: where it keeps the last time it used.
"""

from langgraph.checkpoint.base import id as checkpoint_ids

_VERSION = 6
_TIME_DIGITS = 16
"""Hexadecimal digits of an id in which its version and time are."""


def count_on_from(checkpoint_id: str) -> None:
    """Let all checkpoints that this process makes from now on come behind this one."""
    try:
        head = int(checkpoint_id.replace("-", "")[:_TIME_DIGITS], 16)
    except ValueError:
        return  # given by somebody who does not go by the time
    if head >> 12 & 0xF != _VERSION:
        return
    seen = head >> 16 << 12 | head & 0xFFF
    last = checkpoint_ids._last_v6_timestamp
    if last is None or last < seen:
        checkpoint_ids._last_v6_timestamp = seen  # type: ignore[assignment]
