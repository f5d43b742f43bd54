"""A cell of a recipe: the data, the system that learns it, and the parts that this system uses.

Knows nothing about the syntax of recipes: `layout` makes cells from tables.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from triever import config
from triever.config import option
from triever.errors import UsageError
from triever.lab.expect import Named
from triever.lab.toml_values import Table, part_name
from triever.retriever import Retriever, system

LONGEST = 100  # letters of a file's name
BESIDES = {"compile", "workers", "tensorboard", "log_every", "checkpoint_every", "checkpoint_minutes"}
"""Options of a training that change its speed and the files beside the model, but not what is learned."""


@dataclass(frozen=True)
class Data:
    """What a cell learns, and what it is asked."""

    name: str = option("", "a folder, a file, `python`, or a name under $TRIEVER_DATA")
    train: str = option("", "the split that systems are trained on, unless their options name another")
    test: tuple[str, ...] = option(("test",), "the splits that they are measured on")
    documents: int = option(0, "the size of a sample of the documents; 0 takes all of them")
    first: tuple[str, ...] = option(
        (), "splits whose relevant documents a sample takes first; without any, those of all splits"
    )
    expansions: str = option("", "a file of expansion texts, as a path or below $TRIEVER_DATA")
    skip_bad: bool = option(False, "leave malformed records out")
    read_as: str = option("", "text or records: what the documents of a folder are; empty: what most of its files are")

    def __post_init__(self) -> None:
        config.validate(self)
        if not self.name:
            raise UsageError("data has no name", 'for example: data.name = "python"')
        if not self.test or len(set(self.test)) < len(self.test):
            raise UsageError(
                f"data.test = {list(self.test)} should name splits, each once", 'for example: data.test = ["test"]'
            )
        if self.documents < 0:
            raise UsageError(f"data.documents = {self.documents} should not be negative", "0 takes all documents")


@dataclass(frozen=True)
class System:
    """A system as a recipe describes it: its kind, the options that were given, and the parts that it uses."""

    kind: str
    options: Table
    parts: Mapping[str, System] = field(default_factory=dict)

    @property
    def part(self) -> str | None:
        """The name of the recipe's part that it is, if it is nothing but one."""
        return part_name(self.kind)

    @property
    def is_part(self) -> bool:
        """Whether it is nothing but one of the recipe's parts."""
        return self.part is not None

    def make(self, part: Callable[[str], Retriever]) -> Retriever:
        """The retriever; `part` gives the retriever for the name of a part. Only a system that is a part is fitted."""
        if self.part is None:
            return config.build(system(self.kind), _with_parts(self.options, part))
        retriever = part(self.part)
        return retriever.searched_with(self.options) if self.options else retriever

    def unfitted(self) -> Retriever:
        """The retriever with parts that are not fitted either; an error if its options do not allow it to be made."""
        if self.part is None:
            return self.make(lambda name: self.parts[name].unfitted())
        retriever = self.parts[self.part].unfitted()
        options = config.merged(config.to_dict(retriever), self.options)
        return config.build(type(retriever), options) if self.options else retriever

    def completed(self, seed: int, train: str) -> System:
        """The same system with all options filled in; this seed and split are used wherever no other was given."""
        parts = {name: part.completed(seed, train) for name, part in self.parts.items()}
        if self.is_part:
            return replace(self, parts=parts)
        fixed = {"seed": seed} | ({"split": train} if train else {})
        return System(self.kind, _filled(config.to_dict(self.unfitted()), self.options, fixed), parts)

    def to_dict(self) -> dict[str, object]:
        """The system as plain values; its parts by name."""
        parts = {"parts": {name: part.to_dict() for name, part in self.parts.items()}} if self.parts else {}
        return {"kind": self.kind, "options": dict(self.options), **parts}


@dataclass(frozen=True)
class Cell(Named):
    """One row of a recipe's table."""

    data: Data
    system: System
    seeds: tuple[int, ...] = ()

    def definition(self) -> dict[str, object]:
        """The options that decide what the cell measures, as plain values.

        Options that nobody set are left out, so that a new option of Triever changes no definition. Options that only
        change speed or logging are left out too.
        """
        usual = config.options(Data)
        data = {key: value for key, value in asdict(self.data).items() if value != usual[key].default}
        return {"data": data, "system": decisive(self.system.to_dict())}


def decisive(options: Table) -> dict[str, object]:
    """Options without those that only change speed or logging."""
    return {
        key: decisive(value) if isinstance(value, Mapping) else value
        for key, value in options.items()
        if key not in BESIDES
    }


def digest(values: Table) -> str:
    """Sixteen hexadecimal digits of a hash: other values have another digest."""
    return hashlib.sha256(json.dumps(values, sort_keys=True, default=str).encode()).hexdigest()[:16]


def file_name(label: str) -> str:
    """The name of a file for a label.

    >>> file_name("semantic branch=10, firstp+labelled")
    'semantic-branch=10-firstp+labelled'
    """
    name = re.sub(r"[^\w.+=]+", "-", label).strip("-.") or "cell"
    if len(name) <= LONGEST:
        return name
    return f"{name[:LONGEST]}-{hashlib.sha256(label.encode()).hexdigest()[:8]}"


def _with_parts(value: object, part: Callable[[str], Retriever]) -> Any:  # of the same type as the value
    """The same value with a retriever in the place of each name of a part."""
    if (name := part_name(value)) is not None:
        return part(name)
    if isinstance(value, Mapping):
        return {key: _with_parts(inner, part) for key, inner in value.items()}
    return [_with_parts(inner, part) for inner in value] if isinstance(value, list) else value


def _filled(whole: object, given: object, fixed: Table) -> Any:  # of the same type as `whole`
    """All options; names of parts stay as they were given, and `fixed` values stand wherever nothing was given."""
    if part_name(given) is not None:
        return given
    if isinstance(whole, Mapping):
        table = given if isinstance(given, Mapping) else {}
        return {
            key: fixed[key] if key in fixed and key not in table else _filled(value, table.get(key), fixed)
            for key, value in whole.items()
        }
    if isinstance(whole, list):
        items = given if isinstance(given, list) and len(given) == len(whole) else [None] * len(whole)
        return [_filled(value, item, fixed) for value, item in zip(whole, items, strict=True)]
    return whole
