"""One vector for each token of each document, searched by late interaction.

Each query token is matched with the document's token of the largest inner product; `maxsim` is the sum of these
products, `avgmax` their mean. Masked tokens of a query do not count. Knows nothing about models or text:
documents are rows of consecutive tokens.

A search first collects candidates: the tokens in the lists of the nearest centroids of each query token are compared
with all query tokens, and the best documents are then scored by all their tokens. An index never changes; adding and
deleting give new indexes, and rows are always numbered as if the index had been built from the remaining documents.
Added documents are in an annex, deleted ones are masked; centroids and codec stay as they were learned. A slot is the
number of a document in both parts, including deleted ones.
"""

from __future__ import annotations

from collections.abc import Iterator
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
from triever.progress import phase

if TYPE_CHECKING:
    from triever.artifact import Snapshot, Writer

QUERY_TOKENS = 2048
"""The number of query tokens that are compared with all documents at once."""


@dataclass(frozen=True)
class TokenOptions:
    """How token vectors are kept and searched: `TokenOptions(bits=4, probes=8)`."""

    score: Literal["maxsim", "avgmax"] = option(
        "maxsim", "over query tokens: maxsim (sum) or avgmax (mean), which is all that reatt has"
    )
    bits: int = option(16, "bits of each number: 16 (uncompressed), 4 or 2")
    centroids: int = option(0, "clusters of tokens; 0: about four times the square root of the number of tokens")
    probes: int = option(16, "clusters searched for each query token; more find more, in more time")
    candidates: int | None = option(None, "documents scored exactly; unset: 4 k, at least 256; 0: all")
    tokens: int = option(
        0, "nearest tokens of each query token; all documents that have one are scored exactly; 0: by clusters instead"
    )
    device: str = option("cpu", "where scores are computed: cpu, cuda, or auto: cuda where there is one")
    seed: int = option(0, "seed of the clustering")

    def __post_init__(self) -> None:
        config.validate(self)
        if self.bits not in BUCKETS:
            raise UsageError(f"bits = {self.bits} is not one of the choices", "use 16, 4 or 2")
        at_least("probes", self.probes, 1)
        at_least("candidates", self.candidates or 0, 0)
        at_least("tokens", self.tokens, 0)
        if not 0 <= self.centroids <= MOST_CENTROIDS:
            raise UsageError(
                f"centroids = {self.centroids} should be 0 to {MOST_CENTROIDS}", "0 lets Triever choose the number"
            )


