"""Keeps the secrets that users give to skills, encrypted with a key in the home folder.

A secret belongs to one user and one skill: a second skill that names the same secret does not get it. Values
leave this module only for the environment of commands and for the redactor that removes them from output.
"""

import base64
import contextlib
import json
import os
import re
import tempfile
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from deerflow.config.secrets import SHORTEST_SECRET
from deerflow.domain import folder_name
from deerflow.errors import ConfigError, InvalidInputError
from deerflow.observability import learn_secrets
from deerflow.observability.logs import Redactor
from deerflow.skills.skill import Skill

if os.name == "posix":
    import fcntl

if TYPE_CHECKING:
    from cryptography.fernet import Fernet

REQUEST_SECRETS = "secrets"
"""Key of a run's context with secrets for this run only, encrypted."""
KEY_NAME = ".skill_secrets_key"
FOLDER_NAME = "skill_secrets"
MAX_VALUE_CHARS = 16_384
_SHORTEST_LINE = 16
_STEERING = re.compile(
    r"PATH|HOME|USER|SHELL|IFS|ENV|PWD|OLDPWD|TMPDIR|LANG|LC_.*|LD_.*|DYLD_.*|BASH.*|PS4|PROMPT_COMMAND|SHELLOPTS"
    r"|PYTHON.*|PERL.*|RUBY.*|NODE_.*|JAVA_TOOL_OPTIONS|GIT_.*|SSH_.*|GCONV_PATH|DEERFLOW_.*|DEER_FLOW_.*"
)
"""Variables that change which programs run, instead of carrying a secret."""

SkillValues = Mapping[str, Mapping[str, str]]
"""Values by skill and name."""


@dataclass(frozen=True, slots=True)
class CommandSecrets:
    """The secrets that one tool call gets, and the redactor for its output."""

    redact: Redactor = field(repr=False)
    environment: Mapping[str, str] = field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True)
class _Loaded:
    stamp: tuple[int, int, int]
    values: SkillValues = field(repr=False)
    texts: frozenset[str] = field(repr=False)
    redact: Redactor = field(repr=False)


class SkillSecrets:
    """The secrets of all users, one file each below the home folder."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self._loaded: dict[str, _Loaded] = {}

    def has_any(self, user_id: str) -> bool:
        """Return whether a user has set secrets; costs one system call."""
        return self._file(user_id).exists()

    def names(self, user_id: str, skill: str) -> set[str]:
        """Return the names of the secrets that are set for a skill."""
        return set(self._read(user_id).get(skill, {}))

    def put(self, user_id: str, skill: Skill, values: Mapping[str, Any]) -> None:
        """Set secrets that a skill names; raise `InvalidInputError` for other names and unusable values."""
        checked = {name: checked_secret(skill, name, value) for name, value in values.items()}
        with self._changing(user_id) as document:
            cipher = self._cipher()
            encrypted = {name: cipher.encrypt(value.encode()).decode() for name, value in checked.items()}
            document[skill.name] = {**document.get(skill.name, {}), **encrypted}

    def remove(self, user_id: str, skill: str, name: str | None = None) -> bool:
        """Remove one secret of a skill, or all; return whether there was one."""
        with self._changing(user_id) as document:
            known = document.pop(skill, {})
            left = {} if name is None else {key: value for key, value in known.items() if key != name}
            if left:
                document[skill] = left
            return len(left) < len(known)

    def values(self, user_id: str) -> SkillValues:
        """Return the values of a user by skill."""
        loaded = self._load(user_id)
        return {} if loaded is None else loaded.values

    def redactor(self, user_id: str, more: Collection[str] = ()) -> Redactor | None:
        """Return a redactor for all secrets of a user and `more` values; None if there are none."""
        loaded = self._load(user_id)
        if more:
            texts = {text for value in more for text in written(value)}
            learn_secrets(texts)
            return Redactor(texts | loaded.texts if loaded else texts)
        return None if loaded is None or not loaded.values else loaded.redact

    def seal(self, values: object) -> str:
        """Return the secrets of one request encrypted, to be stored with its run."""
        if not isinstance(values, Mapping) or not all(isinstance(each, str) for each in values):
            raise InvalidInputError("context.secrets must be an object with a text for each name")
        # Clients send an empty value for a secret that their user has not set.
        given = {name: check_value(name, value) for name, value in values.items() if value not in (None, "")}
        return self._cipher().encrypt(json.dumps(given).encode()).decode()

    def unseal(self, sealed: str) -> dict[str, str]:
        """Return the secrets that `seal` encrypted; none if the key was changed since."""
        from cryptography.fernet import InvalidToken  # noqa: PLC0415 - 10 ms, and most servers have no secrets

        try:
            found: dict[str, str] = json.loads(self._cipher().decrypt(sealed.encode()))
        except InvalidToken:
            return {}
        return found

    def _load(self, user_id: str) -> _Loaded | None:
        """Decrypt a user's file, once for each of its versions."""
        try:
            about = self._file(user_id).stat()
        except FileNotFoundError:
            return None
        stamp = (about.st_ino, about.st_mtime_ns, about.st_size)
        loaded = self._loaded.get(user_id)
        if loaded is None or loaded.stamp != stamp:
            values = self._decrypted(user_id)
            texts = {
                text for secrets in values.values() for value in secrets.values() for text in written(value)
            }
            learn_secrets(texts)
            loaded = self._loaded[user_id] = _Loaded(stamp, values, frozenset(texts), Redactor(texts))
        return loaded

    def _decrypted(self, user_id: str) -> dict[str, dict[str, str]]:
        from cryptography.fernet import InvalidToken  # noqa: PLC0415 - 10 ms, and most servers have no secrets

        cipher, document = self._cipher(), self._read(user_id)
        found: dict[str, dict[str, str]] = {}
        for skill, secrets in document.items():
            found[skill] = {}
            for name, token in secrets.items():
                try:
                    found[skill][name] = cipher.decrypt(token.encode()).decode()
                except InvalidToken as error:
                    raise ConfigError(
                        f"the secret {name} of skill '{skill}' cannot be decrypted with "
                        f"{self._home / KEY_NAME}; restore that file, or remove the secret and set it again"
                    ) from error
        return found

    def _file(self, user_id: str) -> Path:
        # Not among the users' files: those are mounted in sandboxes.
        return self._home / FOLDER_NAME / f"{folder_name(user_id)}.json"

    def _read(self, user_id: str) -> dict[str, dict[str, str]]:
        file = self._file(user_id)
        try:
            document: Any = json.loads(file.read_bytes())
        except FileNotFoundError:
            return {}
        except ValueError as error:
            raise ConfigError(
                f"{file} is no JSON: {error}; restore it, or delete it and set the secrets again"
            ) from error
        return document if isinstance(document, dict) else {}

    @contextmanager
    def _changing(self, user_id: str) -> Iterator[dict[str, dict[str, str]]]:
        """Yield a user's document, and store it when the block ends without an error."""
        file = self._file(user_id)
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with _locked(file.parent / ".lock"):
            document = self._read(user_id)
            yield document
            _replace(file, json.dumps(document).encode())

    def _cipher(self) -> "Fernet":
        from cryptography.fernet import Fernet  # noqa: PLC0415 - 10 ms, and most servers have no secrets

        file = self._home / KEY_NAME
        if not file.exists():
            self._home.mkdir(parents=True, exist_ok=True)
            with contextlib.suppress(FileExistsError), _new_file(self._home) as draft:
                draft.write_bytes(Fernet.generate_key())
                os.link(draft, file)  # fails if another process was faster: its key is used
        try:
            return Fernet(file.read_bytes().strip())
        except ValueError as error:
            raise ConfigError(
                f"{file} holds no key; restore it, or delete it and set all secrets again"
            ) from error


