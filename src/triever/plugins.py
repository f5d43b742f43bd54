"""Retrievers, docid schemes and measures that other packages bring, found by their entry points.

An installed package names them in its pyproject.toml (docs/extending.md). Names are read once, when a name is asked
for that Triever itself does not have; a package is imported only when one of its own names is asked for. Triever's
own names win. A name is looked up among entry points and nowhere else: no file can name a module to import.
"""

from __future__ import annotations

import functools
from collections.abc import Container, Mapping
from importlib.metadata import EntryPoint, entry_points
from typing import Any, TypeVar

from triever.errors import UsageError

RETRIEVERS, SCHEMES, MEASURES = "triever.retrievers", "triever.schemes", "triever.measures"
"""The groups of entry points."""

T = TypeVar("T")


@functools.cache
def installed(group: str) -> Mapping[str, tuple[EntryPoint, ...]]:
    """The entry points of a group by name; several packages may bring one name, which then nobody can use."""
    by_name: dict[str, tuple[EntryPoint, ...]] = {}
    for entry in sorted(entry_points(group=group), key=lambda entry: (entry.name, package_of(entry))):
        by_name[entry.name] = (*by_name.get(entry.name, ()), entry)
    return by_name


def names(group: str, built_in: Container[str] = ()) -> list[str]:
    """The names that installed packages add to those which are built in."""
    return [name for name in installed(group) if name not in built_in]


def find(group: str, name: str) -> Any | None:
    """What an installed package brings under this name; None where no package does."""
    entries = installed(group).get(name, ())
    if not entries:
        return None
    if len(entries) > 1:
        problem = f"{name!r} ({group}) is provided by several packages: {', '.join(map(package_of, entries))}"
        raise UsageError(problem, "uninstall all but one of them")
    try:
        return entries[0].load()
    except Exception as error:  # of a stranger's module any may come
        problem = f"{package_of(entries[0])}, which provides {name!r}, cannot be imported: {_described(error)}"
        raise UsageError(problem, "update that package, or uninstall it") from error


def find_class(group: str, name: str, base: type[T]) -> type[T] | None:
    """The same, if it is a class below this one whose `kind` is its name."""
    provided = find(group, name)
    if provided is None:
        return None
    if not isinstance(provided, type) or not issubclass(provided, base) or getattr(provided, "kind", None) != name:
        raise unusable(group, name, f"a subclass of {base.__name__} with kind = {name!r}")
    return provided


def unusable(group: str, name: str, wanted: str) -> UsageError:
    """The error that a package brings something under this name which is not what is wanted."""
    package = package_of(installed(group)[name][0])
    return UsageError(f"{package} provides {name!r}, which is not {wanted}", "update that package, or uninstall it")


def package_of(entry: EntryPoint) -> str:
    """The name of the package that brings an entry point."""
    return entry.dist.name if entry.dist else entry.value


def _described(error: Exception) -> str:
    message = " ".join(str(error).split())
    return f"{type(error).__name__}: {message}" if message else type(error).__name__
