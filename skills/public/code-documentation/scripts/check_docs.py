"""Checks Markdown against the project: links, anchors, paths, commands, options, settings, code blocks."""

import argparse
import ast
import json
import re
from collections.abc import Iterator
from pathlib import Path

from _project import files, sources, stop, text_of

Finding = tuple[int, str, str]
LINK = re.compile(r"!?\[[^\]]*\]\(<?([^)\s>]+)>?(?:\s+\"[^\"]*\")?\)")
FENCE = re.compile(r"^(```+|~~~+)\s*([\w+-]*)[^\n]*\n(.*?)^\1\s*$", re.MULTILINE | re.DOTALL)
CODE = re.compile(r"(?<!`)`([^`\n]+)`(?!`)")
PATH = re.compile(
    r"^(?:\./)?[\w.-]+(?:/[\w.-]+)+/?$|^[\w-]+\.(?:py|js|ts|tsx|go|rs|toml|json|yaml|yml|md|sh|sql|cfg|ini|txt)$"
)
OPTION = re.compile(r"(?<![\w-])(--[a-z][a-z0-9-]{2,})")
SETTING = re.compile(r"\b[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+\b")
PLACEHOLDER = re.compile(r"\b(?:TODO|TBD|FIXME)\b|lorem ipsum|\[insert", re.IGNORECASE)
FOREIGN_OPTIONS = {
    "--help",
    "--version",
    "--user",
    "--upgrade",
    "--save-dev",
    "--global",
    "--break-system-packages",
    "--no-cache",
    "--rm",
    "--name",
    "--depth",
}
"""Options of tools that most readmes call."""


def main() -> None:
    """Print the findings as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("docs", nargs="+", type=Path, help="Markdown files or folders")
    parser.add_argument("--project", type=Path, default=Path(), help="folder of the project (default: here)")
    options = parser.parse_args()
    project = options.project.resolve()
    pages = [page.resolve() for given in options.docs for page in _pages(given)]
    code = "\n".join(text_of(file) for file, _ in sources(project))
    code += "\n".join(
        text_of(file)
        for file in files(project)
        if file.suffix in {".toml", ".yaml", ".yml", ".json", ".cfg", ".env"}
        or file.name in {"Makefile", "Dockerfile"}
    )
    findings = []
    for page in pages:
        text = text_of(page)
        found = [*_links(page, text), *_blocks(text), *_names(page, text, project, code)]
        shown = page.relative_to(project).as_posix() if page.is_relative_to(project) else str(page)
        findings += [
            {"file": shown, "line": line, "rule": rule, "problem": words}
            for line, rule, words in sorted(found)
        ]
    print(
        json.dumps(
            {"pages": len(pages), "problems": len(findings), "findings": findings},
            ensure_ascii=False,
            indent=1,
        )
    )


def _pages(given: Path) -> list[Path]:
    if given.is_dir():
        return [file for file in files(given) if file.suffix.lower() == ".md"]
    if not given.is_file():
        stop(f"{given} is not a file or folder")
    return [given]


def _line(text: str, place: int) -> int:
    return text.count("\n", 0, place) + 1


def _prose(text: str) -> str:
    """Return the text with code blocks blanked, so that places stay the same."""
    return FENCE.sub(lambda match: re.sub(r"[^\n]", " ", match[0]), text)


def _anchors(text: str) -> set[str]:
    found: set[str] = set()
    for heading in re.findall(r"^#{1,6}\s+(.+?)\s*#*$", _prose(text), re.MULTILINE):
        words = re.sub(r"[^\w\s-]", "", re.sub(r"`|\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower())
        base = anchor = words.strip().replace(" ", "-")
        number = 1
        while anchor in found:
            anchor, number = f"{base}-{number}", number + 1
        found.add(anchor)
    return found | set(re.findall(r"<a (?:id|name)=\"([^\"]+)\"", text))


def _links(page: Path, text: str) -> Iterator[Finding]:
    for match in LINK.finditer(_prose(text)):
        target, _, anchor = match[1].partition("#")
        if re.match(r"[a-z][a-z0-9+.-]*:", target) or target.startswith("//"):
            continue
        file = (page.parent / target).resolve() if target else page
        if not file.exists():
            yield _line(text, match.start()), "link", f"{match[1]} leads to no file"
        elif anchor and file.suffix.lower() == ".md" and anchor.lower() not in _anchors(text_of(file)):
            yield _line(text, match.start()), "anchor", f"{match[1]}: there is no heading #{anchor}"


def _blocks(text: str) -> Iterator[Finding]:
    for match in FENCE.finditer(text):
        language, body, line = match[2].lower(), match[3], _line(text, match.start())
        try:
            if language in {"python", "py"} and ">>>" not in body and "..." not in body:
                ast.parse(body)
            elif language == "json" and "..." not in body and "//" not in body:
                json.loads(body)
        except SyntaxError as error:
            yield line + (error.lineno or 0), "code", f"the Python block does not parse: {error.msg}"
        except ValueError as error:
            yield line, "code", f"the JSON block does not parse: {error}"
    if text.count("\n```") % 2 and not text.startswith("```"):
        yield text.count("\n"), "code", "a code block is not closed"


def _names(page: Path, text: str, project: Path, code: str) -> Iterator[Finding]:
    """Yield paths, options, settings and make targets that the project does not have."""
    prose = _prose(text)
    for match in CODE.finditer(prose):
        name = match[1].strip()
        if (
            PATH.match(name)
            and not any((base / name).exists() for base in (project, page.parent))
            and name not in code
        ):
            yield _line(text, match.start()), "path", f"`{name}` does not exist in the project"
    targets = set(re.findall(r"^([a-zA-Z][\w-]*):(?!=)", text_of(project / "Makefile"), re.MULTILINE))
    for match in re.finditer(r"(?:^|[`$]\s*)make\s+([a-z][\w-]*)", text, re.MULTILINE):
        if match[1] not in targets:
            yield _line(text, match.start()), "command", f"make {match[1]}: the Makefile has no such target"
    for match in OPTION.finditer(text):
        if (
            match[1] not in FOREIGN_OPTIONS
            and match[1] not in code
            and match[1][2:].replace("-", "_") not in code
        ):
            yield _line(text, match.start()), "option", f"{match[1]} appears nowhere in the code"
    known = set(SETTING.findall(code))
    for match in SETTING.finditer(text):
        if match[0] not in known:
            yield _line(text, match.start()), "setting", f"{match[0]} appears nowhere in the code"
    for match in PLACEHOLDER.finditer(prose):
        yield _line(text, match.start()), "placeholder", f"{match[0]!r} was not filled in"


if __name__ == "__main__":
    main()
