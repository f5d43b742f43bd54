"""Writes down the documentation of the interpreter that runs this file, as JSON lines.

It needs the standard library alone and knows nothing of Triever, so that any Python can run it:
`python _python_walk.py probe|walk PACKAGE OUTPUT`, where an empty PACKAGE is the standard library. The
result goes to the file OUTPUT, since what is imported on the way may print whatever it likes.
"""

from __future__ import annotations

import contextlib
import enum
import functools
import importlib
import importlib.machinery
import importlib.metadata
import importlib.util
import inspect
import json
import os
import pkgutil
import re
import sys
import types
import warnings
from collections.abc import Iterator
from typing import Any, NamedTuple

_SKIPPED = frozenset(
    {
        *("antigravity", "idlelib", "pydoc_data", "this", "turtledemo"),  # jokes and demonstrations
        *("distutils", "lib2to3"),  # tools that newer Pythons have no longer
        *("ctypes.wintypes", "nt", "ntpath", "nturl2path"),  # Windows
        *("genericpath", "posix", "posixpath", "socket.SocketType"),  # known as os, os.path and socket.socket
    }
)
_FAMILIES = {
    "curses_panel": "curses",
    "frozen_importlib": "importlib",
    "frozen_importlib_external": "importlib",
}
_STANDARD = frozenset(sys.stdlib_module_names)
_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")
_DATA_DESCRIPTORS = (
    property,
    functools.cached_property,
    types.GetSetDescriptorType,
    types.MemberDescriptorType,
)
_WRAPPED = (staticmethod, classmethod, types.MethodType)
_PLAIN = (bool, int, float, complex, str, bytes, types.NoneType, enum.Enum, type)


class Dots:
    """Stands for a value that is not shown."""

    def __repr__(self) -> str:
        return "..."


class PublicObject(NamedTuple):
    """One documented object and one public path that reaches it.

    `distance` says how: 0 as an export, 1 at home, though not on the list of exports, 2 where a module of
    its family imported it, 3 where any other did.
    """

    path: str
    kind: str
    value: Any
    distance: int = 0

    @property
    def is_alias(self) -> bool:
        """Whether the path ends in another name than the one that the object was given."""
        return _text(self.value, "__name__") != self.path.rpartition(".")[2]

    @property
    def order(self) -> tuple[Any, ...]:
        """The smallest of an object's paths is its name: at home, near the root, unaliased, short."""
        return self.distance, self.path.count("."), self.is_alias, len(self.path), self.path


# Which modules --------------------------------------------------------------------------------------------


def is_public(name: str) -> bool:
    """Whether a dotted module name is one that people import.

    >>> is_public("os.path"), is_public("json._tool"), is_public("unittest.test"), is_public("venv.__main__")
    (True, False, False, False)
    """
    parts = name.split(".")
    private = any(part.startswith(("_", "test_")) or part in ("test", "tests", "conftest") for part in parts)
    return not private and name not in _SKIPPED and parts[0] not in _SKIPPED


def roots(package: str) -> list[str]:
    """The modules from which the walk starts."""
    return [package] if package else [*sorted(sys.stdlib_module_names), "os.path"]


def load(names: list[str]) -> tuple[dict[str, types.ModuleType], dict[str, str]]:
    """The public modules at and below these names, and why some could not be imported."""
    modules: dict[str, types.ModuleType] = {}
    failed: dict[str, str] = {}
    waiting = list(names)
    while waiting:
        name = waiting.pop()
        if not is_public(name):
            continue
        try:
            modules[name] = importlib.import_module(name)
        except BaseException as error:  # sys.exit, too: somebody else's module is running here
            failed[name] = f"{type(error).__name__}: {error}"
        else:
            waiting.extend(submodules(name, modules[name]))
    return modules, failed


def submodules(name: str, module: types.ModuleType) -> list[str]:
    """The full names of the modules directly inside a package."""
    return [f"{name}.{info.name}" for info in pkgutil.iter_modules(getattr(module, "__path__", []))]


# What is in them ------------------------------------------------------------------------------------------


