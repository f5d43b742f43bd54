"""What clusters and vectors say of documents, made into one score. Knows no model: it is handed what a beam found.

Three rules, see `MatchOptions`. Inside a cluster all of them rise with the product of vectors, unless weights were
learned otherwise: so of many documents only the nearest few have to be looked at.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

from triever import config
from triever.arrays import kth_greatest
from triever.config import option
from triever.errors import UsageError
from triever.index.trie_vectors import PrefixEntries

SHORTER = 0.8
"""By this power of its length a log-probability is divided in the authors' rule."""
APART = 1.0
"""How far below all others the best document is put that only a wider beam has found, where it would not be below."""
RULES = ("sum", "loglinear", "learned")
FEATURES = ("vector", "log P of the cluster", "share in the beam", "rank in the beam")
"""What the rule `learned` weighs; the last one is minus the logarithm of the rank."""
VECTOR_ALONE = (1.0, 0.0, 0.0, 0.0)
"""Its weights where nothing is written: all documents are in one cluster, and there is nothing to learn."""


@dataclass(frozen=True)
class MatchOptions:
    """How clusters and vectors make one score: `MatchOptions(rule="loglinear", fit=True)`."""

    depth: int | None = option(
        None, "symbols of a docid that are written, before vectors are matched; 0: none; not set: the whole docid"
    )
    rule: Literal["sum", "loglinear", "learned"] = option(
        "sum",
        "tanh(q·d) + alpha · softmax over the beam (sum), q·d / temperature + alpha · log P (loglinear), or both and "
        "the rank, with weights learned on held-out queries (learned)",
    )
    alpha: float = option(
        0.01, "what the cluster counts for beside the vector, but in the rule learned; as held-out queries choose it"
    )
    fit: bool = option(
        False, "choose alpha by held-out training queries, for this rule and depth; the given one where none was chosen"
    )
    temperature: float = option(0.05, "what products of vectors are divided by, in training and by the rule loglinear")

    def __post_init__(self) -> None:
        config.validate(self)
        if (self.depth or 0) < 0 or self.alpha < 0 or self.temperature <= 0:
            values = f"depth = {self.depth}, alpha = {self.alpha}, temperature = {self.temperature}"
            hint = "set depth and alpha to 0 or more, and temperature above 0"
            raise UsageError(f"a value of matching is too small: {values}", hint)

    @property
    def fits(self) -> bool:
        """Whether held-out queries choose something."""
        return self.fit or self.rule == "learned"

    @property
    def way(self) -> Way:
        """What a fit is good for."""
        return Way(self.rule, self.depth, self.temperature if self.rule == "loglinear" else None)


class Way(NamedTuple):
    """A way to match, for which weights may be fitted."""

    rule: str
    depth: int | None
    temperature: float | None  # None where it does not matter

    def __str__(self) -> str:
        depth = "whole docids" if self.depth is None else f"depth {self.depth}"
        divided = "" if self.temperature is None else f" and temperature {self.temperature}"
        return f"rule {self.rule} with {depth}{divided}"


@dataclass(frozen=True)
class Candidates:
    """Documents of the clusters that a beam found, each once, and what is known of them."""

    numbers: np.ndarray  # (n,)
    entries: np.ndarray  # (n,) of the trie: the docid by which its best cluster has it
    products: np.ndarray  # (n,) of its vector with the query's
    places: np.ndarray  # (n,) of its best cluster in the beam; 0 is the most probable
    mass: np.ndarray  # (n,) the logarithm of its clusters' probability, added up
    share: np.ndarray  # (n,) of its clusters in a softmax over the beam, added up
    last: np.ndarray  # (n,) bool: others of the cluster were left out, none of which is nearer
    clusters: int  # how many the beam found

    def __len__(self) -> int:
        return len(self.numbers)

    @property
    def features(self) -> np.ndarray:
        """(n, features) by the names of FEATURES."""
        return np.stack([self.products, self.mass, self.share, -np.log1p(self.places)], 1)


def candidates(below: PrefixEntries, logprob: np.ndarray, length: np.ndarray, *, single: bool = False) -> Candidates:
    """What is known of the documents below prefixes with these log-probabilities and lengths (prefixes,), best first.

    What several clusters give to a document that is in all of them is added up. A document with several docids may be
    below one prefix several times, and counts once there. `single`: none has several, and there is nothing to sort.
    """
    share, mass, lines = beam_shares(logprob, length)[below.places], logprob[below.places], np.arange(len(below.places))
    if not single:
        lines, first = _by_document(below, len(logprob))
        # The sum of nothing is an error, and there may be no documents.
        share = np.add.reduceat(share[lines], first) if len(first) else share
        mass = np.logaddexp.reduceat(mass[lines], first) if len(first) else mass
        lines = lines[first]
    numbers, entries, places = below.numbers[lines], below.entries[lines], below.places[lines]
    products = below.products[lines].astype(np.float64)
    return Candidates(numbers, entries, products, places, mass, share, below.last[lines], len(logprob))