def checked_secret(skill: Skill, name: str, value: object) -> str:
    """Return the value of a secret that a skill names; raise `InvalidInputError` if it cannot be used."""
    named = [secret.name for secret in skill.required_secrets]
    if name not in named:
        names = f"it names {', '.join(named)}" if named else "it names none"
        raise InvalidInputError(f"skill '{skill.name}' has no secret {name[:80]!r}; {names}")
    return check_value(name, value)


def check_value(name: str, value: object) -> str:
    """Return the value of a secret; raise `InvalidInputError`, which never shows it, if it cannot be used."""
    if _STEERING.fullmatch(name):
        raise InvalidInputError(f"{name} cannot be a secret: programs obey this variable; change the skill")
    if not isinstance(value, str) or not SHORTEST_SECRET <= len(value) <= MAX_VALUE_CHARS:
        raise InvalidInputError(
            f"the value of {name} must be a text of {SHORTEST_SECRET} to {MAX_VALUE_CHARS} characters; "
            "shorter ones could not be removed from output"
        )
    if "\0" in value or not value.strip() or not _is_text(value):
        raise InvalidInputError(f"the value of {name} is blank, or has NUL or unpaired surrogates in it")
    return value


def _is_text(value: str) -> bool:
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def secrets_out(skill: Skill, known: Collection[str]) -> list[dict[str, Any]]:
    """Return the secrets that a skill names and whether they are set, without values, for clients."""
    return [
        {"name": secret.name, "optional": secret.is_optional, "set": secret.name in known}
        for secret in skill.required_secrets
    ]


def written(value: str) -> Iterator[str]:
    """Yield the forms in which a value may be printed: as it is, by lines, and in Base64."""
    yield value
    yield from (line for line in value.splitlines() if len(line.strip()) >= _SHORTEST_LINE)
    for text in (value, f"{value}\n"):
        yield base64.b64encode(text.encode()).decode()


@contextmanager
def _locked(file: Path) -> Iterator[None]:
    with file.open("ab") as lock:
        if os.name == "posix":
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@contextmanager
def _new_file(folder: Path) -> Iterator[Path]:
    """Yield a new file that only this user can read; it is deleted when the block ends."""
    descriptor, name = tempfile.mkstemp(prefix=".secret-", dir=folder)
    os.close(descriptor)
    try:
        yield Path(name)
    finally:
        Path(name).unlink(missing_ok=True)


def _replace(file: Path, data: bytes) -> None:
    with _new_file(file.parent) as draft:
        draft.write_bytes(data)
        draft.replace(file)
