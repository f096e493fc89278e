"""The durable event log of runs: one compressed row per batch, so a burst of tokens is one row.

Event bodies refer to fragments, which are stored once per thread (see `fragments.py`).
"""

import hashlib
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from dataclasses import dataclass

import ormsgpack

from deerflow.domain import RunRecord
from deerflow.errors import ConflictError, InvalidInputError, StaleAttemptError
from deerflow.storage.database import Database, Engine
from deerflow.storage.encoding import compress, decompress
from deerflow.storage.fragments import references, render
from deerflow.storage.signals import run_topic

MAX_SEQ = (1 << 32) - 1
DIGEST_BYTES = 16
# A row's position ends in the batch's last sequence number: the first row past a number has the next event.
_LAST_POSITION = (
    "SELECT max(position) FROM events WHERE position >= runs.key << 32 AND position < (runs.key + 1) << 32"
)
_PAGE = (
    "SELECT body FROM events WHERE position >= (SELECT key << 32 FROM runs WHERE id = ?) + ? "
    "AND position < (SELECT (key + 1) << 32 FROM runs WHERE id = ?) ORDER BY position LIMIT ?"
)
_PAGE_ROWS = 128
_FEW_FRAGMENTS = 256
"""Up to this many are read on the calling thread; more are worth the hop to a reader thread."""


@dataclass(frozen=True, slots=True)
class LogEntry:
    """One stored event."""

    seq: int
    unix_ms: int
    kind: str
    body: bytes


@dataclass(frozen=True, slots=True)
class LogBatch:
    """Events of one run that are stored in one transaction, with the fragments they are the first to use."""

    run_id: str
    thread_id: str
    attempt: int
    entries: Sequence[LogEntry]
    fragments: Sequence[tuple[int, bytes]] = ()


class EventLog:
    """Events of all runs and the fragments of all threads."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    async def append(self, batch: LogBatch, *, is_urgent: bool = False) -> None:
        """Store a batch; raise `StaleAttemptError` when another attempt owns the run.

        A batch that is not urgent may be delayed briefly to be stored with others.

        A batch that was stored before, wholly or in part, is stored once; a sequence number that is taken by
        a different event is a `ConflictError`.
        """
        check_numbers(batch)
        weight = sum(len(entry.body) for entry in batch.entries) + sum(
            len(body) for _, body in batch.fragments
        )
        await self._engine.write(lambda db: append_batch(db, batch), may_wait=not is_urgent, weight=weight)

    async def read(self, run_id: str, *, after_seq: int = -1, limit: int = 1000) -> list[LogEntry]:
        """Return stored events in order, from the first after `after_seq`."""
        return await self._engine.read(lambda db: _read(db, run_id, max(after_seq, -1), limit))

    async def rendered(
        self, run: RunRecord, *, after_seq: int = -1, wants: Callable[[LogEntry], bool]
    ) -> AsyncIterator[tuple[LogEntry, bytes]]:
        """Yield the wanted events of a run in order, each with its body in which fragments are filled in."""
        while entries := await self.read(run.id, after_seq=after_seq):
            after_seq = entries[-1].seq
            wanted = [entry for entry in entries if wants(entry)]
            lookup = await self.fragments_of(run.thread_id, wanted)
            for entry in wanted:
                yield entry, render(entry.body, lookup)

    async def last_seq(self, run_id: str) -> int:
        """Return the highest stored sequence number, -1 when there is none."""

        def work(db: Database) -> int:
            row = db.execute(f"SELECT ({_LAST_POSITION}) FROM runs WHERE id = ?", (run_id,)).fetchone()
            return -1 if row is None or row[0] is None else int(row[0]) & MAX_SEQ

        return await self._engine.peek(work)

    async def newest_fragment(self, thread_id: str) -> tuple[int, bytes]:
        """Return number and digest of the thread's newest fragment, -1 and empty bytes when there is none."""
        sql = (
            "SELECT position, digest FROM fragments WHERE position >= ? AND position < ? "
            "ORDER BY position DESC LIMIT 1"
        )

        def work(db: Database) -> tuple[int, bytes]:
            row = db.execute(sql, _range(_thread_key(db, thread_id))).fetchone()
            return (-1, b"") if row is None else (row[0] & MAX_SEQ, bytes(row[1]))

        return await self._engine.peek(work)

    async def digests(self, thread_id: str) -> dict[bytes, int]:
        """Return the thread's fragment numbers by their 16-byte BLAKE2b digest."""
        few = await self._engine.peek(lambda db: _digests(db, thread_id, _FEW_FRAGMENTS))
        if len(few) < _FEW_FRAGMENTS:
            return few
        return await self._engine.read(lambda db: _digests(db, thread_id, MAX_SEQ))

    async def fragments(self, thread_id: str, numbers: Iterable[int]) -> dict[int, bytes]:
        """Return the bytes of these fragments."""
        wanted = sorted({number for number in numbers if 0 <= number <= MAX_SEQ})
        if not wanted:
            return {}

        def work(db: Database) -> dict[int, bytes]:
            base = _thread_key(db, thread_id) << 32
            sql = f"SELECT position, body FROM fragments WHERE position {db.dialect.is_number_of}"
            positions = f"[{','.join(str(base + number) for number in wanted)}]"
            return {position - base: decompress(body) for position, body in db.execute(sql, (positions,))}

        return await self._engine.read(work)

    async def fragments_of(self, thread_id: str, entries: Iterable[LogEntry]) -> dict[int, bytes]:
        """Return the fragments that these events refer to."""
        return await self.fragments(thread_id, {n for entry in entries for n in references(entry.body)})


