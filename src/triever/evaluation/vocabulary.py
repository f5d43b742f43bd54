"""A description of a contextual vocabulary: its size, its uniformity, the neighbours of ids, and clusters of states.

The numbers of the paper on contextualized generative retrieval (CGR, appendices C.3 to C.5), for a saved model. A
seed fixes every random sample. The id of the end of a title is no token in context: only sizes count it.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypedDict

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from triever.data.records import Document
from triever.data.store import DocumentStore
from triever.docids.quantize import kmeans, nearest, nearest_few
from triever.engines.titles import InContext
from triever.errors import UsageError
from triever.errors import nearest as closest
from triever.evaluation.finding import STEP, Finding, Part
from triever.evaluation.picture import Bars
from triever.printable import an
from triever.retriever import Retriever
from triever.retrievers.contextual import Contextual

PAIRED = 5_000
"""The largest number of ids whose pairs give the uniformity."""
LOOKED_AT = 1_000
"""The largest number of ids whose neighbours are looked at."""
NEAREST = 5
TOKENS = 100
"""The largest number of tokens whose clusters are counted."""
SEVERAL = 10
"""If a token is in at least this many clusters, a tenth of them is at least one whole cluster."""
LEARNED_FROM = 2**20
"""The largest number of states that clusters are learned from; every state is put into a cluster."""
SLAB = 2**17
"""Rows of states that are handled together."""
UNDERFLOW = -150 * math.log(2)
"""Below this, exp is zero in single precision."""
WORDS, IDS_SHOWN, CLUSTERS_SHOWN, TOKENS_SHOWN, TITLES_SHOWN = 2, 10, 4, 4, 6
"""How many are shown: words, the ids and clusters of a word, the tokens of a cluster, and titles of each."""
log = logging.getLogger("triever")


class Stored(TypedDict):
    """A number of vectors and their bytes."""

    vectors: int
    bytes: int


class Storage(TypedDict):
    """The vectors of the matrix, of the backbone's vocabulary and of all states, in the type of the matrix."""

    type: str
    matrix: Stored
    plain_vocabulary: Stored
    all_states: Stored


class Uniformity(TypedDict):
    """The uniformity of rows, and the share of pairs that single precision counts as zero."""

    value: float
    underflow: float


class Uniformities(TypedDict):
    """The uniformity of rows as they are, and of rows of length one."""

    ids: int
    raw: Uniformity
    unit: Uniformity


class Neighbours(TypedDict):
    """How many of the nearest ids belong to the same token."""

    nearest: int
    drawn: int
    rate: float
    most_possible: float
    drawn_with_others: int
    rate_with_others: float | None
    ids_by_count: list[int]


class Concentration(TypedDict):
    """Shares of a token's states in the fullest tenth of its clusters."""

    clusters: int
    drawn: int
    share: float
    deviation: float
    drawn_in_several: int
    share_in_several: float | None
    deviation_in_several: float | None
    tokens_by_share: list[int]


class Titles(TypedDict):
    """Occurrences, and the first titles in which they are."""

    occurrences: int
    titles: list[str]
    more_titles: int


class IdTitles(Titles):
    """The titles of an id."""

    id: int


class TokenTitles(Titles):
    """The titles of a token."""

    token: str


class Cluster(TypedDict):
    """A cluster, and some of its tokens."""

    cluster: int
    occurrences: int
    tokens: int
    shown: list[TokenTitles]


class Word(TypedDict):
    """A token with its ids and its largest clusters."""

    token: str
    occurrences: int
    ids: list[IdTitles]
    clusters: int
    largest_clusters: list[Cluster]


class VocabularyValues(TypedDict):
    """The values of this analysis."""

    seed: int
    fingerprint: str
    documents: int
    ids: int
    tokens: int
    ids_of_a_token_at_most: int
    occurrences: int
    storage: Storage
    uniformity: Uniformities
    same_token: Neighbours
    clusters: Concentration
    words: list[Word]


