"""Systems by the words of a person: `bm25`, `bm25:k1=0.9`, a TOML file, a saved folder."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from triever import config
from triever.data.datasets import Dataset
from triever.errors import UsageError
from triever.retrievers.base import KINDS, Retriever, load, system

_log = logging.getLogger("triever")


def new_system(system_or_file: str, settings: Sequence[str]) -> Retriever:
    """A system that has not been fitted, by its name or by a TOML file with its kind and options."""
    values: dict[str, Any] = {"kind": system_or_file}
    if system_or_file.endswith(".toml"):
        values = config.read_toml(system_or_file)
    kind = values.pop("kind", None)
    if not isinstance(kind, str):
        raise UsageError(f"{system_or_file} does not say which system", 'add a line such as: kind = "bm25"')
    return config.build(system(kind), config.merged(values, config.assignments(settings)))


def labels(words: Sequence[str]) -> dict[str, str]:
    """What each system is called, and what it is: `folder`, `bm25`, `bm25:k1=0.9`, or `NAME=` and one of these."""
    found: dict[str, str] = {}
    for word in words:
        name, equals, rest = word.partition("=")
        named = bool(equals) and not any(mark in name for mark in ":/\\")
        what = rest if named else word
        label = name if named else Path(what).name if Path(what).is_dir() else what
        if label in found:
            raise UsageError(f"two systems are called {label!r}", f"name one of them: other={what}")
        found[label] = what
    return found


def ready_system(what: str, dataset: Dataset) -> Retriever:
    """A system by its name, fitted here, or else a saved folder; ./bm25 is a folder."""
    name, _, settings = what.partition(":")
    if Path(what).is_dir():
        if name not in KINDS:
            return load(what)
        _log.warning("%s is taken as the system, fitted here; the folder is ./%s", what, what)
    return new_system(name, [part for part in settings.split(",") if part]).fit(dataset)
