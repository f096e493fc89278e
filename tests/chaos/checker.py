"""Judges a trial by its history: what was promised to clients, and whether they got it."""

import itertools
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from chaos.history import TERMINAL, Acknowledged, Aftermath, Answer, History, Reading, ThreadAfter
from support.sse import END, Frame

from deerflow.runtime.event_log import CRASH_GAP


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the checker found."""

    violations: Sequence[str]
    repeated: int = 0
    """Effects that happened more than once, though not more often than there were attempts."""


def judge(history: History, after: Aftermath) -> Verdict:
    """Check everything that was promised."""
    violations = [
        *_final_states(history, after),
        *_threads(history, after),
        *_logs(history, after),
        *_effects(history, after),
        *_answers_kept(history, after),
        *(f"orphan process: {process}" for process in after.orphans),
    ]
    for reading in history.readings:
        violations += _reading(reading, after.logs.get(reading.run_id) or [[]])
    return Verdict(violations, sum(count > 1 for count in _counts(after).values()))


def _final_states(history: History, after: Aftermath) -> Iterator[str]:
    """Every acknowledged run has one final state, for everybody, for good."""
    seen: dict[str, list[Answer]] = defaultdict(list)
    for answer in history.answers:
        seen[answer.run_id].append(answer)
    rolled_back = {wish.run_id for wish in history.cancels if wish.action == "rollback"}
    for run in history.runs:
        last = after.answers.get(run.run_id, ())
        if not last:
            yield f"run {run.tag} is lost: nobody knows it"
            continue
        final = last[0]
        if final.status not in TERMINAL:
            yield f"run {run.tag} never ended: it is still {final.status}"
        if final.status in ("error", "timeout"):
            yield f"run {run.tag} broke: {final.stop_reason}: {final.error}"
        changed = {answer.status for answer in _after_first_end(seen[run.run_id])} | {
            answer.status for answer in last
        }
        if len(changed) > 1:
            yield f"run {run.tag} has more than one final state: {sorted(changed)}"
        if run.run_id in rolled_back and final.status == "success":
            yield f"run {run.tag} was to be rolled back and ended as {final.status}"


def _after_first_end(answers: Sequence[Answer]) -> Sequence[Answer]:
    ends = [index for index, answer in enumerate(answers) if answer.status in TERMINAL]
    return answers[ends[0] :] if ends else ()


def _threads(history: History, after: Aftermath) -> Iterator[str]:
    """A thread has exactly the runs that were acknowledged, is at rest, and its checkpoints never fork."""
    acknowledged: dict[str, set[str]] = defaultdict(set)
    for run in history.runs:
        acknowledged[run.thread_id].add(run.run_id)
    for thread_id, runs in acknowledged.items():
        thread = after.threads.get(thread_id)
        if thread is None:
            yield f"thread {thread_id} is lost"
            continue
        if strange := set(thread.runs) ^ runs:
            yield f"thread {thread_id}: these runs are missing or were never acknowledged: {sorted(strange)}"
        if thread.status == "busy":
            yield f"thread {thread_id} is still busy"
        yield from _forks(thread)


def _forks(thread: ThreadAfter) -> Iterator[str]:
    children = Counter(parent for _, parent in thread.parents)
    known = {checkpoint for checkpoint, _ in thread.parents}
    for parent, count in children.items():
        if count > 1:
            yield f"thread {thread.thread_id}: {count} checkpoints follow {parent}: two attempts wrote"
        if parent is not None and parent not in known:
            yield f"thread {thread.thread_id}: a checkpoint follows {parent}, which is not there"


def _logs(history: History, after: Aftermath) -> Iterator[str]:
    for run in history.runs:
        logs = after.logs.get(run.run_id, ())
        if not logs:
            yield f"run {run.tag} has no log"
            continue
        if any(log != logs[0] for log in logs):
            yield f"run {run.tag}: its log is not the same from everywhere"
        answers = after.answers.get(run.run_id, ())
        yield from _one_log(run, logs[0], max((answer.attempt for answer in answers), default=0))


def _one_log(run: Acknowledged, log: Sequence[Frame], attempts: int) -> Iterator[str]:
    """A log ends once, has no holes but those between attempts, and nothing of an attempt after the next."""
    ends = [index for index, frame in enumerate(log) if frame.kind == END]
    if ends != [len(log) - 1]:
        yield f"run {run.tag}: its log has ends at {ends} of {len(log)} events"
    parts = list(segments(log))
    if len(parts) > max(attempts, 1):
        yield f"run {run.tag}: {len(parts)} attempts wrote, of {attempts}"
    numbers = [part[0].data.get("attempt") for part in parts if part[0].kind == "metadata"]
    if len(log) > 1 and (len(numbers) != len(parts) or numbers != sorted(set(numbers))):
        yield f"run {run.tag}: attempts begin with {[part[0].kind for part in parts]} {numbers}"
        return
    for number, before, part in zip(numbers[1:], parts, parts[1:], strict=False):
        # An attempt's first number tells how far the log went when it began.
        known = part[0].seq - 1 - CRASH_GAP * (number - 1)
        if before[-1].seq != known:
            yield f"run {run.tag}: attempt {number} began behind {known}, and {before[-1].seq} was added"


def segments(log: Sequence[Frame]) -> Iterator[list[Frame]]:
    """Yield a log's stretches without a hole: one for each attempt that wrote."""
    part: list[Frame] = []
    for frame in log:
        if part and frame.seq != part[-1].seq + 1:
            yield part
            part = []
        part.append(frame)
    if part:
        yield part


