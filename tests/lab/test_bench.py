"""The benchmarks run, and what they say of agreement is true; how fast they are is not for a test to say."""

from __future__ import annotations

import gzip
import itertools
import json
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.marks import quick
from tests.retrievers.contract import QRELS, QUERIES, dataset
from tests.warm import run
from triever import (
    BM25,
    GDR,
    Cluster,
    Contextual,
    DataError,
    Dataset,
    DecoderOptions,
    Dense,
    DocidTuning,
    Generative,
    MultiVector,
    ReAtt,
    ReAttTuning,
    Semantic,
    UsageError,
    config,
)
from triever.commands.options import DecodeSettings, TrainSettings
from triever.config import from_words
from triever.docids.trie import Trie
from triever.lab.bench_decode import DecodeOptions, agreement, bench_decode, compared
from triever.lab.bench_search import bench_search
from triever.lab.bench_train import TrainBenchOptions, bench_train
from triever.lab.bench_trie import bench_trie, tokenised
from triever.lab.results import earlier_rows

AUTOCAST = torch.autocast
SMALL = DecodeOptions(docids=500, symbols=16, length=4, queries=(3,), beams=(4,), rounds=1, layers=1, width=32)


def test_decoding_agrees_with_generate_step_for_step() -> None:
    rows = bench_decode(SMALL)
    settings = itertools.product(("trie", "vocabulary"), (True, False), ("plain", "recorded"))
    assert [(row["normalisation"], row["finish"], row["way"]) for row in rows] == list(settings)
    for row in rows:
        assert (row["hits"], row["invalid"]) == (12, 0)
        assert row["ratio"] > 0
        assert row["not_worse"] == 1
        if not row["finish"]:
            assert row["identical"] == 1


@pytest.mark.parametrize("changes", quick({"docids": 2}, of=[{"length": 40}, {"docids": 2}]))
def test_docids_are_told_apart_however_long_they_are_and_however_few(changes: dict[str, int]) -> None:
    rows = bench_decode(replace(SMALL, finish=(False,), **changes))
    assert [(row["overlap"], row["identical"]) for row in rows] == [(1, 1)] * 4


def row(ratio: float, **others: object) -> dict[str, object]:
    return {"queries": 8, "beams": 10, "normalisation": "trie", "dtype": "float32", "ratio": ratio, **others}


def test_a_ratio_that_falls_by_a_third_is_named() -> None:
    earlier = [row(6.0, finish=True), row(9.0, finish=False, way="recorded")]
    fine = compared([row(4.1, finish=True, way="plain", hits=80, invalid=0)], earlier)
    assert (fine.matched, fine.slower, fine.hits, fine.invalid) == (1, (), 80, 0)
    slow = compared([row(3.9, finish=True, way="plain"), row(9.0, finish=False, way="recorded")], earlier)
    assert slow.matched == 2
    assert len(slow.slower) == 1
    assert "3.9 times generate, 6.0 before" in slow.text()
    assert "nothing can be compared" in compared([row(9.0, finish=True, way="recorded")], earlier).text()


@pytest.mark.parametrize("text", ["", "[]", '{"rows": 1}', "{}"])
def test_a_file_without_rows_is_not_compared_with(tmp_path: Path, text: str) -> None:
    (tmp_path / "rows.json").write_text(text, encoding="utf-8")
    with pytest.raises(DataError, match="no rows of a benchmark"):
        earlier_rows(tmp_path / "rows.json")


ODD = {
    DecodeOptions: (
        *("docids=0", "length=-1", "symbols=0", "symbols=40000", "queries=0", "queries=", "beams=4,0", "beams="),
        *("rounds=0", "query_tokens=0", "layers=0", "width=0", "width=-1", "docids=1000000000000", "docids=many"),
        *("device=abacus", "dtypes=int32", "dtypes=", "finish=", "finish=perhaps", "peer_dtype=float", "peer=perhaps"),
    ),
    TrainBenchOptions: (
        *("batch=0", "batch=1", "batch=3", "batch=-2", "length=0", "layers=0", "width=32", "width=0", "width=100"),
        *("inner=0", "steps=0", "steps=-1", "steps=few", "matrix=0", "device=abacus", "compile=", "compile=perhaps"),
    ),
}


@pytest.mark.parametrize(("options", "word"), [(options, word) for options in ODD for word in ODD[options]])
def test_odd_sizes_are_refused(options: type, word: str) -> None:
    with pytest.raises(UsageError, match=word.partition("=")[0]):
        from_words(options, [word])


