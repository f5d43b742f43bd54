"""Answers that have to stand in a document word for word, beside answers that are written freely, by one saved model.

TRIEVER_DATA=... python benchmarks/word_for_word.py models/squad squad-partial docseen_dev --most 500
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from statistics import fmean

import triever
from triever.data.answers import exact_match, f1
from triever.lab import results


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", help="a saved reatt or answerer")
    parser.add_argument("data", help="a dataset whose questions have answers")
    parser.add_argument("split", help="the split with the questions")
    parser.add_argument("--most", type=int, default=500, help="ask only so many questions, spread over the split")
    parser.add_argument("--out", type=Path, default=Path(__file__).with_suffix(".json"))
    given = parser.parse_args()
    model, every = triever.load(given.model), triever.load_dataset(given.data).queries(given.split)
    asked = every[:: max(1, len(every) // given.most)][: given.most]
    rows = []
    for word_for_word in (False, True):
        answers = model.searched_with({"word_for_word": word_for_word}).ask_many(asked, matches=False)
        pairs = [(answer.written, query.answers) for answer, query in zip(answers, asked, strict=True)]
        measured = {name: fmean(score(*pair) for pair in pairs) for name, score in (("EM", exact_match), ("F1", f1))}
        row = {"word_for_word": word_for_word, "questions": len(asked)}
        rows.append(row | {name: round(value, 4) for name, value in measured.items()})
    results.write(given.out, results.benchmark(["python", *sys.argv], rows))


if __name__ == "__main__":
    main()
