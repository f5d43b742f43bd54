"""What a language model finds by titles that it was never taught: by each prompt, and with a thought before the search.

TRIEVER_DATA=... python benchmarks/zero_shot.py wiki60k dev.nq --most 300
"""

from __future__ import annotations

import argparse
import itertools
import sys
import time
from pathlib import Path

import triever
from triever.data.datasets import Dataset
from triever.lab import results
from triever.retrievers.generative import Generative
from triever.training.tuning import DocidTuning

MEASURES = ("Success@1", "Success@10", "nDCG@10")
THINK = 24
WAY = ("prompt", "normalisation", "think")
"""What a row is about: rows that are there already are not measured again."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", help="a dataset whose documents have titles")
    parser.add_argument("split", help="the split with the questions")
    parser.add_argument("--most", type=int, default=300, help="ask only so many questions, spread over the split")
    parser.add_argument("--backbone", default="smollm2", help="the language model")
    parser.add_argument("--prompts", nargs="+", default=["question", "paper"], help="the prompts that are compared")
    parser.add_argument(
        "--over", nargs="+", default=["vocabulary", "trie"], help="the normalisations, see docs/search.md"
    )
    parser.add_argument("--out", type=Path, default=Path(__file__).with_suffix(".json"))
    given = parser.parse_args()
    data = some_questions(triever.load_dataset(given.data), given.split, given.most)
    rows = results.earlier_rows(given.out) if given.out.exists() else []
    known = {tuple(row.get(name) for name in WAY) for row in rows}
    for prompt in given.prompts:
        ways = [way for way in itertools.product([prompt], given.over, (0, THINK)) if way not in known]
        if not ways:
            continue
        untrained = Generative(
            docids=triever.Title(tokenizer="backbone"),
            backbone=given.backbone,
            prompt=prompt,
            training=DocidTuning(steps=0),
        )
        model = untrained.fit(data)
        for way in ways:
            _, over, think = way
            asked = model.searching(normalisation=over, think=think)
            rows.append(row_of(asked, data, given.split, **dict(zip(WAY, way, strict=True))))
            results.write(given.out, results.benchmark(["python", *sys.argv], rows))
    if ("bm25", None, None) not in known:
        rows.append(row_of(triever.BM25().fit(data), data, given.split, prompt="bm25"))
        results.write(given.out, results.benchmark(["python", *sys.argv], rows))


def some_questions(whole: Dataset, split: str, most: int) -> Dataset:
    """All documents, and some questions that are spread over a split."""
    every, judged = whole.queries(split), whole.qrels(split)
    asked = [query for query in every if query.id in judged]
    asked = asked[:: max(1, len(asked) // most)][:most]
    return Dataset.of(whole.name, whole.documents(), asked, {split: {query.id: judged[query.id] for query in asked}})


def row_of(model: triever.Retriever, data: Dataset, split: str, **about: object) -> dict[str, object]:
    """The measures of one way to search, with their intervals."""
    started = time.perf_counter()
    [scores] = triever.compare({"it": model}, data, split, MEASURES, k=10).scores.values()
    row: dict[str, object] = {**about, "documents": len(model), "questions": len(data.queries(split))}
    row |= {"seconds per question": round((time.perf_counter() - started) / len(data.queries(split)), 2)}
    return row | {
        name: [round(value, 4) for value in (score.mean, score.low, score.high)] for name, score in scores.items()
    }


if __name__ == "__main__":
    main()
