"""Vectors in few bits: what comes back, and how much room they take."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.index import oracle
from triever.index import codec as module
from triever.index.codec import Codec, centroid_count, wide

CPU = torch.device("cpu")


def learn(vectors: np.ndarray, bits: int, centroids: int = 0) -> Codec:
    return Codec.learn(vectors, bits, centroids, 0, CPU)


def back(codec: Codec, vectors: np.ndarray) -> np.ndarray:
    numbers, packed = codec.encode(vectors)
    return codec.decode(torch.from_numpy(numbers), torch.from_numpy(packed)).numpy()


def by_hand(codec: Codec, vectors: np.ndarray) -> np.ndarray:
    """Nearest centroid, then for each number the mean of its bucket: one vector and one number at a time."""
    found = []
    for vector in vectors.astype("float32"):
        centroid = codec.centroids[((codec.centroids - vector) ** 2).sum(1).argmin()]
        rest = vector - centroid
        bucket = [int((codec.cutoffs[place] <= value).sum()) for place, value in enumerate(rest)]
        again = centroid + np.array([codec.weights[place, one] for place, one in enumerate(bucket)])
        found.append(again / np.linalg.norm(again) if codec.unit else again)
    return np.array(found)


@settings(max_examples=25)
@given(bits=st.sampled_from([4, 2]), width=st.integers(1, 9), count=st.integers(1, 60), scale=st.sampled_from([1, 3]))
def test_what_comes_back_is_the_centroid_and_the_means_of_buckets(
    bits: int, width: int, count: int, scale: int
) -> None:
    vectors = scale * oracle.unit(np.random.default_rng(count).normal(size=(count, width)))
    codec = learn(vectors, bits, 5)
    assert codec.unit == (scale == 1)
    np.testing.assert_allclose(back(codec, vectors), by_hand(codec, vectors), atol=1e-5)


def test_buckets_are_equally_full_and_their_weights_are_means() -> None:
    vectors = oracle.clustered(4000, 6)
    codec = learn(vectors, 2, 1)
    rest = vectors - codec.centroids[0]
    for place in range(6):
        bucket = np.searchsorted(codec.cutoffs[place], rest[:, place], side="right")
        assert np.bincount(bucket).tolist() == [1000] * 4
        means = [rest[bucket == one, place].mean() for one in range(4)]
        np.testing.assert_allclose(codec.weights[place], means, atol=1e-5)


def test_more_bits_come_closer_and_take_more_room() -> None:
    vectors = oracle.token_corpus(300)[0]
    codecs = {bits: learn(vectors, bits) for bits in (16, 4, 2)}
    cosine = {bits: codec.cosine for bits, codec in codecs.items()}
    assert 1 >= cosine[16] > cosine[4] > cosine[2] > 0.85
    assert cosine[4] > 0.98
    assert cosine[16] > 0.9999
    for bits, codec in codecs.items():
        again = back(codec, vectors)
        assert float((vectors * oracle.unit(again)).sum(1).mean()) == pytest.approx(cosine[bits], abs=2e-3)
        numbers, packed = codec.encode(vectors)
        assert packed.nbytes == len(vectors) * 32 * bits // 8
        assert numbers.nbytes == 2 * len(vectors)


def test_vectors_of_other_lengths_keep_them() -> None:
    lengths = np.random.default_rng(0).uniform(0.5, 3, (2000, 1))
    vectors = (lengths * oracle.clustered(2000, 16)).astype("float32")
    again = back(learn(vectors, 4), vectors)
    assert np.abs(np.linalg.norm(again, axis=1) / lengths[:, 0] - 1).mean() < 0.05


def test_the_same_vectors_give_the_same_codec() -> None:
    vectors = oracle.clustered(1500, 8)
    one, other = learn(vectors, 4), learn(vectors, 4)
    for name in ("centroids", "cutoffs", "weights"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name))


def test_few_or_equal_vectors_are_no_trouble() -> None:
    for vectors in (np.ones((1, 4)), np.ones((50, 4)), np.zeros((0, 4)), np.zeros((3, 4))):
        for bits in (16, 4, 2):
            codec = learn(vectors, bits)
            np.testing.assert_allclose(back(codec, vectors), vectors, atol=1e-3)


def test_groups_first_is_nearly_as_good_as_all_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    vectors = torch.from_numpy(oracle.token_corpus(400)[0])
    at_once = module._clustered(vectors, 200, 0)
    monkeypatch.setattr(module, "AT_ONCE", 10)
    in_groups = module._clustered(vectors, 200, 0)
    assert in_groups.shape == at_once.shape == (200, 32)
    error = [float(module.nearest(vectors, centroids)[1].mean()) for centroids in (at_once, in_groups)]
    assert error[1] < 1.05 * error[0]


@given(st.lists(st.integers(0, 30), min_size=1, max_size=9), st.floats(0, 1))
def test_shares_are_whole_and_follow_the_sizes(counts: list[int], part: float) -> None:
    k = round(part * sum(counts))
    share = module._shares(torch.tensor(counts), k) if sum(counts) else [0] * len(counts)
    assert sum(share) == k
    for one, count in zip(share, counts, strict=True):
        assert abs(one - count * k / max(1, sum(counts))) < 1
        assert one <= count


def test_how_many_centroids() -> None:
    assert centroid_count(1_000_000, 0) == 4096
    assert centroid_count(10**10, 0) == 2**16
    assert centroid_count(5, 0) == 5
    assert centroid_count(1000, 7) == 7
    assert centroid_count(0, 7) == 0


def test_two_bytes_hold_every_centroid() -> None:
    numbers = np.array([0, 1, 32767, 32768, 65535], np.uint16)
    assert wide(torch.from_numpy(numbers)).tolist() == numbers.tolist()
