"""Archives of skills as strangers make them: good ones, and one for every attack that must be refused."""

import io
import stat
import struct
import tarfile
import warnings
import zipfile
from collections.abc import Callable, Mapping

MATTER = "---\nname: tidy-notes\ndescription: Keeps notes tidy.\n---\n# Tidy\n"
GOOD: Mapping[str, str | bytes] = {"tidy/SKILL.md": MATTER, "tidy/scripts/run.sh": "#!/bin/sh\n"}


def matter(name: str, description: str = "Keeps notes tidy.", body: str = "# Tidy\n") -> str:
    """Return the text of a `SKILL.md`."""
    return f"---\nname: {name}\ndescription: {description}\n---\n{body}"


def zipped(files: Mapping[str, str | bytes], method: int = zipfile.ZIP_DEFLATED) -> bytes:
    """Return a ZIP with these files."""
    return zip_of(*((member(name, method=method), content) for name, content in files.items()))


def member(name: str, *, mode: int = 0o100644, method: int = zipfile.ZIP_DEFLATED) -> zipfile.ZipInfo:
    """Return the description of a ZIP's member."""
    info = zipfile.ZipInfo(name)
    info.external_attr, info.compress_type = mode << 16, method
    return info


def zip_of(*members: tuple[zipfile.ZipInfo, str | bytes]) -> bytes:
    """Return a ZIP with these members, twice the same name included."""
    made = io.BytesIO()
    with warnings.catch_warnings(), zipfile.ZipFile(made, "w") as archive:
        warnings.simplefilter("ignore")
        for info, content in members:
            archive.writestr(info, content)
    return made.getvalue()


def tarred(*members: tuple[tarfile.TarInfo, bytes]) -> bytes:
    """Return a gzipped tar with these members."""
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w:gz") as archive:
        for info, content in members:
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return made.getvalue()


def tar_member(
    name: str, kind: bytes = tarfile.REGTYPE, target: str = "", mode: int = 0o644
) -> tarfile.TarInfo:
    """Return the description of a tar's member."""
    info = tarfile.TarInfo(name)
    info.type, info.linkname, info.mode = kind, target, mode
    return info


def _with_name(name: str) -> bytes:
    """Return a ZIP with a member of any name: the library would repair some."""
    placeholder = "x" * len(name.encode())
    return zipped({**GOOD, placeholder: "x"}).replace(placeholder.encode(), name.encode())


def _encrypted() -> bytes:
    data = bytearray(zipped(GOOD))
    data[data.index(b"PK\x01\x02") + 8] |= 1
    return bytes(data)


def _overlapping() -> bytes:
    """Return a ZIP whose two members share their compressed bytes, as quines and 42.zip's successors do."""
    data = zipped({"SKILL.md": MATTER, "aaaa": b"0" * 4000, "bbbb": b"0" * 4000}, zipfile.ZIP_STORED)
    index = data.index(b"PK\x01\x02")
    entries = data[index:]
    first = struct.unpack("<I", _entry(entries, b"aaaa")[42:46])[0]
    second = _entry(entries, b"bbbb")
    changed = second[:42] + struct.pack("<I", first) + second[46:]
    return data[:index] + entries.replace(second, changed)


def _longer_than_its_place() -> bytes:
    """Return a ZIP with a member whose compressed size reaches into the next one."""
    data = zipped({"SKILL.md": MATTER, "aaaa": b"0" * 100, "bbbb": b"0" * 100}, zipfile.ZIP_STORED)
    index = data.index(b"PK\x01\x02")
    entry = _entry(data[index:], b"aaaa")
    changed = entry[:20] + struct.pack("<II", 150, 150) + entry[28:]
    return data[:index] + data[index:].replace(entry, changed)


