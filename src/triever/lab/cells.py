"""A cell of a recipe: the data, the system that learns it, and the parts that this one uses.

Knows nothing about how a recipe says them: `layout` makes cells from tables.
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
"""Options of a training that change its pace and what it leaves beside the model, and nothing of what is learned."""


@dataclass(frozen=True)
class Data:
    """What a cell learns, and what it is asked."""

    name: str = option("", "a folder, a file, `python`, or a name under $TRIEVER_DATA")
    train: str = option("", "the split that systems are trained on, unless their options say another")
    test: tuple[str, ...] = option(("test",), "the splits that they are measured on")
    documents: int = option(0, "only a sample of so many documents; 0 takes all")
    first: tuple[str, ...] = option((), "splits whose relevant documents are in a sample first; none: those of all")
    expansions: str = option("", "a file of expansion texts, as a path or below $TRIEVER_DATA")
    skip_bad: bool = option(False, "leave malformed records out")
    read_as: str = option("", "text or records: what the documents of a folder are; nothing: what most of it is")

    def __post_init__(self) -> None:
        config.validate(self)
        if not self.name:
            raise UsageError("data has no name", 'for example: data.name = "python"')
        if not self.test or len(set(self.test)) < len(self.test):
            raise UsageError(f"data.test = {list(self.test)}", "name at least one split, each once")
        if self.documents < 0:
            raise UsageError(f"data.documents = {self.documents} should not be negative", "0 takes all")


@dataclass(frozen=True)
class System:
    """A system as a recipe says it: its kind, the options that were given, and the parts that it uses."""

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
        """The retriever, with what `part` gives for the names of its parts; it is not fitted unless it is a part."""
        if self.part is None:
            return config.build(system(self.kind), _with_parts(self.options, part))
        found = part(self.part)
        return found.searched_with(self.options) if self.options else found

    def unfitted(self) -> Retriever:
        """The retriever with parts that are not fitted either: whether it can be made at all."""
        if self.part is None:
            return self.make(lambda name: self.parts[name].unfitted())
        found = self.parts[self.part].unfitted()
        other = config.merged(config.to_dict(found), self.options)
        return config.build(type(found), other) if self.options else found

    def completed(self, seed: int, train: str) -> System:
        """The same with all of its options, where the seed and the split are these unless others were given."""
        parts = {name: one.completed(seed, train) for name, one in self.parts.items()}
        if self.is_part:
            return replace(self, parts=parts)
        fixed = {"seed": seed} | ({"split": train} if train else {})
        return System(self.kind, _filled(config.to_dict(self.unfitted()), self.options, fixed), parts)

    def to_dict(self) -> dict[str, Any]:
        """As plain values; parts by name."""
        parts = {"parts": {name: one.to_dict() for name, one in self.parts.items()}} if self.parts else {}
        return {"kind": self.kind, "options": dict(self.options), **parts}


@dataclass(frozen=True)
class Cell(Named):
    """One row of a recipe's table."""

    data: Data
    system: System
    seeds: tuple[int, ...] = ()

    def said(self) -> dict[str, Any]:
        """What was said of it; options that nobody set are left out, so that a new one changes no definition.

        So are those that say how fast it is done, or what is told of it meanwhile.
        """
        usual = config.options(Data)
        data = {key: value for key, value in asdict(self.data).items() if value != usual[key].default}
        return {"data": data, "system": _decisive(self.system.to_dict())}


def _decisive(options: Table) -> dict[str, Any]:
    return {
        key: _decisive(value) if isinstance(value, Mapping) else value
        for key, value in options.items()
        if key not in BESIDES
    }


def digest(said: Table) -> str:
    """Sixteen letters that are others for other values."""
    return hashlib.sha256(json.dumps(said, sort_keys=True, default=str).encode()).hexdigest()[:16]


def file_name(label: str) -> str:
    """A label as the name of a file.

    >>> file_name("semantic branch=10, firstp+labelled")
    'semantic-branch=10-firstp+labelled'
    """
    name = re.sub(r"[^\w.+=]+", "-", label).strip("-.") or "cell"
    if len(name) <= LONGEST:
        return name
    return f"{name[:LONGEST]}-{hashlib.sha256(label.encode()).hexdigest()[:8]}"


def _with_parts(value: Any, part: Callable[[str], Retriever]) -> Any:
    """The same value with retrievers in the place of the names of parts."""
    if (name := part_name(value)) is not None:
        return part(name)
    if isinstance(value, Mapping):
        return {key: _with_parts(inner, part) for key, inner in value.items()}
    return [_with_parts(inner, part) for inner in value] if isinstance(value, list) else value


def _filled(whole: Any, given: Any, fixed: Table) -> Any:
    """All options, with names of parts as they were given, and what is fixed wherever nothing was given."""
    if part_name(given) is not None:
        return given
    if isinstance(whole, Mapping):
        said = given if isinstance(given, Mapping) else {}
        return {
            key: fixed[key] if key in fixed and key not in said else _filled(value, said.get(key), fixed)
            for key, value in whole.items()
        }
    if isinstance(whole, list):
        several = given if isinstance(given, list) and len(given) == len(whole) else [None] * len(whole)
        return [_filled(value, one, fixed) for value, one in zip(whole, several, strict=True)]
    return whole
