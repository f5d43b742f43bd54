"""Work that is done elsewhere gives what it gives here, and goes on where it was; Ray itself is tested beside Ray."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.golden import make_artifacts as golden
from tests.models.causal import save_causal
from tests.models.local_place import LocalPlace
from tests.retrievers.contract import dataset
from triever import BM25, ArtifactError, Contextual, Dataset, Dense, MultiVector, QueryWriter, Tuning
from triever.data.store import DocumentStore
from triever.learning import teachers
from triever.learning.teachers import Teacher
from triever.models import encoder, encoding_blocks
from triever.models.elsewhere import elsewhere
from triever.queries.query_files import write_file
from triever.retriever import Retriever


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(encoder, "BATCH_ROWS", 4)
    monkeypatch.setattr(encoding_blocks, "BATCHES", 2)
    monkeypatch.setattr(teachers, "TOGETHER", 3)
    monkeypatch.setattr(QueryWriter, "shard", 3)


def documents() -> Dataset:
    return Dataset.of("golden", golden.documents())


def vectors(retriever: Any) -> list[np.ndarray]:
    """What encoders have made of documents."""
    if isinstance(retriever, Contextual):
        return [retriever.engine.docids.model.symbols.weight.detach().numpy(), retriever.engine.spellings.start]
    index = retriever.engine.index
    return [index.vectors()] if isinstance(retriever, Dense) else [index.main.part.packed, index.main.part.numbers]


MAKES = [golden.dense, lambda: MultiVector(backbone=golden.TINY, size=4), golden.RETRIEVERS["contextual"]]


@pytest.mark.parametrize("make", MAKES)
def test_vectors_have_the_same_bytes(make: Callable[[], Retriever], tmp_path: Path) -> None:
    plain, place = make().fit(documents()), LocalPlace(tmp_path / "place")
    with elsewhere(place):
        mine = make().fit(documents())
    assert len(place.made) > 2
    for own, expected in zip(vectors(mine), vectors(plain), strict=True):
        assert own.tobytes() == expected.tobytes()
    assert not place.folder.exists()


def test_only_what_is_missing_is_made_once_more(tmp_path: Path) -> None:
    first, second = LocalPlace(tmp_path / "place", stop_after=2), LocalPlace(tmp_path / "place")
    with pytest.raises(KeyboardInterrupt), elsewhere(first):
        golden.dense().fit(documents())
    with elsewhere(second):
        mine = golden.dense().fit(documents())
    assert len(first.made) == 2
    assert second.made
    assert not {*first.made} & {*second.made}
    assert vectors(mine)[0].tobytes() == vectors(golden.dense().fit(documents()))[0].tobytes()


@pytest.mark.parametrize(
    "other", [Dense(backbone=golden.TINY, training=Tuning(seed=1)), Dense(backbone=golden.TINY, pooling="first")]
)
def test_vectors_of_another_encoder_are_not_taken(other: Dense, tmp_path: Path) -> None:
    first, second = LocalPlace(tmp_path / "place", stop_after=2), LocalPlace(tmp_path / "place")
    with pytest.raises(KeyboardInterrupt), elsewhere(first):
        other.fit(documents())
    with elsewhere(second):
        mine = golden.dense().fit(documents())
    assert vectors(mine)[0].tobytes() == vectors(golden.dense().fit(documents()))[0].tobytes()


def test_a_damaged_file_is_told_in_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt), elsewhere(LocalPlace(tmp_path / "place", stop_after=2)):
        golden.dense().fit(documents())
    damaged = next((tmp_path / "place").glob("*/*.npz"))
    damaged.write_bytes(damaged.read_bytes()[:-30])
    with pytest.raises(ArtifactError, match=r"\.npz is damaged; remove it"), elsewhere(LocalPlace(tmp_path / "place")):
        golden.dense().fit(documents())


TEXTS = [f"word{number} word{number + 1} water" for number in range(11)]
TEACHERS = [BM25, golden.dense, golden.RETRIEVERS["fused"]]


@pytest.mark.parametrize("make", TEACHERS)
def test_a_teacher_thinks_the_same(
    make: Callable[[], Retriever], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = DocumentStore.of(golden.documents())
    store.fingerprint = documents().fingerprint

    def opinions(name: str) -> list[bytes]:
        monkeypatch.setenv("TRIEVER_CACHE", str(tmp_path / name))
        asked = Teacher(make(), documents(), store, None).opinions(TEXTS)
        return [asked.rows.tobytes(), asked.scores.tobytes()]

    place = LocalPlace(tmp_path / "place", least=1000, stop_after=1)
    with pytest.raises(KeyboardInterrupt), elsewhere(place):
        opinions("interrupted")
    place.stop_after = None
    with elsewhere(place):
        assert opinions("place") == opinions("here")
    assert len(place.made) == len({*place.made}) == 4  # three texts at a time


def test_questions_have_the_same_bytes(tmp_path: Path) -> None:
    writer = QueryWriter(backbone=str(save_causal(tmp_path / "llama")), per_document=3, query_length=8)
    write_file(writer, dataset(), tmp_path / "here.jsonl")
    place = LocalPlace(tmp_path / "place", stop_after=2)
    with pytest.raises(KeyboardInterrupt), elsewhere(place):
        write_file(writer, dataset(), tmp_path / "there.jsonl")
    place.stop_after = None
    with elsewhere(place):
        counts = write_file(writer, dataset(), tmp_path / "there.jsonl")
    assert place.made == ["000000.jsonl", "000001.jsonl", "000002.jsonl", "000003.jsonl"]
    assert counts["documents"] == len([*dataset().documents()])
    assert (tmp_path / "there.jsonl").read_bytes() == (tmp_path / "here.jsonl").read_bytes()
    assert not (tmp_path / "there.jsonl.work").exists()
