"""Secrets of skills at rest."""

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from deerflow.errors import ConfigError, InvalidInputError
from deerflow.skills import RequiredSecret, Skill
from deerflow.skills.secrets import FOLDER_NAME, KEY_NAME, CommandSecrets, SkillSecrets

NAMES = ("API_KEY", "OTHER_KEY", "LD_PRELOAD", "PATH", *(f"KEY_{number}" for number in range(8)))
SKILL = Skill(
    "weather",
    "x",
    "public",
    "/mnt/skills/public/weather/SKILL.md",
    Path("SKILL.md"),
    required_secrets=tuple(map(RequiredSecret, NAMES)),
)


def test_values_are_encrypted_per_user_and_skill(tmp_path: Path) -> None:
    secrets = SkillSecrets(tmp_path)
    secrets.put("ann", SKILL, {"API_KEY": "value-of-ann"})
    secrets.put("ann", SKILL, {"OTHER_KEY": "second-value"})
    again = SkillSecrets(tmp_path)

    assert again.values("ann") == {"weather": {"API_KEY": "value-of-ann", "OTHER_KEY": "second-value"}}
    assert (again.has_any("bob"), again.values("bob"), again.redactor("bob")) == (False, {}, None)
    files = [file for file in tmp_path.rglob("*") if file.is_file()]
    assert not any(b"value" in file.read_bytes() for file in files)
    assert all(file.stat().st_mode & 0o077 == 0 for file in files if file.name != ".lock")


def test_changes_of_another_process_are_seen_and_output_is_masked(tmp_path: Path) -> None:
    here, there = SkillSecrets(tmp_path), SkillSecrets(tmp_path)
    here.put("ann", SKILL, {"API_KEY": "first-value"})
    first = here.redactor("ann")
    there.put("ann", SKILL, {"API_KEY": "second-value\nof many longer lines"})
    second = here.redactor("ann")
    removed = there.remove("ann", "weather", "API_KEY")

    assert first is not None
    assert first.known("a first-value") == "a (hidden)"
    assert second is not None
    assert (
        second.known("of many longer lines c2Vjb25kLXZhbHVlCm9mIG1hbnkgbG9uZ2VyIGxpbmVz")
        == "(hidden) (hidden)"
    )
    assert (removed, there.remove("ann", "weather"), here.redactor("ann")) == (True, False, None)
    assert "value" not in repr(CommandSecrets(second, {"API_KEY": "second-value"}))


def test_secrets_of_one_request_are_sealed(tmp_path: Path) -> None:
    secrets = SkillSecrets(tmp_path)
    sealed = secrets.seal({"API_KEY": "sent-value", "OTHER_KEY": "", "MORE": None})
    redact = secrets.redactor("ann", secrets.unseal(sealed).values())

    assert "sent-value" not in sealed
    assert SkillSecrets(tmp_path).unseal(sealed) == {"API_KEY": "sent-value"}
    assert (SkillSecrets(tmp_path / "other").unseal(sealed), redact and redact.known("a sent-value")) == (
        {},
        "a (hidden)",
    )
    for wrong in (
        "API_KEY",
        {"API_KEY": 7},
        {"API_KEY": "short"},
        {7: "long-enough"},
        {"LD_PRELOAD": "long-enough"},
    ):
        with pytest.raises(InvalidInputError):
            secrets.seal(wrong)


def test_processes_that_write_at_once_lose_nothing(tmp_path: Path) -> None:
    def put(number: int) -> None:
        SkillSecrets(tmp_path).put("ann", SKILL, {f"KEY_{number}": f"value-{number}"})

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(put, range(8)))

    assert len(SkillSecrets(tmp_path).values("ann")["weather"]) == 8
    assert not list(tmp_path.rglob(".secret-*"))


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        ("NOT_NAMED", "long-enough", "has no secret 'NOT_NAMED'"),
        ("LD_PRELOAD", "long-enough", "programs obey this variable"),
        ("PATH", "long-enough", "programs obey this variable"),
        ("API_KEY", "q1w2e", "6 to 16384 characters"),
        ("API_KEY", "x" * 20_000, "6 to 16384 characters"),
        ("API_KEY", 123456789, "must be a text"),
        ("API_KEY", "with\0null", "NUL"),
        ("API_KEY", "       ", "blank"),
        ("API_KEY", "surrogate\udc80", "unpaired surrogates"),
    ],
)
def test_unusable_secrets_are_refused_without_showing_them(
    tmp_path: Path, name: str, value: object, reason: str
) -> None:
    with pytest.raises(InvalidInputError, match=reason) as refused:
        SkillSecrets(tmp_path).put("ann", SKILL, {name: value})

    assert str(value) not in str(refused.value)
    assert not (tmp_path / FOLDER_NAME).exists()


def test_a_lost_key_and_a_broken_file_are_explained(tmp_path: Path) -> None:
    SkillSecrets(tmp_path).put("ann", SKILL, {"API_KEY": "some-value"})
    (tmp_path / KEY_NAME).unlink()
    with pytest.raises(ConfigError, match=r"API_KEY of skill 'weather' cannot be decrypted"):
        SkillSecrets(tmp_path).values("ann")

    (tmp_path / KEY_NAME).write_text("no key")
    with pytest.raises(ConfigError, match=r"holds no key; restore it"):
        SkillSecrets(tmp_path).values("ann")

    (file,) = (tmp_path / FOLDER_NAME).glob("*.json")
    file.write_text(json.dumps([])[:-1])
    with pytest.raises(ConfigError, match=r"is no JSON"):
        SkillSecrets(tmp_path).names("ann", "weather")
