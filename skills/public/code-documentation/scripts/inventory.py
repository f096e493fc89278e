"""Lists what a project has to document: languages, commands, settings, routes, public names."""

import argparse
import ast
import json
import re
import tomllib
from collections import Counter
from pathlib import Path
from typing import Any

from _project import files, sources, stop, text_of

ENVIRONMENT = re.compile(
    r"""(?:environ(?:\.get)?[\[(]|getenv\(|env::var\(|Getenv\(|System\.getenv\()\s*['"]([A-Z][A-Z0-9_]{2,})['"]"""
    r"""|process\.env\.([A-Z][A-Z0-9_]{2,})"""
)
EXPORTS = {
    "JavaScript": re.compile(
        r"^export\s+(?:default\s+)?(?:async\s+)?(?:function\*?|class|const|let)\s+(\w+)", re.MULTILINE
    ),
    "TypeScript": re.compile(
        r"^export\s+(?:default\s+)?(?:async\s+)?(?:abstract\s+)?(?:function\*?|class|const|let|interface|type|enum)\s+(\w+)",
        re.MULTILINE,
    ),
    "Go": re.compile(r"^(?:func(?:\s+\([^)]*\))?|type|var|const)\s+([A-Z]\w*)", re.MULTILINE),
    "Rust": re.compile(r"^\s*pub\s+(?:async\s+)?(?:fn|struct|enum|trait|const)\s+(\w+)", re.MULTILINE),
    "Java": re.compile(
        r"^\s*public\s+(?:static\s+|final\s+|abstract\s+)*(?:class|interface|enum|record)\s+(\w+)",
        re.MULTILINE,
    ),
}
DOCS = re.compile(
    r"(?i)^(readme|changelog|contributing|license|security|architecture|code_of_conduct)|\.(md|rst|adoc)$"
)
ROUTE = re.compile(
    r"""@\w+\.(get|post|put|patch|delete|route)\(\s*['"]([^'"]+)['"]|\b(?:app|router)\.(get|post|put|patch|delete)\(\s*['"]([^'"]+)['"]"""
)


