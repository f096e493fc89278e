"""Skills are found and fetched in the catalogues that are named, and nothing else is fetched."""

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError
from support.catalogues import Site, commit, git, git_repository
from support.raw_server import raw_server
from support.skill_archives import GOOD, MATTER, matter, zipped

from deerflow.addresses import parse_network
from deerflow.config import CatalogueSettings
from deerflow.errors import (
    ConflictError,
    InvalidInputError,
    NotFoundError,
)
from deerflow.skills import catalogues, git_tree
from deerflow.skills.catalogues import Catalogues

LOOPBACK = (parse_network("127.0.0.0/8", setting="x"),)
NOTES = {"tidy-notes/SKILL.md": MATTER, "tidy-notes/scripts/run.sh": "#!/bin/sh\n"}
PLAN = {"deep/er/plan-trips/SKILL.md": matter("plan-trips", "Plans journeys by train.")}


def of(
    *locations: str | dict[str, Any], allowed: Sequence[Any] = LOOPBACK, base: Path = Path("/")
) -> Catalogues:
    settings = [CatalogueSettings.model_validate(location) for location in locations]
    return Catalogues(settings, base=base, allowed=allowed)


def put(folder: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


def files_in(folder: Path) -> dict[str, str]:
    return {
        path.relative_to(folder).as_posix(): path.read_text()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def index_of(**artifacts: bytes) -> bytes:
    """Return an index of archives and texts at `/{name}`."""
    entries = [
        {
            "name": name.replace("_", "-"),
            "type": "archive" if data.startswith(b"PK") else "skill-md",
            "description": "Keeps notes tidy.",
            "url": f"/files/{name}",
            "digest": f"sha256:{hashlib.sha256(data).hexdigest()}",
        }
        for name, data in artifacts.items()
    ]
    return json.dumps({"$schema": catalogues.INDEX_SCHEMA, "skills": entries}).encode()


async def test_a_folder_is_searched_and_its_skills_are_fetched(tmp_path: Path) -> None:
    shelf = tmp_path / "shelf"
    put(shelf, {**NOTES, **PLAN, "broken/SKILL.md": "nothing", "tidy-notes/sub/SKILL.md": matter("inner")})
    (shelf / "packed.skill").write_bytes(zipped({"SKILL.md": matter("packed", "Came in an archive.")}))

    found = of("shelf", base=tmp_path)
    listed = await found.search()
    by_words = await found.search("train journey")
    entry = await found.fetch("tidy-notes", tmp_path / "one")
    await found.fetch("packed", tmp_path / "two")

    assert [each.name for each in listed.entries] == ["packed", "plan-trips", "tidy-notes"]
    assert [each.name for each in by_words.entries] == ["plan-trips"]
    assert [problem.reason.partition(":")[0] for problem in listed.problems] == ["broken"]
    assert entry.digest.startswith("sha256:")
    assert (tmp_path / "one/scripts/run.sh").read_text() == "#!/bin/sh\n"
    assert list(files_in(tmp_path / "two")) == ["SKILL.md"]


async def test_a_git_repository_is_read_without_a_checkout(tmp_path: Path) -> None:
    more = {
        "README.md": "x",
        ".gitmodules": '[submodule "x"]\n path = x\n url = ext::sh -c "touch /tmp/evil"\n',
    }
    repository = git_repository(tmp_path / "shelf", {**NOTES, **PLAN, **more})
    (repository / "tidy-notes/scripts/run.sh").chmod(0o755)
    commit(repository, {".gitattributes": "* filter=evil\n"})
    hook = repository / ".git/hooks/post-checkout"
    hook.write_text(f"#!/bin/sh\ntouch {tmp_path}/evil\n")
    hook.chmod(0o755)
    git(repository, "tag", "v1")
    commit(repository, {"tidy-notes/SKILL.md": matter("tidy-notes", "Newer.")})
    url = f"git+file://{repository}"

    newest, tagged = of(url), of({"location": url, "ref": "v1"})
    listed = await newest.search("notes")
    entry = await tagged.fetch("tidy-notes", tmp_path / "old")
    await newest.fetch("tidy-notes", tmp_path / "new", digest=listed.entries[0].digest)

    assert (listed.entries[0].description, entry.description) == ("Newer.", "Keeps notes tidy.")
    assert entry.catalogue == f"file://{repository}#v1"
    assert files_in(tmp_path / "old") == {"SKILL.md": MATTER, "scripts/run.sh": "#!/bin/sh\n"}
    assert (tmp_path / "old/scripts/run.sh").stat().st_mode & 0o100
    assert "Newer." in (tmp_path / "new/SKILL.md").read_text()
    assert not (tmp_path / "evil").exists()
    with pytest.raises(ConflictError, match="has changed"):
        await newest.fetch("tidy-notes", tmp_path / "other", digest=entry.digest)


async def test_a_link_in_a_git_repository_is_refused(tmp_path: Path) -> None:
    repository = git_repository(tmp_path / "shelf", NOTES)
    (repository / "tidy-notes/evil").symlink_to("/etc/passwd")
    commit(repository, {})

    with pytest.raises(InvalidInputError, match="'evil' is a link"):
        await of(f"git+file://{repository}").fetch("tidy-notes", tmp_path / "new")


async def test_git_over_http_uses_the_checked_address_and_follows_no_redirect(tmp_path: Path) -> None:
    repository = git_repository(tmp_path / "shelf", NOTES)
    async with Site(repository=repository).serving() as site:
        url = f"{site.url}/repository.git"
        found = await of(url.replace("//", "//me:hunter2-token@")).search()
        site.redirects["/moved.git/info/refs"] = f"{url}/info/refs?service=git-upload-pack"
        moved = await of(f"{site.url}/moved.git").search()
        refused = await of(url, allowed=()).search()
        site.asked.clear()
        await of(url, allowed=()).search()

    assert [entry.name for entry in found.entries] == ["tidy-notes"], found.problems
    assert "hunter2" not in repr(found)
    assert "302" in moved.problems[0].reason or "redirect" in moved.problems[0].reason
    assert "runs.webhook_allow_cidrs" in refused.problems[0].reason
    assert site.asked == []


async def test_a_repository_that_is_too_large_or_takes_too_long_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    noise = "".join(hashlib.sha256(str(n).encode()).hexdigest() for n in range(20_000))
    repository = git_repository(tmp_path / "shelf", {**NOTES, "noise": noise})
    found = of(f"git+file://{repository}")
    monkeypatch.setattr(git_tree, "MAX_REPOSITORY_BYTES", 100 * 1024)
    large = await found.search()
    monkeypatch.setattr(git_tree, "MAX_REPOSITORY_BYTES", 1 << 30)
    monkeypatch.setattr(git_tree, "TIMEOUT_SECONDS", 0.001)
    slow = await found.search()

    assert "more than 102,400 bytes" in large.problems[0].reason
    assert "was not read within" in slow.problems[0].reason


async def test_an_index_is_searched_and_its_digests_are_checked(tmp_path: Path) -> None:
    archive, text = zipped(GOOD), matter("plan-trips", "Plans journeys.").encode()
    async with Site().serving() as site:
        site.files["/.well-known/agent-skills/index.json"] = index_of(tidy_notes=archive, plan_trips=text)
        site.files |= {"/files/tidy_notes": archive, "/files/plan_trips": text, "/files/other": b"x"}
        found = of(site.url)
        listed = await found.search()
        await found.fetch("tidy-notes", tmp_path / "one")
        await found.fetch("plan-trips", tmp_path / "two")
        site.files["/files/tidy_notes"] = archive + b"evil"
        with pytest.raises(InvalidInputError, match="but its index says sha256:"):
            await found.fetch("tidy-notes", tmp_path / "three")

    assert [(each.name, each.catalogue) for each in listed.entries] == [
        ("plan-trips", f"{site.url}/.well-known/agent-skills/index.json"),
        ("tidy-notes", f"{site.url}/.well-known/agent-skills/index.json"),
    ]
    assert files_in(tmp_path / "one") == {"SKILL.md": MATTER, "scripts/run.sh": "#!/bin/sh\n"}
    assert files_in(tmp_path / "two") == {"SKILL.md": text.decode()}
    assert not (tmp_path / "three").exists()
    assert set(site.asked) == {
        "/.well-known/agent-skills/index.json",
        "/files/tidy_notes",
        "/files/plan_trips",
    }


async def test_an_index_cannot_send_us_to_other_hosts_or_into_our_network(tmp_path: Path) -> None:
    archive = zipped(GOOD)
    async with Site(files={"/files/tidy_notes": archive}).serving() as other, Site().serving() as site:
        index = json.loads(index_of(tidy_notes=archive))
        index["skills"][0]["url"] = f"{other.url}/files/tidy_notes"
        site.files["/.well-known/agent-skills/index.json"] = json.dumps(index).encode()
        with pytest.raises(InvalidInputError, match="another host than its index"):
            await of(site.url).fetch("tidy-notes", tmp_path / "one")
        host = other.url.removeprefix("http://")
        await of({"location": site.url, "hosts": [host]}).fetch("tidy-notes", tmp_path / "two")
        index["skills"][0]["url"] = "/moved"
        site.files["/.well-known/agent-skills/index.json"] = json.dumps(index).encode()
        site.redirects["/moved"] = f"{other.url}/files/tidy_notes"
        with pytest.raises(InvalidInputError, match="redirects to"):
            await of(site.url).fetch("tidy-notes", tmp_path / "three")
        for url in ("file:///etc/passwd", "ftp://127.0.0.1/x", "//127.0.0.1:1/x"):
            index["skills"][0]["url"] = url
            site.files["/.well-known/agent-skills/index.json"] = json.dumps(index).encode()
            with pytest.raises(InvalidInputError):
                await of(site.url).fetch("tidy-notes", tmp_path / "four")
        refused = await of(site.url, allowed=()).search()

    assert (tmp_path / "two/SKILL.md").exists()
    assert "runs.webhook_allow_cidrs" in refused.problems[0].reason


@pytest.mark.parametrize(
    ("document", "reason"),
    [
        (b"{", "is no JSON"),
        (b"[" * 100_000, "is no JSON"),
        (b'{"skills": {}}', "no list 'skills'"),
        (b'{"skills": [7]}', "'type' is ''"),
        (b'{"skills": [{"name": "x", "description": "y", "type": "archive", "url": "/x"}]}', "'digest'"),
        (b'{"skills": [{"name": "x", "type": "plugin"}]}', "'type' is 'plugin'"),
        (b"x" * (catalogues.MAX_INDEX_BYTES + 1), "has more than 1,048,576 bytes"),
    ],
)
async def test_a_bad_index_is_a_problem_and_the_others_are_searched(
    document: bytes, reason: str, tmp_path: Path
) -> None:
    put(tmp_path / "shelf", NOTES)
    async with Site(files={"/own.json": document}).serving() as site:
        found = await of(f"{site.url}/own.json", str(tmp_path / "shelf"), str(tmp_path / "gone")).search()

    assert [entry.name for entry in found.entries] == ["tidy-notes"]
    assert reason in found.problems[0].reason
    assert "does not exist" in found.problems[1].reason


async def test_compressed_and_endless_answers_are_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catalogues, "FETCH_SECONDS", 0.2)
    kind = "application/json\r\ncontent-encoding: gzip"
    async with raw_server(b"x", kind=kind) as packed, raw_server(b"{", stays_open=True) as endless:
        found = await of(f"{packed}/i.json", f"{endless}/i.json").search()

    assert "compressed data" in found.problems[0].reason
    assert "did not answer within" in found.problems[1].reason


async def test_a_listing_counts_for_minutes_and_a_failure_does_not(tmp_path: Path) -> None:
    now = [0.0]
    settings = [CatalogueSettings(location=str(tmp_path / "shelf"))]
    found = Catalogues(settings, base=tmp_path, clock=lambda: now[0])
    assert (await found.search()).problems
    put(tmp_path / "shelf", NOTES)
    assert len((await found.search()).entries) == 1
    put(tmp_path / "shelf", PLAN)
    assert len((await found.search()).entries) == 1
    now[0] = catalogues.CACHE_SECONDS
    assert len((await found.search()).entries) == 2


async def test_what_cannot_be_chosen_is_said(tmp_path: Path) -> None:
    for name in ("one", "two"):
        put(tmp_path / name, NOTES)
    found = of("one", "two", base=tmp_path)

    with pytest.raises(ConflictError, match="several catalogues have a skill 'tidy-notes'"):
        await found.fetch("tidy-notes", tmp_path / "new")
    with pytest.raises(NotFoundError, match=r"catalogue 'three' not found; there are: .*one.*; name it in"):
        await found.fetch("tidy-notes", tmp_path / "new", catalogue="three")
    with pytest.raises(NotFoundError, match=r"skill of a catalogue 'nothing' not found; .*write its path"):
        await found.fetch("nothing", tmp_path / "new")
    await found.fetch("tidy-notes", tmp_path / "same", catalogue="two")
    await found.fetch("tidy-notes", tmp_path / "new", catalogue=str(tmp_path / "two"))
    assert (tmp_path / "new/SKILL.md").exists()


@pytest.mark.parametrize(
    ("location", "kind"),
    [
        ("shelf", "folder"),
        ("/srv/skills.git", "folder"),
        ("ext::sh -c id", "folder"),
        ("https://example.org", "index"),
        ("https://example.org/x/index.json", "index"),
        ("https://example.org/x.git", "git"),
        ("git+https://example.org/x", "git"),
        ("file:///srv/skills", "git"),
    ],
)
def test_the_kind_of_a_catalogue_is_in_its_location(location: str, kind: str) -> None:
    assert CatalogueSettings.model_validate(location).kind == kind


@pytest.mark.parametrize(
    "wrong",
    ["", "ssh://example.org/x.git", "git+ext://x", {"location": "x", "ref": "v1"}]
    + [{"location": "https://example.org/x.git", "ref": ref} for ref in ("--upload-pack=id", "", "a b")],
)
def test_a_catalogue_that_cannot_be_read_is_refused_in_the_settings(wrong: Any) -> None:
    with pytest.raises(ValidationError):
        CatalogueSettings.model_validate(wrong)
