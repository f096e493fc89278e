"""The event log in SQL: one compressed row per batch, so a burst of tokens is one row."""

import hashlib
from collections.abc import Sequence
from typing import Any

import ormsgpack
from typing_extensions import override

from deerflow.errors import ConflictError, InvalidInputError, StaleAttemptError
from deerflow.storage.base import EventLog, LogBatch, LogEntry
from deerflow.storage.database import Database, Engine
from deerflow.storage.signals import run_topic
from deerflow.storage.sql.codec import pack, unpack

MAX_SEQ = (1 << 32) - 1
DIGEST_BYTES = 16
_LAST_PLACE = "SELECT max(place) FROM events WHERE place >= runs.key << 32 AND place < (runs.key + 1) << 32"
# A row's place ends in the batch's last sequence number, so the first row past a number has the next event.
_PAGE = (
    "SELECT body FROM events WHERE place >= (SELECT key << 32 FROM runs WHERE id = ?) + ? "
    "AND place < (SELECT (key + 1) << 32 FROM runs WHERE id = ?) ORDER BY place LIMIT ?"
)
PAGE_ROWS = 128
FEW_FRAGMENTS = 256
"""Up to this many are read on the calling thread; more are worth the hop to a reader thread."""


def weight_of(batch: LogBatch) -> int:
    """Return the number of bytes in a batch."""
    return sum(len(entry.body) for entry in batch.entries) + sum(len(body) for _, body in batch.fragments)


class SqlEventLog(EventLog):
    """Events of all runs and the fragments of all threads."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    @override
    async def append(self, batch: LogBatch, *, is_urgent: bool = False) -> None:
        check_numbers(batch)
        await self._engine.write(
            lambda db: append_batch(db, batch), may_wait=not is_urgent, weight=weight_of(batch)
        )

    @override
    async def read(self, run_id: str, *, after_seq: int = -1, limit: int = 1000) -> list[LogEntry]:
        return await self._engine.read(lambda db: _read(db, run_id, max(after_seq, -1), limit))

    @override
    async def last_seq(self, run_id: str) -> int:
        def work(db: Database) -> int:
            row = db.execute(f"SELECT ({_LAST_PLACE}) FROM runs WHERE id = ?", (run_id,)).fetchone()
            return -1 if row is None or row[0] is None else int(row[0]) & MAX_SEQ

        return await self._engine.peek(work)

    @override
    async def newest_fragment(self, thread_id: str) -> tuple[int, bytes]:
        return await self._engine.peek(lambda db: _newest_fragment(db, _key_of_thread(db, thread_id)))

    @override
    async def digests(self, thread_id: str) -> dict[bytes, int]:
        few = await self._engine.peek(lambda db: _digests(db, thread_id, FEW_FRAGMENTS))
        if len(few) < FEW_FRAGMENTS:
            return few
        return await self._engine.read(lambda db: _digests(db, thread_id, MAX_SEQ))

    @override
    async def fragments(self, thread_id: str, numbers: Sequence[int]) -> dict[int, bytes]:
        wanted = sorted({number for number in numbers if 0 <= number <= MAX_SEQ})

        def work(db: Database) -> dict[int, bytes]:
            base = _key_of_thread(db, thread_id) << 32
            sql = f"SELECT place, body FROM fragments WHERE place {db.dialect.is_number_of}"
            places = f"[{','.join(str(base + number) for number in wanted)}]"
            return {place - base: unpack(body) for place, body in db.execute(sql, (places,))}

        return await self._engine.read(work)


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
        f"SELECT runs.key, runs.thread, ({_LAST_PLACE}), runs.attempt, threads.id FROM runs "
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
            "INSERT INTO events VALUES (?, ?, ?)", (run << 32 | last, first, pack(ormsgpack.packb(rows)))
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
    place = thread << 32 | number
    known = db.execute("SELECT digest FROM fragments WHERE place = ?", (place,)).fetchone()
    if known is None:
        db.execute("INSERT INTO fragments VALUES (?, ?, ?)", (place, digest, pack(body)))
    elif known[0] != digest:
        raise ConflictError(f"fragment {number} of the thread holds something else already")


def _read(db: Database, run_id: str, after_seq: int, limit: int) -> list[LogEntry]:
    found: list[LogEntry] = []
    while len(found) < limit and after_seq < MAX_SEQ:
        rows = db.execute(_PAGE, (run_id, after_seq + 1, run_id, PAGE_ROWS)).fetchall()
        for (body,) in rows:
            found += [LogEntry(*item) for item in _entries(body) if item[0] > after_seq]
        if len(rows) < PAGE_ROWS:
            break
        after_seq = found[-1].seq
    return found[: max(limit, 0)]


def _entries(body: bytes) -> list[tuple[Any, ...]]:
    entries: list[tuple[Any, ...]] = ormsgpack.unpackb(unpack(body))
    return entries


def _newest_fragment(db: Database, thread: int) -> tuple[int, bytes]:
    row = db.execute(
        "SELECT place, digest FROM fragments WHERE place >= ? AND place < ? ORDER BY place DESC LIMIT 1",
        (thread << 32, (thread + 1) << 32),
    ).fetchone()
    return (-1, b"") if row is None else (row[0] & MAX_SEQ, bytes(row[1]))


def _digests(db: Database, thread_id: str, limit: int) -> dict[bytes, int]:
    key = _key_of_thread(db, thread_id)
    sql = "SELECT digest, place FROM fragments WHERE place >= ? AND place < ? LIMIT ?"
    rows = db.execute(sql, (key << 32, (key + 1) << 32, limit))
    return {digest: place & MAX_SEQ for digest, place in rows}


def _key_of_thread(db: Database, thread_id: str) -> int:
    row = db.execute("SELECT key FROM threads WHERE id = ?", (thread_id,)).fetchone()
    return 0 if row is None else int(row[0])  # keys start at 1: nothing is stored under 0
