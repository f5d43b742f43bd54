"""The obvious way to search vectors and token vectors, and data that looks like some."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from triever import artifact


def inner_products(vectors: np.ndarray, queries: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    """Every product, a sort by (score, row), the first k; -inf and -1 behind the last."""
    scores, rows = np.full((len(queries), k), -np.inf), np.full((len(queries), k), -1)
    for number, query in enumerate(queries):
        products = [float(np.dot(vector.astype("float64"), query.astype("float64"))) for vector in vectors]
        order = sorted(range(len(vectors)), key=lambda row: (-products[row], row))[:k]
        scores[number, : len(order)] = [products[row] for row in order]
        rows[number, : len(order)] = order
    return scores, rows


def late_score(query: np.ndarray, document: np.ndarray, *, mean: bool) -> float:
    """For each query token its best document token, one after the other; -inf if there is nothing to compare."""
    if not len(query) or not len(document):
        return -np.inf
    fits = [max(float(np.dot(word.astype("float64"), token.astype("float64"))) for token in document) for word in query]
    return sum(fits) / len(fits) if mean else sum(fits)


def late_interaction(
    documents: list[np.ndarray], query: np.ndarray, k: int, *, mean: bool = False
) -> tuple[list[float], list[int]]:
    """Scores and rows of the k best documents that have tokens."""
    scores = [late_score(query, document, mean=mean) for document in documents]
    order = sorted(range(len(documents)), key=lambda row: (-scores[row], row))
    order = [row for row in order if scores[row] > -np.inf][:k]
    return [scores[row] for row in order], order


def unit(vectors: np.ndarray) -> np.ndarray:
    """Each of length one."""
    return (vectors / np.linalg.norm(vectors, axis=-1, keepdims=True)).astype("float32")


def clustered(count: int, width: int, centres: int = 50, seed: int = 0) -> np.ndarray:
    """Vectors of length one around some centres, as those of real documents are."""
    chance = np.random.default_rng(seed)
    means = chance.normal(size=(centres, width))
    return unit(means[chance.integers(0, centres, count)] + 0.6 * chance.normal(size=(count, width)))


def token_corpus(count: int, width: int = 32, words: int = 800, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Documents about topics: each token is a word, bent towards the topic, with some noise. Flat and starts."""
    chance = np.random.default_rng(seed)
    meaning, topics = unit(chance.normal(size=(words, width))), unit(chance.normal(size=(40, width)))
    usual = chance.integers(0, words, (40, 60))  # the words of each topic
    lengths = chance.integers(5, 40, count)
    topic = np.repeat(chance.integers(0, 40, count), lengths)
    own = usual[topic, chance.integers(0, 60, len(topic))]
    word = np.where(chance.random(len(topic)) < 0.6, own, chance.integers(0, words, len(topic)))
    noise = 0.4 * unit(chance.normal(size=(len(topic), width)))
    return unit(meaning[word] + 0.5 * topics[topic] + noise), np.concatenate([[0], np.cumsum(lengths)])


def families(count: int, width: int = 64, size: int = 10, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Families of documents about some topics, told apart by eight names each that they share. Flat, starts, queries.

    Tokens lie around few topics, and what makes a name is what is left after these: centroids do not know it.
    A query (families, 8, d) is the names of a family.
    """
    chance = np.random.default_rng(seed)
    topics = unit(chance.normal(size=(20, width)))[chance.integers(0, 20, count // size)]  # (families, d)
    names = unit(topics[:, None] + 1.2 * unit(chance.normal(size=(count // size, 8, width))))
    others = topics[:, None, None] + 1.2 * unit(chance.normal(size=(count // size, size, 16, width)))
    said = names[:, None] + 0.5 * unit(chance.normal(size=(count // size, size, 8, width)))
    tokens = unit(np.concatenate([others, said], 2))  # (families, size, 24, d)
    asked = unit(names + 0.4 * unit(chance.normal(size=names.shape)))
    return tokens.reshape(-1, width), 24 * np.arange(count + 1), asked


def token_queries(flat: np.ndarray, starts: np.ndarray, count: int, length: int = 12, seed: int = 1) -> np.ndarray:
    """Queries (count, length, d) of some tokens of one document each, with noise."""
    chance = np.random.default_rng(seed)
    rows = chance.integers(0, len(starts) - 1, count)
    places = starts[rows, None] + (chance.random((count, length)) * np.diff(starts)[rows, None]).astype(int)
    return unit(flat[places] + 0.5 * unit(chance.normal(size=(count, length, flat.shape[1]))))


def recall(found: np.ndarray, expected: np.ndarray) -> float:
    """The mean share of the expected rows that were found."""
    return float(np.mean([len(set(one) & set(other)) / len(other) for one, other in zip(found, expected, strict=True)]))


class _Changed:
    """A writer that puts other arrays in the place of some."""

    bounds = None

    def __init__(self, writer: artifact.Writer, changed: dict[str, np.ndarray]) -> None:
        self.writer, self.changed = writer, changed
        self.json = writer.json

    def array(self, role: str, values: np.ndarray) -> None:
        _, _, own = role.partition("_")  # behind the name of the index
        self.writer.array(role, self.changed.get(own, values))


def save(index: Any, path: Path, **changed: np.ndarray) -> None:
    """An index into an artifact, with some arrays that are not its own."""
    with artifact.writing(path) as writer:
        index.write(_Changed(writer, changed))
        writer.commit("index", {}, {}, "test")


def broken(values: np.ndarray, place: int, value: int) -> np.ndarray:
    """The same values but for one."""
    values = values.copy()
    values[place] = value
    return values