def _text(value: Any, attribute: str) -> str:
    """A string attribute, or "" where there is none: some objects raise, or answer with themselves."""
    found = None
    with contextlib.suppress(Exception):
        found = getattr(value, attribute, None)
    return found if isinstance(found, str) else ""


def _family(home: str) -> str:
    """The top-level package of a module, its private half counted in: `_json` is of the family of `json`."""
    top = home.partition(".")[0].lstrip("_")
    return _FAMILIES.get(top, top)


def _member(module: types.ModuleType, name: str) -> Any:
    with contextlib.suppress(BaseException):  # a lazy member imports what it needs, and may fail in any way
        return getattr(module, name, None)
    return None


def members(name: str, module: types.ModuleType) -> Iterator[PublicObject]:
    """The public classes and callables of a module, with the paths by which this module offers them."""
    listed = {item for item in getattr(module, "__all__", ()) if isinstance(item, str)}
    lazy = {item: _member(module, item) for item in listed - vars(module).keys()}
    for item, value in {**vars(module), **lazy}.items():
        kind = kind_of(value)
        if kind and not item.startswith("_"):
            path = item if name == "builtins" else f"{name}.{item}"
            yield PublicObject(path, kind, value, 0 if item in listed else distance(name, module, value))


def distance(name: str, module: types.ModuleType, value: Any) -> int:
    """How far from its home a value is found, in a module that does not list it; see PublicObject.

    A package without a list is the door to what it imports from its own modules.
    """
    home = _text(value, "__module__")
    if name == "builtins":  # open comes from io, and still is a builtin to everybody
        return 0
    is_door = hasattr(module, "__path__") and home.startswith(f"{name}.")
    if home == name or is_door:
        return 1 if hasattr(module, "__all__") else 0
    return 2 if _family(home) == _family(name) else 3


def kind_of(value: Any) -> str:
    """What a module's member is: a class, a function (or an object used like one), or ""."""
    with contextlib.suppress(Exception):  # a proxy may raise when it is merely looked at
        if isinstance(value, type):
            return "class"
        if inspect.isroutine(value):
            return "function"
        # NumPy's ufuncs and typing's special forms are objects, each with a text of its own.
        return "function" if callable(value) and _text(value, "__name__") and own_text(value) else ""
    return ""


def own_text(value: Any) -> str:
    """The docstring of an object, unless it is only that of the object's class."""
    value = value.__func__ if isinstance(value, (staticmethod, classmethod)) else value
    doc = _text(value, "__doc__")
    return "" if doc == _text(type(value), "__doc__") else doc


def identity(value: Any) -> int:
    """One number per documented thing: a bound method is the function in its class."""
    if isinstance(value, _WRAPPED):
        return id(value.__func__)  # random.randint, of a hidden Random; static and class methods
    owner = value.__self__ if inspect.isbuiltin(value) else None
    if owner is None or isinstance(owner, (type, types.ModuleType)):
        return id(value)
    return id(getattr(type(owner), value.__name__, value))  # random.random


