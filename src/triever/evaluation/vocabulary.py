"""What a contextual vocabulary is like: its size, how even it is, whose ids are near each other, what clusters hold.

The numbers of the paper on contextualized generative retrieval (CGR, appendices C.3 to C.5), for a saved model. What is
drawn is drawn by a seed. The id of the end of a title is no token in context: only sizes count it.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

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
from triever.retriever import Retriever
from triever.retrievers.contextual import Contextual

PAIRED = 5_000
"""Ids whose pairs give the uniformity, at most."""
LOOKED_AT = 1_000
"""Ids whose neighbours are looked at, at most."""
NEAREST = 5
TOKENS = 100
"""Tokens whose clusters are counted, at most."""
SEVERAL = 10
"""Only of a token in at least so many clusters is a tenth of them a whole cluster."""
LEARNED_FROM = 2**20
"""States that clusters are learned from, at most; all are put into one."""
SLAB = 2**17
"""Rows of states that are looked at at once."""
UNDERFLOW = -150 * math.log(2)
"""Below this, exp is zero in single precision."""
WORDS, IDS_SHOWN, CLUSTERS_SHOWN, TOKENS_SHOWN, TITLES_SHOWN = 2, 10, 4, 4, 6
"""How much of the clusters is shown: words, of each its ids and clusters, of a cluster its tokens, of those titles."""
log = logging.getLogger("triever")


def vocabulary(retriever: Retriever, *, words: Sequence[str] = (), clusters: int = 0, seed: int = 0) -> Finding:
    """Look at the vocabulary of a contextual retriever; `clusters` 0 makes as many as there are ids.

    `words` are tokens whose clusters are shown, by default those that are in most clusters.
    """
    if not isinstance(retriever, Contextual):
        problem = f"a {retriever.kind} retriever has no contextual vocabulary"
        raise UsageError(problem, "make one with: triever fit contextual")
    titles = retriever.in_context()
    ids = _token_ids(titles)
    chosen = [_token(titles, word) for word in words]  # a slip is told before the work
    rows, symbols = titles.vocabulary.rows.detach()[torch.from_numpy(ids)].float(), titles.vocabulary.symbol[ids]
    number = clustered(titles.states, clusters or len(ids), seed=seed, device=rows.device)
    gathered = Gathered(titles, number, retriever.documents)
    values = {
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
    """The ids of tokens, without that of the end."""
    ids = np.flatnonzero(titles.vocabulary.symbol != titles.scheme.stop)
    if len(ids) < 2 or not len(titles.symbols):
        problem = f"there are {len(ids)} ids and {len(titles.symbols)} tokens in titles, too few to compare any"
        raise UsageError(problem, "add documents with titles")
    return ids


def _drawn(count: int, most: int, seed: int) -> np.ndarray:
    """At most so many of the numbers below a count, rising."""
    return np.sort(np.random.default_rng(seed).permutation(count)[:most])


# --- numbers --------------------------------------------------------------------------------------------------


def storage(titles: InContext) -> dict[str, Any]:
    """Vectors and bytes of the matrix, of all states, and of the backbone's vocabulary, all in the matrix's type."""
    rows = titles.vocabulary.rows
    vectors = {"matrix": tuple(rows.shape), "plain_vocabulary": tuple(titles.plain.shape)}
    vectors["all_states"] = (len(titles.symbols), rows.shape[1])
    sizes = {name: {"vectors": n, "bytes": n * size * rows.element_size()} for name, (n, size) in vectors.items()}
    return {"type": str(rows.dtype).removeprefix("torch."), **sizes}


def uniformity(vectors: Tensor) -> tuple[float, float]:
    """log E exp(-2 |x - y|²) over all pairs of rows, and the share of pairs that single precision would count as zero.

    Everything stays a logarithm until the end, so that pairs which are far apart are not lost.
    """
    vectors = vectors.double()
    sums, lost = [], 0
    for low in range(0, len(vectors), 500):
        some = vectors[low : low + 500]
        exponents = -2 * torch.cdist(some, vectors).square()
        exponents.diagonal(low).fill_(-torch.inf)  # no pair with itself
        sums.append(exponents.logsumexp((0, 1)))
        lost += int((exponents < UNDERFLOW).sum()) - len(some)
    pairs = len(vectors) * (len(vectors) - 1)
    return float(torch.stack(sums).logsumexp(0)) - math.log(pairs), lost / pairs


def _uniformities(rows: Tensor) -> dict[str, Any]:
    kinds = {"raw": rows, "unit": functional.normalize(rows, dim=1)}
    found = {name: dict(zip(("value", "underflow"), uniformity(each), strict=True)) for name, each in kinds.items()}
    return {"ids": len(rows), **found}


def same_token(rows: Tensor, symbols: np.ndarray, drawn: np.ndarray) -> np.ndarray:
    """(drawn,) how many of the nearest ids of each belong to its own token."""
    counts = []
    for one in drawn.tolist():
        near = nearest_few(rows[one], rows, NEAREST + 1).cpu().numpy()
        others = near[near != one][:NEAREST]
        counts.append(int((symbols[others] == symbols[one]).sum()))
    return np.array(counts)


def _neighbours(rows: Tensor, symbols: np.ndarray, drawn: np.ndarray) -> dict[str, Any]:
    """Rates over all that were drawn, and over those whose token has other ids at all."""
    looked_at = min(NEAREST, len(rows) - 1)
    counts = same_token(rows, symbols, drawn)
    others = np.bincount(symbols)[symbols[drawn]] - 1
    able = others > 0
    return {
        "nearest": looked_at,
        "drawn": len(drawn),
        "rate": float(counts.mean() / looked_at),
        "most_possible": float(np.minimum(others, looked_at).mean() / looked_at),
        "drawn_with_others": int(able.sum()),
        "rate_with_others": float(counts[able].mean() / looked_at) if able.any() else None,
        "ids_by_count": np.bincount(counts, minlength=looked_at + 1).tolist(),
    }


def clustered(states: np.ndarray, clusters: int, *, seed: int = 0, device: str | torch.device = "cpu") -> np.ndarray:
    """(n,) the cluster of each state (n, d): k-means over all of them, whatever their token.

    States may be mapped from a file.
    """
    some = states if len(states) <= LEARNED_FROM else states[_drawn(len(states), LEARNED_FROM, seed)]
    count = min(clusters, len(some))
    log.info("clustering %d states into %d clusters", len(some), count)
    centroids = kmeans(torch.from_numpy(np.asarray(some, np.float32)).to(device), count, seed=seed)
    slabs = (np.asarray(states[low : low + SLAB], np.float32) for low in range(0, len(states), SLAB))
    return np.concatenate([nearest(torch.from_numpy(slab).to(device), centroids)[0].cpu().numpy() for slab in slabs])


def top_share(counts: np.ndarray) -> float:
    """The share of a token's states in the tenth of its clusters, at least one, that holds most of them.

    >>> top_share(np.array([1, 6, 3]))
    0.6
    """
    largest = np.sort(counts)[::-1][: max(1, len(counts) // 10)]
    return float(largest.sum() / counts.sum())


def _concentration(gathered: Gathered, seed: int) -> dict[str, Any]:
    """Whether the states of tokens lie in few clusters: means and standard deviations over tokens."""
    tokens = np.unique(gathered.titles.symbols)
    counts = [gathered.counts(symbol) for symbol in tokens[_drawn(len(tokens), TOKENS, seed)].tolist()]
    shares = np.array([top_share(one) for one in counts])
    spread = shares[[len(one) >= SEVERAL for one in counts]]
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
    raise UsageError(f"{word!r} is no token of a title", hint)


@dataclass(frozen=True)
class Gathered:
    """Title tokens in clusters over all of them."""

    titles: InContext
    number: np.ndarray  # (n,) the cluster of each occurrence
    store: DocumentStore

    def counts(self, symbol: int) -> np.ndarray:
        """In each cluster that holds a token, how often it does."""
        return np.unique(self.number[self.titles.symbols == symbol], return_counts=True)[1]

    def varied(self) -> list[int]:
        """The tokens that are in most clusters; pieces without three letters, such as a full stop, come last."""
        different = np.unique(np.stack([self.titles.symbols, self.number]), axis=1)
        occurrences, clusters = np.bincount(self.titles.symbols), np.bincount(different[0])

        def order(symbol: int) -> tuple[bool, int, int, int]:
            short = sum(map(str.isalpha, self.titles.scheme.symbol(symbol))) < 3
            return short, -clusters[symbol], -occurrences[symbol], symbol

        return sorted(np.flatnonzero(occurrences).tolist(), key=order)[:WORDS]

    def about(self, symbol: int) -> dict[str, Any]:
        """What a token's ids stand for, and the largest of the clusters that hold it."""
        places = np.flatnonzero(self.titles.symbols == symbol)
        _, ids = self.titles.vocabulary.placed(self.titles.symbols[places], self.titles.states[places])
        clusters = _most_first(self.number[places])
        return {
            "token": self.titles.scheme.symbol(symbol),
            "occurrences": len(places),
            "ids": [{"id": one, **self._titles(places[ids == one])} for one in _most_first(ids)[:IDS_SHOWN]],
            "clusters": len(clusters),
            "largest_clusters": [self._cluster(one, symbol) for one in clusters[:CLUSTERS_SHOWN]],
        }

    def _cluster(self, cluster: int, symbol: int) -> dict[str, Any]:
        """A cluster by its tokens: the one in question first, then those that it holds most of."""
        places = np.flatnonzero(self.number == cluster)
        symbols = self.titles.symbols[places]
        tokens = [symbol, *(one for one in _most_first(symbols) if one != symbol)]
        shown = [
            {"token": self.titles.scheme.symbol(one), **self._titles(places[symbols == one])}
            for one in tokens[:TOKENS_SHOWN]
        ]
        return {"cluster": cluster, "occurrences": len(places), "tokens": len(tokens), "shown": shown}

    def _titles(self, places: np.ndarray) -> dict[str, Any]:
        names = list(dict.fromkeys(self._names[row] for row in self.titles.documents[places].tolist()))
        return {"occurrences": len(places), "titles": names[:TITLES_SHOWN], "more_titles": len(names[TITLES_SHOWN:])}

    @cached_property
    def _names(self) -> list[str]:
        """What documents are called; as in docids, one without a title by its id."""
        titles = self.store.table.column("title").to_pylist()
        return [title or document for title, document in zip(titles, self.store.ids, strict=True)]