def _zip64_size() -> bytes:
    """Return a ZIP whose last member says that it has exabytes."""
    data = zipped({"SKILL.md": MATTER}, zipfile.ZIP_STORED)
    index, end = data.index(b"PK\x01\x02"), data.index(b"PK\x05\x06")
    extra = struct.pack("<HHQQ", 1, 16, 1 << 60, 1 << 60)
    entry = bytearray(data[index:end])
    entry[20:28] = b"\xff" * 8
    entry[30:32] = struct.pack("<H", len(extra))
    record = bytearray(data[end:])
    record[12:16] = struct.pack("<I", len(entry) + len(extra))
    return data[:index] + bytes(entry) + extra + bytes(record)


def _zip64_offset() -> bytes:
    """Return a ZIP that says its index is far behind its end."""
    data = zipped(GOOD)
    end = data.index(b"PK\x05\x06")
    record = struct.pack("<4sQ2H2L4Q", b"PK\x06\x06", 44, 45, 45, 0, 0, 2, 2, 100, 1 << 62)
    locator = struct.pack("<4sLQL", b"PK\x06\x07", 0, end, 1)
    return data[:end] + record + locator + data[end:]


def _smaller_than_it_is() -> bytes:
    """Return a ZIP with a member that unpacks to more than it says."""
    data = zipped({"SKILL.md": MATTER, "bomb": b"0" * 100_000})
    index = data.index(b"PK\x01\x02")
    entry = _entry(data[index:], b"bomb")
    return data[:index] + data[index:].replace(entry, entry[:24] + struct.pack("<I", 10) + entry[28:])


def _entry(entries: bytes, name: bytes) -> bytes:
    """Return the entry of a ZIP's index for a name."""
    start = entries.index(name) - 46
    return entries[start : start + 46 + len(name)]


_SKILL = (tar_member("SKILL.md"), MATTER.encode())

