"""Measured figures that costs are computed from: each has the file in the repository that it was measured by.

A test opens the files and compares. Costs of other datasets and machines follow by the rules of `triever.lab.costs`.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Figure:
    """A measured number, the file that holds it, and the keys that lead to it; a+b is the sum of two keys."""

    value: float
    file: str
    keys: tuple[str, ...]


@dataclass(frozen=True)
class Texts:
    """How much text a dataset has that was measured on: a row of benchmarks/lengths.json."""

    system: str
    documents: int
    words: int
    tokens: int
    tokens_of_64: int  # that are read where at most 64 of a document are
    tokens_of_256: int


@dataclass(frozen=True)
class Speed:
    """Queries that were answered in a second over so many documents, many of them asked together."""

    documents: int
    per_second: Figure
    index: Figure | None = None  # the same without reading the query, where it was measured apart


PYTHON = Texts("python", 7_220, 253_824, 515_998, 318_449, 465_421)
WIKI = Texts("wiki60k", 60_000, 6_076_403, 8_196_941, 3_628_468, 8_182_764)
SQUAD = Texts("squad-partial", 4_496, 513_459, 676_013, 282_598, 653_757)
LENGTHS = "benchmarks/lengths.json"
SEARCH = "benchmarks/search_cpu.json"
ROWS = "results/rows"
INDEX = "docid rows+placing+trie+walk+docids+numbers"
"""The parts of the memory of a model with a row for every node that grow with its documents."""


def _row(value: float, run: str, *keys: str) -> Figure:
    return Figure(value, f"{ROWS}/{run}.json", keys)


def _rate(value: float, run: str, split: str, cell: str) -> Figure:
    return _row(value, run, "reports", split, "extra", cell, "queries/s")


def _first(value: float, run: str, split: str, cell: str) -> Figure:
    return _row(value, run, "reports", split, "scores", cell, "Success@1", "mean")


def _compared(value: float, file: str, system: str) -> Figure:
    return Figure(value, f"results/encoders/{file}.json", ("report", "scores", system, "Success@1", "mean"))


def _bench(value: float, system: str, key: str) -> Figure:
    return Figure(value, SEARCH, ("rows", system, key))


# Seconds of fits. A processor is two ARM cores, a GPU is an H200 beside 16 cores.
CORES = 2
GPU = "NVIDIA H200"
BM25_FIT = Figure(8.46, "results/gdr/growth/mini/documents=60000-bm25-seed0.json", ("fit_seconds",))  # wiki60k
READ_CPU = _row(219.52, "python/mini/dense-seed0", "parts", "encoder", "fit_seconds")  # 64 tokens of a document
READ_GPU = _row(146.27, "wiki/mini/dense-seed1", "parts", "encoder", "fit_seconds")  # and the training before it
READ_GPU_TRAINING = _row(105.1, "wiki/mini/dense-seed1", "made_from", "seconds of training")
LATE_GPU = _row(203.85, "wiki/mini/multivector-seed1", "parts", "tokens", "fit_seconds")
LATE_GPU_TRAINING = _row(140.4, "wiki/mini/multivector-seed1", "made_from", "seconds of training")
LATE_TUNED = _row(195.36, "squad/mini/multivector-seed1", "parts", "tokens", "fit_seconds")
TAUGHT_CPU = _row(81.93, "python/mini/atomic-seed2", "fit_seconds")  # matrices, from vectors that were there
TAUGHT_CPU_QUESTIONS = _row(6205, "python/mini/atomic-seed2", "made_from", "view labelled", "examples")
FEWEST_QUESTIONS = _row(775, "scifact/mini/atomic-seed0", "made_from", "view labelled", "examples")
TEACHER_QUESTIONS = _row(16556, "squad/mini/atomic-seed0", "made_from", "view labelled", "examples")
TAUGHT_GPU = _row(209.54, "nq/mini/atomic-seed1", "fit_seconds")  # all options at their defaults
ATOMIC_CPU = _row(84.48, "python/mini/atomic-seed1", "fit_seconds")
SEMANTIC_CPU = _row(126.32, "python/mini/semantic-seed1", "fit_seconds")
ATOMIC_GPU = _row(61.44, "wiki/mini/atomic-seed1", "fit_seconds")
SEMANTIC_GPU = _row(96.92, "wiki/mini/semantic-seed1", "parts", "semantic", "fit_seconds")

# Bytes.
BM25_BYTES = _bench(534.4, "bm25", "bytes_per_document")  # squad-partial
DENSE_BYTES = _bench(1536.0, "dense-minilm, flat", "bytes_per_document")
LATE_BYTES = _bench(33490.5, "multivector-minilm, 16 bits", "bytes_per_document")
WEIGHTS = _row(90261504, "wiki/mini/dense-seed1", "memory", "weights")
ROW_BYTES = {
    ("atomic", True): _row(1338561792, "wiki/mini/atomic-seed1", "memory", INDEX),
    ("semantic", True): _row(1018987030, "wiki/mini/semantic-seed1", "memory", INDEX),
    ("atomic", False): _row(55482644, "python/mini/atomic-seed0", "memory", INDEX),
    ("semantic", False): _row(49651554, "python/mini/semantic-seed0", "memory", INDEX),
}
"""By docids and whether passages have rows: of 60,000 documents of wiki60k, and of 7,220 of python."""

SPEEDS: dict[tuple[str, bool], tuple[Speed, ...]] = {
    ("bm25", False): (
        Speed(4_496, _bench(6930.6, "bm25", "queries_per_second")),
        Speed(60_000, Figure(1058, "results/bm25/wiki60k-dev.nq.json", ("report", "extra", "bm25", "queries/s"))),
    ),
    ("dense", False): (
        Speed(
            4_496,
            _bench(79.3, "dense-minilm, flat", "queries_per_second"),
            _bench(14022.5, "dense-minilm, flat", "index_queries_per_second"),
        ),
    ),
    ("multivector", False): (
        Speed(
            4_496,
            _bench(26.4, "multivector-minilm, 16 bits", "queries_per_second"),
            _bench(38.4, "multivector-minilm, 16 bits", "index_queries_per_second"),
        ),
    ),
    ("atomic", False): (Speed(7_220, _rate(83, "python/mini/atomic-seed0", "test", "atomic")),),
    ("semantic", False): (Speed(7_220, _rate(68, "python/mini/semantic-seed0", "test", "semantic")),),
    ("dense", True): (
        Speed(10_445, _rate(1095, "nq/mini/dense-as-it-comes-seed0", "dev", "dense as it comes")),
        Speed(60_000, _rate(880, "wiki/mini/dense-seed1", "dev.nq", "dense")),
    ),
    ("multivector", True): (
        Speed(4_496, _rate(402, "squad/mini/multivector-seed2", "docseen_dev", "multivector")),
        Speed(60_000, _rate(178, "wiki/mini/multivector-seed1", "dev.nq", "multivector")),
    ),
    ("atomic", True): (
        Speed(10_445, _rate(316, "nq/mini/atomic-seed0", "dev", "atomic")),
        Speed(60_000, _rate(210, "wiki/mini/atomic-seed1", "dev.nq", "atomic")),
    ),
    ("semantic", True): (
        Speed(10_000, _rate(268, "wiki/mini/semantic-among-10-000-seed1", "dev.nq", "semantic among 10,000")),
        Speed(60_000, _rate(213, "wiki/mini/semantic-seed2", "dev.nq", "semantic")),
    ),
}
"""By system, or the docids of a generative one, and whether there is a GPU; the smaller corpus first."""

# Success@1, of one seed each.
PYTHON_DENSE = _first(0.2833, "python/mini/dense-seed0", "test", "dense")
PYTHON_GENERATIVE = _first(0.4208, "python/mini/atomic-seed0", "test", "atomic")
NQ_DENSE = _first(0.7934, "nq/mini/dense-seed1", "dev", "dense")
NQ_GENERATIVE = _first(0.7977, "nq/mini/atomic-seed1", "dev", "atomic")
SQUAD_TAUGHT = _first(0.8377, "squad/mini/semantic-reader-as-it-was-seed0", "docseen_dev", "semantic, reader as it was")
SQUAD_DENSE_TUNED = _first(0.7414, "squad/mini/dense-seed0", "docseen_dev", "dense")
SQUAD_LATE_TUNED = _first(0.8565, "squad/mini/multivector-seed0", "docseen_dev", "multivector")
SQUAD_BM25 = _compared(0.7386, "squad-partial-docseen_dev-seed0", "bm25")
SQUAD_DENSE = _compared(0.6172, "squad-partial-docseen_dev-seed0", "dense as it comes")
SQUAD_LATE = _compared(0.8028, "squad-partial-docseen_dev-seed0", "multivector as it comes")
WIKI_BM25 = _compared(0.5918, "wiki60k-dev.nq-seed2", "bm25")
WIKI_DENSE = _compared(0.7636, "wiki60k-dev.nq-seed2", "dense as it comes")
WIKI_LATE = _compared(0.7593, "wiki60k-dev.nq-seed2", "multivector as it comes")
SQUAD_WRITTEN = Figure(
    0.7829,
    "results/scaling/views/mini/bm25-+-doc2query-seed0.json",
    ("reports", "docseen_dev", "scores", "bm25 + doc2query", "Success@1", "mean"),
)
