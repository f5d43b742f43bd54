"""One vector for each token of each document, searched by late interaction.

Every token of the query takes the document's token that fits it best; `maxsim` is the sum of these inner
products, `avgmax` their mean. Masked tokens of a query do not count. Knows nothing about models or text:
documents are rows of consecutive tokens.

A search first collects candidates: each query token looks into the lists of its nearest centroids, the tokens found
there are compared with all query tokens, and the documents that come out best are scored by all their tokens.
An index is a value; adding and deleting give new values, and rows are always numbered as if the index had been
built from what is left. What was added since lies in an annex, what was deleted is a mask; centroids and codec
stay as they were learned.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from torch import Tensor

from triever import config
from triever.artifact import RESAVE
from triever.config import option
from triever.errors import ArtifactError, UsageError
from triever.index.codec import MOST_CENTROIDS, Codec
from triever.index.finders import require
from triever.index.top import CHUNK, Found, Running, best, filled, resident, shared
from triever.index.vectors import at_least, checked, mask_of
from triever.models.precision import device_of

if TYPE_CHECKING:
    from triever.artifact import Snapshot, Writer

ANNEX = 1024
"""So many added documents, or a sixteenth of the main part, are kept beside it before they are merged in."""
QUERY_TOKENS = 2048
"""So many query tokens are compared with all documents at once."""

LEARNED = {"bits": int, "unit": bool, "cosine": float}
LEARNED_ARRAYS = ("centroids", "cutoffs", "weights")
"""What a saved index keeps of its codec."""


@dataclass(frozen=True)
class TokenOptions:
    """How token vectors are kept and searched: `TokenOptions(bits=4, probes=8)`."""

    score: Literal["maxsim", "avgmax"] = option("maxsim", "over query tokens: maxsim (sum) or avgmax (mean)")
    bits: int = option(16, "bits of each number: 16 as it is, 4 or 2 compressed")
    centroids: int = option(0, "clusters of tokens; 0 takes about four times the root of their number")
    probes: int = option(16, "clusters that each query token looks into; more find more, in more time")
    candidates: int | None = option(None, "documents scored exactly; none set: 4 k, at least 256; 0: all of them")
    device: str = option("cpu", "where scores are computed: cpu, cuda, or auto: cuda where there is one")
    seed: int = option(0, "of the clusters")

    def __post_init__(self) -> None:
        config.validate(self)
        if self.bits not in (16, 4, 2):
            raise UsageError(f"bits = {self.bits} is not a choice", "use 16, 4 or 2")
        at_least("probes", self.probes, 1)
        at_least("candidates", self.candidates or 0, 0)
        if not 0 <= self.centroids <= MOST_CENTROIDS:
            raise UsageError(f"centroids = {self.centroids} should be 0 to {MOST_CENTROIDS}", "0 chooses by itself")


@dataclass(frozen=True, eq=False)
class Part:
    """Tokens of documents end to end, and for each centroid the tokens that are nearest to it."""

    starts: np.ndarray  # (documents + 1,) int64, document i has the tokens starts[i]:starts[i + 1]
    numbers: np.ndarray  # (tokens,) uint16, the centroid of each
    packed: np.ndarray  # (tokens, bytes) uint8, or (tokens, d) float16: the rest of each
    list_starts: np.ndarray  # (centroids + 1,) int64, where each list begins
    listed: np.ndarray  # (tokens,) int32, or int64 where they are too many: places of tokens, rising within a list

    @classmethod
    def of(cls, starts: np.ndarray, numbers: np.ndarray, packed: np.ndarray, centroids: int) -> Part:
        """With the lists, which follow from the rest."""
        listed = np.argsort(numbers, kind="stable")  # of two-byte numbers in linear time
        if len(numbers) <= np.iinfo(np.int32).max:
            listed = listed.astype(np.int32)
        return cls(starts, numbers, packed, starts_of(np.bincount(numbers, minlength=centroids)), listed)

    def __len__(self) -> int:
        return len(self.starts) - 1

    @property
    def bytes(self) -> int:
        """Of all arrays together."""
        return sum(getattr(self, field.name).nbytes for field in fields(self))

    def kept(self, keep: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Starts, numbers and packed of some of the documents (documents,) bool."""
        lengths = np.diff(self.starts)
        tokens = np.repeat(keep, lengths)
        return starts_of(lengths[keep]), self.numbers[tokens], self.packed[tokens]