def vocabulary(retriever: Retriever, *, words: Sequence[str] = (), clusters: int = 0, seed: int = 0) -> Finding:
    """Describe the vocabulary of a contextual retriever; with `clusters` 0 there are as many clusters as ids.

    `words` are tokens whose clusters are shown, by default those that are in the most clusters.
    """
    if not isinstance(retriever, Contextual):
        problem = f"{an(retriever.kind)} retriever has no contextual vocabulary"
        raise UsageError(problem, "make one with: triever fit contextual")
    titles = retriever.in_context()
    ids = _token_ids(titles)
    chosen = [_token(titles, word) for word in words]  # a wrong word is an error before the work
    rows, symbols = titles.vocabulary.rows.detach()[torch.from_numpy(ids)].float(), titles.vocabulary.symbol[ids]
    number = clustered(titles.states, clusters or len(ids), seed=seed, device=rows.device)
    gathered = Gathered(titles, number, retriever.searched)
    values: VocabularyValues = {
        "seed": seed,
        "fingerprint": retriever.fingerprint[:16],
        "documents": len(retriever),
        "ids": len(titles.vocabulary),
        "tokens": len(np.unique(symbols)),
        "ids_of_a_token_at_most": titles.vocabulary.most_ids,
        "occurrences": len(titles.symbols),
        "storage": storage(titles),
        "uniformity": _uniformities(rows[torch.from_numpy(_drawn(len(rows), PAIRED, seed))]),
        "same_token": _neighbours(rows, symbols, _drawn(len(rows), LOOKED_AT, seed)),
        "clusters": _concentration(gathered, seed),
        "words": [gathered.about(symbol) for symbol in chosen or gathered.varied()],
    }
    return Finding(values, _parts(values), _bars(values))


def _token_ids(titles: InContext) -> np.ndarray:
    """The ids of all tokens but the end of a title."""
    ids = np.flatnonzero(titles.vocabulary.symbol != titles.scheme.stop)
    if len(ids) < 2 or not len(titles.symbols):
        problem = f"{len(ids)} ids and {len(titles.symbols)} tokens in titles are too few to compare"
        raise UsageError(problem, "add documents with titles")
    return ids


def _drawn(count: int, limit: int, seed: int) -> np.ndarray:
    """A sorted random sample of at most `limit` of the numbers below `count`."""
    return np.sort(np.random.default_rng(seed).permutation(count)[:limit])


# --- numbers --------------------------------------------------------------------------------------------------


def storage(titles: InContext) -> Storage:
    """Vectors and bytes of the matrix, of all states, and of the backbone's vocabulary, all in the matrix's type."""
    rows = titles.vocabulary.rows

    def stored(count: int, width: int) -> Stored:
        return {"vectors": count, "bytes": count * width * rows.element_size()}

    return {
        "type": str(rows.dtype).removeprefix("torch."),
        "matrix": stored(*rows.shape),
        "plain_vocabulary": stored(*titles.plain.shape),
        "all_states": stored(len(titles.symbols), rows.shape[1]),
    }


def uniformity(vectors: Tensor) -> tuple[float, float]:
    """log E exp(-2 |x - y|²) over all pairs of rows, and the share of pairs that single precision would count as zero.

    Everything stays a logarithm until the end, so that pairs which are far apart are not lost.
    """
    vectors = vectors.double()
    sums, lost = [], 0
    for low in range(0, len(vectors), 500):
        block = vectors[low : low + 500]
        exponents = -2 * torch.cdist(block, vectors).square()
        exponents.diagonal(low).fill_(-torch.inf)  # no pair with itself
        sums.append(exponents.logsumexp((0, 1)))
        lost += int((exponents < UNDERFLOW).sum()) - len(block)
    pairs = len(vectors) * (len(vectors) - 1)
    return float(torch.stack(sums).logsumexp(0)) - math.log(pairs), lost / pairs


def _uniformities(rows: Tensor) -> Uniformities:
    raw, raw_lost = uniformity(rows)
    unit, unit_lost = uniformity(functional.normalize(rows, dim=1))
    return {
        "ids": len(rows),
        "raw": {"value": raw, "underflow": raw_lost},
        "unit": {"value": unit, "underflow": unit_lost},
    }


