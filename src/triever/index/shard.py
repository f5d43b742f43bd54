"""One shard of an artifact: it opens its parts when it is asked for them, and answers what may be asked.

What is asked comes as values and is answered by values, so that a shard may be in any process.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from triever.artifact import Snapshot
from triever.data.shard_documents import ShardDocuments
from triever.index.postings import Postings
from triever.index.token_vectors import TokenIndex
from triever.index.trie_shards import TrieShard
from triever.index.vectors import VectorIndex
from triever.shards import Bounds, Part

FILTERS = 4
"""How many filters are kept with what they leave."""

Answers = Mapping[str, Callable[..., Any]]
"""By name what may be asked of a part: a function of it and of what is asked."""


@dataclass
class Shard:
    """The shard of this number."""

    snapshot: Snapshot
    bounds: Bounds
    number: int
    parts: dict[Part, Any] = field(default_factory=dict)
    filtered: dict[tuple[Part, bytes], Any] = field(default_factory=dict)

    def ask(self, part: Part, method: str, arguments: Sequence[Any], keep: np.ndarray | None) -> Any:
        """What a part answers; with `keep` (rows,) bool, what only some of its rows answer."""
        _, answers = KINDS[part.kind]
        return answers[method](self._among(part, keep), *arguments)

    def part(self, part: Part) -> Any:
        """A part of it, which is opened the first time."""
        if part not in self.parts:
            self.parts[part] = KINDS[part.kind][0](self, part)
        return self.parts[part]

    def _among(self, part: Part, keep: np.ndarray | None) -> Any:
        """The part with some of its rows; the latest filters are kept, since many questions have the same."""
        if keep is None:
            return self.part(part)
        mark = part, np.packbits(keep).tobytes()
        if (known := self.filtered.get(mark)) is not None:
            return known
        while len(self.filtered) >= FILTERS:
            self.filtered.pop(next(iter(self.filtered)), None)
        smaller = self.filtered[mark] = self.part(part).among(np.array(keep))
        return smaller

    def files(self, part: Part) -> Snapshot:
        """The files of a part."""
        return self.snapshot.of_shard(self.number, part.inside)

    @property
    def rows(self) -> int:
        """How many rows it has."""
        return self.bounds.rows[self.number + 1] - self.bounds.rows[self.number]

    @property
    def documents(self) -> int:
        """How many documents it has."""
        return self.bounds.documents[self.number + 1] - self.bounds.documents[self.number]


def _postings(shard: Shard, part: Part) -> Postings:
    words = len(shard.snapshot.of_shard(shard.number, part.inside).array("scores_indptr")) - 1
    return Postings.read(shard.files(part), shard.rows, words)


KINDS: Mapping[str, tuple[Callable[[Shard, Part], Any], Answers]] = {
    "postings": (
        _postings,
        {
            "about": Postings.about,
            "best": Postings.best,
            "weights_of": lambda postings, words, rows: postings.weights(words, int(rows[0])),
        },
    ),
    "vectors": (
        lambda shard, part: VectorIndex.read(shard.files(part), part.name, part.device),
        {
            "about": VectorIndex.about,
            "search": VectorIndex.search,
            "log_sum_exp": VectorIndex.log_sum_exp,
            "take": VectorIndex.take,
        },
    ),
    "tokens": (
        lambda shard, part: TokenIndex.read(shard.files(part), part.name, part.device),
        {
            "about": TokenIndex.about,
            "search": TokenIndex.search,
            "log_sum_exp": TokenIndex.log_sum_exp,
            "score": TokenIndex.score,
            "matches_of": lambda index, query, rows: index.matches(query, int(rows[0])),
        },
    ),
    "trie_vectors": (
        lambda shard, part: TrieShard.read(shard.files(part), part.device),
        {"about": TrieShard.about, "below": TrieShard.below, "everything": TrieShard.everything},
    ),
    "documents": (
        lambda shard, part: ShardDocuments.read(shard.files(part), shard.documents),
        {"rows": ShardDocuments.rows, "columns": ShardDocuments.columns},
    ),
}
"""What a shard may hold: how it is opened, and what may be asked of it."""


@dataclass
class LocalShards:
    """All shards in this process, asked one after the other."""

    bounds: Bounds
    shards: Sequence[Shard]

    @classmethod
    def of(cls, snapshot: Snapshot, bounds: Bounds) -> LocalShards:
        """The shards of an artifact."""
        return cls(bounds, [Shard(snapshot, bounds, number) for number in range(len(bounds))])

    def ask(
        self, part: Part, method: str, asked: Sequence[tuple[Any, ...] | None], keep: Sequence[np.ndarray | None]
    ) -> list[Any]:
        """For each shard what a method of a part answers."""
        each = zip(self.shards, asked, keep, strict=True)
        return [
            None if arguments is None else shard.ask(part, method, arguments, mask) for shard, arguments, mask in each
        ]

    def held(self, part: Part) -> list[Any]:
        """The parts themselves."""
        return [shard.part(part) for shard in self.shards]

    @property
    def elsewhere(self) -> bool:
        """Shards are here."""
        return False
