"""Quality against questions a second, ours beside peers, on the same questions, vectors and weights.

    python benchmarks/peers.py --data wiki60k --split dev.nq [--most 1000] NAME=MODEL ...

Each saved retriever is searched in its own ways, as by `triever bench search`. The vectors of a dense one are also
searched by faiss, all of them and by inverted lists; and a language model that writes titles in its own tokens is also
asked by transformers' `generate` under the same titles. Reading the questions counts for everybody. faiss computes on
processors here, everything else where the model is.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

import triever
from triever.data.datasets import Dataset
from triever.data.records import Hit, Qrels, Query, Result, ranked
from triever.engines.docids import DocidEngine
from triever.evaluation.compare import questions
from triever.evaluation.picture import draw_points
from triever.lab import results
from triever.lab.bench_decode import following, generated
from triever.lab.bench_search import bench_search, success, variants
from triever.models.sampling import left_padded
from triever.models.token_decoder import TokenDecoder
from triever.terminal import emit, table

OURS = ("flat", "beam 10", "beam 40", "exact", "all compared", "depth")
"""Ways of our own that are measured."""
LISTS, PROBES = 256, (1, 4, 16, 64)
WIDTH = 10
"""Beams of `generate`."""
TIMES = 3
"""How often every way is measured but for language models, which are slow."""
Row = dict[str, Any]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("models", nargs="+", metavar="NAME=MODEL")
    parser.add_argument("--data", required=True)
    parser.add_argument("--split", required=True)
    parser.add_argument("--most", type=int, default=1000)
    parser.add_argument("--most-generated", type=int, default=256, help="questions for generate, which is slow")
    parser.add_argument("--together", type=int, default=64, help="questions that generate is asked at once")
    parser.add_argument("--way", default="", help="of our own ways only those with this text; `none` leaves all out")
    parser.add_argument("--out", type=Path, default=Path(__file__).with_suffix(".json"))
    parser.add_argument("--picture", type=Path)
    words = parser.parse_args()
    data = triever.load_dataset(words.data)
    rows: list[Row] = []
    for name, _, folder in (model.partition("=") for model in words.models):
        for row in measured(name, triever.load(folder), data, words):
            rows.append(row)
            print(row, file=sys.stderr, flush=True)
    emit(table(rows))
    results.write(words.out, results.benchmark(["python", "benchmarks/peers.py", *sys.argv[1:]], rows))
    if words.picture:
        draw_points(rows, "queries_per_second", ["Success@1", "Success@10"], words.picture)


def measured(name: str, retriever: triever.Retriever, data: Dataset, words: argparse.Namespace) -> Iterator[Row]:
    """The rows of a retriever, and of the peers that can take its part."""
    kept = ("system", "queries_per_second", "Success@1", "Success@10")
    queries, qrels = questions(data, words.split)
    asked = queries[: words.most]
    chosen = [way for way in ways(name, retriever) if words.way in way]
    for way in chosen:
        row = middle(lambda way=way: bench_search({name: retriever}, data, words.split, words.most, only=[way])[0])
        yield {**{column: row[column] for column in kept}, "questions": len(asked)}
    if isinstance(retriever, triever.Dense):
        for label, search in faiss_ways(retriever).items():
            yield middle(lambda label=label, search=search: timed(f"faiss, {label}", search, asked, qrels))
    engine = retriever.engine
    if isinstance(engine, DocidEngine) and isinstance(engine.docids.model, TokenDecoder):
        asked = queries[: words.most_generated]
        yield timed(f"{name}, beam {WIDTH}", lambda some: by_beam(retriever, some), asked, qrels)
        yield timed(f"generate, beam {WIDTH}", Generate(retriever, words.together), asked, qrels)


def middle(measure: Callable[[], Row]) -> Row:
    """The row of the middle speed of three."""
    return sorted((measure() for _ in range(TIMES)), key=lambda row: row["queries_per_second"])[TIMES // 2]


def ways(name: str, retriever: triever.Retriever) -> list[str]:
    """Which ways of ours are measured: all where there is one only."""
    every, engine = variants(name, retriever), retriever.engine
    slow = isinstance(engine, DocidEngine)  # to be certain of the best titles takes a language model minutes
    return [label for label in every if any(way in label for way in OURS if not (slow and way == "exact"))] or [*every]


def timed(label: str, search: Callable[[Sequence[Query]], list[Result]], queries: Sequence[Query], qrels: Qrels) -> Row:
    """A row of someone's search."""
    search(queries[:8])  # not counted: the first call prepares things
    started = time.perf_counter()
    found = search(queries)
    seconds = time.perf_counter() - started
    row = {"system": label, "queries_per_second": round(len(queries) / seconds, 1)}
    return row | success(queries, found, qrels, (1, 10)) | {"questions": len(queries)}


