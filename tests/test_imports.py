"""Imports go one way: a folder may use what stands above it in this list, never what stands below."""

from __future__ import annotations

import ast
import graphlib
from pathlib import Path

import pytest

ORDER = [
    *("errors", "version", "printable", "arguments", "progress", "files", "arrays", "validation"),
    *("storage", "config", "artifact", "work_folder"),
    *("data", "docids", "models", "search", "index", "training", "engines"),
    *("retrievers", "evaluation", "lab", "serve", "quickstart", "terminal", "commands", "cli"),
]
SOURCE = Path(__file__).parent.parent / "src" / "triever"
FILES = sorted(path for path in SOURCE.rglob("*.py") if path != SOURCE / "__init__.py")


def imported(tree: ast.AST) -> set[str]:
    """The modules of Triever that a piece of code imports, as dotted names below `triever`."""
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module == "triever":
            names |= {f"triever.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "relative imports hide which way they go"
            names.add(node.module or "")
    return {name.removeprefix("triever.") for name in names if name.startswith("triever.")}


def layer(module: str) -> int:
    return ORDER.index(module.split(".")[0])


def module_name(path: Path) -> str:
    return ".".join(path.relative_to(SOURCE).with_suffix("").parts).removesuffix(".__init__")


@pytest.mark.parametrize("path", FILES, ids=module_name)
def test_a_module_imports_only_from_above(path: Path) -> None:
    here = module_name(path)
    for name in imported(ast.parse(path.read_text(encoding="utf-8"))):
        assert layer(name) <= layer(here), f"{here} imports {name}, which stands below it"


def test_no_modules_import_each_other_in_a_circle() -> None:
    modules = {module_name(path) for path in FILES}
    graph = {}
    for path in FILES:
        tree = ast.parse(path.read_text(encoding="utf-8"))
        top = ast.Module([node for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom)], [])
        graph[module_name(path)] = imported(top) & modules
    list(graphlib.TopologicalSorter(graph).static_order())  # raises CycleError, which names the circle
