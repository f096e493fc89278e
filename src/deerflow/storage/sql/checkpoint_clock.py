"""Keep checkpoint ids increasing along a thread, even if the clocks of its writers disagree.

The newest checkpoint of a thread is the one with the largest id, and LangGraph derives ids from the time.
If a clock is set back, or one machine's clock is behind another's, a whole turn would be sorted before the
previous one and never be read. So reading a checkpoint advances the id clock: a process never creates an id
that is smaller than the ones it has read.

Like the serializer this relies on a private name of LangGraph: the variable with the last time it used.
"""

from langgraph.checkpoint.base import id as checkpoint_ids

_VERSION = 6
_TIME_DIGITS = 16
"""Number of leading hexadecimal digits of an id that hold its version and time."""


def count_on_from(checkpoint_id: str) -> None:
    """Make all checkpoint ids that this process creates from now on larger than this one."""
    try:
        head = int(checkpoint_id.replace("-", "")[:_TIME_DIGITS], 16)
    except ValueError:
        return  # an id that is not derived from the time
    if head >> 12 & 0xF != _VERSION:
        return
    seen = head >> 16 << 12 | head & 0xFFF
    last = checkpoint_ids._last_v6_timestamp
    if last is None or last < seen:
        checkpoint_ids._last_v6_timestamp = seen  # type: ignore[assignment]