def _most_first(values: np.ndarray) -> list[int]:
    """The different values, the most frequent first."""
    different, counts = np.unique(values, return_counts=True)
    return different[np.argsort(-counts, kind="stable")].tolist()


# --- what a person sees ---------------------------------------------------------------------------------------


def _parts(values: Mapping[str, Any]) -> list[Part]:
    parts = [_size_part, _storage_part, _uniformity_part, _neighbours_part, _clusters_part, _words_part]
    return [part(values) for part in parts]


def _size_part(values: Mapping[str, Any]) -> Part:
    named = {"ids, with that of the end": "ids", "tokens": "tokens", "ids of a token at most": "ids_of_a_token_at_most"}
    named |= {"occurrences of tokens in titles": "occurrences", "documents": "documents"}
    return Part("Size", [{"what": what, "value": f"{values[key]:,}"} for what, key in named.items()])


STORED = {
    "plain_vocabulary": "the backbone's vocabulary",
    "matrix": "this vocabulary",
    "all_states": "all occurrences",
}


def _storage_part(values: Mapping[str, Any]) -> Part:
    stored = values["storage"]
    rows = [
        {
            "what": what,
            "vectors": f"{stored[key]['vectors']:,}",
            "bytes": f"{stored[key]['bytes']:,}",
            "times this": f"{stored[key]['bytes'] / stored['matrix']['bytes']:.3f}",
        }
        for key, what in STORED.items()
    ]
    return Part(f"Storage, all as {stored['type']}", rows)