def test_what_no_memory_holds_is_refused_before_it_is_tried() -> None:
    with pytest.raises(UsageError, match="GiB of memory on cpu"):
        bench_decode(DecodeOptions(docids=10**9))
    with pytest.raises(UsageError, match="GiB of memory on cpu"):
        bench_train(TrainBenchOptions(matrix=10**8))


def test_the_help_names_every_option() -> None:
    for options, settings in ((DecodeOptions, DecodeSettings), (TrainBenchOptions, TrainSettings)):
        text = settings.__metadata__[0].help
        assert text.partition("Options: ")[2] == f"{', '.join(config.options(options))}."


def test_agreement_is_counted_by_hand() -> None:
    expected, found = [[(1, -1.0), (2, -2.0)], [(5, -1.0)]], [[(1, -1.0), (3, -1.5)], [(5, -1.0)]]
    assert agreement(expected, found) == {"overlap": 0.75, "identical": 0.5, "not_worse": 1.0}


def test_the_trie_is_built_beside_its_peers(tmp_path: Path) -> None:
    titles = [f"{first} {second}" for first in ("red", "green", "blue") for second in ("apple", "pear", "plum")]
    path = tmp_path / "titles.txt.gz"
    path.write_bytes(gzip.compress("\n".join(titles).encode()))
    rows = bench_trie(path)
    assert [row["name"] for row in rows] == ["triever", "dict of dicts", "marisa-trie"]
    assert all(row["docids"] == 9 and row["bytes"] > 0 for row in rows)
    assert bench_trie(path, limit=4)[0]["docids"] == 4


def test_a_file_without_titles_is_refused(tmp_path: Path) -> None:
    (tmp_path / "empty.txt").write_text("\n\n")
    with pytest.raises(DataError, match="holds no titles"):
        bench_trie(tmp_path / "empty.txt")


def test_titles_become_docids_that_end() -> None:
    paths = tokenised(["red apple", "red", "red apple pie"])
    ends = paths.flat[paths.start[1:] - 1]
    assert len(np.unique(ends)) == 1
    assert len(Trie.of(paths)) == 3


def test_rows_are_written_down_with_the_machine(tmp_path: Path) -> None:
    titles, out = tmp_path / "titles.txt", tmp_path / "rows.json"
    titles.write_text("one\ntwo words\ntwo more words\n", encoding="utf-8")
    done = run(["bench", "trie", titles, "--out", out, "--json"])
    assert done.returncode == 0, done.stderr
    printed = json.loads(done.stdout)
    written = json.loads(out.read_text(encoding="utf-8"))
    assert written["rows"] == printed
    assert written["command"].startswith("triever bench trie")
    assert written["hardware"]["cores"] > 0
    assert written["software"]["triever"]


def test_training_is_measured_beside_the_peer() -> None:
    rows = bench_train(TrainBenchOptions(batch=4, length=8, layers=1, width=64, inner=64, steps=2, matrix=64))
    assert [row["what"] for row in rows] == ["matrix product", "triever", "transformers, plain loop"]
    assert all(row["tflops"] >= 0 for row in rows)
    assert rows[1]["ratio"] > 0
    assert 0 <= rows[1]["waited"] <= 1