def _by_document(below: PrefixEntries, prefixes: int) -> tuple[np.ndarray, np.ndarray]:
    """Lines in the order of their documents, one for each below each prefix, and where each document begins.

    That of its best prefix comes first.
    """
    key = below.numbers * prefixes + below.places
    lines = key.argsort(kind="stable")
    lines = lines[np.diff(key[lines], prepend=-1) != 0]
    return lines, np.flatnonzero(np.diff(below.numbers[lines], prepend=-1))


def beam_shares(logprob: np.ndarray, length: np.ndarray) -> np.ndarray:
    """(prefixes,) a softmax over the beam of log-probabilities by length, as the authors have it."""
    by_length = logprob / np.maximum(length, 1) ** SHORTER
    weight = np.exp(by_length - by_length.max(initial=-np.inf))
    return weight / weight.sum()


@dataclass(frozen=True)
class Scoring:
    """A rule with its weights: alpha, or where they are learned one for each of FEATURES."""

    rule: str
    weights: tuple[float, ...]
    temperature: float = 1.0

    @property
    def rising(self) -> bool:
        """Whether of two documents of one cluster the nearer one is never worse."""
        return self.rule != "learned" or self.weights[0] >= 0

    def parts(self, candidates: Candidates) -> dict[str, np.ndarray]:
        """By name what each part gives to each candidate (n,)."""
        if self.rule == "learned":
            return dict(zip(FEATURES, (candidates.features * self.weights).T, strict=True))
        [alpha] = self.weights
        if self.rule == "sum":
            return {"vector": np.tanh(candidates.products), "cluster": alpha * candidates.share}
        return {"vector": candidates.products / self.temperature, "cluster": alpha * candidates.mass}

    def scores(self, candidates: Candidates) -> np.ndarray:
        """(n,) all parts as one."""
        return np.add.reduce([*self.parts(candidates).values()])


@dataclass(frozen=True)
class ScoredCandidates:
    """Documents with their scores, in no order, and how many clusters they are from."""

    numbers: np.ndarray  # (n,)
    entries: np.ndarray  # (n,) of the trie
    scores: np.ndarray  # (n,)
    clusters: int
    note: str = ""

    def __len__(self) -> int:
        return len(self.numbers)

    def followed_by(self, wider: ScoredCandidates) -> ScoredCandidates:
        """With what only a wider beam has found behind all of these.

        What is here keeps its score. If one of the others would come before it, all of them are moved down alike.
        """
        new = ~np.isin(wider.numbers, self.numbers)
        highest, lowest = wider.scores[new].max(initial=-np.inf), self.scores.min(initial=np.inf)
        moved = highest - lowest + APART if highest >= lowest else 0.0
        return ScoredCandidates(
            np.concatenate([self.numbers, wider.numbers[new]]),
            np.concatenate([self.entries, wider.entries[new]]),
            np.concatenate([self.scores, wider.scores[new] - moved]),
            wider.clusters,
            self.note or f"the first {len(self)} are from {self.clusters} clusters, those behind them from more",
        )


def best_of(candidates: Candidates, scoring: Scoring, k: int) -> ScoredCandidates | None:
    """The k best and all that tie with the last; None if one that was left out may be among them."""
    scores = scoring.scores(candidates)
    # Every document that ties with the k-th stays in, so that which of them go is decided by their ids.
    lowest = kth_greatest(scores, k)
    if (scores[candidates.last] >= lowest).any():
        return None
    chosen = np.flatnonzero(scores >= lowest)
    return ScoredCandidates(candidates.numbers[chosen], candidates.entries[chosen], scores[chosen], candidates.clusters)


def weights_for(matching: MatchOptions, fitted: Mapping[Way, tuple[float, ...]]) -> tuple[float, ...]:
    """The weights of a way to match: those that were fitted for it, or what was given."""
    if matching.rule == "learned" and matching.depth == 0:
        return VECTOR_ALONE
    known = fitted.get(matching.way) if matching.fits else None
    if known is None and matching.rule == "learned":
        problem = f"matching: no weights were learned for {matching.way}"
        raise UsageError(problem, "fit the retriever with that rule and depth, or use another rule")
    return known or (matching.alpha,)
