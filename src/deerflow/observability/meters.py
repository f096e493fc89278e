"""Metrics as plain in-process numbers with minimal overhead; `exposition` renders them for Prometheus."""

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

MOST_SERIES = 500
OTHER = "other"
_STEP_SECONDS = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300)
_RUN_SECONDS = (0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600, 1800, 3600)
_FIRST_SECONDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)


@dataclass(frozen=True, slots=True, eq=False)
class Metric:
    """The definition of a metric; with `buckets` it is a histogram, else a counter or a gauge."""

    name: str
    help: str
    labels: tuple[str, ...] = ()
    """Only the first may have values from outside; the others have a few fixed values."""
    buckets: tuple[float, ...] = ()
    is_gauge: bool = False


RUNS = Metric("deerflow_runs", "Runs that ended here, by status.", ("status",))
RUNS_IN_FLIGHT = Metric("deerflow_runs_in_flight", "Runs that this process drives now.", is_gauge=True)
RUN_SECONDS = Metric("deerflow_run_seconds", "How long runs took here.", buckets=_RUN_SECONDS)
FIRST_TOKEN = Metric(
    "deerflow_first_token_seconds", "From a run's start to its first token.", buckets=_FIRST_SECONDS
)
EVENTS = Metric("deerflow_events_written", "Events of runs, counted when a run ends or is handed over.")
MODEL_CALLS = Metric("deerflow_model_calls", "Calls of models by agents.", ("model", "outcome"))
MODEL_SECONDS = Metric(
    "deerflow_model_call_seconds", "How long the calls took.", ("model",), buckets=_STEP_SECONDS
)
MODEL_TOKENS = Metric(
    "deerflow_model_tokens", "Tokens as the providers count them; `cached` is part of `input`.",
    ("model", "kind"),
)  # fmt: skip
MODEL_ERRORS = Metric("deerflow_model_errors", "Calls that failed, by why.", ("model", "reason"))
MODEL_RETRIES = Metric("deerflow_model_retries", "Calls that were made again, by why.", ("reason",))
TOOL_CALLS = Metric("deerflow_tool_calls", "Calls of tools by agents.", ("tool", "outcome"))
TOOL_SECONDS = Metric(
    "deerflow_tool_call_seconds", "How long the calls took.", ("tool",), buckets=_STEP_SECONDS
)
TASKS = Metric("deerflow_subagent_tasks", "Tasks of sub-agents that ended.", ("subagent", "status"))
TASK_SECONDS = Metric("deerflow_subagent_task_seconds", "How long they took.", buckets=_RUN_SECONDS)
TASKS_QUEUED = Metric("deerflow_subagents_queued", "Tasks that wait for a place.", is_gauge=True)
TASKS_RUNNING = Metric("deerflow_subagents_running", "Tasks at work.", is_gauge=True)
COMMANDS = Metric("deerflow_sandbox_commands", "Commands in sandboxes, by how they ended.", ("outcome",))
LOOP_DELAY = Metric(
    "deerflow_event_loop_delay_seconds", "How late the event loop was, ten times a second.",
    buckets=(0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 5, 30),
)  # fmt: skip
READERS = Metric("deerflow_stream_readers", "Readers that follow an event stream now.", is_gauge=True)

ALL = (
    RUNS, RUNS_IN_FLIGHT, RUN_SECONDS, FIRST_TOKEN, EVENTS, MODEL_CALLS, MODEL_SECONDS, MODEL_TOKENS,
    MODEL_ERRORS, MODEL_RETRIES, TOOL_CALLS, TOOL_SECONDS, TASKS, TASK_SECONDS, TASKS_QUEUED,
    TASKS_RUNNING, COMMANDS, READERS, LOOP_DELAY,
)  # fmt: skip


@dataclass(slots=True)
class Histogram:
    """Counts per bucket, and the sum of the values; the last bucket has no upper bound."""

    counts: list[int]
    total: float = 0.0


@dataclass(frozen=True, slots=True)
class Meters:
    """The metrics of one process; not thread-safe: used on its event loop."""

    _values: dict[Metric, dict[tuple[str, ...], float]] = field(default_factory=dict)
    _histograms: dict[Metric, dict[tuple[str, ...], Histogram]] = field(default_factory=dict)

    def add(self, metric: Metric, *labels: str, amount: float = 1) -> None:
        """Increment a counter or gauge; a gauge also takes a negative `amount`."""
        series = self._values.setdefault(metric, {})
        key = _bounded(series, labels)
        series[key] = series.get(key, 0) + amount

    def observe(self, metric: Metric, value: float, *labels: str) -> None:
        """Add a value to a histogram."""
        series = self._histograms.setdefault(metric, {})
        key = _bounded(series, labels)
        found = series.get(key)
        if found is None:
            found = series[key] = Histogram([0] * (len(metric.buckets) + 1))
        found.counts[bisect_left(metric.buckets, value)] += 1
        found.total += value

    def values(self, metric: Metric) -> Mapping[tuple[str, ...], float]:
        """Return the values of a counter or gauge by labels; a metric without labels starts at 0."""
        return self._values.get(metric) or ({} if metric.labels else {(): 0})

    def histograms(self, metric: Metric) -> Mapping[tuple[str, ...], Histogram]:
        """Return the histograms of a metric by labels."""
        return self._histograms.get(metric, {})


def _bounded(series: Mapping[tuple[str, ...], object], labels: Sequence[str]) -> tuple[str, ...]:
    """Return the labels, with `other` as the first one when the metric has too many series already."""
    key = tuple(labels)
    if len(series) < MOST_SERIES or key in series or not key:
        return key
    return (OTHER, *key[1:])