def by_beam(retriever: Any, queries: Sequence[Query]) -> list[Result]:
    return retriever.searching(method="beam", width=WIDTH, normalisation="trie").search_many(queries, 10)


def faiss_ways(retriever: triever.Dense) -> dict[str, Callable[[Sequence[Query]], list[Result]]]:
    """Ways of faiss over the vectors of a dense retriever, whose questions our encoder reads."""
    import faiss

    engine = retriever.engine
    ids = [document.id for document in retriever.documents]
    vectors = np.ascontiguousarray(engine.index.vectors(), np.float32)
    size = vectors.shape[1]
    flat = faiss.IndexFlatIP(size)
    flat.add(vectors)
    lists = min(LISTS, max(1, len(vectors) // 40))  # faiss wants some vectors for each
    inverted = faiss.IndexIVFFlat(faiss.IndexFlatIP(size), size, lists, faiss.METRIC_INNER_PRODUCT)
    inverted.train(vectors)
    inverted.add(vectors)

    def search(index: Any, probes: int, queries: Sequence[Query]) -> list[Result]:
        if probes:
            index.nprobe = probes
        read = np.ascontiguousarray(engine.vectors([query.text for query in queries]), np.float32)
        scores, rows = index.search(read, 10)
        return [
            Result(ranked(Hit(ids[row], float(score)) for row, score in zip(*of_query, strict=True) if row >= 0))
            for of_query in zip(rows, scores, strict=True)
        ]

    made = {"flat": lambda queries: search(flat, 0, queries)}
    for probes in PROBES:
        made[f"{probes} of {lists} lists"] = lambda queries, probes=probes: search(inverted, probes, queries)
    return made


class Generate:
    """transformers' `generate` on the weights of a saved language model, under the tokens of all titles."""

    def __init__(self, retriever: triever.Retriever, together: int) -> None:
        self.together = together
        engine = retriever.engine
        assert isinstance(engine, DocidEngine)
        self.docids, self.model = engine.docids, engine.docids.model
        assert isinstance(self.model, TokenDecoder)
        self.ids = [document.id for document in retriever.documents]
        whole: Any = self.model.encoder.backbone.causal_module()
        whole.base_model.load_state_dict(self.model.language_model.state_dict())
        self.whole = whole.to(self.model.device).eval()
        self.document = dict(self.docids.trie.items())
        self.longest = max(map(len, self.document))
        self.following = following(self.document)

    def __call__(self, queries: Sequence[Query]) -> list[Result]:
        batches = (queries[first : first + self.together] for first in range(0, len(queries), self.together))
        return [result for batch in batches for result in self._batch([query.text for query in batch])]

    @torch.inference_mode()
    def _batch(self, texts: list[str]) -> list[Result]:
        padded = left_padded(*self.docids.generator().tokenise(texts))
        ids, mask = (part.to(self.model.device) for part in padded)
        end = self.whole.config.eos_token_id

        def allowed(_row: int, prefix: torch.Tensor) -> list[int]:
            written = tuple(prefix[ids.shape[1] :].tolist())
            return self.following.get(written, [end])

        more = {"eos_token_id": end, "pad_token_id": end, "renormalize_logits": True}
        out = generated(self.whole, (ids, mask), WIDTH, self.longest + 1, allowed, **more)
        written = out.sequences[:, ids.shape[1] :].reshape(len(texts), WIDTH, -1).tolist()
        scores = out.sequences_scores.reshape(len(texts), WIDTH).tolist()
        return [self._result(*of_text) for of_text in zip(written, scores, strict=True)]

    def _result(self, written: list[list[int]], scores: list[float]) -> Result:
        found: dict[str, float] = {}
        for symbols, score in zip(written, scores, strict=True):
            number = next((self.document[tuple(symbols[:at])] for at in range(len(symbols), 0, -1)
                           if tuple(symbols[:at]) in self.document), None)  # fmt: skip
            if number is not None:
                found.setdefault(self.ids[number], score)
        return Result(ranked(Hit(*pair) for pair in found.items()))


if __name__ == "__main__":
    main()