def same_token(rows: Tensor, symbols: np.ndarray, drawn: np.ndarray) -> np.ndarray:
    """(drawn,) how many of the nearest ids of each drawn id belong to the same token."""
    counts = []
    for row in drawn.tolist():
        near = nearest_few(rows[row], rows, NEAREST + 1).cpu().numpy()
        neighbours = near[near != row][:NEAREST]
        counts.append(int((symbols[neighbours] == symbols[row]).sum()))
    return np.array(counts)


def _neighbours(rows: Tensor, symbols: np.ndarray, drawn: np.ndarray) -> Neighbours:
    """Rates over all drawn ids, and over those whose token has other ids."""
    looked_at = min(NEAREST, len(rows) - 1)
    counts = same_token(rows, symbols, drawn)
    other_ids = np.bincount(symbols)[symbols[drawn]] - 1
    able = other_ids > 0
    return {
        "nearest": looked_at,
        "drawn": len(drawn),
        "rate": float(counts.mean() / looked_at),
        "most_possible": float(np.minimum(other_ids, looked_at).mean() / looked_at),
        "drawn_with_others": int(able.sum()),
        "rate_with_others": float(counts[able].mean() / looked_at) if able.any() else None,
        "ids_by_count": np.bincount(counts, minlength=looked_at + 1).tolist(),
    }


def clustered(states: np.ndarray, clusters: int, *, seed: int = 0, device: str | torch.device = "cpu") -> np.ndarray:
    """(n,) the cluster of each state (n, d): k-means over all of them, whatever their token.

    States may be mapped from a file.
    """
    sample = states if len(states) <= LEARNED_FROM else states[_drawn(len(states), LEARNED_FROM, seed)]
    count = min(clusters, len(sample))
    log.info("clustering %d states into %d clusters", len(sample), count)
    centroids = kmeans(torch.from_numpy(np.asarray(sample, np.float32)).to(device), count, seed=seed)
    slabs = (np.asarray(states[low : low + SLAB], np.float32) for low in range(0, len(states), SLAB))
    return np.concatenate([nearest(torch.from_numpy(slab).to(device), centroids)[0].cpu().numpy() for slab in slabs])