def _reading(reading: Reading, logs: Sequence[Sequence[Frame]]) -> Iterator[str]:
    """A reader got the whole log once, in order, byte by byte, and nothing that is not in it."""
    name = f"a reader of run {reading.run_id}"
    stored = {frame.seq: frame.raw for frame in logs[0]}
    numbers = [frame.seq for frame in reading.frames]
    if not reading.has_ended:
        yield f"{name} never saw its end"
    if any(later <= earlier for earlier, later in itertools.pairwise(numbers)):
        yield f"{name} got events twice or out of order: {_disorder(numbers)}"
    if reading.has_ended and (missing := stored.keys() - set(numbers)):
        yield f"{name} missed {len(missing)} events: {sorted(missing)[:5]}"
    if strange := [number for number in numbers if number not in stored]:
        yield f"{name} got {len(strange)} events that are not in the log: {strange[:5]}"
    if other := [frame.seq for frame in reading.frames if stored.get(frame.seq, frame.raw) != frame.raw]:
        yield f"{name} got something else than the log has: {other[:5]}"


def _disorder(numbers: Sequence[int]) -> list[tuple[int, int]]:
    pairs = itertools.pairwise(numbers)
    return [(earlier, later) for earlier, later in pairs if later <= earlier][:3]


def _counts(after: Aftermath) -> Counter[str]:
    return Counter(line for thread in after.threads.values() for line in thread.effects)


def _effects(history: History, after: Aftermath) -> Iterator[str]:
    """An effect happened at most as often as its run was attempted, and was asked for by a run."""
    runs = {run.tag: run for run in history.runs}
    for line, count in _counts(after).items():
        run = runs.get(line.partition(":")[0])
        if run is None:
            yield f"effect {line} belongs to no run"
            continue
        attempts = max((answer.attempt for answer in after.answers.get(run.run_id, ())), default=0)
        if count > attempts:
            yield f"effect {line} happened {count} times in {attempts} attempts"


def _answers_kept(history: History, after: Aftermath) -> Iterator[str]:
    """What a successful run said and did is there; what was undone or never started is not."""
    for run in history.runs:
        thread, answers = after.threads.get(run.thread_id), after.answers.get(run.run_id)
        if thread is None or not answers:
            continue
        said = {kind: _mentions(thread, run.tag, kind) for kind in ("human", "ai")}
        if answers[0].status == "success" and (said["human"], said["ai"]) != (1, 1):
            yield f"run {run.tag} succeeded; its thread has {said} of its words"
        if answers[0].stop_reason in ("rolled_back", "cancelled_before_start") and any(said.values()):
            yield f"run {run.tag} was undone ({answers[0].stop_reason}); its thread has {said} of its words"
        effects = set(thread.effects)
        for line in _done_calls(thread.messages, run.tag):
            if answers[0].status == "success" and line not in effects:
                yield f"run {run.tag}: {line} was reported as done and is not there"


def _mentions(thread: ThreadAfter, tag: str, kind: str) -> int:
    marks = {"human": f"do {tag}.", "ai": f"did {tag}."}
    return sum(
        message.get("type") == kind and marks[kind] in str(message.get("content"))
        for message in thread.messages
    )


def _done_calls(messages: Iterable[object], tag: str) -> Iterator[str]:
    """Yield the effects whose tool said that all went well."""
    for message in messages:
        if isinstance(message, dict) and message.get("type") == "tool" and message.get("status") == "success":
            yield from (line for line in str(message.get("content")).split() if line.startswith(f"{tag}:"))
