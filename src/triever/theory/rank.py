"""What embeddings of a size can do: the singular-value tail of a matrix of scores (queries, documents).

Scores that are inner products of vectors of size r make a matrix of rank r at most. So do sums of c such products, of
rank c * r. Late interaction takes a maximum over tokens before it adds them up, and has no such bound.
"""

from __future__ import annotations

import numpy as np


def tail_errors(scores: np.ndarray) -> np.ndarray:
    """(ranks,) the least relative error of a matrix of rank 0, 1, 2, ... (Eckart, Young and Mirsky).

    It is the Frobenius norm of what is left over, divided by that of the scores.

    >>> tail_errors(np.diag([4.0, 3.0])).tolist()
    [1.0, 0.6, 0.0]
    """
    singular = np.linalg.svd(np.asarray(scores, np.float64), compute_uv=False)
    left = np.concatenate([np.cumsum(singular[::-1] ** 2)[::-1], [0.0]])
    return np.sqrt(left / left[0]) if left[0] > 0 else np.zeros(len(left))


def best_of_rank(scores: np.ndarray, rank: int) -> np.ndarray:
    """The matrix of a rank that is nearest to the scores.

    >>> best_of_rank(np.diag([4.0, 3.0]), 1).tolist()
    [[4.0, 0.0], [0.0, 0.0]]
    """
    left, singular, right = np.linalg.svd(np.asarray(scores, np.float64), full_matrices=False)
    return (left[:, :rank] * singular[:rank]) @ right[:rank]


def summed_channels(queries: np.ndarray, documents: np.ndarray) -> np.ndarray:
    """(queries, documents) the sums of the inner products of each channel: (c, queries, r) and (c, documents, r)."""
    return np.einsum("cqr,cdr->qd", queries, documents)


def max_sim(queries: np.ndarray, documents: np.ndarray) -> np.ndarray:
    """(queries, documents) for each query token the best token of a document, summed.

    Tokens are (queries, tokens, r) and (documents, tokens, r).

    >>> max_sim(np.array([[[1.0]], [[-1.0]]]), np.array([[[2.0], [-3.0]]])).tolist()
    [[2.0], [3.0]]
    """
    return np.einsum("qtr,dur->qdtu", queries, documents).max(3).sum(2)


def half_circle(count: int) -> np.ndarray:
    """(count, 2) vectors of length one, at equal angles over half a circle.

    If a document has the tokens x and -x, and a query one token, max-sim is the absolute cosine of their angle. For as
    many queries as documents on this half circle it has full rank, although r = 2 and two tokens are compared.

    >>> x = half_circle(12)
    >>> int(np.linalg.matrix_rank(max_sim(x[:, None], np.stack([x, -x], 1))))
    12
    """
    angle = np.pi * np.arange(count) / count
    return np.stack([np.cos(angle), np.sin(angle)], 1)


def circle(count: int) -> np.ndarray:
    """(count, 2) vectors of length one, at equal angles over a circle.

    As queries and as documents each is nearest to itself. So vectors of size 2 can rank any one relevant document
    first, though the matrix of what is relevant, the identity, has full rank and a tail that hardly falls.

    >>> x = circle(100)
    >>> bool(((x @ x.T).argmax(1) == np.arange(100)).all())
    True
    """
    angle = 2 * np.pi * np.arange(count) / count
    return np.stack([np.cos(angle), np.sin(angle)], 1)