class Library:
    """The public names of a set of modules: each documented object once, by its best path."""

    def __init__(self, modules: dict[str, types.ModuleType], package: str = "") -> None:
        self.modules = modules
        self.family = _family(package)
        self.best: dict[int, PublicObject] = {}
        for name in sorted(modules):
            for entry in members(name, modules[name]):
                if self.is_exported(entry):
                    self.offer(entry)
        self.offer_class_members()

    def is_ours(self, value: Any) -> bool:
        """Whether a class or function was made in what is walked; everything is, in the standard library."""
        return not self.family or _family(_text(value, "__module__")) == self.family

    def is_exported(self, entry: PublicObject) -> bool:
        """Whether a path is meant for the public, and not just a trace of what a module itself needs."""
        if entry.path in _SKIPPED or entry.distance > 2:
            return False
        if entry.distance == 2:
            return self.is_ours(entry.value) and not entry.is_alias
        return self.is_ours(entry.value) or _family(_text(entry.value, "__module__")) not in _STANDARD

    def offer(self, entry: PublicObject) -> None:
        """Keep this path if it is the best so far for its object."""
        key = identity(entry.value)
        if key not in self.best or entry.order < self.best[key].order:
            self.best[key] = entry

    def offer_class_members(self) -> None:
        """Add what is inside the public classes; which ones those are must be known by then."""
        outer = [entry for entry in self.best.values() if entry.kind == "class"]
        for entry in self.with_nested(outer):
            for member in self.class_members(entry):
                self.offer(member)

    def with_nested(self, outer: list[PublicObject]) -> list[PublicObject]:
        """These classes and those written inside them."""
        found = list(outer)
        for entry in found:  # grows while it is read
            for name, value in list(vars(entry.value).items()):
                inside = isinstance(value, type) and value.__qualname__ == f"{entry.value.__qualname__}.{name}"
                if inside and not name.startswith("_") and id(value) not in self.best:
                    nested = PublicObject(f"{entry.path}.{name}", "class", value)
                    self.offer(nested)
                    found.append(nested)
        return found

    def is_private(self, cls: type) -> bool:
        """Whether a class has no public name, so that its methods are known by those of its children."""
        return self.is_ours(cls) and id(cls) not in self.best

    def own_classes(self, cls: type) -> list[type]:
        """The class and those private bases that no public base already stands for."""
        public = [base for base in cls.__mro__[1:] if not self.is_private(base)]
        covered = {ancestor for base in public for ancestor in base.__mro__}
        return [cls, *(base for base in cls.__mro__[1:] if base not in covered)]

    def class_members(self, entry: PublicObject) -> Iterator[PublicObject]:
        """The documented methods and properties that this class brings, and not one of its public bases."""
        seen: set[str] = set()
        for cls in self.own_classes(entry.value):
            for name, value in list(vars(cls).items()):
                kind = member_kind(value)
                fresh = kind and not name.startswith("_") and name not in seen
                if fresh and not self.is_inherited(entry.value, name, value):
                    yield PublicObject(f"{entry.path}.{name}", kind, value)
            seen.update(vars(cls))

    def is_inherited(self, cls: type, name: str, value: Any) -> bool:
        """Whether a public base documents a member of this name in the same words."""
        others = [base for base in cls.__mro__[1:] if not self.is_private(base)]
        text = own_text(value)
        return any(own_text(vars(base)[name]) == text for base in others if name in vars(base))

    def documents(self) -> list[dict[str, str]]:
        """One record per documented object, sorted by name."""
        found = {name: record(PublicObject(name, "module", module)) for name, module in self.modules.items()}
        found |= {entry.path: record(entry) for entry in self.best.values()}
        return [found[path] for path in sorted(found) if found[path]["doc"]]


def member_kind(value: Any) -> str:
    """What a class's member is: "method", "property", or "" for plain data and nested classes."""
    if isinstance(value, _DATA_DESCRIPTORS):
        return "property"
    if isinstance(value, (staticmethod, classmethod)) or inspect.isroutine(value):
        return "method"
    return "property" if hasattr(type(value), "__get__") and not isinstance(value, type) else ""


# What it says ---------------------------------------------------------------------------------------------


def record(entry: PublicObject) -> dict[str, str]:
    """The entry as it is written; `doc` is empty where nobody wrote anything."""
    doc = class_text(entry.value) if entry.kind == "class" else own_text(entry.value)
    name = entry.path.rpartition(".")[2]
    doc = _ADDRESS.sub("", inspect.cleandoc(doc)).strip()
    if is_made_up(doc, entry.value):
        doc = ""
    return {
        "id": entry.path,
        "kind": entry.kind,
        "signature": signature(name, entry) if doc else "",
        "doc": doc,
    }


def class_text(cls: type) -> str:
    """The docstring that was written for this class, and for none of its bases."""
    if vars(cls).get("__doc__") is None:
        return ""
    doc = _text(cls, "__doc__")
    return "" if any(doc == _text(base, "__doc__") for base in cls.__mro__[1:]) else doc