def _uniformity_part(values: Mapping[str, Any]) -> Part:
    found = values["uniformity"]
    rows = [
        {"what": what, "uniformity": f"{found[key]['value']:.3f}", "underflow": f"{found[key]['underflow']:.1%}"}
        for key, what in (("raw", "rows as they are"), ("unit", "rows of length one"))
    ]
    lines = ["less is more even; rows of length one can hardly have less than -4"]
    if found["raw"]["underflow"] > 0:
        lines.append(
            "underflow: pairs so far apart that single precision has zero for them; here none is lost, but the value "
            "is that of the nearest pairs"
        )
    return Part(f"Uniformity, log E exp(-2 |x - y|²) over the pairs of {found['ids']:,} ids", rows, lines)


def _neighbours_part(values: Mapping[str, Any]) -> Part:
    found = values["same_token"]
    rows = [
        _rate_row(f"{found['drawn']:,} ids", found["rate"]),
        _rate_row(f"the {found['drawn_with_others']:,} of them whose token has other ids", found["rate_with_others"]),
        _rate_row("the most that all could have", found["most_possible"]),
    ]
    return Part(f"Ids of the same token among the {found['nearest']} nearest, by distance", rows)


def _clusters_part(values: Mapping[str, Any]) -> Part:
    found = values["clusters"]
    several = f"the {found['drawn_in_several']:,} of them in {SEVERAL} clusters or more"
    rows = [
        _rate_row(f"{found['drawn']:,} tokens", found["share"], found["deviation"]),
        _rate_row(several, found["share_in_several"], found["deviation_in_several"]),
    ]
    title = f"Share of a token's states in the fullest tenth of its clusters; {found['clusters']:,} clusters over all"
    return Part(title, rows)


