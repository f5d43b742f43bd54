"""The benchmarks run, and what they say of agreement is true; how fast they are is not for a test to say."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from pathlib import Path

import numpy as np

from tests.retrievers.contract import QRELS, QUERIES, dataset
from triever import BM25, Dense, MultiVector
from triever.docids.trie import Trie
from triever.lab.bench_decode import DecodeOptions, agreement, bench_decode
from triever.lab.bench_search import bench_search
from triever.lab.bench_train import TrainBenchOptions, bench_train
from triever.lab.bench_trie import bench_trie, tokenised

SMALL = DecodeOptions(docids=500, symbols=16, length=4, queries=(3,), beams=(4,), rounds=1, layers=1, width=32)


def test_decoding_agrees_with_generate_step_for_step() -> None:
    rows = bench_decode(SMALL)
    assert [(row["normalisation"], row["finish"]) for row in rows] == [
        ("trie", True),
        ("trie", False),
        ("vocabulary", True),
        ("vocabulary", False),
    ]
    for row in rows:
        assert row["ratio"] > 0
        assert row["not_worse"] == 1
        if not row["finish"]:
            assert row["identical"] == 1


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


def test_titles_become_docids_that_end() -> None:
    paths = tokenised(["red apple", "red", "red apple pie"])
    ends = paths.flat[paths.start[1:] - 1]
    assert len(np.unique(ends)) == 1
    assert len(Trie.of(paths)) == 3


def test_rows_are_written_down_with_the_machine(tmp_path: Path) -> None:
    titles, out = tmp_path / "titles.txt", tmp_path / "rows.json"
    titles.write_text("one\ntwo words\ntwo more words\n", encoding="utf-8")
    words = [sys.executable, "-m", "triever.cli", "bench", "trie", str(titles), "--out", str(out), "--json"]
    printed = json.loads(subprocess.run(words, capture_output=True, check=True, text=True).stdout)
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


def test_every_kind_of_index_is_measured() -> None:
    small = "scratch:hidden=32,layers=1,heads=2,vocabulary=500"
    systems = {"bm25": BM25(), "dense": Dense(backbone=small), "late": MultiVector(backbone=small, size=16)}
    fitted = {name: system.fit(dataset()) for name, system in systems.items()}
    rows = {row["system"]: row for row in bench_search(fitted, dataset(), "test")}
    assert [*rows][:4] == ["bm25", "dense, flat", "dense, hnsw", "dense, ivfpq"]
    assert [*rows][4:] == ["late, all compared", "late, 16 bits", "late, 4 bits", "late, 2 bits"]
    assert rows["dense, hnsw"]["agreement"] == rows["dense, flat"]["agreement"] == 1
    assert rows["late, 2 bits"]["bytes_per_document"] < rows["late, 16 bits"]["bytes_per_document"]
    right = [fitted["bm25"].search(query, 1)[0].id in QRELS[query.id] for query in QUERIES]
    assert rows["bm25"]["Success@1"] == sum(right) / len(right)
