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

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from torch import Tensor

from triever import config
from triever.artifact import RESAVE
from triever.changes import Changes
from triever.config import option
from triever.errors import ArtifactError, UsageError
from triever.index.checks import at_least, checked_queries, checked_tokens, mask_of, same_width
from triever.index.codec import BUCKETS, MOST_CENTROIDS, Codec, centroid_count
from triever.index.token_lists import SearchedTokens, TokenLists
from triever.index.top import CHUNK, Running, ScoresAndRows, best, filled, nothing, shared, stacked
from triever.memory_parts import Product, Products, Stored, Thing, width_of
from triever.models.precision import device_of

if TYPE_CHECKING:
    from triever.artifact import Snapshot, Writer

QUERY_TOKENS = 2048
"""So many query tokens are compared with all documents at once."""


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
        if self.bits not in BUCKETS:
            raise UsageError(f"bits = {self.bits} is not a choice", "use 16, 4 or 2")
        at_least("probes", self.probes, 1)
        at_least("candidates", self.candidates or 0, 0)
        if not 0 <= self.centroids <= MOST_CENTROIDS:
            raise UsageError(f"centroids = {self.centroids} should be 0 to {MOST_CENTROIDS}", "0 chooses by itself")


@dataclass(frozen=True, eq=False)
class TokenIndex:
    """Token vectors by document: `TokenIndex.of(flat, starts, TokenOptions()).search(queries, mask, k=10)`."""

    options: TokenOptions
    codec: Codec
    main: SearchedTokens
    annex: SearchedTokens  # what was added since
    changes: Changes

    @classmethod
    def of(
        cls, flat: np.ndarray, starts: np.ndarray, options: TokenOptions | None = None, codec: Codec | None = None
    ) -> TokenIndex:
        """Build an index of tokens (tokens, d), of which document i has those from starts[i] to starts[i + 1].

        Centroids and codec are learned from the tokens, unless those of another index are given.
        """
        options = options or TokenOptions()
        flat, starts = checked_tokens(flat, starts)
        if codec is not None:
            same_width(flat, codec.width)
        else:
            wanted, device = _centroids_wanted(options), device_of(options.device)
            codec = Codec.learn(flat, options.bits, wanted, options.seed, device)
        part = TokenLists.of(starts, *codec.encode(flat), len(codec.centroids))
        return cls._whole(part, options, codec)

    @classmethod
    def _whole(cls, part: TokenLists, options: TokenOptions, codec: Codec) -> TokenIndex:
        return cls(options, codec, SearchedTokens(part, codec), SearchedTokens(part.empty(), codec), Changes(len(part)))

    def __len__(self) -> int:
        return len(self.changes)

    @property
    def width(self) -> int:
        """How many numbers a vector has."""
        return self.codec.width

    @property
    def bytes(self) -> int:
        """Of what a search reads: tokens, lists, centroids, masks."""
        mask = sum(array.nbytes for array in self.changes.arrays())
        annex = self.annex.part.bytes if len(self.annex) else 0
        return self.main.part.bytes + annex + self.codec.bytes + mask

    def stored(self) -> Stored:
        """What takes memory, by part."""
        main: list[Thing] = [*self.main.part.arrays(), *self.codec.arrays()]
        places: list[Thing] = [self.lengths, self.changes.slot_of]
        changes: list[Thing] = [*self.changes.arrays()]
        (changes if len(self.annex) else places).extend(self.annex.part.arrays())
        return {"token vectors": main, "places": places, "changes": changes}

    @cached_property
    def lengths(self) -> np.ndarray:
        """How many tokens each document has (documents,)."""
        both = np.concatenate([np.diff(self.main.part.starts), np.diff(self.annex.part.starts)])
        return self.changes.living(both)

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
    def _shelves(self) -> list[tuple[int, SearchedTokens, Tensor | None]]:
        """Both parts that have documents: the place of their first, and which are alive, None for all."""
        both = zip((0, len(self.main)), (self.main, self.annex), self.changes.masks, strict=True)
        return [
            (first, shelf, None if mask is None else torch.tensor(mask, device=self.codec.device))
            for first, shelf, mask in both
            if len(shelf)
        ]

    # Searching

    def search(self, queries: np.ndarray | Tensor, mask: np.ndarray | Tensor | None, k: int) -> ScoresAndRows:
        """The scores (q, k) and rows (q, k) of the best for each query (q, length, d), best first.

        `mask` (q, length) says which tokens count. Where fewer than k documents have tokens, the rest are -inf
        and -1. Of equal scores the smaller row comes first.
        """
        asked, counts = checked_queries(queries, mask, self.width, self.codec.device)
        at_least("k", k, 1)
        limit = len(self) if self.options.candidates == 0 else max(k, self.options.candidates or max(4 * k, 256))
        if limit >= len(self):  # to choose candidates would not make it less
            step = max(1, QUERY_TOKENS // max(1, asked.shape[1]))
            several = zip(asked.split(step), counts.split(step), strict=True)
            found = [self._search_all(some, count, k) for some, count in several]
        else:
            found = [self._search_one(query[count], k, limit) for query, count in zip(asked, counts, strict=True)]
        scores, places = stacked([nothing(0, k), *found])
        return scores, self.changes.rows(places)

    def _total(self, maxima: Tensor, counts: Tensor) -> Tensor:
        """Scores (..., ) of the best fit for each query token (..., length), of which some count (..., length)."""
        total = torch.where(counts, maxima, 0.0).sum(-1)
        number = counts.sum(-1)
        if self.options.score == "avgmax":
            total = total / number.clamp(min=1)
        return total.masked_fill(number == 0, -torch.inf)

    def _search_all(self, queries: Tensor, counts: Tensor, k: int) -> ScoresAndRows:
        """Score every document for some queries (q, length, d), of whose tokens some count (q, length)."""
        asked = queries.flatten(0, 1)  # (q * length, d)
        running = Running(len(queries), k, self.codec.device)
        step = max(1, CHUNK // max(1, len(asked)))
        for first, shelf, alive in self._shelves:
            for begin in range(0, len(shelf), step):
                documents = torch.arange(begin, min(begin + step, len(shelf)), device=self.codec.device)
                maxima = shelf.maxima(documents, asked)
                scores = self._total(maxima.view(len(documents), *counts.shape), counts).T  # (q, documents)
                if alive is not None:
                    scores = scores.masked_fill(~alive[documents], -torch.inf)
                running.add(scores, first + begin)
        return running.found()

    def _search_one(self, query: Tensor, k: int, limit: int) -> ScoresAndRows:
        """Score the candidates for one query (length, d), all of whose tokens count: (1, k) and (1, k)."""
        places = self._candidates(query, k, limit)
        if not len(places):
            return nothing(1, k)
        scores, order = best(self._score_places(query, places)[None], k)
        return filled(scores.cpu().numpy(), places[order].cpu().numpy(), k)

    def _candidates(self, query: Tensor, k: int, limit: int) -> Tensor:
        """The places of at most `limit` documents, rising; at least k, if as many have tokens."""
        fits = query @ self.codec.centers.T  # (length, centroids)
        if not fits.numel():
            return torch.empty(0, dtype=torch.long)
        wanted, probes = min(k, self._with_tokens), self.options.probes
        places, rough = self._listed(query, fits, probes)
        while len(places) < wanted and probes < fits.shape[1]:
            probes *= 4  # the lists were short, or their documents are gone
            places, rough = self._listed(query, fits, probes)
        return places if len(places) <= limit else places[best(rough[None], limit)[1][0].sort().values]

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

    def _score_places(self, query: Tensor, places: Tensor) -> Tensor:
        """The exact scores (m,) of documents by their places, rising or not."""
        scores = torch.full((len(places),), -torch.inf, device=self.codec.device)
        counts = torch.ones(len(query), dtype=torch.bool, device=self.codec.device)
        for first, shelf, _ in self._shelves:
            inside = (places >= first) & (places < first + len(shelf))
            scores[inside] = self._total(shelf.maxima(places[inside] - first, query), counts)
        return scores

    def score(self, query: np.ndarray | Tensor, rows: np.ndarray) -> np.ndarray:
        """The exact scores (m,) of some rows (m,) for a query (length, d); -inf for documents without tokens."""
        asked, _ = checked_queries(query[None], None, self.width, self.codec.device)
        places = torch.from_numpy(self.changes.slot_of[self._checked_rows(rows)]).to(self.codec.device)
        return self._score_places(asked[0], places).cpu().numpy()

    def matches(self, query: np.ndarray | Tensor, row: int) -> tuple[np.ndarray, np.ndarray]:
        """For each query token (length, d) the document's token that fits best (length,), and how well (length,).

        -1 and -inf if the document has none.
        """
        asked, _ = checked_queries(query[None], None, self.width, self.codec.device)
        place = int(self.changes.slot_of[self._checked_rows(np.array([row]))[0]])
        added = place - len(self.main)
        vectors = self.main.tokens(place) if added < 0 else self.annex.tokens(added)
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
        flat, starts = checked_tokens(flat, starts)
        same_width(flat, self.width)
        if len(starts) == 1:
            return self
        if not len(self.codec.centroids):  # nothing could be learned so far: no document had a token
            empty = np.zeros(len(self), np.int64)
            return TokenIndex.of(flat, np.concatenate([empty, starts]), self.options)
        new = TokenLists.of(starts, *self.codec.encode(flat), len(self.codec.centroids))
        annex = SearchedTokens(self.annex.part.joined(new, np.ones(len(self.annex) + len(new), bool)), self.codec)
        larger = replace(self, annex=annex, changes=self.changes.added(len(new)))
        return larger._merged() if larger.changes.due else larger

    def without(self, keep: np.ndarray) -> TokenIndex:
        """Only the rows that are kept (n,) bool. What was deleted is taken out once less than half is left."""
        keep = mask_of(keep, len(self))
        if keep.all():
            return self
        smaller = replace(self, changes=self.changes.kept(keep))
        return smaller._merged() if smaller.changes.due else smaller

    def rebuilt(self, options: TokenOptions) -> TokenIndex:
        """The same documents in another kind of index; what compression has lost is not found again."""
        part = self._merged().main.part
        if self.codec.bits == 16:
            return TokenIndex.of(part.packed, part.starts, options)
        flat = self.codec.decode(shared(part.numbers), shared(part.packed))
        return TokenIndex.of(flat.cpu().numpy(), part.starts, options)

    def _merged(self) -> TokenIndex:
        """The same as one part without what was deleted."""
        if self.changes.none:
            return self
        part = self.main.part.joined(self.annex.part, self.changes.mask)
        return TokenIndex._whole(part, self.options, self.codec)

    # Keeping

    def write(self, writer: Writer, name: str = "tokens") -> None:
        """Put it into an artifact, as one part without what was deleted, in files whose names begin with `name`."""
        part = self._merged().main.part
        part.write(writer, name)
        self.codec.write(writer, name)
        counts = {"documents": len(part), "tokens": len(part.numbers)}
        writer.json(f"{name}_state", {"options": config.to_dict(self.options), **counts, **self.codec.plain()})

    @classmethod
    def read(cls, snapshot: Snapshot, name: str = "tokens", device: str | None = None) -> TokenIndex:
        """Take it out of an artifact, memory-mapped, to `device` or where it was; to cpu if that is not here."""
        state = snapshot.json(f"{name}_state")
        try:
            options = config.build(TokenOptions, state["options"] | ({"device": device} if device else {}))
            where = device_of(options.device, opening=True)
            if options.device != "auto":
                options = replace(options, device=str(where))  # as it is built anew after changes
            codec = Codec.read(snapshot, name, state, where)
            part = TokenLists.read(snapshot, name, codec, int(state["documents"]), int(state["tokens"]))
        except (KeyError, TypeError, ValueError) as error:
            raise ArtifactError(f"{snapshot.path}: the index {name!r} {error}", RESAVE) from error
        return cls._whole(part, options, codec)


def _centroids_wanted(options: TokenOptions) -> int:
    """How many centroids were asked for; 0 lets the number of tokens decide."""
    # Where every document is scored by its own vectors, nobody looks into a list: one is enough.
    unlisted = options.candidates == 0 and options.bits == 16
    return options.centroids or int(unlisted)


def token_products(documents: int, tokens: int, width: int, options: TokenOptions) -> dict[str, Products]:
    """What an index of so many documents with so many tokens in all takes, by part."""
    centroids = centroid_count(tokens, _centroids_wanted(options))
    buckets = BUCKETS[options.bits]
    vector = f"{width} numbers of {options.bits} bits"
    vectors = [
        Product(tokens, "tokens", -(-width * options.bits // 8), vector),
        Product(tokens, "tokens", 2 + width_of(tokens), "number of its centroid, place in a list"),
        Product(documents + 1, "documents", 8, "where it begins, and the end"),
        Product(centroids, "centroids", 4 * width + 8, f"{width} numbers of 4, where its list begins"),
        Product(width * (buckets + max(0, buckets - 1)), "edges and means of buckets", 4),
        Product(1, "end of the lists", 8),
    ]
    places = [
        Product(documents, "documents", 16, "tokens, place"),
        Product(centroids + 1, "lists of what may be added", 8),
        Product(1, "beginning of it", 8),
    ]
    return {"token vectors": vectors, "places": places}
