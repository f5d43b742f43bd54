"""What a retriever in shards asks its shards for, and which rows each of them has.

Knows nothing about what shards hold and where they are: in this process, or on many machines.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from triever.errors import UsageError
from triever.validation import require, require_list

if TYPE_CHECKING:
    import numpy as np


class Part(NamedTuple):
    """A part of a shard: what it is, inside of which parts of the artifact, under which name, and for which device."""

    kind: str
    inside: tuple[str, ...]
    name: str
    device: str | None = None


class Shards(Protocol):
    """The shards of an artifact, all of which are asked at once."""

    bounds: Bounds

    def ask(
        self, part: Part, method: str, asked: Sequence[tuple[Any, ...] | None], keep: Sequence[np.ndarray | None]
    ) -> list[Any]:
        """For each shard what a method of a part answers; None, where nothing is asked of a shard.

        `keep` has for each shard which of its rows are searched (rows,) bool, or None for all.
        """
        ...

    def held(self, part: Part) -> list[Any]:
        """The parts themselves, if they are in this process; else nothing."""
        ...

    @property
    def elsewhere(self) -> bool:
        """Whether shards are in other processes."""
        ...


@dataclass(frozen=True)
class Bounds:
    """Where shards begin, and the end: `Bounds((0, 4, 9), (0, 2, 5))` has rows 0 to 3 and documents 0 and 1 in one.

    An engine has a row for each document, or for each passage where these are searched.
    """

    rows: tuple[int, ...]
    documents: tuple[int, ...]

    @classmethod
    def of(cls, documents: int, into: int, owners: np.ndarray | None = None) -> Bounds:
        """Shards with equally many documents each; passage i is of document owners[i]."""
        if into > documents:
            raise UsageError(f"{documents:,} documents cannot be put into {into:,} shards", "use fewer shards")
        firsts = tuple(documents * number // into for number in range(into + 1))
        rows = firsts if owners is None else tuple(int(row) for row in owners.searchsorted(firsts))
        return cls(rows, firsts)

    @classmethod
    def read(cls, state: Mapping[str, Any], rows: int, documents: int) -> Bounds:
        """Those of an artifact with so many rows and documents; a ValueError if they are not."""
        own = cls(_rising(state, "rows", rows), _rising(state, "documents", documents))
        require(len(own.rows) == len(own.documents), "its rows and documents are in different numbers of shards")
        return own

    def __len__(self) -> int:
        return len(self.rows) - 1

    def to_dict(self) -> dict[str, Any]:
        """The same for JSON."""
        return {name: list(bounds) for name, bounds in asdict(self).items()}

    def row_slices(self) -> list[slice]:
        """The rows of each shard."""
        return [slice(*pair) for pair in zip(self.rows, self.rows[1:], strict=False)]

    def document_slices(self) -> list[slice]:
        """The documents of each shard."""
        return [slice(*pair) for pair in zip(self.documents, self.documents[1:], strict=False)]


def _rising(state: Mapping[str, Any], name: str, end: int) -> tuple[int, ...]:
    bounds = require_list(state, name)
    whole = len(bounds) > 1 and all(type(bound) is int for bound in bounds)
    require(whole and bounds == sorted(bounds) and bounds[0] == 0, f"the {name} of its shards do not rise from 0")
    require(bounds[-1] == end, f"the {name} of its shards end at {bounds[-1]}, not at {end}")
    return tuple(bounds)


def shard_name(number: int) -> str:
    """What the files of a shard begin with in an artifact."""
    return f"shard{number}"


def in_shards() -> UsageError:
    """What is said to whoever wants to change or save a retriever that is in shards."""
    hint = "change the one that it was made from, and put that into shards again: triever shard"
    return UsageError("a retriever in shards can be searched, but not changed or saved", hint)
