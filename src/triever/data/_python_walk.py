"""Writes down the documentation of the interpreter that runs this file, as JSON lines.

It needs the standard library alone and knows nothing of Triever, so that any Python can run it:
`python _python_walk.py probe|walk PACKAGE OUTPUT`, where an empty PACKAGE is the standard library. The
result goes to the file OUTPUT, since the imported modules may print whatever they like.
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
from collections.abc import Iterator, Mapping, Sequence
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
    """A documented object and one public path that reaches it.

    `distance` is 0 for an export, 1 in the module that defines the object without exporting it, 2 where a module
    of the same family imports it, and 3 where any other module does.
    """

    path: str
    kind: str
    value: Any  # a class, a function, a module, or an object of any kind that can be called
    distance: int = 0

    @property
    def is_alias(self) -> bool:
        """Whether the path ends in another name than the one that the object was given."""
        return _text(self.value, "__name__") != self.path.rpartition(".")[2]

    @property
    def order(self) -> tuple[int, int, bool, int, str]:
        """The sort key among the paths of one object, whose smallest is its name: at home, near the root, short."""
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
    """The public modules at and below these names, and for each that cannot be imported, the error."""
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


def _text(value: object, attribute: str) -> str:
    """A string attribute, or "" where there is none: some objects raise, or answer with themselves."""
    content = None
    with contextlib.suppress(Exception):
        content = getattr(value, attribute, None)
    return content if isinstance(content, str) else ""


def _family(home: str) -> str:
    """The top-level package of a module, without leading underscores: `_json` is of the family of `json`."""
    top = home.partition(".")[0].lstrip("_")
    return _FAMILIES.get(top, top)


def _member(module: types.ModuleType, name: str) -> object:
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


def distance(name: str, module: types.ModuleType, value: object) -> int:
    """The distance, as in PublicObject, of a value that its module does not list in `__all__`.

    A package without `__all__` exports what it imports from its own modules.
    """
    home = _text(value, "__module__")
    if name == "builtins":  # open comes from io, and still is a builtin to everybody
        return 0
    is_export = hasattr(module, "__path__") and home.startswith(f"{name}.")
    if home == name or is_export:
        return 1 if hasattr(module, "__all__") else 0
    return 2 if _family(home) == _family(name) else 3


def kind_of(value: object) -> str:
    """The kind of a module's member: "class", "function" (or an object used like one), or "" for all else."""
    with contextlib.suppress(Exception):  # a proxy may raise when it is merely looked at
        if isinstance(value, type):
            return "class"
        if inspect.isroutine(value):
            return "function"
        # NumPy's ufuncs and typing's special forms are objects, each with a text of its own.
        return "function" if callable(value) and _text(value, "__name__") and own_text(value) else ""
    return ""


def own_text(value: object) -> str:
    """The docstring of an object, unless it is only that of the object's class."""
    value = value.__func__ if isinstance(value, (staticmethod, classmethod)) else value
    doc = _text(value, "__doc__")
    return "" if doc == _text(type(value), "__doc__") else doc


def identity(value: object) -> int:
    """The same number for all objects that share a docstring: a bound method and the function in its class."""
    if isinstance(value, _WRAPPED):
        return id(value.__func__)  # random.randint, of a hidden Random; static and class methods
    owner = value.__self__ if inspect.isbuiltin(value) else None
    if owner is None or isinstance(owner, (type, types.ModuleType)):
        return id(value)
    return id(getattr(type(owner), _text(value, "__name__"), value))  # random.random


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

    def is_ours(self, value: object) -> bool:
        """Whether a class or function was defined in the package; true of everything in the standard library."""
        return not self.family or _family(_text(value, "__module__")) == self.family

    def is_exported(self, entry: PublicObject) -> bool:
        """Whether a path is meant for the public, and not only an import that the module needs itself."""
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
        """Add the members of the public classes; all public classes must have been offered before."""
        outer = [entry for entry in self.best.values() if entry.kind == "class"]
        for entry in self.with_nested(outer):
            for member in self.class_members(entry):
                self.offer(member)

    def with_nested(self, outer: list[PublicObject]) -> list[PublicObject]:
        """These classes and those written inside them."""
        classes = list(outer)
        for entry in classes:  # grows while it is read
            for name, value in list(vars(entry.value).items()):
                inside = isinstance(value, type) and value.__qualname__ == f"{entry.value.__qualname__}.{name}"
                if inside and not name.startswith("_") and id(value) not in self.best:
                    nested = PublicObject(f"{entry.path}.{name}", "class", value)
                    self.offer(nested)
                    classes.append(nested)
        return classes

    def is_private(self, cls: type) -> bool:
        """Whether a class has no public name, so that its methods are documented under its subclasses."""
        return self.is_ours(cls) and id(cls) not in self.best

    def own_classes(self, cls: type) -> list[type]:
        """The class, and its private bases, except those that a public base inherits from."""
        public = [base for base in cls.__mro__[1:] if not self.is_private(base)]
        covered = {ancestor for base in public for ancestor in base.__mro__}
        return [cls, *(base for base in cls.__mro__[1:] if base not in covered)]

    def class_members(self, entry: PublicObject) -> Iterator[PublicObject]:
        """The documented methods and properties that this class does not inherit from a public base."""
        seen: set[str] = set()
        for cls in self.own_classes(entry.value):
            for name, value in list(vars(cls).items()):
                kind = member_kind(value)
                fresh = kind and not name.startswith("_") and name not in seen
                if fresh and not self.is_inherited(entry.value, name, value):
                    yield PublicObject(f"{entry.path}.{name}", kind, value)
            seen.update(vars(cls))

    def is_inherited(self, cls: type, name: str, value: object) -> bool:
        """Whether a public base documents a member of this name in the same words."""
        public_bases = [base for base in cls.__mro__[1:] if not self.is_private(base)]
        text = own_text(value)
        return any(own_text(vars(base)[name]) == text for base in public_bases if name in vars(base))

    def documents(self) -> list[dict[str, str]]:
        """One record per documented object, sorted by name."""
        records = {name: record(PublicObject(name, "module", module)) for name, module in self.modules.items()}
        records |= {entry.path: record(entry) for entry in self.best.values()}
        return [records[path] for path in sorted(records) if records[path]["doc"]]