def _rate_row(what: str, rate: float | None, deviation: float | None = None) -> dict[str, str]:
    spread = "" if deviation is None else f" ± {deviation:.1%}"
    return {"what": what, "value": "none" if rate is None else f"{rate:.1%}{spread}"}


def _words_part(values: Mapping[str, Any]) -> Part:
    return Part(
        "Ids and clusters of some tokens", lines=[line for word in values["words"] for line in _word_lines(word)]
    )


def _word_lines(word: Mapping[str, Any]) -> list[str]:
    lines = [f"{word['token']}: occurrences {word['occurrences']:,}, clusters {word['clusters']:,}"]
    lines += [f"{STEP}id {one['id']}: {_listed(one)}" for one in word["ids"]]
    for cluster in word["largest_clusters"]:
        held = f"occurrences {cluster['occurrences']:,}, other tokens {cluster['tokens'] - 1:,}"
        lines.append(f"{STEP}cluster {cluster['cluster']}: {held}")
        lines += [f"{2 * STEP}{one['token']}: {_listed(one)}" for one in cluster["shown"]]
    return lines


def _listed(one: Mapping[str, Any]) -> str:
    more = f" / and {one['more_titles']:,} more" if one["more_titles"] else ""
    return f"({one['occurrences']:,}) {' / '.join(one['titles'])}{more}"


def _bars(values: Mapping[str, Any]) -> list[Bars]:
    same, spread = values["same_token"], values["clusters"]
    stored = [float(values["storage"][key]["bytes"]) for key in STORED]
    return [
        Bars(f"Bytes as {values['storage']['type']}", list(STORED.values()), {"bytes": stored}),
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
