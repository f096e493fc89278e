"""What trials came to, for people."""

from collections import Counter
from collections.abc import Sequence

from chaos.trial import Trial

COLUMNS = (
    "seed",
    "faults",
    "runs",
    "refused",
    "ended as",
    "attempts",
    "most",
    "readers",
    "reconnects",
    "effects",
    "repeated",
    "seconds",
    "verdict",
)


def table(trials: Sequence[Trial]) -> str:
    """Return one line for each seed."""
    rows = [COLUMNS, *(_row(trial) for trial in trials)]
    widths = [max(len(row[index]) for row in rows) for index in range(len(COLUMNS))]
    lines = [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    ]
    return "\n".join(lines)


def details(trial: Trial) -> str:
    """Return a seed's plan and what a client had to live with."""
    lines = [f"seed {trial.seed}:", *(f"  {fault}" for fault in trial.faults)]
    lines += [f"  clients met {count} x {what}" for what, count in sorted(trial.history.oddities.items())]
    lines += [f"  VIOLATION {violation}" for violation in trial.verdict.violations]
    return "\n".join(lines)


def summary(trials: Sequence[Trial]) -> str:
    """Return the sum over all seeds in a few lines."""
    faults = Counter(f"{fault.kind} {fault.target}" for trial in trials for fault in trial.faults)
    violations = sum(len(trial.verdict.violations) for trial in trials)
    runs = sum(len(trial.history.runs) for trial in trials)
    attempts = sum(sum(trial.attempts) for trial in trials)
    kinds = ", ".join(f"{count} x {what}" for what, count in sorted(faults.items()))
    return (
        f"faults: {sum(faults.values())} ({kinds})\n"
        f"runs acknowledged: {runs}, attempts: {attempts}, violations: {violations}"
    )


def _row(trial: Trial) -> tuple[str, ...]:
    kinds = Counter(fault.kind for fault in trial.faults)
    attempts = trial.attempts or [0]
    return (
        str(trial.seed),
        ", ".join(f"{count} {kind}" for kind, count in sorted(kinds.items())),
        str(len(trial.history.runs)),
        str(trial.history.refused),
        ", ".join(f"{count} {status}" for status, count in sorted(trial.statuses.items())),
        str(sum(attempts)),
        str(max(attempts)),
        str(len(trial.history.readings)),
        str(trial.reconnects),
        str(sum(len(thread.effects) for thread in trial.after.threads.values())),
        str(trial.verdict.repeated),
        f"{trial.seconds:.0f}",
        "ok" if not trial.verdict.violations else f"{len(trial.verdict.violations)} VIOLATIONS",
    )