def is_made_up(doc: str, value: Any) -> bool:
    """Whether namedtuple, dataclass, enum or ast filled in a docstring that says nothing but the fields."""
    if doc.startswith("Alias for field number ") or doc == "An enumeration.":
        return True
    name = re.escape(_text(value, "__name__"))
    return isinstance(value, type) and bool(re.fullmatch(rf"{name}(\([^\n]*\))?( -> None)?", doc))


def signature(name: str, entry: PublicObject) -> str:
    """How to call it, `merge(*iterables, key=None, reverse=False)`, or "" where Python cannot tell."""
    if entry.kind in ("module", "property"):
        return ""
    with contextlib.suppress(Exception):
        value, bound = as_called(entry)
        found = inspect.signature(value)
        parameters = [plain(parameter) for parameter in found.parameters.values()]
        return _ADDRESS.sub("", f"{name}{found.replace(parameters=parameters[bound:])}")
    return ""


def as_called(entry: PublicObject) -> tuple[Any, int]:
    """What to ask for its signature, and how many of the first parameters are not the caller's to give."""
    value = entry.value
    if isinstance(value, types.ClassMethodDescriptorType):
        return value.__get__(None, value.__objclass__), 0
    is_free = entry.kind != "method" or isinstance(value, staticmethod) or inspect.isbuiltin(value)
    return value.__func__ if isinstance(value, (staticmethod, classmethod)) else value, 0 if is_free else 1


def plain(parameter: inspect.Parameter) -> inspect.Parameter:
    """The parameter, with `...` for a default that is not the same everywhere.

    Such a default can be a path, an object, or the whole environment with the secrets in it.
    """
    return parameter if is_plain(parameter.default) else parameter.replace(default=Dots())


def is_plain(value: Any) -> bool:
    """Whether a default is a literal, or a class or function, and no path of this machine."""
    if isinstance(value, (tuple, list)):
        return all(is_plain(item) for item in value)
    is_path = isinstance(value, str) and len(value) > 1 and os.path.isabs(value)
    return (isinstance(value, _PLAIN) or inspect.isroutine(value)) and not is_path


# The two commands -----------------------------------------------------------------------------------------


def probe(package: str) -> list[dict[str, Any]]:
    """Which interpreter this is, and whether and in which version it has the package."""
    spec = _find(package) if package else None
    standard = not package or package.partition(".")[0] in _STANDARD
    identity = [sys.executable, sys.prefix, sys.version, *([] if standard else _version(package, spec))]
    found = spec is not None or not package
    known = [info.name for info in pkgutil.iter_modules() if info.ispkg and info.name not in _STANDARD]
    return [{"identity": identity, "standard": standard, "found": found, "known": known}]


def _find(package: str) -> importlib.machinery.ModuleSpec | None:
    with contextlib.suppress(BaseException):  # a parent package runs here, and may fail in any way
        return importlib.util.find_spec(package)
    return None


def _version(package: str, spec: importlib.machinery.ModuleSpec | None) -> list[str | int]:
    """What changes when the package does: its version, if it has one, and its first file."""
    version = ""
    with contextlib.suppress(Exception):
        version = importlib.metadata.version(package)
    origin = spec.origin if spec and spec.origin else ""
    return [version, origin, os.stat(origin).st_mtime_ns if os.path.exists(origin) else 0]


def walk(package: str) -> list[dict[str, Any]]:
    """A line about the walk itself, then the documents."""
    modules, failed = load(roots(package))
    documents = Library(modules, package).documents()
    return [{"failed": len(failed), "error": failed.get(package, "")}, *documents]


def main(command: str, package: str, output: str) -> None:
    """Run one command and leave at once, whatever threads and exit hooks the imports have set up."""
    warnings.simplefilter("ignore")
    lines = probe(package) if command == "probe" else walk(package)
    with open(output, "w", encoding="utf-8", errors="backslashreplace") as file:
        file.writelines(json.dumps(line) + "\n" for line in lines)
    os._exit(0)


if __name__ == "__main__":
    main(*sys.argv[1:])
