"""Packages are in layers: a package imports only from lower layers and from itself."""

import ast
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import deerflow

PACKAGE = Path(deerflow.__file__).parent
LAYERS = [
    ["errors", "domain"],
    ["config", "addresses", "connection_errors"],
    ["guarded_http", "observability", "periodic", "pinned_http", "plugins", "programs"],
    ["storage"],
    ["retrieval"],
    ["models", "sandbox", "skills", "memory", "mcp", "acp", "web"],
    ["context", "files"],
    ["tools"],
    ["agents"],
    ["subagents"],
    ["lead", "runtime"],
    ["app"],
    ["client", "channels", "scheduler"],
    ["gateway", "tui"],
    ["cli"],
]
LAYER_OF = {name: number for number, names in enumerate(LAYERS) for name in names}
LONGEST_FUNCTION = 60


def imports_in(package: Path) -> Iterator[tuple[str, int, str, str]]:
    """Yield file, line, package and used package of every import, function-local ones included."""
    for path in sorted(package.rglob("*.py")):
        file = path.relative_to(package)
        owner = file.parts[0].removesuffix(".py")
        if owner in ("__init__", "__main__"):
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            for module in _modules(node):
                parts = module.split(".")
                if parts[0] == "deerflow":
                    yield str(file), node.lineno, owner, parts[1] if len(parts) > 1 else "__init__"


def _modules(node: ast.AST) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom):
        assert node.level == 0, "imports name the whole path"
        if node.module == "deerflow":
            return [f"deerflow.{alias.name}" for alias in node.names]
        return [node.module or ""]
    return []


def upward_imports(package: Path) -> list[str]:
    return [
        f"{file}:{line} uses {used}"
        for file, line, owner, used in imports_in(package)
        if owner != used and LAYER_OF.get(used, 99) >= LAYER_OF[owner]
    ]


def test_imports_only_point_to_lower_layers() -> None:
    assert upward_imports(PACKAGE) == []


def test_a_planted_upward_import_is_found(tmp_path: Path) -> None:
    (tmp_path / "domain").mkdir()
    (tmp_path / "domain" / "bad.py").write_text("def f():\n    from deerflow.gateway import app\n")

    assert upward_imports(tmp_path) == ["domain/bad.py:2 uses gateway"]


def test_functions_fit_on_a_screen_and_nothing_is_global() -> None:
    too_long = []
    for path in sorted(PACKAGE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            where = f"{path.relative_to(PACKAGE)}:{getattr(node, 'lineno', 0)}"
            assert not isinstance(node, ast.Global), f"{where} has global state"
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                lines = (node.end_lineno or 0) - node.lineno + 1
                if lines > LONGEST_FUNCTION:
                    too_long.append(f"{where} {node.name} has {lines} lines")
    assert too_long == []


def test_imports_stand_at_the_top_of_their_file_or_say_why_not() -> None:
    inner = []
    for path in sorted(PACKAGE.rglob("*.py")):
        source = path.read_text()
        lines = source.split("\n")
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                inner += [
                    f"{path.relative_to(PACKAGE)}:{child.lineno}"
                    for child in ast.walk(node)
                    if isinstance(child, ast.Import | ast.ImportFrom)
                    and "# noqa: PLC0415 - " not in lines[child.lineno - 1]
                ]
    assert inner == []


def test_no_public_class_name_occurs_twice() -> None:
    files = defaultdict(list)
    for path in sorted(PACKAGE.rglob("*.py")):
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                files[node.name].append(str(path.relative_to(PACKAGE)))

    assert {name: found for name, found in files.items() if len(found) > 1} == {}
