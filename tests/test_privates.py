"""What begins with an underscore is its module's own: nobody else reaches for it."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

import pytest

from tests.test_imports import FILES, module_name

PUBLIC = {"_asdict", "_exit", "_fields", "_make", "_replace"}
"""Names that Python's documentation has, of named tuples and of os."""
NOT_SAID_OTHERWISE = {"_is_amx_tile_supported", "_supports_sdpa", "_version"}
"""What torch and transformers have no public word for."""
STILL = {
    "models.docid_model": 1,
}
"""How often modules still do it. A number may only fall."""

Classes = Mapping[str, list[ast.ClassDef]]
"""By their names: there may be several of one name."""


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__") and name not in PUBLIC | NOT_SAID_OTHERWISE


def defined(nodes: Iterable[ast.AST]) -> set[str]:
    """The names that a piece of code gives: of functions, classes, variables, fields, attributes of self."""
    names: set[str] = set()
    for node in nodes:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and is_own(node.value):
            names.add(node.attr)
    return names


def is_own(value: ast.expr) -> bool:
    """Whether it is the object itself, or its class, or what it inherits."""
    called = value.func if isinstance(value, ast.Call) else value
    return isinstance(called, ast.Name) and called.id in ("self", "cls", "super")


def inherited(one: ast.ClassDef, classes: Classes) -> set[str]:
    """The names that its bases give, and theirs."""
    names = (base.value if isinstance(base, ast.Subscript) else base for base in one.bases)
    bases = [base for name in names if isinstance(name, ast.Name) for base in classes.get(name.id, ()) if base != one]
    return set().union(*(defined(ast.walk(base)) | inherited(base, classes) for base in bases))


def own_names(nodes: Sequence[ast.AST], classes: Classes) -> set[str]:
    """The names that a module gives, but for those by which its classes answer to a base in another one."""
    here = [node for node in nodes if isinstance(node, ast.ClassDef)]
    elsewhere = {name: [one for one in several if one not in here] for name, several in classes.items()}
    overriding = set().union(*(inherited(one, elsewhere) for one in here))
    return defined(nodes) - overriding


def reached(nodes: Iterable[ast.AST]) -> Iterator[str]:
    """Private names that are asked of something other than the object itself."""
    for node in nodes:
        if isinstance(node, ast.Attribute) and not is_own(node.value):
            yield node.attr
        elif isinstance(node, ast.ImportFrom):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "getattr":
            yield from (value.value for value in node.args[1:2] if isinstance(value, ast.Constant))


def reaches(sources: Mapping[str, str]) -> dict[str, list[str]]:
    """For each module that does it the private names of others that it reaches for."""
    modules = {module: list(ast.walk(ast.parse(source))) for module, source in sources.items()}
    classes: dict[str, list[ast.ClassDef]] = {}
    for node in (node for nodes in modules.values() for node in nodes if isinstance(node, ast.ClassDef)):
        classes.setdefault(node.name, []).append(node)
    found = {}
    for module, nodes in modules.items():
        own = own_names(nodes, classes)
        found[module] = [name for name in reached(nodes) if is_private(name) and name not in own]
    return {module: names for module, names in found.items() if names}


def test_nobody_reaches_for_the_privates_of_another_module() -> None:
    found = reaches({module_name(path): path.read_text(encoding="utf-8") for path in FILES})
    more = {module: Counter(names) for module, names in found.items() if len(names) > STILL.get(module, 0)}
    assert not more, "make it public, or ask for something that is"
    assert {module: len(names) for module, names in found.items()} == STILL, "fewer than before: lower the number"


OTHER = "class Base:\n    def _held(self): ...\n"


@pytest.mark.parametrize(
    ("source", "names"),
    [
        ("def f(x):\n    return x._held", ["_held"]),
        ("def f(self):\n    return self.part._held", ["_held"]),
        ("class A(Base):\n    def _held(self): ...\n    def f(self, other):\n        other._held()", ["_held"]),
        ("class A(Base):\n    def f(self):\n        return self._held() or super()._held()", []),
        ("class A:\n    def _mine(self): ...\n    def f(self, other):\n        other._mine()", []),
        ("class A:\n    def __init__(self):\n        self._mine = 1\ndef f(x):\n    return x._mine", []),
        ("from triever.other import _held", ["_held"]),
        ("def f(x):\n    return getattr(x, '_held')", ["_held"]),
        ("def f(x):\n    return x.__class__, os._exit, tuple._fields", []),
    ],
)
def test_reaching_is_seen(source: str, names: list[str]) -> None:
    assert reaches({"other": OTHER, "here": source}).get("here", []) == names