def member_kind(value: object) -> str:
    """The kind of a class's member: "method", "property", or "" for plain data and nested classes."""
    if isinstance(value, _DATA_DESCRIPTORS):
        return "property"
    if isinstance(value, (staticmethod, classmethod)) or inspect.isroutine(value):
        return "method"
    return "property" if hasattr(type(value), "__get__") and not isinstance(value, type) else ""


# What it says ---------------------------------------------------------------------------------------------


def record(entry: PublicObject) -> dict[str, str]:
    """The entry as a line of the output; `doc` is empty where there is no docstring."""
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
    """The docstring of this class, or "" where it is that of a base."""
    if vars(cls).get("__doc__") is None:
        return ""
    doc = _text(cls, "__doc__")
    return "" if any(doc == _text(base, "__doc__") for base in cls.__mro__[1:]) else doc


def is_made_up(doc: str, value: object) -> bool:
    """Whether namedtuple, dataclass, enum or ast generated the docstring, which only lists the fields."""
    if doc.startswith("Alias for field number ") or doc == "An enumeration.":
        return True
    name = re.escape(_text(value, "__name__"))
    return isinstance(value, type) and bool(re.fullmatch(rf"{name}(\([^\n]*\))?( -> None)?", doc))


def signature(name: str, entry: PublicObject) -> str:
    """The call signature, such as `merge(*iterables, key=None, reverse=False)`, or "" where Python has none."""
    if entry.kind in ("module", "property"):
        return ""
    with contextlib.suppress(Exception):
        value, bound = as_called(entry)
        called = inspect.signature(value)
        parameters = [plain(parameter) for parameter in called.parameters.values()]
        return _ADDRESS.sub("", f"{name}{called.replace(parameters=parameters[bound:])}")
    return ""


def as_called(entry: PublicObject) -> tuple[Any, int]:
    """The object that has the signature, and how many of the first parameters the caller does not give."""
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


def is_plain(value: object) -> bool:
    """Whether a default is a literal, or a class or function, and no path of this machine."""
    if isinstance(value, (tuple, list)):
        return all(is_plain(item) for item in value)
    is_path = isinstance(value, str) and len(value) > 1 and os.path.isabs(value)
    return (isinstance(value, _PLAIN) or inspect.isroutine(value)) and not is_path


# The two commands -----------------------------------------------------------------------------------------


def probe(package: str) -> Sequence[Mapping[str, object]]:
    """One line with the identity of this interpreter, and whether and in which version it has the package."""
    spec = _find(package) if package else None
    standard = not package or package.partition(".")[0] in _STANDARD
    identity = [sys.executable, sys.prefix, sys.version, *([] if standard else _version(package, spec))]
    is_installed = spec is not None or not package
    known = [info.name for info in pkgutil.iter_modules() if info.ispkg and info.name not in _STANDARD]
    return [{"identity": identity, "standard": standard, "installed": is_installed, "known": known}]


def _find(package: str) -> importlib.machinery.ModuleSpec | None:
    with contextlib.suppress(BaseException):  # a parent package runs here, and may fail in any way
        return importlib.util.find_spec(package)
    return None


def _version(package: str, spec: importlib.machinery.ModuleSpec | None) -> list[str | int]:
    """The package's version, if it has one, and the path and time of its first file: one changes with the package."""
    version = ""
    with contextlib.suppress(Exception):
        version = importlib.metadata.version(package)
    origin = spec.origin if spec and spec.origin else ""
    return [version, origin, os.stat(origin).st_mtime_ns if os.path.exists(origin) else 0]


def walk(package: str) -> Sequence[Mapping[str, object]]:
    """A line about failed imports, then the documents."""
    modules, failed = load(roots(package))
    documents = Library(modules, package).documents()
    return [{"failed": len(failed), "error": failed.get(package, "")}, *documents]


def main(command: str, package: str, output: str) -> None:
    """Run one command and exit at once, without waiting for threads and exit hooks of the imported modules."""
    warnings.simplefilter("ignore")
    lines = probe(package) if command == "probe" else walk(package)
    with open(output, "w", encoding="utf-8", errors="backslashreplace") as file:
        file.writelines(json.dumps(line) + "\n" for line in lines)
    os._exit(0)


if __name__ == "__main__":
    main(*sys.argv[1:])
