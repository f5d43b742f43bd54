"""What stands in for trec_eval's package computes the same, and is not taken for it by anybody else."""

from __future__ import annotations

import importlib
import math
import random
import sys
from importlib.util import find_spec

import pytest

from triever import UsageError
from triever.evaluation.trec_stand_in import PACKAGE, RelevanceEvaluator, standing_in


def test_it_stands_in_only_inside_of_the_block_and_where_the_package_is_missing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    known = find_spec(PACKAGE)
    monkeypatch.delitem(sys.modules, PACKAGE, raising=False)
    if known:
        with standing_in():
            assert importlib.import_module(PACKAGE).RelevanceEvaluator is not RelevanceEvaluator
        monkeypatch.delitem(sys.modules, PACKAGE, raising=False)
    monkeypatch.setattr("triever.evaluation.trec_stand_in.find_spec", lambda _: None)
    with pytest.raises(ZeroDivisionError), standing_in():
        assert sys.modules[PACKAGE].RelevanceEvaluator is RelevanceEvaluator
        raise ZeroDivisionError
    assert PACKAGE not in sys.modules


def test_it_computes_what_its_names_say() -> None:
    """Against the sums, written out."""
    qrels, run = judged_run()
    found = RelevanceEvaluator(qrels, {"ndcg_cut.1,5", "map_cut.5", "recall.5", "P.5", "success.5"}).evaluate(run)
    for query, grades in qrels.items():
        ranked = [grades.get(name, 0) for name in sorted(run[query], key=run[query].get, reverse=True)]  # ty: ignore
        best, relevant = sorted(grades.values(), reverse=True), sum(grade > 0 for grade in grades.values())
        top = [grade > 0 for grade in ranked[:5]]
        assert found[query] == pytest.approx(
            {
                "ndcg_cut_1": gain(ranked, 1) / gain(best, 1),
                "ndcg_cut_5": gain(ranked, 5) / gain(best, 5),
                "map_cut_5": sum(sum(top[: at + 1]) / (at + 1) for at in range(5) if top[at]) / relevant,
                "recall_5": sum(top) / relevant,
                "P_5": sum(top) / 5,
                "success_5": float(any(top)),
            }
        )
    with pytest.raises(UsageError, match="bpref is none of trec_eval's measures that are known here"):
        RelevanceEvaluator(qrels, {"bpref"})


@pytest.mark.skipif(not find_spec(PACKAGE), reason="trec_eval's package has no build for this platform")
def test_it_computes_what_the_package_computes() -> None:
    real = importlib.import_module(PACKAGE).RelevanceEvaluator
    qrels, run = judged_run()
    names = {"ndcg_cut.1,3,10", "map_cut.1,10", "recall.10", "P.3", "success.1,5"}
    run |= {"unjudged": {"d1": 0.5}}
    qrels |= {"unasked": {"d1": 1}}
    theirs, ours = real(qrels, names).evaluate(run), RelevanceEvaluator(qrels, names).evaluate(run)
    assert ours.keys() == theirs.keys()
    for query, values in theirs.items():
        assert ours[query] == pytest.approx(values)


def judged_run() -> tuple[dict[str, dict[str, int]], dict[str, dict[str, float]]]:
    chance = random.Random(5)
    qrels = {f"q{one}": {f"d{two}": chance.choice([0, 1, 2]) for two in range(8)} for one in range(20)}
    qrels = {query: {**grades, "d0": 1} for query, grades in qrels.items()}
    run = {query: {f"d{two}": chance.random() for two in chance.sample(range(12), 7)} for query in qrels}
    return qrels, run


def gain(grades: list[int], at: int) -> float:
    return sum(grade / math.log2(place + 2) for place, grade in enumerate(grades[:at]))