def test_all_rows_of_a_training_are_of_one_type(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("triever.models.precision.has_matrix_unit", lambda: True)
    made = []
    monkeypatch.setattr(torch, "autocast", lambda *words, **more: made.append(more) or AUTOCAST(*words, **more))
    options = TrainBenchOptions(batch=4, length=8, layers=1, width=64, inner=64, steps=1, matrix=64)
    assert [row["dtype"] for row in bench_train(options)] == ["float32"] * 3
    assert made
    assert not any(one["enabled"] for one in made)


def test_a_retriever_without_documents_is_not_measured() -> None:
    empty = BM25().fit(dataset())
    empty.delete(list(empty.documents.ids))
    with pytest.raises(UsageError, match="empty holds no documents"):
        bench_search({"empty": empty}, dataset(), "test")
    unjudged = Dataset.of("unjudged", [*dataset().documents()], QUERIES, {"test": {}})
    with pytest.raises(UsageError, match=r"the split 'test' of unjudged has no judged query"):
        bench_search({"bm25": BM25().fit(unjudged)}, unjudged, "test")


@pytest.mark.long
def test_every_kind_of_index_is_measured() -> None:
    small = "scratch:hidden=32,layers=1,heads=2,vocabulary=500"
    systems = {"bm25": BM25(), "dense": Dense(backbone=small), "late": MultiVector(backbone=small, size=16)}
    fitted = {name: system.fit(dataset()) for name, system in systems.items()}
    rows = {row["system"]: row for row in bench_search(fitted, dataset(), "test")}
    assert [*rows][:4] == ["bm25", "dense, flat", "dense, hnsw", "dense, ivfpq"]
    assert [*rows][4:] == ["late, all compared", "late, 16 bits", "late, 4 bits", "late, 2 bits"]
    assert rows["dense, hnsw"]["agreement"] == rows["dense, flat"]["agreement"] == 1
    assert rows["late, 2 bits"]["bytes_per_document"] < rows["late, 16 bits"]["bytes_per_document"]
    written = Generative(docids=Semantic(branch=2, leaf=3), backbone=small, training=DocidTuning(steps=0))
    rows |= {row["system"]: row for row in bench_search({"dsi": written.fit(dataset())}, dataset(), "test")}
    assert [*rows][8:] == ["dsi, exact", "dsi, beam 10", "dsi, beam 40", "dsi, beam 100", "dsi, free 10"]
    assert rows["dsi, beam 100"]["agreement"] == rows["dsi, exact"]["agreement"] == 1
    titles = {"cgr": Contextual(backbone=small, training=DocidTuning(steps=0)).fit(dataset())}
    rows |= {row["system"]: row for row in bench_search(titles, dataset(), "test")}
    joined = ["cgr, sum of 1", "cgr, sum of 5", "cgr, sum of 20", "cgr, best path", "cgr, regenerated"]
    assert [*rows][13:] == ["cgr, exact", *joined]
    with pytest.MonkeyPatch.context() as patch:  # what is not wanted is not made: here there is no faiss, say
        patch.setitem(sys.modules, "faiss", None)
        flat = bench_search({"dense": fitted["dense"]}, dataset(), "test", only=["flat"])
    assert [row["system"] for row in flat] == ["dense, flat"]
    some = bench_search(titles, dataset(), "test", only=["sum of 5", "best"])
    assert [(row["system"], row["agreement"]) for row in some] == [("cgr, sum of 5", ""), ("cgr, best path", "")]
    with pytest.raises(UsageError, match=r"no way to search cgr has 'beam' .*there are: cgr, exact; cgr, sum of 1"):
        bench_search(titles, dataset(), "test", only=["beam"])
    clusters = {"gdr": GDR(docids=Cluster(clusters=3), backbone=small, training=DocidTuning(steps=0)).fit(dataset())}
    rows |= {row["system"]: row for row in bench_search(clusters, dataset(), "test")}
    widths = ["gdr, all clusters", *(f"gdr, {width} clusters" for width in (10, 20, 40, 100))]
    assert [*rows][19:] == [*widths, "gdr, depth 0", "gdr, depth 1"]
    assert rows["gdr, 10 clusters"]["agreement"] == 1
    assert rows["gdr, depth 0"]["compared"] == rows["gdr, all clusters"]["compared"] == 1
    decoder, training = DecoderOptions(rows="nodes"), DocidTuning(steps=0)
    rooted = GDR(docids=Cluster(clusters=3), backbone=small, decoder=decoder, training=training)
    by_nodes = {row["system"]: row for row in bench_search({"nodes": rooted.fit(dataset())}, dataset(), "test")}
    assert [*by_nodes][:3] == ["nodes, depth 0", "nodes, depth 1", "nodes, 10 clusters"]
    assert {row["agreement"] for row in by_nodes.values()} == {1}, "as every row compared finds"
    assert by_nodes["nodes, depth 0"]["compared"] == 1
    assert rows["bm25"]["compared"] == ""
    right = [fitted["bm25"].search(query, 1)[0].id in QRELS[query.id] for query in QUERIES]
    assert rows["bm25"]["Success@1"] == sum(right) / len(right)


def test_attention_is_measured_with_every_index() -> None:
    model = ReAtt(backbone="scratch:hidden=32,layers=2,heads=2", training=ReAttTuning(answer_steps=0, steps=0))
    rows = bench_search({"reatt": model.fit(dataset())}, dataset(), "test")
    ways = ["all compared", "2048 nearest tokens", "16 bits", "4 bits", "2 bits"]
    assert [row["system"] for row in rows] == [f"reatt, {way}" for way in ways]
    assert rows[1]["agreement"] == 1
    assert all(float(row["index_queries_per_second"]) > 0 for row in rows)
    bytes_of = [float(row["bytes_per_document"]) for row in rows]
    assert bytes_of[4] < bytes_of[3] < bytes_of[2]
