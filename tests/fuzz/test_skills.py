"""Skills that strangers made: an archive or its front matter is taken, or refused with a reason."""

import io
import tempfile
import time
import zipfile
from contextlib import suppress
from pathlib import Path

import pytest
import yaml
from fuzz.inputs import json_values, texts
from hypothesis import example, given
from hypothesis import strategies as st

from deerflow.errors import DeerFlowError
from deerflow.skills import CustomSkills, InstallOptions, SkillInstaller, Skills, read_skill
from deerflow.skills.archive import read_member
from deerflow.skills.front_matter import front_matter

MATTER = "---\nname: good\ndescription: does good\n---\nWords.\n"
LAUGHS = "\n".join(
    ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    + [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 8)]
)
"""Ten million values in a few lines, where somebody writes them out."""
YAML_PIECES = st.sampled_from(
    (
        *(
            "name: good\n",
            "description: x\n",
            "allowed-tools: [a, b]\n",
            "license: 2001-99-99\n",
            "license: 1:2:3.5\n",
        ),
        *(
            "name: &a [*a]\n",
            "name: !!python/object:os.system x\n",
            "license: !!bool x\n",
            "license: !!timestamp x\n",
            "? [a]\n: b\n",
            "- a\n",
            "\t",
            "'",
            "{",
            "|\n",
            "<<: *b\n",
        ),
        *(
            "license: 0x" + "f" * 5000 + "\n",
            "license: " + "1:" * 200 + "1.5\n",
            "name: 9\n",
            "a: &b {c: d}\n",
            "--- \n",
            "...\n",
        ),
    )
)
MATTERS = st.one_of(
    texts,
    st.lists(YAML_PIECES, max_size=6).map("".join),
    st.dictionaries(st.sampled_from(("name", "description", "license", "allowed-tools")), json_values).map(
        yaml.safe_dump
    ),
)
NAMES = st.one_of(
    st.sampled_from(
        (
            "SKILL.md",
            "x/SKILL.md",
            "x/",
            "x",
            "x/y",
            "../up",
            "/abs",
            "C:\\x",
            "a\\b",
            "x/../y",
            ".",
            "a" * 300,
            "é",
            "a\nb",
        )
    ),
    st.text(st.characters(exclude_categories=("Cs",)), min_size=1, max_size=20),
)
KINDS = st.sampled_from((0, 0o100644, 0o100755, 0o120777, 0o010644, 0o040755, 0o060644, 0o177777))
MEMBERS = st.lists(
    st.tuples(
        NAMES,
        st.one_of(st.just(MATTER.encode()), st.binary(max_size=200)),
        KINDS,
        st.sampled_from((0, 8, 12, 14)),
    ),
    max_size=5,
)
CHANGES = st.lists(st.tuples(st.integers(0, 10_000), st.integers(0, 255)), max_size=6)


pytestmark = pytest.mark.filterwarnings("ignore:Duplicate name:UserWarning")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("skills")


@example(f"{LAUGHS}\nname: *a7\n").via("written out in the reason for its refusal: minutes and gigabytes")
@example(f"{LAUGHS}\nname: good\ndescription: x\nlicense: *a7\n").via("written out as a licence")
@example("license: " + "1:" * 200 + "1.5\n").via("a number of base 60 that no float holds")
@example("[" * 50_000).via("quadratic time for nested brackets")
@example("license: !!bool maybe\n").via("a word that is none of the tag's")
@given(MATTERS)
def test_a_front_matter_is_read_or_refused(folder: Path, matter: str) -> None:
    file = folder / "public" / "one" / "SKILL.md"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(f"---\n{matter}\n---\nWords.\n".encode(errors="surrogatepass"))
    started = time.process_time()

    with suppress(ValueError):
        front_matter(f"---\n{matter}\n---\n")
    with suppress(ValueError, OSError):
        read_skill(file, category="public", path="x")
    Skills(folder).all()

    assert time.process_time() - started < 2


@given(MEMBERS, CHANGES, st.integers(0, 400), NAMES)
def test_an_archive_is_installed_or_refused(
    members: list[tuple[str, bytes, int, int]], changes: list[tuple[int, int]], cut: int, name: str
) -> None:
    data = changed(archive(members), changes, cut)
    with tempfile.TemporaryDirectory() as place, tempfile.TemporaryFile() as file:
        root = Path(place) / "inner" / "skills"
        root.mkdir(parents=True)
        custom = CustomSkills(root / "custom", history=root / "history")
        file.write(data)

        with suppress(DeerFlowError):
            installer = SkillInstaller(Skills(root), custom)
            installer.apply(installer.plan_archive(file, InstallOptions("fuzz")))
        with suppress(DeerFlowError):
            read_member(file, name)

        assert [path.name for path in Path(place).iterdir()] == ["inner"]
        assert custom.names() in ([], ["good"])
        assert not any(path.is_symlink() or not (path.is_file() or path.is_dir()) for path in root.rglob("*"))


def archive(members: list[tuple[str, bytes, int, int]]) -> bytes:
    """Return a ZIP with these names, contents, kinds and ways of packing."""
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as written:
        for name, data, kind, method in members:
            info = zipfile.ZipInfo(name)
            info.external_attr = kind << 16
            info.compress_type = method
            with suppress(ValueError):  # a name that no ZIP holds
                written.writestr(info, data)
    return made.getvalue()


def changed(data: bytes, changes: list[tuple[int, int]], cut: int) -> bytes:
    """Return `data` with other bytes in some places, and maybe without its end."""
    found = bytearray(data)
    for place, byte in changes:
        found[place % len(found)] = byte
    return bytes(found[: len(found) - cut]) if cut < 20 else bytes(found)