def check_numbers(batch: LogBatch) -> None:
    """Raise `InvalidInputError` when the sequence numbers of the entries do not increase."""
    previous = -1
    for entry in batch.entries:
        if not previous < entry.seq <= MAX_SEQ:
            raise InvalidInputError(f"event {entry.seq} of run {batch.run_id} does not follow {previous}")
        previous = entry.seq


def append_batch(db: Database, batch: LogBatch) -> None:
    """Store a batch with its fragments, inside the open transaction."""
    row = db.execute(
        f"SELECT runs.key, runs.thread, ({_LAST_POSITION}), runs.attempt, threads.id FROM runs "
        f"JOIN threads ON threads.key = runs.thread WHERE runs.id = ? {db.dialect.shared}",
        (batch.run_id,),
    ).fetchone()
    if row is None or tuple(row[3:]) != (batch.attempt, batch.thread_id):
        raise StaleAttemptError(f"attempt {batch.attempt} of run {batch.run_id} may write no more")
    run, thread, stored = row[0], row[1], -1 if row[2] is None else row[2] & MAX_SEQ
    if entries := _not_yet_stored(db, stored, batch):
        first, last = entries[0].seq, entries[-1].seq
        rows = [(entry.seq, entry.unix_ms, entry.kind, entry.body) for entry in entries]
        db.execute(
            "INSERT INTO events VALUES (?, ?, ?)", (run << 32 | last, first, compress(ormsgpack.packb(rows)))
        )
    for number, body in batch.fragments:
        _add_fragment(db, thread, number, body)
    db.notify(run_topic(batch.run_id))


def _not_yet_stored(db: Database, stored: int, batch: LogBatch) -> Sequence[LogEntry]:
    """Return the new entries of a batch: a writer that was cancelled may send the same events again.

    Args:
        stored: The sequence number of the last stored event.
    """
    if not batch.entries or batch.entries[0].seq > stored:
        return batch.entries
    before = {
        entry.seq: entry for entry in _read(db, batch.run_id, batch.entries[0].seq - 1, len(batch.entries))
    }
    for entry in batch.entries:
        if entry.seq <= stored and before.get(entry.seq) != entry:
            raise ConflictError(f"event {entry.seq} of run {batch.run_id} is taken (stored up to {stored})")
    return [entry for entry in batch.entries if entry.seq > stored]


def _add_fragment(db: Database, thread: int, number: int, body: bytes) -> None:
    if not 0 <= number <= MAX_SEQ:
        raise InvalidInputError(f"fragment {number} is out of range")
    digest = hashlib.blake2b(body, digest_size=DIGEST_BYTES).digest()
    position = thread << 32 | number
    known = db.execute("SELECT digest FROM fragments WHERE position = ?", (position,)).fetchone()
    if known is None:
        db.execute("INSERT INTO fragments VALUES (?, ?, ?)", (position, digest, compress(body)))
    elif known[0] != digest:
        raise ConflictError(f"fragment {number} of the thread holds something else already")


def delete_events(db: Database, run: int) -> None:
    """Delete the events of a run."""
    db.execute("DELETE FROM events WHERE position >= ? AND position < ?", _range(run))


def delete_fragments(db: Database, thread: int) -> None:
    """Delete the fragments of a thread."""
    db.execute("DELETE FROM fragments WHERE position >= ? AND position < ?", _range(thread))


def _read(db: Database, run_id: str, after_seq: int, limit: int) -> list[LogEntry]:
    found: list[LogEntry] = []
    while len(found) < limit and after_seq < MAX_SEQ:
        rows = db.execute(_PAGE, (run_id, after_seq + 1, run_id, _PAGE_ROWS)).fetchall()
        for (body,) in rows:
            found += [LogEntry(*item) for item in ormsgpack.unpackb(decompress(body)) if item[0] > after_seq]
        if len(rows) < _PAGE_ROWS:
            break
        after_seq = found[-1].seq
    return found[: max(limit, 0)]


def _digests(db: Database, thread_id: str, limit: int) -> dict[bytes, int]:
    sql = "SELECT digest, position FROM fragments WHERE position >= ? AND position < ? LIMIT ?"
    rows = db.execute(sql, (*_range(_thread_key(db, thread_id)), limit))
    return {digest: position & MAX_SEQ for digest, position in rows}


def _thread_key(db: Database, thread_id: str) -> int:
    row = db.execute("SELECT key FROM threads WHERE id = ?", (thread_id,)).fetchone()
    return 0 if row is None else int(row[0])  # keys start at 1: nothing is stored under 0


def _range(key: int) -> tuple[int, int]:
    """Return the positions of a run's events or of a thread's fragments, the end exclusive."""
    return key << 32, (key + 1) << 32