@dataclass(frozen=True, eq=False)
class TokenIndex:
    """Token vectors by document: `TokenIndex.of(flat, starts, TokenOptions()).search(queries, mask, k=10)`."""

    options: TokenOptions
    codec: Codec
    main: SearchedTokens
    annex: SearchedTokens  # added later
    changes: Changes

    @classmethod
    @phase("building an index of token vectors")
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
        """The number of dimensions of a vector."""
        return self.codec.width

    @property
    def bytes(self) -> int:
        """The bytes that a search reads: tokens, lists, centroids, masks."""
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

    @property
    def built_from(self) -> tuple[int, int]:
        """How many documents and tokens it was built from, deleted ones included."""
        return len(self.main), len(self.main.part.numbers)

    def about(self) -> dict[str, Any]:
        """What has to be known of it as a shard."""
        own = {"rows": len(self), "width": self.width, "options": self.options}
        return {**own, "lengths": self.lengths, "built_from": self.built_from}

    @cached_property
    def lengths(self) -> np.ndarray:
        """(documents,) the number of tokens of each document."""
        both = np.concatenate([np.diff(self.main.part.starts), np.diff(self.annex.part.starts)])
        return self.changes.living(both)

    @cached_property
    def _with_tokens(self) -> int:
        return int((self.lengths > 0).sum())

    def info(self) -> dict[str, float]:
        """Counts of documents, tokens, centroids and bytes, and the mean cosine of decoded vectors."""
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
    def _parts(self) -> list[tuple[int, SearchedTokens, Tensor | None]]:
        """The first slot, the documents and the living ones (None for all) of each part that has documents."""
        both = zip((0, len(self.main)), (self.main, self.annex), self.changes.masks, strict=True)
        return [
            (first, part, None if mask is None else torch.tensor(mask, device=self.codec.device))
            for first, part, mask in both
            if len(part)
        ]

    # Searching

    def search(self, queries: np.ndarray | Tensor, mask: np.ndarray | Tensor | None, k: int) -> ScoresAndRows:
        """The scores (q, k) and rows (q, k) of the best documents for each query (q, length, d), best first.

        `mask` (q, length) says which tokens count. If fewer than k documents have tokens, the rest are -inf and -1.
        Of equal scores the smaller row comes first.
        """
        asked, counts = checked_queries(queries, mask, self.width, self.codec.device)
        at_least("k", k, 1)
        limit = len(self) if self.options.candidates == 0 else max(k, self.options.candidates or max(4 * k, 256))
        if limit >= len(self) and not self.options.tokens:  # all documents are candidates
            step = max(1, QUERY_TOKENS // max(1, asked.shape[1]))
            parts = zip(asked.split(step), counts.split(step), strict=True)
            results = [self._search_all(part, count, k) for part, count in parts]
        else:
            results = [self._search_candidates(asked, counts, k, limit)] if len(asked) else []
        scores, slots = stacked([nothing(0, k), *results])
        return scores, self.changes.rows(slots)

    def _total(self, maxima: Tensor, counts: Tensor) -> Tensor:
        """Scores (..., ) from the maxima of query tokens (..., length), of which only `counts` (..., length) count."""
        total = torch.where(counts, maxima, 0.0).sum(-1)
        number = counts.sum(-1)
        if self.options.score == "avgmax":
            total = total / number.clamp(min=1)
        return total.masked_fill(number == 0, -torch.inf)

    def _search_all(self, queries: Tensor, counts: Tensor, k: int) -> ScoresAndRows:
        """Score every document for queries (q, length, d), of whose tokens those in `counts` (q, length) count."""
        running = Running(len(queries), k, self.codec.device)
        for first, scores in self._scored(queries, counts):
            running.add(scores, first)
        return running.result()

    def log_sum_exp(
        self, queries: np.ndarray | Tensor, mask: np.ndarray | Tensor | None, temperatures: np.ndarray
    ) -> np.ndarray:
        """(q,) the log of the sum of exp(score / temperature) over all documents, for queries (q, length, d).

        With it a score becomes the log-probability of a softmax over everything: score / temperature - log_sum_exp.
        """
        asked, counts = checked_queries(queries, mask, self.width, self.codec.device)
        step = max(1, QUERY_TOKENS // max(1, asked.shape[1]))
        divisors = torch.from_numpy(np.asarray(temperatures, np.float64)).to(self.codec.device)
        totals = []
        for part, count, divisor in zip(asked.split(step), counts.split(step), divisors.split(step), strict=True):
            total = torch.full((len(part),), -torch.inf, dtype=torch.float64, device=self.codec.device)
            for _, scores in self._scored(part, count):
                total = torch.logaddexp(total, (scores.double() / divisor[:, None]).logsumexp(1))
            totals.append(total.cpu().numpy())
        return np.concatenate([np.empty(0), *totals])

    def _scored(self, queries: Tensor, counts: Tensor) -> Iterator[tuple[int, Tensor]]:
        """The scores (q, n) of some documents after the others, and the slot of their first; -inf for deleted ones."""
        asked = queries.flatten(0, 1)  # (q * length, d)
        step = max(1, CHUNK // max(1, len(asked)))
        for first, part, alive in self._parts:
            for begin in range(0, len(part), step):
                documents = torch.arange(begin, min(begin + step, len(part)), device=self.codec.device)
                maxima = part.maxima(documents, asked)
                scores = self._total(maxima.view(len(documents), *counts.shape), counts).T  # (q, documents)
                if alive is not None:
                    scores = scores.masked_fill(~alive[documents], -torch.inf)
                yield first + begin, scores

    def _search_candidates(self, queries: Tensor, counts: Tensor, k: int, limit: int) -> ScoresAndRows:
        """Score the candidates for queries (q, length, d), of whose tokens those in `counts` (q, length) count."""
        # All results come from a GPU at once: to wait for it query by query takes longer than to copy them.
        scores = torch.full((len(queries), k), -torch.inf, device=self.codec.device)
        slots = torch.full((len(queries), k), -1, dtype=torch.long, device=self.codec.device)
        for number, (query, count) in enumerate(zip(queries, counts, strict=True)):
            candidates = self._candidates(query[count], k, limit)
            if len(candidates):
                values, [order] = best(self._score_slots(query[count], candidates)[None], k)
                scores[number, : len(order)], slots[number, : len(order)] = values[0], candidates[order]
        return filled(scores.cpu().numpy(), slots.cpu().numpy(), k)

    def _candidates(self, query: Tensor, k: int, limit: int) -> Tensor:
        """The slots of documents, sorted: those with the nearest tokens, or by clusters at most `limit`, at least k."""
        if self.options.tokens:
            return self._with_near_tokens(query, k)
        fits = query @ self.codec.centers.T  # (length, centroids)
        if not fits.numel():
            return torch.empty(0, dtype=torch.long)
        wanted, probes = min(k, self._with_tokens), self.options.probes
        slots, rough = self._listed(query, fits, probes)
        while len(slots) < wanted and probes < fits.shape[1]:
            probes *= 4  # the lists were short, or their documents deleted
            slots, rough = self._listed(query, fits, probes)
        return slots if len(slots) <= limit else slots[best(rough[None], limit)[1][0].sort().values]

    def _with_near_tokens(self, query: Tensor, k: int) -> Tensor:
        """The slots of documents with one of the nearest tokens; more tokens count where these have fewer than k."""
        count, every = self.options.tokens, int(self.lengths.sum())
        while True:
            near = [first + part.of_nearest(query, count, alive) for first, part, alive in self._parts]
            slots = torch.cat([torch.empty(0, dtype=torch.long, device=self.codec.device), *near])
            if len(slots) >= min(k, self._with_tokens) or count >= every or not len(query):
                return slots
            count *= 4

    def _listed(self, query: Tensor, fits: Tensor, probes: int) -> tuple[Tensor, Tensor]:
        """The slots (m,) of all documents in the lists of the nearest centroids, sorted, and their rough scores (m,).

        Tokens are compared by their vectors: centroids alone are too coarse to tell one name from another. They are
        compared with the whole query, not only with the token whose list they are in, since their vectors are decoded
        anyway. A query token without a better match in a document counts as much as the farthest centroid probed.
        """
        scores, near = best(fits, probes)
        near, floor = near.unique(), scores[:, -1]
        listed = [(first, *part.listed(near, query, floor, alive)) for first, part, alive in self._parts]
        return torch.cat([first + documents for first, documents, _ in listed]), torch.cat(
            [rough for *_, rough in listed]
        )

    def _score_slots(self, query: Tensor, slots: Tensor) -> Tensor:
        """The exact scores (m,) of documents by their slots, in any order."""
        scores = torch.full((len(slots),), -torch.inf, device=self.codec.device)
        counts = torch.ones(len(query), dtype=torch.bool, device=self.codec.device)
        for first, part, _ in self._parts:
            if len(self._parts) == 1:  # a GPU need not be asked which slots are inside
                return self._total(part.maxima(slots - first, query), counts)
            inside = (slots >= first) & (slots < first + len(part))
            scores[inside] = self._total(part.maxima(slots[inside] - first, query), counts)
        return scores

    def score(self, query: np.ndarray | Tensor, rows: np.ndarray) -> np.ndarray:
        """The exact scores (m,) of rows (m,) for a query (length, d); -inf for documents without tokens."""
        asked, _ = checked_queries(query[None], None, self.width, self.codec.device)
        slots = torch.from_numpy(self.changes.slot_of[self._checked_rows(rows)]).to(self.codec.device)
        return self._score_slots(asked[0], slots).cpu().numpy()

    def matches(self, query: np.ndarray | Tensor, row: int) -> tuple[np.ndarray, np.ndarray]:
        """For each query token (length, d), the best token of the document (length,), and their product (length,).

        They are -1 and -inf if the document has no tokens.
        """
        asked, _ = checked_queries(query[None], None, self.width, self.codec.device)
        slot = int(self.changes.slot_of[self._checked_rows(np.array([row]))[0]])
        in_annex = slot - len(self.main)
        vectors = self.main.tokens(slot) if in_annex < 0 else self.annex.tokens(in_annex)
        if not len(vectors):
            return np.full(asked.shape[1], -1), np.full(asked.shape[1], -np.inf, np.float32)
        fit, token = best(asked[0] @ vectors.T, 1)
        return token[:, 0].cpu().numpy(), fit[:, 0].cpu().numpy()

    def _checked_rows(self, rows: np.ndarray) -> np.ndarray:
        rows = np.asarray(rows, np.int64)
        if len(rows) and not (rows.min() >= 0 and rows.max() < len(self)):
            raise UsageError("a row is outside the index", f"give rows from 0 to {len(self) - 1}")
        return rows

    # Changing

    def with_added(self, flat: np.ndarray, starts: np.ndarray) -> TokenIndex:
        """An index with these documents too, in the last rows. Centroids and codec stay as they are.

        If the corpus has changed much, build a new index: its centroids will fit better.
        """
        flat, starts = checked_tokens(flat, starts)
        same_width(flat, self.width)
        if len(starts) == 1:
            return self
        if not len(self.codec.centroids):  # nothing is learned yet: no document has a token
            empty = np.zeros(len(self), np.int64)
            return TokenIndex.of(flat, np.concatenate([empty, starts]), self.options)
        new = TokenLists.of(starts, *self.codec.encode(flat), len(self.codec.centroids))
        annex = SearchedTokens(self.annex.part.joined(new, np.ones(len(self.annex) + len(new), bool)), self.codec)
        larger = replace(self, annex=annex, changes=self.changes.added(len(new)))
        return larger._merged() if larger.changes.due else larger

    def without(self, keep: np.ndarray) -> TokenIndex:
        """An index of the rows that are kept (n,) bool. Deleted documents are removed when less than half is left."""
        keep = mask_of(keep, len(self))
        if keep.all():
            return self
        smaller = replace(self, changes=self.changes.kept(keep))
        return smaller._merged() if smaller.changes.due else smaller

    def among(self, keep: np.ndarray) -> TokenIndex:
        """An index of the rows that are kept (n,) bool, for searches alone."""
        return self.without(keep)

    def rebuilt(self, options: TokenOptions) -> TokenIndex:
        """The same documents in an index with other options; compressed vectors stay inexact."""
        part = self._merged().main.part
        if self.codec.bits == 16:
            return TokenIndex.of(part.packed, part.starts, options)
        flat = self.codec.decode(shared(part.numbers), shared(part.packed))
        return TokenIndex.of(flat.cpu().numpy(), part.starts, options)

    def _merged(self) -> TokenIndex:
        """The same index as one part, without deleted documents."""
        if self.changes.none:
            return self
        part = self.main.part.joined(self.annex.part, self.changes.mask)
        return TokenIndex._whole(part, self.options, self.codec)

    # Keeping

    def write(self, writer: Writer, name: str = "tokens") -> None:
        """Write the index into an artifact, without deleted documents, in files whose names begin with `name`.

        Shards keep centroids and codec of the whole, so that what is a candidate here is one there.
        """
        part = self._merged().main.part
        if writer.bounds:
            for shard, rows in zip(writer.in_shards(), writer.bounds.row_slices(), strict=True):
                inside = np.zeros(len(part), bool)
                inside[rows] = True
                TokenIndex._whole(part.joined(part.empty(), inside), self.options, self.codec).write(shard, name)
            return
        part.write(writer, name)
        self.codec.write(writer, name)
        counts = {"documents": len(part), "tokens": len(part.numbers)}
        writer.json(f"{name}_state", {"options": config.to_dict(self.options), **counts, **self.codec.plain()})

    @classmethod
    def read(cls, snapshot: Snapshot, name: str = "tokens", device: str | None = None) -> TokenIndex:
        """Read an index from an artifact, memory-mapped, for `device` or its old device; for cpu if that is missing."""
        state = snapshot.json(f"{name}_state")
        try:
            options = config.build(TokenOptions, state["options"] | ({"device": device} if device else {}))
            where = device_of(options.device, opening=True)
            if options.device != "auto":
                options = replace(options, device=str(where))  # the device of a rebuild after changes
            codec = Codec.read(snapshot, name, state, where)
            part = TokenLists.read(snapshot, name, codec, int(state["documents"]), int(state["tokens"]))
        except (KeyError, TypeError, ValueError) as error:
            raise ArtifactError(f"{snapshot.path}: the index {name!r} {error}", RESAVE) from error
        return cls._whole(part, options, codec)


def _centroids_wanted(options: TokenOptions) -> int:
    """The number of centroids; 0 lets the number of tokens decide."""
    # If every document is scored by uncompressed vectors, lists are not used: one is enough.
    unlisted = (options.candidates == 0 or options.tokens > 0) and options.bits == 16
    return options.centroids or int(unlisted)


def token_products(documents: int, tokens: int, width: int, options: TokenOptions) -> dict[str, Products]:
    """The bytes of an index of `documents` documents with `tokens` tokens in all, by part."""
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