def starts_of(lengths: np.ndarray) -> np.ndarray:
    """Where each document begins, and behind the last one the number of tokens.

    >>> starts_of(np.array([2, 0, 3])).tolist()
    [0, 2, 2, 5]
    """
    return np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)


def spread(starts: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
    """The places from each start on, end to end, and which start each belongs to.

    >>> [part.tolist() for part in spread(torch.tensor([7, 3]), torch.tensor([1, 2]))]
    [[7, 3, 4], [0, 1, 1]]
    """
    owner = torch.repeat_interleave(torch.arange(len(starts), device=starts.device), lengths)
    before = lengths.cumsum(0) - lengths
    return torch.arange(len(owner), device=starts.device) + (starts - before)[owner], owner


def blocks(lengths: Tensor, most: int) -> Iterator[slice]:
    """Slices of consecutive documents with at most so many tokens together, or of one that has more."""
    ends = lengths.cumsum(0).cpu().numpy()
    first, before = 0, 0
    while first < len(ends):
        last = max(first + 1, int(np.searchsorted(ends, before + most, side="right")))
        yield slice(first, last)
        first, before = last, int(ends[last - 1])


@dataclass(frozen=True, eq=False)
class Shelf:
    """A part where it is searched."""

    part: Part
    codec: Codec

    def __len__(self) -> int:
        return len(self.part)

    @cached_property
    def _packed(self) -> Tensor:
        return resident(self.part.packed, self.codec.device)

    @cached_property
    def _numbers(self) -> Tensor:
        return resident(self.part.numbers.view(np.int16), self.codec.device)

    @cached_property
    def _starts(self) -> Tensor:
        return shared(self.part.starts).to(self.codec.device)

    @cached_property
    def _lists(self) -> tuple[Tensor, Tensor]:
        device = self.codec.device
        return shared(self.part.list_starts).to(device), resident(self.part.listed, device)

    def vectors(self, places: Tensor) -> Tensor:
        """The vectors of tokens (n, d) float32."""
        at = places.to(self._packed.device)
        numbers = self._numbers.index_select(0, places.to(self._numbers.device))
        return self.codec.decode(numbers, self._packed.index_select(0, at))

    def tokens(self, document: int) -> Tensor:
        """The vectors of one document (tokens, d)."""
        return self.vectors(torch.arange(int(self.part.starts[document]), int(self.part.starts[document + 1])))

    def maxima(self, documents: Tensor, width: int, score: Callable[[Tensor], Tensor]) -> Tensor:
        """For each document (m,) the greatest scores of its tokens (m, width), -inf where it has none.

        `score` gives those of tokens by their places: (n,) to (n, width).
        """
        found = torch.full((len(documents), width), -torch.inf, device=self.codec.device)
        starts = self._starts[documents]
        lengths = self._starts[documents + 1] - starts
        for block in blocks(lengths, CHUNK // max(width, self.codec.width)):
            places, owner = spread(starts[block], lengths[block])
            found[block].scatter_reduce_(0, owner[:, None].expand(-1, width), score(places), "amax")
        return found

    def listed(self, near: Tensor, query: Tensor, floor: Tensor, alive: Tensor | None) -> tuple[Tensor, Tensor]:
        """The documents (m,) with tokens in the lists of some centroids (c,), rising, and a rough score of each (m,).

        It is that of these tokens alone for the query (length, d); for no query token less than `floor` (length,).
        """
        places = self._in_lists(near)
        owner = torch.bucketize(places, self._starts, right=True) - 1
        if alive is not None:
            living = alive[owner]
            places, owner = places[living], owner[living]
        documents, owner = owner.unique_consecutive(return_inverse=True)
        table = floor.repeat(len(documents), 1)
        step = max(1, CHUNK // max(len(query), self.codec.width))
        for some, row in zip(places.split(step), owner.split(step), strict=True):
            table.scatter_reduce_(0, row[:, None].expand(-1, len(query)), self.vectors(some) @ query.T, "amax")
        return documents, table.sum(1)

    def _in_lists(self, near: Tensor) -> Tensor:
        """The places of all tokens in the lists of some centroids (c,), rising: those of a document side by side."""
        list_starts, listed = self._lists
        begin = list_starts[near]
        at, _ = spread(begin, list_starts[near + 1] - begin)
        return listed.index_select(0, at.to(listed.device)).to(self.codec.device).sort().values.long()


@dataclass(frozen=True, eq=False)
class TokenIndex:
    """Token vectors by document: `TokenIndex.of(flat, starts, TokenOptions()).search(queries, mask, k=10)`."""

    options: TokenOptions
    codec: Codec
    main: Shelf
    annex: Shelf  # what was added since
    alive: np.ndarray | None  # (main + annex,) bool, or None while nothing is deleted

    @classmethod
    def of(
        cls, flat: np.ndarray, starts: np.ndarray, options: TokenOptions | None = None, codec: Codec | None = None
    ) -> TokenIndex:
        """Build an index of tokens (tokens, d), of which document i has those from starts[i] to starts[i + 1].

        Centroids and codec are learned from the tokens, unless those of another index are given.
        """
        options = options or TokenOptions()
        flat, starts = _checked_tokens(flat, starts)
        if codec is not None:
            _same_width(flat, codec)
        else:
            device = device_of(options.device)
            # Where every document is scored by its own vectors, nobody looks into a list: one is enough.
            unlisted = options.candidates == 0 and options.bits == 16
            codec = Codec.learn(flat, options.bits, options.centroids or int(unlisted), options.seed, device)
        part = Part.of(starts, *codec.encode(flat), len(codec.centroids))
        return cls._whole(part, options, codec)

    @classmethod
    def _whole(cls, part: Part, options: TokenOptions, codec: Codec) -> TokenIndex:
        nothing = Part.of(np.zeros(1, np.int64), part.numbers[:0], part.packed[:0], len(codec.centroids))
        return cls(options, codec, Shelf(part, codec), Shelf(nothing, codec), None)

    def __len__(self) -> int:
        return self._stored if self.alive is None else int(self.alive.sum())

    @property
    def _stored(self) -> int:
        return len(self.main) + len(self.annex)

    @property
    def _living(self) -> np.ndarray:
        """(stored,) bool."""
        return np.ones(self._stored, bool) if self.alive is None else self.alive

    @property
    def width(self) -> int:
        """How many numbers a vector has."""
        return self.codec.width

    @property
    def bytes(self) -> int:
        """Of what a search reads: tokens, lists, centroids, masks."""
        mask = 0 if self.alive is None else self.alive.nbytes
        annex = self.annex.part.bytes if len(self.annex) else 0
        return self.main.part.bytes + annex + self.codec.bytes + mask

    @cached_property
    def lengths(self) -> np.ndarray:
        """How many tokens each document has (documents,)."""
        both = np.concatenate([np.diff(self.main.part.starts), np.diff(self.annex.part.starts)])
        return both[self._living]

    @cached_property
    def _with_tokens(self) -> int:
        return int((self.lengths > 0).sum())

    def info(self) -> dict[str, Any]:
        """What it is like: documents, tokens, centroids, bytes, and how true the vectors stayed."""
        tokens = int(self.lengths.sum())
        return {
            "documents": len(self),
            "tokens": tokens,
            "centroids": len(self.codec.centroids),
            "bits": self.codec.bits,
            "bytes": self.bytes,
            "bytes per token": round(self.bytes / tokens, 1) if tokens else 0.0,
            "cosine": round(self.codec.cosine, 4),
        }

    @cached_property
    def _place_of(self) -> np.ndarray:
        """(documents,) where each row is stored."""
        return np.flatnonzero(self._living)

    @cached_property
    def _shelves(self) -> list[tuple[int, Shelf, Tensor | None]]:
        """Both parts that have documents: the place of their first, and which are alive, None for all."""
        listed = []
        for first, shelf in ((0, self.main), (len(self.main), self.annex)):
            alive = None if self.alive is None else self.alive[first : first + len(shelf)]
            mask = None if alive is None or alive.all() else torch.from_numpy(np.array(alive)).to(self.codec.device)
            if len(shelf):
                listed.append((first, shelf, mask))
        return listed

    # Searching

    def search(self, queries: np.ndarray | Tensor, mask: np.ndarray | Tensor | None, k: int) -> Found:
        """The scores (q, k) and rows (q, k) of the best for each query (q, length, d), best first.

        `mask` (q, length) says which tokens count. Where fewer than k documents have tokens, the rest are -inf
        and -1. Of equal scores the smaller row comes first.
        """
        asked, counts = self._checked_queries(queries, mask)
        at_least("k", k, 1)
        limit = len(self) if self.options.candidates == 0 else max(k, self.options.candidates or max(4 * k, 256))
        if limit >= len(self):  # to choose candidates would not make it less
            scores, places = self._search_all(asked, counts, k)
        else:
            found = [self._search_one(query[count], k, limit) for query, count in zip(asked, counts, strict=True)]
            scores, places = (np.stack(part) for part in zip(*found, strict=True)) if found else _nothing(0, k)
        return scores, places if self.alive is None else np.searchsorted(self._place_of, places) - (places < 0)

    def _checked_queries(self, queries: np.ndarray | Tensor, mask: np.ndarray | Tensor | None) -> tuple[Tensor, Tensor]:
        """Queries (q, length, d) and mask (q, length), on the device."""
        asked = _tensor(queries).to(self.codec.device, torch.float32)
        if asked.ndim != 3 or asked.shape[2] != self.width:
            problem = f"queries of shape {tuple(asked.shape)} for token vectors of {self.width} numbers"
            raise UsageError(problem, "give (queries, tokens, numbers), from the model of the documents")
        counts = torch.ones(asked.shape[:2], dtype=torch.bool) if mask is None else _tensor(mask).bool()
        if counts.shape != asked.shape[:2]:
            raise UsageError(f"a mask of shape {tuple(counts.shape)}", f"give one of {tuple(asked.shape[:2])}")
        counts = counts.to(self.codec.device)
        if not asked[counts].isfinite().all():
            raise UsageError("some query vectors are not finite", "check the model that made them")
        return asked.masked_fill(~counts[..., None], 0.0), counts

    def _total(self, maxima: Tensor, counts: Tensor) -> Tensor:
        """Scores (..., ) of the best fit for each query token (..., length), of which some count (..., length)."""
        total = torch.where(counts, maxima, 0.0).sum(-1)
        number = counts.sum(-1)
        if self.options.score == "avgmax":
            total = total / number.clamp(min=1)
        return total.masked_fill(number == 0, -torch.inf)

    def _search_all(self, queries: Tensor, counts: Tensor, k: int) -> Found:
        """Score every document."""
        step = max(1, QUERY_TOKENS // max(1, queries.shape[1]))
        parts = [self._search_block(*block, k) for block in zip(queries.split(step), counts.split(step), strict=True)]
        scores, places = zip(*(parts or [_nothing(0, k)]), strict=True)
        return np.concatenate(scores), np.concatenate(places)

    def _search_block(self, queries: Tensor, counts: Tensor, k: int) -> Found:
        asked = queries.flatten(0, 1)  # (q * length, d)
        running = Running(len(queries), k, self.codec.device)
        step = max(1, CHUNK // max(1, len(asked)))
        for first, shelf, alive in self._shelves:
            for begin in range(0, len(shelf), step):
                documents = torch.arange(begin, min(begin + step, len(shelf)), device=self.codec.device)
                maxima = self._exact(shelf, documents, asked)
                scores = self._total(maxima.view(len(documents), *counts.shape), counts).T  # (q, documents)
                if alive is not None:
                    scores = scores.masked_fill(~alive[documents], -torch.inf)
                running.add(scores, first + begin)
        return running.found()

    def _exact(self, shelf: Shelf, documents: Tensor, query: Tensor) -> Tensor:
        """For each document the best fit for each query token: (documents, query tokens)."""
        return shelf.maxima(documents, len(query), lambda places: shelf.vectors(places) @ query.T)

    def _search_one(self, query: Tensor, k: int, limit: int) -> Found:
        """Score the candidates for one query (length, d), all of whose tokens count: (k,) and (k,)."""
        askable = len(query) and len(self.codec.centroids)
        places = self._candidates(query, k, limit) if askable else torch.empty(0, dtype=torch.long)
        if not len(places):
            return _nothing(1, k)[0][0], _nothing(1, k)[1][0]
        scores, order = best(self._score_places(query, places)[None], k)
        wide_scores, wide_places = filled(scores.cpu().numpy(), places[order[0]][None].cpu().numpy(), k)
        return wide_scores[0], wide_places[0]

    def _candidates(self, query: Tensor, k: int, limit: int) -> Tensor:
        """The places of at most `limit` documents, rising; at least k, if as many have tokens."""
        fits = query @ self.codec.centers.T  # (length, centroids)
        wanted, probes = min(k, self._with_tokens), self.options.probes
        places, rough = self._listed(query, fits, probes)
        while len(places) < wanted and probes < fits.shape[1]:
            probes *= 4  # the lists were short, or their documents are gone
            places, rough = self._listed(query, fits, probes)
        return _greatest(places, rough, limit)

    def _listed(self, query: Tensor, fits: Tensor, probes: int) -> tuple[Tensor, Tensor]:
        """The places (m,) of all that the nearest centroids list, rising, with a rough score of each (m,).

        Tokens are compared by their vectors: centroids alone are too blunt to tell one name from another. They are
        compared with the whole query, not only with the token that found them: their vectors are at hand. Where a
        document has nothing better, it is taken to fit a query token as the last centroid looked into does.
        """
        scores, near = best(fits, probes)
        near, floor = near.unique(), scores[:, -1]
        found = [(first, *shelf.listed(near, query, floor, alive)) for first, shelf, alive in self._shelves]
        return torch.cat([first + one for first, one, _ in found]), torch.cat([rough for *_, rough in found])

    def _summed(self, maxima: Tensor) -> Tensor:
        return self._total(maxima, torch.ones_like(maxima, dtype=torch.bool))

    def _score_places(self, query: Tensor, places: Tensor) -> Tensor:
        """The exact scores (m,) of documents by their places, rising or not."""
        return self._of_places(places, lambda shelf, documents: self._summed(self._exact(shelf, documents, query)))

    def _of_places(self, places: Tensor, score: Callable[[Shelf, Tensor], Tensor]) -> Tensor:
        """The scores (m,) of documents by their places, part by part."""
        scores = torch.full((len(places),), -torch.inf, device=self.codec.device)
        for first, shelf, _ in self._shelves:
            inside = (places >= first) & (places < first + len(shelf))
            scores[inside] = score(shelf, places[inside] - first)
        return scores

    def score(self, query: np.ndarray | Tensor, rows: np.ndarray) -> np.ndarray:
        """The exact scores (m,) of some rows (m,) for a query (length, d); -inf for documents without tokens."""
        asked, counts = self._checked_queries(_tensor(query)[None], None)
        places = torch.from_numpy(self._place_of[self._checked_rows(rows)]).to(self.codec.device)
        return self._score_places(asked[0][counts[0]], places).cpu().numpy()

    def matches(self, query: np.ndarray | Tensor, row: int) -> tuple[np.ndarray, np.ndarray]:
        """For each query token (length, d) the document's token that fits best (length,), and how well (length,).

        -1 and -inf if the document has none.
        """
        asked, _ = self._checked_queries(_tensor(query)[None], None)
        place = int(self._place_of[self._checked_rows(np.array([row]))[0]])
        shelf = self.main if place < len(self.main) else self.annex
        vectors = shelf.tokens(place if shelf is self.main else place - len(self.main))
        if not len(vectors):
            return np.full(asked.shape[1], -1), np.full(asked.shape[1], -np.inf, np.float32)
        fit, token = best(asked[0] @ vectors.T, 1)
        return token[:, 0].cpu().numpy(), fit[:, 0].cpu().numpy()

    def _checked_rows(self, rows: np.ndarray) -> np.ndarray:
        rows = np.asarray(rows, np.int64)
        if len(rows) and not (rows.min() >= 0 and rows.max() < len(self)):
            raise UsageError("a row that is not there", f"rows go from 0 to {len(self) - 1}")
        return rows

    # Changing

    def with_added(self, flat: np.ndarray, starts: np.ndarray) -> TokenIndex:
        """These and more documents, whose rows come behind. Centroids and codec stay as they are.

        Where the corpus has become another one, build a new index: its centroids will fit better.
        """
        flat, starts = _checked_tokens(flat, starts)
        _same_width(flat, self.codec)
        if len(starts) == 1:
            return self
        if not len(self.codec.centroids):  # nothing could be learned so far: no document had a token
            empty = np.zeros(len(self), np.int64)
            return TokenIndex.of(flat, np.concatenate([empty, starts]), self.options)
        new = Part.of(starts, *self.codec.encode(flat), len(self.codec.centroids))
        alive = None if self.alive is None else np.concatenate([self.alive, np.ones(len(new), bool)])
        annex = Shelf(self._joined([self.annex.part, new], None), self.codec)
        larger = replace(self, annex=annex, alive=alive)
        return larger._merged() if len(annex) > max(ANNEX, len(self.main) // 16) else larger

    def without(self, keep: np.ndarray) -> TokenIndex:
        """Only the rows that are kept (n,) bool. What was deleted is taken out once less than half is left."""
        keep = mask_of(keep, len(self))
        if keep.all():
            return self
        alive = self._living.copy()
        alive[alive] = keep
        smaller = replace(self, alive=alive)
        return smaller if 2 * len(smaller) > self._stored else smaller._merged()

    def rebuilt(self, options: TokenOptions) -> TokenIndex:
        """The same documents in another kind of index; what compression has lost is not found again."""
        part = self._merged().main.part
        if self.codec.bits == 16:
            return TokenIndex.of(part.packed, part.starts, options)
        flat = self.codec.decode(torch.from_numpy(np.array(part.numbers)), torch.from_numpy(np.array(part.packed)))
        return TokenIndex.of(flat.cpu().numpy(), part.starts, options)

    def _merged(self) -> TokenIndex:
        """The same as one part without what was deleted."""
        if self.alive is None and not len(self.annex):
            return self
        part = self._joined([self.main.part, self.annex.part], self.alive)
        return TokenIndex._whole(part, self.options, self.codec)

    def _joined(self, parts: list[Part], alive: np.ndarray | None) -> Part:
        """The living documents of several parts as one."""
        living = np.ones(sum(map(len, parts)), bool) if alive is None else alive
        kept = [part.kept(keep) for part, keep in zip(parts, np.split(living, [len(parts[0])]), strict=True)]
        starts, numbers, packed = zip(*kept, strict=True)
        lengths = np.concatenate([np.diff(one) for one in starts])
        return Part.of(starts_of(lengths), np.concatenate(numbers), np.concatenate(packed), len(self.codec.centroids))

    # Keeping

    def write(self, writer: Writer, name: str = "tokens") -> None:
        """Put it into an artifact, as one part without what was deleted, in files whose names begin with `name`."""
        part, codec = self._merged().main.part, self.codec
        for field in fields(Part):
            writer.array(f"{name}_{field.name}", getattr(part, field.name))
        for role in LEARNED_ARRAYS:
            writer.array(f"{name}_{role}", getattr(codec, role))
        learned = {key: getattr(codec, key) for key in LEARNED}
        counts = {"documents": len(part), "tokens": len(part.numbers)}
        state = {"options": config.to_dict(self.options), **counts, **learned}
        writer.json(f"{name}_state", state)

    @classmethod
    def read(cls, snapshot: Snapshot, name: str = "tokens", device: str | None = None) -> TokenIndex:
        """Take it out of an artifact, memory-mapped, to `device` or where it was; to cpu if that is not here."""
        state = snapshot.json(f"{name}_state")
        learned: dict[str, Any] = {role: snapshot.array(f"{name}_{role}") for role in LEARNED_ARRAYS}
        try:
            options = config.build(TokenOptions, state["options"] | ({"device": device} if device else {}))
            where = device_of(options.device, opening=True)
            if options.device != "auto":
                options = replace(options, device=str(where))  # as it is built anew after changes
            known: dict[str, Any] = {key: kind(state[key]) for key, kind in LEARNED.items()}
            codec = Codec(**known, **learned, device=where)
            _check_codec(codec)
            part = _read_part(snapshot, name, len(codec.centroids))
            _check_part(part, codec, int(state["documents"]), int(state["tokens"]))
        except (KeyError, TypeError, ValueError) as error:
            raise ArtifactError(f"{snapshot.path}: the index {name!r} {error}", RESAVE) from error
        return cls._whole(part, options, codec)


def _tensor(values: np.ndarray | Tensor) -> Tensor:
    """A tensor; of an array a copy, because torch wants arrays that can be written to."""
    return values if isinstance(values, Tensor) else torch.from_numpy(np.array(values))


def _greatest(places: Tensor, scores: Tensor, limit: int) -> Tensor:
    """The places (up to limit,) with the greatest scores, rising; both are (m,), the places rising."""
    return places if len(places) <= limit else places[best(scores[None], limit)[1][0].sort().values]


def _nothing(queries: int, k: int) -> Found:
    return np.full((queries, k), -np.inf, np.float32), np.full((queries, k), -1)


def _checked_tokens(flat: np.ndarray, starts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Vectors as float16, all finite, and starts that divide them among documents."""
    flat, starts = checked(flat, "float16"), np.asarray(starts, np.int64)
    if starts.ndim != 1 or not len(starts) or starts[0] or starts[-1] != len(flat) or (np.diff(starts) < 0).any():
        raise UsageError("starts do not divide the tokens", f"let them rise from 0 to {len(flat)}")
    return flat, starts


def _same_width(flat: np.ndarray, codec: Codec) -> None:
    if flat.shape[1] != codec.width:
        raise UsageError(f"new vectors of {flat.shape[1]} numbers, old ones of {codec.width}", "use one model")


def _read_part(snapshot: Snapshot, name: str, centroids: int) -> Part:
    """A part out of an artifact, memory-mapped; the first indexes listed documents, and get lists of tokens."""
    if snapshot.has(f"{name}_members"):
        starts, numbers, packed = (snapshot.array(f"{name}_{role}") for role in ("starts", "numbers", "packed"))
        return Part.of(starts, numbers, packed, centroids)
    return Part(**{field.name: snapshot.array(f"{name}_{field.name}") for field in fields(Part)})


def _check_codec(codec: Codec) -> None:
    """An error unless the arrays of the codec fit each other."""
    buckets = {16: 0, 4: 16, 2: 4}.get(codec.bits)
    require(buckets is not None, "has an impossible number of bits")
    require(codec.centroids.ndim == 2 and len(codec.centroids) <= MOST_CENTROIDS, "has other centroids")
    require(codec.cutoffs.shape == (codec.width, max(0, (buckets or 0) - 1)), "has other cutoffs")
    require(codec.weights.shape == (codec.width, buckets), "has other weights")
    for array in (codec.centroids, codec.cutoffs, codec.weights):
        require(array.dtype == np.float32, "has a codec of another type")


def _check_part(part: Part, codec: Codec, documents: int, tokens: int) -> None:
    """An error unless every number in the arrays points inside the others."""
    dtype = np.float16 if codec.bits == 16 else np.uint8
    require(part.starts.shape == (documents + 1,) and part.numbers.shape == (tokens,), "has other documents")
    require(part.packed.shape == (tokens, codec.packed_width) and part.packed.dtype == dtype, "has other vectors")
    kinds = part.numbers.dtype == np.uint16 and part.listed.dtype in (np.int32, np.int64)
    require(kinds, "has numbers of another type")
    require(not tokens or part.numbers.max() < len(codec.centroids), "has a token without a centroid")
    require(part.list_starts.shape == (len(codec.centroids) + 1,), "has other lists")
    require(part.listed.shape == (tokens,), "has other lists")
    for rising, end in ((part.starts, tokens), (part.list_starts, tokens)):
        require(rising.dtype == np.int64 and rising[0] == 0 and rising[-1] == end, "has other borders")
        require((np.diff(rising) >= 0).all(), "has other borders")
    require(not tokens or 0 <= part.listed.min() <= part.listed.max() < tokens, "lists a token that is not there")
