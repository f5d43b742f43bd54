"""Imports go one way: a folder may use what stands above it in this list, never what stands below."""

from __future__ import annotations

import ast
import functools
import graphlib
from collections.abc import Mapping
from pathlib import Path

import pytest

ORDER = [
    *("errors", "version", "printable", "arguments", "progress", "files", "arrays", "disk_arrays", "changes", "ranks"),
    *("validation", "memory_parts", "config", "plugins", "parquet", "shards", "manifest", "artifact", "work_folder"),
    *("data", "docids", "theory", "models", "search", "index", "training", "engines", "held", "retriever", "sync"),
    *("sharing", "remote", "learning", "retrievers", "queries", "evaluation", "lab", "serve", "integrations"),
    *("quickstart", "terminal", "commands", "cli"),
]
SOURCE = Path(__file__).parent.parent / "src" / "triever"
FILES = sorted(path for path in SOURCE.rglob("*.py") if path != SOURCE / "__init__.py")


@functools.cache
def imported(source: str) -> frozenset[str]:
    """What a piece of code imports of Triever, as dotted names below `triever`.

    Imports inside functions and those for type checkers alone count like all others. The names that a module is asked
    for stand there too: they may be modules themselves.
    """
    names: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "relative imports hide which way they go"
            names |= {f"{node.module}.{alias.name}" for alias in node.names} | {str(node.module)}
    return frozenset(name.removeprefix("triever.") for name in names if name.startswith("triever."))


def refuse_circles(sources: Mapping[str, str]) -> None:
    """A CycleError, which names the circle, if modules import each other."""
    graph = {module: imported(source) & sources.keys() for module, source in sources.items()}
    graphlib.TopologicalSorter(graph).prepare()


def layer(module: str) -> int:
    return ORDER.index(module.split(".")[0])


def module_name(path: Path) -> str:
    return ".".join(path.relative_to(SOURCE).with_suffix("").parts).removesuffix(".__init__")


@pytest.mark.parametrize("path", FILES, ids=module_name)
def test_a_module_imports_only_from_above(path: Path) -> None:
    here = module_name(path)
    for name in imported(path.read_text(encoding="utf-8")):
        assert layer(name) <= layer(here), f"{here} imports {name}, which stands below it"


def test_no_modules_import_each_other_in_a_circle() -> None:
    refuse_circles({module_name(path): path.read_text(encoding="utf-8") for path in FILES})


@pytest.mark.parametrize(
    "back",
    [
        "import triever.index.one",
        "from triever.index import one",
        "from triever.index.one import name",
        "def lazy():\n    from triever.index.one import name",
        "if TYPE_CHECKING:\n    from triever.index.one import name",
    ],
)
def test_a_circle_is_seen_however_it_is_closed(back: str) -> None:
    modules = {"index.one": "from triever.index.two import name", "index.two": back}
    with pytest.raises(graphlib.CycleError):
        refuse_circles(modules)
    refuse_circles(modules | {"index.one": "import numpy"})
