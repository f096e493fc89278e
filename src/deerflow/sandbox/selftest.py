"""What a sandbox found out about itself at its start."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Probe:
    """One thing that was tried."""

    name: str
    ok: bool
    detail: str = ""


@dataclass(frozen=True, slots=True)
class SelfTest:
    """Whether commands may run; `reason` and `fix` say why not and what the operator can do."""

    ok: bool
    probes: tuple[Probe, ...] = ()
    reason: str | None = None
    fix: str | None = None

    @property
    def refusal(self) -> str | None:
        """The sentence for the model and the people, None when all is well."""
        if self.ok:
            return None
        fix = f" Fix: {self.fix}" if self.fix else ""
        return f"bash is off: {self.reason}.{fix} The file tools go on working."