def top_share(counts: np.ndarray) -> float:
    """The share of a token's states that lies in the fullest tenth of its clusters, at least one cluster.

    >>> top_share(np.array([1, 6, 3]))
    0.6
    """
    largest = np.sort(counts)[::-1][: max(1, len(counts) // 10)]
    return float(largest.sum() / counts.sum())


def _concentration(gathered: Gathered, seed: int) -> Concentration:
    """Whether the states of tokens lie in few clusters: means and standard deviations over tokens."""
    tokens = np.unique(gathered.titles.symbols)
    counts = [gathered.counts(symbol) for symbol in tokens[_drawn(len(tokens), TOKENS, seed)].tolist()]
    shares = np.array([top_share(clusters) for clusters in counts])
    spread = shares[[len(clusters) >= SEVERAL for clusters in counts]]
    return {
        "clusters": len(np.unique(gathered.number)),
        "drawn": len(shares),
        "share": float(shares.mean()),
        "deviation": float(shares.std()),
        "drawn_in_several": len(spread),
        "share_in_several": float(spread.mean()) if len(spread) else None,
        "deviation_in_several": float(spread.std()) if len(spread) else None,
        "tokens_by_share": np.histogram(shares, 5, (0, 1))[0].tolist(),
    }


# --- examples -------------------------------------------------------------------------------------------------


def _token(titles: InContext, word: str) -> int:
    """The token that a word, or a piece of one, is."""
    occurring = {titles.scheme.symbol(symbol): symbol for symbol in np.unique(titles.symbols).tolist()}
    if word in occurring:
        return occurring[word]
    pieces = titles.scheme.place(Document("word", "", word))[:-1] if word else ()
    names = [titles.scheme.symbol(piece) for piece in pieces]
    if len(pieces) == 1 and names[0] in occurring:
        return pieces[0]
    hint = f"name one of its pieces: {', '.join(names)}" if len(pieces) > 1 else closest(word, occurring, listed=5)
    raise UsageError(f"{word!r} is not a token of any title", hint)


@dataclass(frozen=True)
class Gathered:
    """Title tokens in clusters over all of them."""

    titles: InContext
    number: np.ndarray  # (n,) the cluster of each occurrence
    store: DocumentStore

    def counts(self, symbol: int) -> np.ndarray:
        """How often a token is in each cluster that holds it."""
        return np.unique(self.number[self.titles.symbols == symbol], return_counts=True)[1]

    def varied(self) -> list[int]:
        """The tokens that are in the most clusters; pieces without three letters, such as a full stop, come last."""
        different = np.unique(np.stack([self.titles.symbols, self.number]), axis=1)
        occurrences, clusters = np.bincount(self.titles.symbols), np.bincount(different[0])

        def order(symbol: int) -> tuple[bool, int, int, int]:
            short = sum(map(str.isalpha, self.titles.scheme.symbol(symbol))) < 3
            return short, -clusters[symbol], -occurrences[symbol], symbol

        return sorted(np.flatnonzero(occurrences).tolist(), key=order)[:WORDS]

    def about(self, symbol: int) -> Word:
        """A token with its ids, and the largest of the clusters that hold it."""
        positions = np.flatnonzero(self.titles.symbols == symbol)
        _, ids = self.titles.vocabulary.placed(self.titles.symbols[positions], self.titles.states[positions])
        clusters = _most_first(self.number[positions])
        return {
            "token": self.titles.scheme.symbol(symbol),
            "occurrences": len(positions),
            "ids": [
                {"id": number, **self._titles(positions[ids == number])} for number in _most_first(ids)[:IDS_SHOWN]
            ],
            "clusters": len(clusters),
            "largest_clusters": [self._cluster(cluster, symbol) for cluster in clusters[:CLUSTERS_SHOWN]],
        }

    def _cluster(self, cluster: int, symbol: int) -> Cluster:
        """A cluster with some of its tokens: first the given one, then the most frequent ones."""
        positions = np.flatnonzero(self.number == cluster)
        symbols = self.titles.symbols[positions]
        tokens = [symbol, *(token for token in _most_first(symbols) if token != symbol)]
        shown: list[TokenTitles] = [
            {"token": self.titles.scheme.symbol(token), **self._titles(positions[symbols == token])}
            for token in tokens[:TOKENS_SHOWN]
        ]
        return {"cluster": cluster, "occurrences": len(positions), "tokens": len(tokens), "shown": shown}

    def _titles(self, positions: np.ndarray) -> Titles:
        names = list(dict.fromkeys(self._names[row] for row in self.titles.documents[positions].tolist()))
        return {"occurrences": len(positions), "titles": names[:TITLES_SHOWN], "more_titles": len(names[TITLES_SHOWN:])}

    @cached_property
    def _names(self) -> list[str]:
        """The titles of documents; as in docids, a document without a title is called by its id."""
        titles = self.store.table.column("title").to_pylist()
        return [title or document for title, document in zip(titles, self.store.ids, strict=True)]


def _most_first(values: np.ndarray) -> list[int]:
    """The different values, the most frequent first."""
    different, counts = np.unique(values, return_counts=True)
    return different[np.argsort(-counts, kind="stable")].tolist()


# --- what a person sees ---------------------------------------------------------------------------------------


def _parts(values: VocabularyValues) -> list[Part]:
    parts = [_size_part, _storage_part, _uniformity_part, _neighbours_part, _clusters_part, _words_part]
    return [part(values) for part in parts]


def _size_part(values: VocabularyValues) -> Part:
    counts = {
        "ids, with that of the end": values["ids"],
        "tokens": values["tokens"],
        "ids of a token at most": values["ids_of_a_token_at_most"],
        "occurrences of tokens in titles": values["occurrences"],
        "documents": values["documents"],
    }
    return Part("Size", [{"what": name, "value": f"{count:,}"} for name, count in counts.items()])


def _stored(values: VocabularyValues) -> dict[str, Stored]:
    """The vectors by the names that a person reads."""
    stored = values["storage"]
    return {
        "the backbone's vocabulary": stored["plain_vocabulary"],
        "this vocabulary": stored["matrix"],
        "all occurrences": stored["all_states"],
    }


def _storage_part(values: VocabularyValues) -> Part:
    matrix = values["storage"]["matrix"]
    rows = [
        {
            "what": name,
            "vectors": f"{stored['vectors']:,}",
            "bytes": f"{stored['bytes']:,}",
            "times this": f"{stored['bytes'] / matrix['bytes']:.3f}",
        }
        for name, stored in _stored(values).items()
    ]
    return Part(f"Storage, all as {values['storage']['type']}", rows)


def _uniformity_part(values: VocabularyValues) -> Part:
    even = values["uniformity"]
    rows = [
        {"what": name, "uniformity": f"{kind['value']:.3f}", "underflow": f"{kind['underflow']:.1%}"}
        for name, kind in (("rows as they are", even["raw"]), ("rows of length one", even["unit"]))
    ]
    lines = ["less is more even; rows of length one can hardly have less than -4"]
    if even["raw"]["underflow"] > 0:
        lines.append(
            "underflow: pairs so far apart that single precision has zero for them; here none is lost, but the value "
            "is that of the nearest pairs"
        )
    return Part(f"Uniformity, log E exp(-2 |x - y|²) over the pairs of {even['ids']:,} ids", rows, lines)


def _neighbours_part(values: VocabularyValues) -> Part:
    same = values["same_token"]
    rows = [
        _rate_row(f"{same['drawn']:,} ids", same["rate"]),
        _rate_row(f"the {same['drawn_with_others']:,} of them whose token has other ids", same["rate_with_others"]),
        _rate_row("the most that all could have", same["most_possible"]),
    ]
    return Part(f"Ids of the same token among the {same['nearest']} nearest, by distance", rows)


def _clusters_part(values: VocabularyValues) -> Part:
    spread = values["clusters"]
    several = f"the {spread['drawn_in_several']:,} of them in {SEVERAL} clusters or more"
    rows = [
        _rate_row(f"{spread['drawn']:,} tokens", spread["share"], spread["deviation"]),
        _rate_row(several, spread["share_in_several"], spread["deviation_in_several"]),
    ]
    title = f"Share of a token's states in the fullest tenth of its clusters; {spread['clusters']:,} clusters over all"
    return Part(title, rows)


def _rate_row(name: str, rate: float | None, deviation: float | None = None) -> dict[str, str]:
    spread = "" if deviation is None else f" ± {deviation:.1%}"
    return {"what": name, "value": "none" if rate is None else f"{rate:.1%}{spread}"}


def _words_part(values: VocabularyValues) -> Part:
    return Part(
        "Ids and clusters of some tokens", lines=[line for word in values["words"] for line in _word_lines(word)]
    )


def _word_lines(word: Word) -> list[str]:
    lines = [f"{word['token']}: occurrences {word['occurrences']:,}, clusters {word['clusters']:,}"]
    lines += [f"{STEP}id {entry['id']}: {_listed(entry)}" for entry in word["ids"]]
    for cluster in word["largest_clusters"]:
        held = f"occurrences {cluster['occurrences']:,}, other tokens {cluster['tokens'] - 1:,}"
        lines.append(f"{STEP}cluster {cluster['cluster']}: {held}")
        lines += [f"{2 * STEP}{entry['token']}: {_listed(entry)}" for entry in cluster["shown"]]
    return lines


def _listed(titles: Titles) -> str:
    more = f" / and {titles['more_titles']:,} more" if titles["more_titles"] else ""
    return f"({titles['occurrences']:,}) {' / '.join(titles['titles'])}{more}"


def _bars(values: VocabularyValues) -> list[Bars]:
    same, spread = values["same_token"], values["clusters"]
    sizes = {name: float(stored["bytes"]) for name, stored in _stored(values).items()}
    return [
        Bars(f"Bytes as {values['storage']['type']}", list(sizes), {"bytes": list(sizes.values())}),
        Bars(
            f"Ids by how many of the {same['nearest']} nearest are of their token",
            [str(count) for count in range(same["nearest"] + 1)],
            {"ids": [count / same["drawn"] for count in same["ids_by_count"]]},
        ),
        Bars(
            "Tokens by their share in the fullest tenth of clusters",
            [f"{low}–{low + 20}%" for low in range(0, 100, 20)],
            {"tokens": [count / spread["drawn"] for count in spread["tokens_by_share"]]},
        ),
    ]
