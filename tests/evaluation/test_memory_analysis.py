"""What is told of the memory of saved retrievers, and what a process that opens one really holds."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import triever
from tests.retrievers.contract import DOCUMENTS, dataset
from triever import BM25, GDR, Cluster, Dataset, Dense, DocidTuning, Document, UsageError
from triever.errors import ArtifactError
from triever.evaluation.finding import Finding
from triever.evaluation.memory_analysis import arithmetic, file_sizes, held, memory
from triever.evaluation.process_memory import STATUS, opened
from triever.memory_parts import Product, computed

SMALL = "scratch:hidden=32,layers=1,heads=2,vocabulary=500"
LARGE = 10**8
linux = pytest.mark.skipif(not STATUS.exists(), reason="reads what Linux says of a process")


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Two models and where they are."""
    root = tmp_path_factory.mktemp("memory")
    BM25().fit(dataset()).save(root / "words")
    clusters = Cluster(clusters=3, branch=3)
    GDR(backbone=SMALL, training=DocidTuning(steps=0), docids=clusters).fit(dataset()).save(root / "clusters")
    return {"words": root / "words", "clusters": root / "clusters"}


@pytest.fixture(scope="module")
def found(saved: dict[str, Path]) -> Finding:
    return memory(saved, grow=[1000, LARGE])


def test_values_are_those_of_the_retrievers(saved: dict[str, Path], found: Finding) -> None:
    for name, path in saved.items():
        model, told = triever.load(path), found.values["models"][name]
        assert {part: one["bytes"] for part, one in told["parts"].items()} == model.memory
        assert told["bytes"] == sum(model.memory.values())
        assert told["mapped"] == sum(one["mapped"] for one in told["parts"].values())
        assert (told["index_bytes"], told["documents"]) == (model.index_bytes, len(DOCUMENTS))
        assert told["files"] == file_sizes(path)
        for grown, documents in zip(told["grown"], (1000, LARGE), strict=True):
            sums = {part: computed(one) for part, one in model.memory_for(documents).items()}
            assert grown["bytes"] == sum(sums.values())
            assert {part: one["bytes"] for part, one in grown["parts"].items()} == {k: v for k, v in sums.items() if v}


def test_what_grows_is_told_from_what_does_not(found: Finding) -> None:
    more = {part: one["more_a_document"] for part, one in found.values["models"]["clusters"]["parts"].items()}
    assert more["cluster vectors"] == 32 * 4
    assert more["numbers"] == 8
    assert more["trie"] == 4 + 4
    assert {part for part, each in more.items() if not each} == {"weights", "docid rows", "placer", "placing"}


def test_the_arithmetic_is_shown_with_its_numbers(found: Finding) -> None:
    grown = found.values["models"]["clusters"]["grown"][1]
    assert grown["parts"]["cluster vectors"] == {
        "bytes": LARGE * 128,
        "arithmetic": "100,000,000 entries × 128 bytes (32 numbers of 4)",
    }
    part = next(part for part in found.parts if part.title.startswith("clusters with 100,000,000 documents"))
    row = next(row for row in part.rows if row["what"] == "cluster vectors")
    assert row["value"] == grown["parts"]["cluster vectors"]["arithmetic"]
    assert row["bytes"] == "12.8 GB"


def test_what_is_too_small_to_matter_is_left_out_of_the_arithmetic() -> None:
    assert arithmetic([Product(10**6, "words", 8), Product(1, "end", 8)]) == "1,000,000 words × 8 bytes"
    assert arithmetic([Product(0, "words", 8), Product(1, "end", 8)]) == "1 end × 8 bytes"


def test_tables_have_the_parts_of_all_models(found: Finding) -> None:
    rows = {row["what"]: row for row in found.parts[0].rows}
    assert rows["postings"]["clusters"] == ""
    assert rows["cluster vectors"]["words"] == ""
    assert rows["documents"] == {"what": "documents", "words": "10", "clusters": "10"}
    assert int(rows["all of it"]["words"].replace(",", "")) == found.values["models"]["words"]["bytes"]
    titles = [part.title for part in found.parts]
    assert "words (bm25): what grows, and what does not" in titles
    assert json.loads(json.dumps(found.to_dict()))["values"] == found.values


def test_it_is_drawn(found: Finding, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    found.plot(tmp_path / "memory.svg")
    assert (tmp_path / "memory.svg").stat().st_size > 1000
    assert [len(panel.series) for panel in found.bars] == [2, 2]


def test_a_model_without_documents_is_refused() -> None:
    empty = BM25().fit(dataset())
    empty.delete([document.id for document in DOCUMENTS])
    with pytest.raises(UsageError, match="has no documents to measure the memory of; add documents"):
        held(empty)


def many(count: int) -> Dataset:
    chance = np.random.default_rng(0)
    letters = [" ".join(f"word{number}" for number in row) for row in chance.integers(0, 90, (count, 4)).tolist()]
    return Dataset.of("many", [Document(str(at), text) for at, text in enumerate(letters)], [], {})


@pytest.mark.long
@linux
def test_a_process_that_opens_a_model_holds_what_was_counted(tmp_path: Path) -> None:
    """Twice twelve megabytes of vectors: a copy in memory, by which the graph is walked, and a file that is mapped."""
    wide = "scratch:hidden=512,layers=0,heads=1,vocabulary=400"
    graph = triever.IndexOptions(kind="hnsw", ef_construction=4, hnsw_m=4)
    model = Dense(backbone=wide, index=graph).fit(many(6000))
    model.save(tmp_path)
    sizes = model.sizes
    assert sizes["graph"].bytes > 12_000_000
    moments = opened(tmp_path)
    assert [*moments] == ["begun", "opened", "searched", "opened again", "searched again"]
    assert all(one["most"] >= one["memory"] for one in moments.values())
    again = moments["searched again"]["memory"] - moments["searched"]["memory"]
    counted = sum(size.bytes for part, size in sizes.items() if part != "stored vectors")
    slack = 25_000_000  # tokenizers, and what libraries keep for later
    assert 0.9 * counted < again < counted + slack


@linux
def test_a_model_that_cannot_be_opened_is_told(tmp_path: Path) -> None:
    with pytest.raises(ArtifactError, match=r"by a new process: .*does not exist"):
        opened(tmp_path / "nothing")
