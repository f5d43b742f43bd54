"""A CUDA device finds what the CPU finds, whether it has room for the vectors or not."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from tests.index import oracle
from triever.index.token_vectors import TokenIndex, TokenOptions
from triever.index.vectors import IndexOptions, VectorIndex

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


@pytest.fixture(params=["room", "no room"])
def _memory(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "no room":
        monkeypatch.setattr(torch.cuda, "mem_get_info", lambda _: (0, 0))


@pytest.mark.usefixtures("_memory")
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_vectors(dtype: str) -> None:
    vectors, queries = oracle.clustered(5000, 64), oracle.clustered(50, 64, seed=1)
    keep = np.arange(5000) % 7 > 0
    options = IndexOptions(dtype=dtype)  # type: ignore[invalid-argument-type]
    here = VectorIndex.of(vectors, options).without(keep)
    there = VectorIndex.of(vectors, replace(options, device="cuda")).without(keep)
    (scores, rows), (others, at) = here.search(queries, 20), there.search(queries, 20)
    np.testing.assert_allclose(scores, others, atol=1e-5)
    assert oracle.recall(rows, at) > 0.99


@pytest.mark.usefixtures("_memory")
def test_whole_numbers_give_the_same_rows() -> None:
    chance = np.random.default_rng(0)
    vectors, queries = chance.integers(-3, 4, (3000, 8)), chance.integers(-3, 4, (20, 8))
    here, there = (VectorIndex.of(vectors, IndexOptions(device=device)) for device in ("cpu", "cuda"))
    for one, other in zip(here.search(queries, 50), there.search(queries, 50), strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.usefixtures("_memory")
@pytest.mark.parametrize("bits", [16, 4, 2])
@pytest.mark.parametrize("candidates", [0, 60])
def test_token_vectors(bits: int, candidates: int) -> None:
    flat, starts = oracle.token_corpus(1000)
    queries = oracle.token_queries(flat, starts, 20)
    mask = np.arange(12) < np.arange(20)[:, None]  # the first query has no tokens
    options = TokenOptions(bits=bits, candidates=candidates)
    learned = TokenIndex.of(flat, starts, options)
    codec = replace(learned.codec, device=torch.device("cuda"))
    keep = np.arange(1000) % 7 > 0
    here, there = (TokenIndex.of(flat, starts, options, one).without(keep) for one in (learned.codec, codec))
    (scores, rows), (others, at) = here.search(queries, mask, 10), there.search(queries, mask, 10)
    assert (rows[0] == -1).all()
    assert (at[0] == -1).all()
    assert oracle.recall(at[1:], rows[1:]) > 0.98
    np.testing.assert_allclose(scores, others, atol=1e-2 if bits < 16 else 1e-4)


def test_token_vectors_can_be_learned_there() -> None:
    flat, starts = oracle.token_corpus(1000)
    queries = oracle.token_queries(flat, starts, 20)
    index = TokenIndex.of(flat, starts, TokenOptions(bits=4, device="cuda"))
    exact = TokenIndex.of(flat, starts, TokenOptions(candidates=0))
    assert index.info()["cosine"] > 0.98
    assert oracle.recall(index.search(queries, None, 10)[1], exact.search(queries, None, 10)[1]) > 0.85
