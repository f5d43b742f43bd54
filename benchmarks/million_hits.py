"""Counts how many of a million decoded hits are invalid, repeated or not finite. Each count should be 0.

It draws random tries (several documents on a docid, several docids for a document, some deleted, some added), a
T5-shaped model with random weights, random rows for every node, all normalisations, and random widths. In a beam that
is wide enough for the whole corpus, probabilities over the trie and over documents must also sum to one.

    python benchmarks/million_hits.py [--hits 1000000]
"""

from __future__ import annotations

import argparse
import json
import math
import random
import time
from collections import Counter
from pathlib import Path

import torch
from torch.nn import functional

from triever.docids.trie import Trie
from triever.docids.walk import Walk
from triever.lab.results import benchmark
from triever.models.cross_decoder import Seq2SeqGenerator
from triever.models.node_rows import NodeGenerator, NodeSums, Steering
from triever.models.t5 import T5, T5Shape
from triever.search.beam import BeamOptions, beam
from triever.search.hits import documents

SYMBOLS, QUERIES, SIZE = 32, 128, 16


def make_generator(seed: int) -> Seq2SeqGenerator:
    torch.manual_seed(seed)
    sizes = {"d_model": 32, "d_kv": 8, "heads": 4, "d_ff": 64, "encoder_layers": 1, "decoder_layers": 1}
    model = T5(T5Shape.for_docids(vocabulary=100, width=SYMBOLS, **sizes))
    ids = torch.randint(0, 100, (QUERIES, 8))
    return Seq2SeqGenerator(model, lambda _texts: (ids, torch.ones_like(ids)))


def make_nodes(walk: Walk, seed: int) -> NodeGenerator:
    """Random rows and masses for the docids of a trie, and random vectors of queries."""
    torch.manual_seed(seed)
    vectors = functional.normalize(torch.randn(QUERIES, SIZE), dim=1)
    parts = zip(walk.trie.parts, walk.trie.alive, strict=True)
    sums = [
        NodeSums.of(part, functional.normalize(torch.randn(part.entries, SIZE), dim=1), torch.rand(part.entries), alive)
        for part, alive in parts
    ]
    return NodeGenerator(lambda _texts: vectors, walk, sums, 20.0, Steering(), SYMBOLS)


def make_trie(chance: random.Random, count: int) -> tuple[Walk, set[int]]:
    """A trie that has been through changes, and the documents that are left in it."""
    stop = SYMBOLS - 1
    docids = [(*(chance.randrange(stop) for _ in range(chance.randrange(1, 6))), stop) for _ in range(int(count * 1.1))]
    pairs = list({(docid, chance.randrange(count)) for docid in docids})
    trie = Trie.of(pairs[: count * 9 // 10]).with_added(pairs[count * 9 // 10 :])
    gone = {chance.randrange(count) for _ in range(count // 10)}
    return Walk(trie.without(gone)), {document for _, document in pairs} - gone


def judge(results: list[list[tuple[int, float]]], valid: set[int], counts: Counter[str]) -> None:
    for hits in results:
        numbers = [number for number, _ in hits]
        counts["hits"] += len(hits)
        counts["invalid"] += sum(number not in valid for number in numbers)
        counts["repeated"] += len(numbers) - len(set(numbers))
        counts["not finite"] += sum(not math.isfinite(mass) for _, mass in hits)


def worst_sum(chance: random.Random) -> float:
    """The largest error of the sum of all documents' probabilities, on a corpus that fits into the beam."""
    walk, valid = make_trie(chance, 300)
    errors = []
    for generator, normalisation in ((make_generator(0), "trie"), (make_nodes(walk, 0), "documents")):
        options = BeamOptions(width=1000, normalisation=normalisation)
        frontier = beam(generator, *generator.prefill([""] * QUERIES), walk, options)
        results = documents(walk, frontier, 1000)
        assert all({number for number, _ in hits} == valid for hits in results)
        errors += [abs(sum(math.exp(mass) for _, mass in hits) - 1) for hits in results]
    return max(errors)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--hits", type=int, default=1_000_000)
    wanted = parser.parse_args().hits
    chance, counts, started, round_ = random.Random(0), Counter(), time.perf_counter(), 0
    while counts["hits"] < wanted:
        round_ += 1
        walk, valid = make_trie(chance, chance.choice([50, 1000, 20_000]))
        written, weighed = make_generator(round_), make_nodes(walk, round_)
        for generator, normalisation in (
            (written, "trie"),
            (written, "vocabulary"),
            (weighed, "trie"),
            (weighed, "documents"),
        ):
            options = BeamOptions(width=chance.choice([10, 40, 100]), normalisation=normalisation)
            frontier = beam(generator, *generator.prefill([""] * QUERIES), walk, options)
            judge(documents(walk, frontier, 100), valid, counts)
    result = {**{key: counts[key] for key in ("hits", "invalid", "repeated", "not finite")}, "tries": round_}
    result |= {"worst_error_of_the_sum": worst_sum(chance), "seconds": round(time.perf_counter() - started, 1)}
    result = benchmark(["python", "benchmarks/million_hits.py"], [result])
    print(json.dumps(result, indent=1))
    Path(__file__).with_suffix(".json").write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