ATTACKS: Mapping[str, tuple[Callable[[], bytes], str]] = {
    "a path that leads up": (lambda: _with_name("../evil"), "no path inside"),
    "a path that leads up from inside": (lambda: _with_name("tidy/../../evil"), "no path inside"),
    "an absolute path": (lambda: _with_name("/tmp/evil"), "no path inside"),
    "a path with backslashes": (lambda: _with_name("tidy\\..\\..\\evil"), "no path inside"),
    "a path with a drive": (lambda: _with_name("C:/evil"), "no path inside"),
    "a path with a line break": (lambda: _with_name("tidy/evil\nb"), "no path inside"),
    "a path with a NUL": (lambda: _with_name("tidy/evil\0b"), "no path inside"),
    "a path with invisible letters": (
        lambda: zipped({**GOOD, "tidy/evil\u200b": "x"}),
        "no path inside",
    ),
    "a path with many levels": (lambda: _with_name("evil/" * 20 + "b"), "no path inside"),
    "a name of a device": (lambda: _with_name("tidy/CON.txt"), "no path inside"),
    "a name that ends in a dot": (lambda: _with_name("tidy/evil."), "no path inside"),
    "a symbolic link": (
        lambda: zip_of(
            (member("SKILL.md"), MATTER), (member("evil", mode=stat.S_IFLNK | 0o777), "/etc/passwd")
        ),
        "link or device",
    ),
    "a link, then a file through it": (
        lambda: zip_of(
            (member("SKILL.md"), MATTER),
            (member("evil", mode=stat.S_IFLNK | 0o777), "/tmp"),
            (member("evil/file"), "x"),
        ),
        "link or device",
    ),
    "a device": (
        lambda: zip_of((member("SKILL.md"), MATTER), (member("evil", mode=stat.S_IFCHR | 0o777), "")),
        "link or device",
    ),
    "a file and a folder of one name": (
        lambda: zipped({"SKILL.md": MATTER, "evil": "x", "evil/b": "x"}),
        "file and as a folder",
    ),
    "one name twice": (
        lambda: zip_of((member("SKILL.md"), MATTER), (member("evil"), "a"), (member("evil"), "b")),
        "twice",
    ),
    "names that differ in case": (
        lambda: zipped({"SKILL.md": MATTER, "skill.md": "evil"}),
        "one name on some systems",
    ),
    "folders that differ in case": (
        lambda: zipped({"SKILL.md": MATTER, "evil/a": "x", "Evil/b": "x"}),
        "one name on some systems",
    ),
    "names that differ in the encoding of an accent": (
        lambda: zipped({"SKILL.md": MATTER, "evil-é": "x", "evil-e\u0301": "x"}),
        "one name on some systems",
    ),
    "an encrypted member": (_encrypted, "encrypted"),
    "an unusual compression": (
        lambda: zip_of((member("SKILL.md"), MATTER), (member("evil", method=zipfile.ZIP_LZMA), "x")),
        "deflate",
    ),
    "members that share their bytes": (_overlapping, "overlap"),
    "a member that reaches into the next": (_longer_than_its_place, "overlap"),
    "data before the archive": (lambda: b"#!/bin/sh\nevil\n" + zipped(GOOD), "before its first member"),
    "data after the archive": (lambda: zipped(GOOD) + b"evil", "after its end"),
    "a member of exabytes": (_zip64_size, "overlap|ZIP"),
    "an index behind the end": (_zip64_offset, "ZIP"),
    "a member that is larger than it says": (_smaller_than_it_is, "ZIP"),
    "zeros that unpack to a thousand times as much": (
        lambda: zipped({**GOOD, "tidy/evil": b"\0" * (11 << 20)}),
        "more than 10,485,760 bytes",
    ),
    "many files that unpack to too much": (
        lambda: zipped({**GOOD, **{f"tidy/evil{n}": b"\0" * (10 << 20) for n in range(6)}}),
        "more than 52,428,800 bytes",
    ),
    "more files than allowed": (
        lambda: zipped({**GOOD, **{f"tidy/evil{n}": b"" for n in range(1001)}}),
        "more than 1,000 files",
    ),
    "a huge index": (lambda: zipped({**GOOD, **{f"tidy/{n:0400}": b"" for n in range(2_500)}}), "index"),
    "the first half of an archive": (lambda: zipped(GOOD)[: len(zipped(GOOD)) // 2], "ZIP"),
    "nothing": (lambda: b"", "ZIP"),
    "no archive": (lambda: b"evil" * 1000, "ZIP"),
    "a broken index": (lambda: b"PK\x05\x06" + b"\xff" * 18, "ZIP"),
    "a tar with a path that leads up": (
        lambda: tarred(_SKILL, (tar_member("../evil"), b"x")),
        "no path inside",
    ),
    "a tar with an absolute path": (
        lambda: tarred(_SKILL, (tar_member("/tmp/evil"), b"x")),
        "no path inside",
    ),
    "a tar with a hard link": (
        lambda: tarred(_SKILL, (tar_member("evil", tarfile.LNKTYPE, "/etc/passwd"), b"")),
        "link or device",
    ),
    "a tar with a symbolic link": (
        lambda: tarred(_SKILL, (tar_member("evil", tarfile.SYMTYPE, "/etc/passwd"), b"")),
        "link or device",
    ),
    "a tar with a device": (
        lambda: tarred(_SKILL, (tar_member("evil", tarfile.CHRTYPE), b"")),
        "link or device",
    ),
    "a tar with a pipe": (
        lambda: tarred(_SKILL, (tar_member("evil", tarfile.FIFOTYPE), b"")),
        "link or device",
    ),
    "a tar with one name twice": (
        lambda: tarred(_SKILL, (tar_member("evil"), b"a"), (tar_member("evil"), b"b")),
        "twice",
    ),
    "a tar of zeros": (lambda: tarred(_SKILL, (tar_member("evil"), b"\0" * (60 << 20))), "more than"),
    "a tar that is cut off": (lambda: tarred(_SKILL)[:40], "gzipped tar"),
    "no skill": (lambda: zipped({"a/x": "1", "b/SKILL.md": MATTER}), "no SKILL.md"),
    "a skill too deep inside": (lambda: zipped({"a/b/SKILL.md": MATTER}), "no SKILL.md"),
    "no files": (lambda: zipped({}), "no SKILL.md"),
}
"""What each attack is, how its archive is made, and what its refusal says."""
