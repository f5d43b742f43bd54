"""Models of sentence-transformers: their folders as backbones, and the models themselves as encoders of queries."""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import triever
from tests.models.test_backbones import save
from tests.retrievers.contract import DOCUMENTS, QUERIES, dataset
from triever import Dense, GivenVectors, VectorFile

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(find_spec("sentence_transformers") is None, reason="sentence-transformers is not installed"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model with random weights, mean pooling and normalisation, as its package saves it."""
    from sentence_transformers import SentenceTransformer, models  # ty: ignore[unresolved-import]

    place = tmp_path_factory.mktemp("models")
    words = models.Transformer(str(save("bert", place / "bert")), max_seq_length=48)
    width = json.loads((place / "bert" / "config.json").read_text())["hidden_size"]
    modules = [words, models.Pooling(width, pooling_mode="mean"), models.Normalize()]
    SentenceTransformer(modules=modules, device="cpu").float().save(str(place / "st"))
    return place / "st"


@pytest.fixture(scope="module")
def model(folder: Path) -> Any:
    from sentence_transformers import SentenceTransformer  # ty: ignore[unresolved-import]

    return SentenceTransformer(str(folder), device="cpu")


def vectors(model: Any, folder: Path) -> dict[str, str]:
    np.save(folder / "v.npy", model.encode([document.full_text for document in DOCUMENTS]))
    (folder / "v.txt").write_text("\n".join(document.id for document in DOCUMENTS), encoding="utf-8")
    return {"file": str(folder / "v.npy"), "ids": str(folder / "v.txt")}


def test_a_saved_model_is_a_backbone_with_the_same_vectors(
    model: Any, folder: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    reading = {"backbone": str(folder), "document_length": 48, "query_length": 48}
    dense = Dense(**reading).fit(dataset())
    expected = model.encode([document.full_text for document in DOCUMENTS])
    assert dense.engine.index.vectors() == pytest.approx(expected, abs=1e-5)
    assert dense.engine.vectors(["hot water"]) == pytest.approx(model.encode(["hot water"]), abs=1e-5)
    taken = Dense(**reading, given=VectorFile(**vectors(model, tmp_path))).fit(dataset())
    assert not [record for record in caplog.records if "are not those" in record.message]
    ids = [[hit.id for hit in result] for result in taken.search_many(QUERIES, 5)]
    assert ids == [[hit.id for hit in result] for result in dense.search_many(QUERIES, 5)]


def test_a_model_encodes_queries_and_new_documents(model: Any, folder: Path, tmp_path: Path) -> None:
    own = GivenVectors(**vectors(model, tmp_path), encoder=f"sentence-transformers:{folder}").fit(dataset())
    expected = model.encode([document.full_text for document in DOCUMENTS]) @ model.encode([QUERIES[0].text])[0]
    result = own.search(QUERIES[0], len(DOCUMENTS))
    assert {hit.id: hit.score for hit in result} == pytest.approx(
        {document.id: float(score) for document, score in zip(DOCUMENTS, expected, strict=True)}, abs=1e-5
    )
    own.save(tmp_path / "m")
    assert f"| queries are encoded by | sentence-transformers:{folder} |" in own.card
    again = triever.load(tmp_path / "m")
    assert isinstance(again, GivenVectors)
    asked = again.asked_by(model)
    asked.add([triever.Document("crater", "Molten rock.")])
    assert "crater" in {hit.id for hit in asked.search("Molten rock.", 11)}


def test_a_model_that_is_not_there_is_refused(tmp_path: Path, model: Any) -> None:
    with pytest.raises(triever.UsageError, match="sentence-transformers cannot load"):
        GivenVectors(**vectors(model, tmp_path), encoder=f"sentence-transformers:{tmp_path}/none").fit(dataset())
