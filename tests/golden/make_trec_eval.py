"""Writes trec_eval.json: random judgements and runs, and what the real trec_eval says about them.

    python tests/golden/make_trec_eval.py

It needs pytrec-eval-terrier, which is compiled and does not exist for Linux on ARM; the file it writes is
what the other platforms test against. The seed is fixed: the same versions write the same file.
"""

from __future__ import annotations

import json
import random
from importlib.metadata import version
from pathlib import Path
from typing import Any

import ir_measures

FILE = Path(__file__).with_name("trec_eval.json")
CASES, SEED = 60, 20
MEASURES = [
    *("nDCG", "nDCG@3", "nDCG@10", "nDCG(judged_only=True)@5", "nDCG(gains={0:1,1:0,3:5})@5"),
    *("RR", "RR(rel=2)", "AP", "AP@5", "AP(rel=2)", "AP(judged_only=True)", "Rprec", "Rprec(rel=2)"),
    *("P@5", "P(rel=2)@3", "R@5", "R(rel=2)@100", "Success@1", "Success@5", "Success(rel=3)@10"),
    *("NumRet", "NumRet(rel=2)", "NumRel", "NumQ", "Bpref", "Bpref(rel=2)"),
    *("SetP", "SetP(relative=True)", "SetR", "SetF", "SetF(beta=2.0)", "SetAP"),
]
DOCUMENTS = [f"d{number}" for number in range(1, 13)] + ["D1", "é", "e", "文", "a-b", "a_b"]
GRADES = [-2, -1, 0, 0, 1, 1, 2, 3]
NEAR = 1e-9  # below what a C float can tell apart near 1
SCORES = [2.5, 1.0, 1.0 + NEAR, 1.0 - NEAR, 0.5, 0.0, -1.0, -7.25]


def make_case(rng: random.Random) -> dict[str, Any]:
    """Up to eight queries, some of them only judged and some only retrieved."""
    queries = [f"q{number}" for number in range(rng.randint(1, 8))]
    judged = {query for query in queries if rng.random() < 0.85} or {queries[0]}
    retrieved = {query for query in queries if rng.random() < 0.85}
    return {
        "qrels": {query: _survivable(_pick(rng, GRADES, 12)) for query in queries if query in judged},
        "run": {query: _pick(rng, SCORES, 15) for query in queries if query in retrieved},
    }


def _pick(rng: random.Random, values: list[Any], most: int) -> dict[str, Any]:
    documents = rng.sample(DOCUMENTS, rng.randint(1, most))
    return {document: rng.choice(values) for document in documents}


def _survivable(grades: dict[str, int]) -> dict[str, int]:
    """trec_eval reads freed memory, and may crash, where all grades of a query are negative."""
    return grades if max(grades.values()) >= 0 else dict.fromkeys(grades, 0)


def judge(case: dict[str, Any]) -> dict[str, list[float]]:
    """Query id -> the values of MEASURES, one measure at a time so that none can disturb another."""
    values: dict[str, list[float]] = {query: [] for query in case["qrels"]}
    for name in MEASURES:
        measure = ir_measures.parse_measure(name)
        for metric in ir_measures.pytrec_eval.iter_calc([measure], case["qrels"], case["run"]):
            values[metric.query_id].append(metric.value)
    return values


def main() -> None:
    rng = random.Random(SEED)
    cases = [make_case(rng) for _ in range(CASES)]
    made = {
        "made by": {name: version(name) for name in ("pytrec-eval-terrier", "ir-measures")},
        "measures": MEASURES,
        "cases": [{**case, "values": judge(case)} for case in cases],
    }
    FILE.write_text(json.dumps(made, ensure_ascii=False, separators=(",", ":")) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
