"""What a retriever searches: documents, where it is wanted their passages, and what its system has made of them.

A value that is replaced and never changed, so that a search sees one state, whole.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import numpy as np

from triever.data.cut_documents import CutDocuments
from triever.data.filters import Filter
from triever.data.records import Document, Found, Hit, Result, ranked
from triever.data.store import DocumentStore
from triever.engines.base import Engine, Parts, among, docid_tree_of
from triever.engines.panels import Panel, panels_of
from triever.memory_parts import Product, Products, Stored, inside, scaled
from triever.shards import Shards, in_shards
from triever.training import fit_fingerprints

if TYPE_CHECKING:
    from triever.engines.docid_tree import DocidTree

FILTERS = 4
"""How many filters are kept with what they leave."""
AT_ONCE = 4
"""For one document at most so many passages are searched at first, and so many times more where that is not enough."""
AT_LEAST = 100
"""So many passages are searched for few documents too: the probabilities of all that are found add up."""

NO_DOCUMENTS = "there is no document to search: all are deleted, or the filter leaves none"
"""The note of a search among no documents."""

PASSAGES = "passages"
"""What the parts of the memory that passages take are called, and their number on a card."""

E = TypeVar("E", bound=Engine)
T = TypeVar("T")
Tuned = Callable[[E, Sequence[Document], DocumentStore], E]
"""Trains an engine on documents that it has just placed, where that is wanted."""


@dataclass(frozen=True)
class Held(Generic[E]):
    """Documents, and the engine that finds them or their passages."""

    store: DocumentStore
    engine: E
    origin: Mapping[str, Any]
    made: str  # a fingerprint of all that the engine was learned from, or of the files that it was read from
    cut: CutDocuments | None = None  # where the engine finds passages
    shards: Shards | None = None  # where the engine asks shards, which never change
    filtered: dict[str, Held[E]] = field(default_factory=dict, init=False, compare=False, repr=False)
    """What the latest filters leave, by filter; a change begins with none."""
    empty: str = NO_DOCUMENTS  # the note of a search where there is no document

    @property
    def searched(self) -> DocumentStore:
        """What the engine finds: the documents, or their passages."""
        return self.cut.passages if self.cut else self.store

    @property
    def fingerprint(self) -> str:
        """A fingerprint of all of it."""
        return fit_fingerprints.fingerprint(
            [self.made, self.searched.fingerprint, fit_fingerprints.of_expansions(self.searched)]
        )

    def among(self, where: Mapping[str, object] | None) -> Held[E]:
        """The same with the documents that a filter leaves; the latest filters are kept, since many repeat them."""
        if not where:
            return self
        chosen = Filter.of(where)
        if (known := self.filtered.get(chosen.mark)) is not None:
            return known
        keep = chosen.rows(self.store)
        smaller = self._kept(keep, among(self.engine, self._rows(keep)))
        if not keep.any():
            smaller = replace(smaller, empty="; ".join([NO_DOCUMENTS, *chosen.slips(self.store)]))
        while len(self.filtered) >= FILTERS:
            self.filtered.pop(next(iter(self.filtered)), None)
        self.filtered[chosen.mark] = smaller
        return smaller

    def without(self, keep: np.ndarray) -> Held[E]:
        """With only the documents whose rows are kept (shape: documents, bool)."""
        if self.shards:
            raise in_shards()
        return self._kept(keep, self.engine.without(self._rows(keep)))

    def _rows(self, keep: np.ndarray) -> np.ndarray:
        """Which rows of the engine belong to documents that are kept (shape: documents, bool)."""
        return keep[self.cut.owners] if self.cut else keep

    def _kept(self, keep: np.ndarray, engine: E) -> Held[E]:
        return replace(self, store=self.store.where(keep), engine=engine, cut=self.cut and self.cut.where(keep))

    def with_added(self, documents: Sequence[Document], tuned: Tuned[E]) -> Held[E]:
        """With more documents behind its own."""
        if self.shards:
            raise in_shards()
        store = self.store.with_added(documents)
        cut, new = self.cut.with_added(documents) if self.cut else (None, documents)
        searched = cut.passages if cut else store
        engine = tuned(self.engine.with_added(new, searched), new, searched)
        return replace(self, store=store, engine=engine, cut=cut)

    def search(self, texts: Sequence[str], k: int) -> list[Result]:
        """The hits of every query."""
        if not texts or not len(self.store):
            return [Result(note=self.empty) for _ in texts]
        wanted = min(k, len(self.store))
        if self.cut is None:
            return [*map(self._known, self.engine.search(self.store, texts, wanted), texts)]
        return [*map(self._known, (found.result for found in self._by_passages(texts, wanted)), texts)]

    def explain(self, text: str, k: int) -> tuple[Result, tuple[Parts, ...], tuple[Panel, ...]]:
        """The hits of a query, what the score of each is made of, and what there is to see of the search."""
        wanted = min(k, len(self.store))
        if self.cut is None or not len(self.store):
            result = self.search([text], k)[0]
            parts = self.engine.explain(self.store, text, result)
            return result, parts, panels_of(self.engine, self.store, text, result, wanted)
        found = self._by_passages([text], wanted)[0]
        passages = replace(found.result, hits=found.passages)
        parts = self.engine.explain(self.searched, text, passages)
        owners = {passage.id: hit.id for passage, hit in zip(found.passages, found.result, strict=True)}
        panels = panels_of(self.engine, self.searched, text, passages, found.depth)
        rest = [hit.score - best.score for hit, best in zip(found.result, found.passages, strict=True)]
        told = tuple((*own, ("other passages", more)) if more else own for own, more in zip(parts, rest, strict=True))
        return self._known(found.result, text), told, tuple(panel.renamed(owners) for panel in panels)

    @property
    def docid_tree(self) -> DocidTree | None:
        """The docids of its documents, or of their passages, if there are some."""
        tree = docid_tree_of(self.engine)
        return tree.owned_by(self.cut.owners) if tree and self.cut else tree

    def rows(self, texts: Sequence[str], k: int) -> list[Result]:
        """The hits of every query as the engine gives them: documents, or passages."""
        if not texts or not len(self.store):
            return [Result(note=self.empty) for _ in texts]
        return self.engine.search(self.searched, texts, min(k, len(self.searched)))

    def document_hit(self, hit: Hit, text: str) -> Hit:
        """A hit of the engine as one that a person can read: of a passage, the hit of its document."""
        row = self.searched.row(hit.id)
        own = hit if self.cut is None else self._as_document(int(self.cut.owners[row]), [hit])
        own.came_from(Found(self.store, text))
        return own

    def _known(self, result: Result, text: str) -> Result:
        """A result whose hits know the documents that they come from, and the query."""
        found = Found(self.store, text)
        for hit in result:
            hit.came_from(found)
        return result

    def _by_passages(self, texts: Sequence[str], k: int) -> list[_Joined]:
        """The best documents by their passages: more passages are searched for queries that have too few documents."""
        assert self.cut is not None
        joined: dict[int, _Joined] = {}
        left, most = [*range(len(texts))], self.cut.most
        depth = max(AT_LEAST, k * min(AT_ONCE, most)) if most > 1 else k
        while left:
            depth = min(depth, len(self.searched))
            results = self.engine.search(self.searched, [texts[query] for query in left], depth)
            joined |= {query: self._joined(result, k, depth) for query, result in zip(left, results, strict=True)}
            more = {query for query, result in zip(left, results, strict=True) if len(result) == depth}
            left = [query for query in left if query in more and len(joined[query].result) < k]
            left, depth = left if depth < len(self.searched) else [], depth * AT_ONCE
        return [joined[query] for query in range(len(texts))]

    def _joined(self, result: Result, k: int, depth: int) -> _Joined:
        """The k best documents of the passages that were found when so many were asked for."""
        assert self.cut is not None
        passages: dict[int, list[Hit]] = {}
        for hit in result:
            passages.setdefault(int(self.cut.owners[self.searched.row(hit.id)]), []).append(hit)
        best = {self.store.ids[row]: hits[0] for row, hits in passages.items()}
        hits = ranked(self._as_document(row, hits) for row, hits in passages.items())[:k]
        return _Joined(replace(result, hits=hits), tuple(best[hit.id] for hit in hits), depth)

    def _as_document(self, row: int, passages: Sequence[Hit]) -> Hit:
        """The hit of a document of which these passages were found, best first.

        It scores as its best passage; where scores are log-probabilities of docids, the probabilities add up.
        """
        assert self.cut is not None
        best = passages[0]
        start, end = self.cut.spans[self.searched.row(best.id)].tolist()
        logs = [hit.logprob for hit in passages if hit.logprob is not None]
        logprob = min(float(np.logaddexp.reduce(logs)), 0.0) if logs else None  # rounded, it may be above zero
        score = logprob if logprob is not None and best.score == best.logprob else best.score
        return replace(best, id=self.store.ids[row], score=score, logprob=logprob, span=(start, end))

    def stored(self) -> Stored:
        """What takes memory, by the parts that `memory_parts.PARTS` names."""
        parts = {**self.engine.stored(), **self.store.stored()}
        if self.cut is None:
            return parts
        return {
            **parts,
            **inside(PASSAGES, _copied(self.searched.stored())),
            "spans": [self.cut.owners, self.cut.spans],
        }

    def products(self, then: int) -> dict[str, Products]:
        """The same computed from numbers alone, for `then` documents of the same kind."""
        rows = scaled(len(self.searched), len(self.store), then)
        parts = {**self.engine.products(len(self.searched), rows), **self.store.products(then)}
        if self.cut is None:
            return parts
        return {
            **parts,
            **inside(PASSAGES, _copied(self.searched.products(rows))),
            "spans": [Product(rows, "passages", 24, "three numbers of 8")],
        }


def _copied(parts: dict[str, T]) -> dict[str, T]:
    """The parts of a store of passages, whose texts are not mapped from a file."""
    return {"copied texts" if part == "texts" else part: value for part, value in parts.items()}


@dataclass(frozen=True)
class _Joined:
    """The documents that were found for a query, the best passage of each, and how many passages were asked for."""

    result: Result
    passages: tuple[Hit, ...]
    depth: int