def main() -> None:
    """Print the inventory as Markdown or JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("project", type=Path, help="folder of the project")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument(
        "--undocumented", action="store_true", help="list only public names without documentation"
    )
    options = parser.parse_args()
    found = inventory(options.project)
    if options.undocumented:
        names = [
            f"{one['file']}:{one['line']} {one['name']}" for one in found["public"] if not one["documented"]
        ]
        print(json.dumps(names, indent=1) if options.json else "\n".join(names))
    else:
        print(json.dumps(found, ensure_ascii=False, indent=1) if options.json else _markdown(found))


def inventory(root: Path) -> dict[str, Any]:
    """Return everything that the code says about itself."""
    languages: Counter[str] = Counter()
    public: list[dict[str, Any]] = []
    settings: dict[str, str] = {}
    routes: list[str] = []
    for file, language in sources(root):
        text, name = text_of(file), file.relative_to(root).as_posix()
        languages[language] += len(text.splitlines())
        for match in ENVIRONMENT.finditer(text):
            settings.setdefault(match[1] or match[2], f"{name}:{text.count(chr(10), 0, match.start()) + 1}")
        if _is_test(name):
            continue
        routes += [f"{(m[1] or m[3]).upper()} {m[2] or m[4]} ({name})" for m in ROUTE.finditer(text)]
        public += _python(text, name) if language == "Python" else _exported(text, name, language)
    if not languages:
        stop(f"{root} has no source files that are known here")
    documented = sum(one["documented"] for one in public)
    return {
        "languages": dict(languages.most_common()),
        "commands": _commands(root),
        "settings": settings,
        "routes": routes,
        "docs": [file.relative_to(root).as_posix() for file in files(root) if DOCS.search(file.name)],
        "coverage": round(documented / len(public), 3) if public else None,
        "public": public,
    }


def _is_test(name: str) -> bool:
    return bool(
        re.search(
            r"(?:^|/)(?:tests?|spec|__tests__)/|(?:^|/)(?:test_|conftest)|(?:_test|\.test|\.spec)\.\w+$", name
        )
    )


def _python(text: str, name: str) -> list[dict[str, Any]]:
    try:
        tree = ast.parse(text)
    except SyntaxError as error:
        return [
            {
                "file": name,
                "line": error.lineno or 1,
                "name": "(does not parse)",
                "kind": "error",
                "documented": False,
            }
        ]
    found = []
    for node in tree.body:
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            found.append(_entry(node, name, node.name, f"class {node.name}"))
            for child in node.body:
                if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef) and not child.name.startswith(
                    "_"
                ):
                    found.append(_entry(child, name, f"{node.name}.{child.name}", _signature(child)))
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and not node.name.startswith("_"):
            found.append(_entry(node, name, node.name, _signature(node)))
    return found


def _entry(
    node: ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef, file: str, name: str, shown: str
) -> dict[str, Any]:
    doc = ast.get_docstring(node)
    kind = "class" if isinstance(node, ast.ClassDef) else "function"
    first = doc.strip().splitlines()[0] if doc and doc.strip() else ""
    return {
        "file": file,
        "line": node.lineno,
        "name": name,
        "kind": kind,
        "signature": shown,
        "documented": bool(first),
        "doc": first,
    }


def _signature(node: ast.FunctionDef | ast.AsyncFunctionDef) -> str:
    returns = f" -> {ast.unparse(node.returns)}" if node.returns else ""
    return f"{node.name}({ast.unparse(node.args)}){returns}"


def _exported(text: str, name: str, language: str) -> list[dict[str, Any]]:
    pattern = EXPORTS.get(language)
    found = []
    for match in pattern.finditer(text) if pattern else ():
        before = text[: match.start()].rstrip().splitlines()
        above = before[-1].strip() if before else ""
        documented = above.endswith("*/") or above.startswith(("//", "///", "#["))
        line = text.count("\n", 0, match.start(1)) + 1
        found.append(
            {
                "file": name,
                "line": line,
                "name": match[1],
                "kind": "export",
                "signature": match[0].strip(),
                "documented": documented,
                "doc": "",
            }
        )
    return found


def _commands(root: Path) -> list[str]:
    """Return how the project is run, built and tested, as its own files say."""
    found = []
    try:
        data = tomllib.loads(text_of(root / "pyproject.toml"))
        found += [
            f"{name} (console script: {target})"
            for name, target in data.get("project", {}).get("scripts", {}).items()
        ]
    except tomllib.TOMLDecodeError:
        found.append("pyproject.toml does not parse")
    try:
        package = json.loads(text_of(root / "package.json") or "{}")
        found += [f"npm run {name} ({script})" for name, script in package.get("scripts", {}).items()]
    except ValueError:
        found.append("package.json does not parse")
    for target in re.findall(r"^([a-zA-Z][\w-]*):(?!=)", text_of(root / "Makefile"), re.MULTILINE):
        found.append(f"make {target}")
    for file, language in sources(root):
        if language == "Python" and re.search(
            r"^if __name__ == ['\"]__main__['\"]", text_of(file), re.MULTILINE
        ):
            found.append(f"python {file.relative_to(root).as_posix()}")
    found += [
        name for name in ("Dockerfile", "docker-compose.yml", "compose.yaml") if (root / name).is_file()
    ]
    return found


def _markdown(found: dict[str, Any]) -> str:
    lines = [
        "## Languages (lines)",
        ", ".join(f"{name} {count}" for name, count in found["languages"].items()),
        "",
    ]
    for title, entries in (
        ("Commands", found["commands"]),
        ("Settings from the environment", [f"{name} ({place})" for name, place in found["settings"].items()]),
        ("Routes", found["routes"]),
        ("Documents", found["docs"]),
    ):
        lines += [f"## {title}", *([f"- {entry}" for entry in entries] or ["none found"]), ""]
    coverage = f", {found['coverage']:.0%} documented" if found["coverage"] is not None else ""
    lines.append(f"## Public names ({len(found['public'])}{coverage})")
    file = ""
    for one in found["public"]:
        if one["file"] != file:
            file = one["file"]
            lines.append(f"\n{file}")
        lines.append(
            f"- {one['line']}: `{one.get('signature', one['name'])}` "
            f"{one.get('doc') or ('' if one['documented'] else '(no documentation)')}"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    main()
