"""BM25 and encoders on one dataset, seed by seed: untuned, tuned, late interaction, reranked and fused.

    TRIEVER_DATA=... python benchmarks/encoders.py squad-partial --seeds 0 1 2 --out results/encoders

Every seed writes one result file for each test split. Settings were chosen on held-out training queries.
"""

from __future__ import annotations

import argparse
import shlex
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import triever
from triever import Dense, Fused, MultiVector, Negatives, Reranked, RerankTuning, TokenOptions, Tuning
from triever.lab import results
from triever.retriever import Retriever

MEASURES = ["Success@1", "Success@10", "Success@100", "nDCG@10", "RR@10"]
TEST = {
    "squad-partial": ["docseen_dev"],
    "wiki60k": ["dev.nq", "dev.entityq", "dev.opentrivia", "dev.ottqa"],
    "scifact": ["test"],
}
TRAIN = {"squad-partial": "docseen_train", "wiki60k": "train"}
ZERO_SHOT = ["bm25", "dense as it comes", "multivector as it comes"]
GENTLE = {"wiki60k": {"learning_rate": 5e-5, "temperature": 0.05, "blend": 0.5}}
"""For data that the backbone knows well: tuned so gently, it lost nothing on any source of held-out queries."""


def tuning(data: str, seed: int, *, steps: int, batch: int) -> Tuning:
    rates = {"learning_rate": 1e-4, "temperature": 0.02} | GENTLE.get(data, {})
    return Tuning(split=TRAIN[data], seed=seed, rounds=4, **rates, steps=steps, batch=batch)


def dense(data: str, seed: int, _made: dict[str, Retriever]) -> Retriever:
    return Dense(training=tuning(data, seed, steps=400, batch=512))


def multivector(data: str, seed: int, _made: dict[str, Retriever]) -> Retriever:
    settings = tuning(data, seed, steps=300, batch=128)
    # On a GPU, comparing with every token of a small corpus is faster than choosing candidates query by query.
    index = TokenOptions(candidates=0) if data == "squad-partial" else TokenOptions()
    return MultiVector(training=settings, negatives=Negatives(count=1), index=index)


def reranked(data: str, seed: int, made: dict[str, Retriever]) -> Retriever:
    steps = 2000 if data == "squad-partial" else 1200
    settings = RerankTuning(split=TRAIN[data], seed=seed, rounds=4, steps=steps, batch=32, learning_rate=1e-4)
    # Mining for all training queries of the larger corpus takes late interaction minutes, and dense retrieval seconds.
    first = made["multivector" if data == "squad-partial" else "dense tuned"]
    return Reranked(first=first, depth=50, training=settings, negatives=Negatives(count=7, depth=20))


def fused(data: str, _seed: int, made: dict[str, Retriever]) -> Retriever:
    parts = tuple(made[name] for name in ("bm25", "dense tuned", "multivector"))
    return Fused(systems=parts, tune=TRAIN[data])


def fused_reranked(data: str, _seed: int, made: dict[str, Retriever]) -> Retriever:
    parts = tuple(made[name] for name in ("bm25", "multivector", "reranked"))
    return Fused(systems=parts, tune=TRAIN[data])


SYSTEMS: dict[str, Callable[[str, int, dict[str, Retriever]], Retriever]] = {
    "bm25": lambda *_: triever.BM25(),
    "dense as it comes": lambda *_: Dense(),
    "multivector as it comes": lambda *_: MultiVector(),
    "dense tuned": dense,
    "multivector": multivector,
    "reranked": reranked,
    "fused": fused,
    "fused with reranked": fused_reranked,
}


def remembering(retriever: Retriever) -> Retriever:
    """The same retriever with a cache of its results, so that it searches every query once for all systems."""
    engine = retriever.engine
    search, known = engine.search, {}

    def remembered(store: Any, queries: Sequence[str], k: int) -> list[triever.Result]:
        depth = min(max(k, 100), len(store))
        new = [query for query in dict.fromkeys(queries) if known.get(query, (0, None))[0] < depth]
        if new:
            known.update(zip(new, ((depth, result) for result in search(store, new, depth)), strict=True))
        return [replace(known[query][1], hits=known[query][1][:k]) for query in queries]

    object.__setattr__(engine, "search", remembered)  # for this measurement only: engines are immutable otherwise
    return retriever


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", choices=list(TEST))
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--systems", nargs="+", choices=list(SYSTEMS), default=None)
    parser.add_argument("--out", type=Path, default=Path("results/encoders"))
    parser.add_argument("--save", type=Path, help="also save the retrievers in this folder")
    words = parser.parse_args()
    dataset = triever.load_dataset(words.data)
    made: dict[str, Retriever] = {}
    names = words.systems or (list(SYSTEMS) if words.data in TRAIN else ZERO_SHOT)
    for seed in words.seeds:
        run(words, dataset, seed, names, made)


def run(
    words: argparse.Namespace, dataset: triever.Dataset, seed: int, names: list[str], made: dict[str, Retriever]
) -> None:
    started = time.perf_counter()
    for name in names:
        if name not in made or name not in ZERO_SHOT:  # systems without a seed are made once
            begun = time.perf_counter()
            made[name] = remembering(SYSTEMS[name](words.data, seed, made).fit(dataset))
            print(f"{name}, seed {seed}: {time.perf_counter() - begun:.0f} s", flush=True)
            if words.save:
                made[name].save(words.save / f"{name.replace(' ', '-')}-{seed}")
    for split in TEST[words.data]:
        report = triever.compare({name: made[name] for name in names}, dataset, split, MEASURES, k=100)
        for extra in report.extra.values():
            extra.pop("queries/s")  # it would be the speed of the cache; `triever bench search` measures speed
        about = {name: {"options": triever.config.to_dict(made[name])} for name in names}
        seconds = time.perf_counter() - started
        record = results.record(report, command=[], seconds=seconds, systems=about)
        chosen = f" --systems {shlex.join(words.systems)}" if words.systems else ""
        record["command"] = f"python benchmarks/encoders.py {words.data} --seeds {seed}{chosen}"
        words.out.mkdir(parents=True, exist_ok=True)
        results.write(words.out / f"{words.data}-{split}-seed{seed}.json", record)
        print(report, flush=True)


if __name__ == "__main__":
    main()
