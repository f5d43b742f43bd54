"""What theory says of dense and generative retrieval, measured: made-up scores, and the default corpus with MiniLM.

Takes two to three minutes on one processor.

    python benchmarks/theory.py
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

import triever
from triever.evaluation.all_scores import all_scores
from triever.evaluation.normalisation import normalisation
from triever.evaluation.posterior import posterior
from triever.evaluation.rank import rank
from triever.lab import results
from triever.theory.normalisation import gap_bound, gap_bound_with_positive, log_sum, sampled_gaps
from triever.theory.rank import circle, half_circle, max_sim, summed_channels, tail_errors
from triever.theory.tails import lower_bound, measured_tails, printed_bound, relative_variance, upper_bound

DOCUMENTS, QUESTIONS = 1200, 450
"""How many documents and training questions of the default corpus are taken."""
CANDIDATES, CORPORA = 64, 10
SIZES = tuple(2**power for power in range(9))
EPSILONS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.99)


def gaps(positive: float) -> dict[str, float]:
    """Means over made-up corpora of 2,000 scores, all standard normal but that of the relevant document."""
    rows = []
    for seed in range(CORPORA):
        scores = np.random.default_rng(seed).normal(size=2000)
        scores[0] = positive
        inside = sampled_gaps(scores, CANDIDATES, positive=0, seed=seed).mean()
        drawn = sampled_gaps(scores, CANDIDATES, seed=seed).mean()
        bounds = gap_bound(scores, CANDIDATES), gap_bound_with_positive(scores, 0, CANDIDATES)
        rows.append((*bounds, float(drawn), float(inside)))
    means = np.mean(rows, 0).round(5).tolist()
    names = ("bound", "bound_with_positive", "drawn", "with_positive")
    return {"positive": positive, **dict(zip(names, means, strict=True))}


def tails(values: np.ndarray, k: int, draws: int) -> dict[str, Any]:
    """Both tails of the mean of k draws, and their bounds."""
    variance, largest = relative_variance(values), float(values.max() / values.mean())
    rows = []
    for epsilon in EPSILONS:
        found = measured_tails(values, k, epsilon, draws=draws)
        rows.append(
            {
                "epsilon": epsilon,
                "lower": found.lower,
                "printed": printed_bound(k, epsilon, variance),
                "lower_bound": lower_bound(k, epsilon, variance),
                "upper": found.upper,
                "upper_bound": upper_bound(k, epsilon, variance, largest),
            }
        )
    return {"candidates": k, "draws": draws, "relative_variance": variance, "largest": largest, "rows": rows}


def made_up_ranks(count: int = 256, size: int = 16, channels: int = 4) -> dict[str, dict[str, Any]]:
    """The tails of made-up scores of as many queries as documents."""
    chance = np.random.default_rng(0)
    queries, documents = chance.normal(size=(2, channels, count, size))
    x = half_circle(count)
    matrices = {
        "one vector of 16": queries[0] @ documents[0].T,
        "4 summed channels of 16": summed_channels(queries, documents),
        "max-sim, 4 tokens of 16": max_sim(queries.swapaxes(0, 1), documents.swapaxes(0, 1)),
        "max-sim, 2 tokens of 2 on a circle": max_sim(x[:, None], np.stack([x, -x], 1)),
        "one relevant document each": np.eye(count),
    }
    return {name: _tail(scores) for name, scores in matrices.items()}


def _tail(scores: np.ndarray) -> dict[str, Any]:
    errors = tail_errors(scores)
    return {"rank": int(np.linalg.matrix_rank(scores)), "errors": {str(size): float(errors[size]) for size in SIZES}}


def on_a_circle(count: int = 256) -> list[dict[str, float]]:
    """How likely vectors of two numbers make the one relevant document, by temperature."""
    x = circle(count)
    rows = []
    for temperature in (1.0, 0.1, 0.01, 0.001, 0.0001, 0.00001):
        scores = x @ x.T / temperature
        rows.append(
            {"temperature": temperature, "probability": float(np.exp(np.diag(scores) - log_sum(scores)).mean())}
        )
    return rows


def small(data: triever.Dataset) -> triever.Dataset:
    """A part of the default corpus: the test questions and some training questions, their documents, and others."""
    train = dict([*data.qrels("train").items()][:QUESTIONS])
    test = data.qrels("test")
    asked = {doc_id for grades in (*train.values(), *test.values()) for doc_id in grades}
    documents = sorted(data.documents(), key=lambda document: document.id not in asked)[:DOCUMENTS]
    queries = [query for split in ("train", "test") for query in data.queries(split) if query.id in {**train, **test}]
    return triever.Dataset.of("python, in part", documents, queries, {"train": train, "test": test})


def corpus() -> dict[str, Mapping[str, Any]]:
    """The same on a part of the default corpus, with MiniLM as it comes and with rows that have learned."""
    data = small(triever.load_dataset("python"))
    dense = triever.Dense(document_length=64).fit(data)
    late = triever.MultiVector(document_length=64).fit(data)
    common: dict[str, Any] = {"docids": triever.Semantic(branch=20, leaf=20), "vectors": dense, "passages": 0}
    untrained = triever.Generative(**common, training=triever.DocidTuning(steps=0)).fit(data)
    trained = triever.Generative(**common, training=triever.DocidTuning(steps=60, batch=256, learning_rate=4e-3)).fit(
        data
    )
    table = all_scores(dense, data, "test", most=1)
    return {
        "normalisation": normalisation(dense, data, "test").values,
        "tails": tails(np.exp(table.scores[0] / 0.05), CANDIDATES, 20_000),
        "rank dense": rank(dense, data, "train", most=QUESTIONS, documents=600).values,
        "rank late": rank(late, data, "train", most=QUESTIONS, documents=600).values,
        "posterior untrained": posterior(untrained, data, "test").values,
        "posterior trained": posterior(trained, data, "test").values,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path(__file__).with_suffix(".json"))
    words = parser.parse_args()
    normal = np.exp(np.random.default_rng(0).normal(size=2000))
    measured = {
        "normalisation": [gaps(float(positive)) for positive in range(0, 19, 2)],
        "tails": {
            "coin": tails(np.exp(np.array([0.0, -40.0])), 20, 200_000),
            "normal scores": tails(normal, CANDIDATES, 20_000),
        },
        "rank": made_up_ranks(),
        "circle": on_a_circle(),
        "corpus": corpus(),
    }
    command = ["python", "benchmarks/theory.py", *sys.argv[1:]]
    results.write(words.out, {**results.benchmark(command, []), **measured})
    sys.stdout.write(f"wrote {words.out}, log(N/K) = {math.log(2000 / CANDIDATES):.3f}\n")


if __name__ == "__main__":
    main()
