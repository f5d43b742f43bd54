"""On a GPU: the same clusters each time, and those of the processor but for rounding. `pytest -m slow` on such a
machine."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from tests.docids.test_quantize import clustered, error
from tests.docids.test_schemes import CLUSTERED, MAKE
from triever import Document
from triever.docids import quantize
from triever.docids.quantize import balanced_kmeans, kmeans, residual_codebooks
from triever.index.top import shared

pytestmark = [pytest.mark.slow, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")]


@pytest.mark.parametrize("k", [10, 700])
def test_clusters_are_the_same_each_time_and_as_good_as_the_processors(k: int) -> None:
    vectors = clustered(100_000, 300)
    first, second = (kmeans(vectors, k, device="cuda") for _ in range(2))
    assert first.device.type == "cuda"
    assert torch.equal(first, second)
    assert error(vectors, first.cpu()) <= 1.02 * error(vectors, kmeans(vectors, k))
    for balanced in (False, True):
        books = [residual_codebooks(vectors, 2, 64, device="cuda", balanced=balanced) for _ in range(2)]
        assert torch.equal(*books)
    shares = [balanced_kmeans(vectors, 50, device="cuda")[1] for _ in range(2)]
    assert torch.equal(*shares)


@pytest.mark.parametrize("name", CLUSTERED)
def test_vectors_in_a_file_are_clustered_on_a_gpu(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quantize, "ENOUGH", 500)
    monkeypatch.setattr(quantize, "PER_CENTROID", 10)
    np.save(tmp_path / "v.npy", clustered(3000, 25).numpy())
    mapped = shared(np.load(tmp_path / "v.npy", mmap_mode="r"))
    documents = [Document(str(number), "") for number in range(3000)]
    scheme = MAKE[name]()
    docids = scheme.fit(documents, mapped, "cuda")
    assert docids == MAKE[name]().fit(documents, mapped, "cuda")
    placed = scheme.place(Document("new", ""), mapped[7])  # in the processor's memory
    if name != "balanced clusters":
        assert placed[:1] == docids[7][:1]
