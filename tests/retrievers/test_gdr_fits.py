"""The rules of GDR's score, and what is fitted for them on held-out queries."""

from __future__ import annotations

import gc
import logging
import weakref
from dataclasses import replace
from pathlib import Path
from statistics import fmean

import numpy as np
import pytest

import triever
from tests.retrievers.contract import QUERIES
from tests.retrievers.gdr_cases import ALL, HELD, RULES, SMALL, engine_of, gdr, questions
from triever.engines.match_fits import AlphaFit
from triever.engines.match_scores import FEATURES, Candidates, MatchOptions, Way
from triever.errors import UsageError
from triever.retrievers import gdr as module
from triever.retrievers.dense import Dense
from triever.retrievers.gdr import GDR
from triever.training.tuning import DocidTuning, Tuning
from triever.training.views import ViewOptions


@pytest.mark.parametrize("rule", [*RULES, "learned"])
def test_parts_of_an_explanation_add_up_to_the_score(rule: str) -> None:
    matching = MatchOptions(rule=rule, alpha=0.3)  # ty: ignore[invalid-argument-type]
    fitted = gdr("several", matching=matching, training=HELD).fit(questions())
    explanation = fitted.explain("boiling water", 5)
    for hit, parts in zip(explanation.result, explanation.parts, strict=True):
        assert tuple(name for name, _ in parts) == (FEATURES if rule == "learned" else ("vector", "cluster"))
        assert sum(weight for _, weight in parts) == pytest.approx(hit.score, abs=1e-6)


def mean_rank(fitted: GDR, values: dict) -> float:
    """The mean reciprocal rank of the held-out queries, searched in some way."""
    held = fitted._held_out(questions(), fitted.documents)
    found = fitted.searched_with({"matching": values}).search_many(held.texts, 10)
    right = [{fitted.documents.ids[row] for row in held.of(query)} for query in range(len(held))]
    ranks = [
        next((1 / rank for rank, hit in enumerate(result, 1) if hit.id in some), 0.0)
        for result, some in zip(found, right, strict=True)
    ]
    return sum(ranks) / len(ranks)


def test_alpha_is_fitted_on_held_out_queries(tmp_path: Path) -> None:
    fitted = gdr(matching=MatchOptions(fit=True, alpha=0.4), training=HELD, search_options=ALL).fit(questions())
    [alpha] = engine_of(fitted).fitted[Way("sum", None, None)]
    others = (0.0, 0.1, 0.4, 1.0, 3.0, 10.0)
    best = mean_rank(fitted, {"fit": False, "alpha": alpha})
    assert all(best >= mean_rank(fitted, {"fit": False, "alpha": value}) - 1e-9 for value in others)
    fitted.save(tmp_path / "m")
    kept = engine_of(triever.load(tmp_path / "m")).fitted
    assert kept == engine_of(fitted).fitted
    assert kept[Way("sum", 1, None)] == (alpha,), "a whole docid is one symbol here"
    assert f"| alpha | {alpha} |" in fitted.card
    with pytest.raises(UsageError, match=r"no query of train is held out; raise training\.holdout"):
        gdr(matching=MatchOptions(fit=True), training=DocidTuning(steps=0, holdout=0.0)).fit(questions())


def test_what_was_fitted_for_another_way_to_match_is_not_used(caplog: pytest.LogCaptureFixture) -> None:
    matching = MatchOptions(fit=True, rule="loglinear", alpha=0.4)
    fitted = gdr("semantic", matching=matching, training=HELD, search_options=ALL).fit(questions())
    ways = {*engine_of(fitted).fitted}
    rules = [("sum", None), ("loglinear", 0.05), ("learned", None)]
    assert ways == {Way(rule, depth, one) for depth in (1, 2, 3, None) for rule, one in rules}
    for depth in (1, 2):
        chosen = engine_of(fitted).fitted[Way("loglinear", depth, 0.05)][0]
        best = mean_rank(fitted, {"depth": depth, "fit": False, "alpha": chosen})
        assert best == pytest.approx(mean_rank(fitted, {"depth": depth}))
        assert all(best >= mean_rank(fitted, {"depth": depth, "fit": False, "alpha": one}) - 1e-9 for one in (0.0, 1.0))
    with caplog.at_level(logging.WARNING, "triever"):
        for same in ({"alpha": 0.9}, {"depth": 1}, {"depth": 0}, {"fit": False, "temperature": 0.1}, {"rule": "sum"}):
            fitted.searched_with({"matching": same})
        assert not caplog.text
        other = fitted.searched_with({"matching": {"temperature": 0.1}})
        assert other.engine.scoring.weights == (0.4,)
        assert "no alpha was fitted for rule" in caplog.text
        assert "matching.alpha = 0.4 is used" in caplog.text
    for rule in ("sum", "learned"):
        other = fitted.searched_with({"matching": {"rule": rule}})
        assert other.engine.scoring.weights == engine_of(fitted).fitted[Way(rule, None, None)]
    assert fitted.engine.scoring.weights == engine_of(fitted).fitted[matching.way]
    given = fitted.searched_with({"matching": {"alpha": 0.9}})
    assert given.engine.scoring.weights == (0.9,), "what a person asks for is what is done"


def test_a_round_is_judged_with_the_alpha_that_suits_it() -> None:
    training = replace(HELD, steps=1)  # with the model as it comes
    matching = MatchOptions(fit=True, rule="loglinear", alpha=1000.0)
    made = gdr(matching=matching, training=training, search_options=ALL, views=ViewOptions(names=("chunks",)))
    fitted = made.fit(questions())
    engine, held = engine_of(fitted), made._held_out(questions(), fitted.documents)
    judged = fmean(made._ranks(replace(engine, fitted={}), fitted.documents, held))
    assert judged == pytest.approx(mean_rank(fitted, {"fit": True}))
    assert judged > mean_rank(fitted, {"fit": False})


def test_a_fit_does_not_keep_what_it_has_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    alive: list[weakref.ref[Candidates]] = []

    class Forgetful(AlphaFit):
        def see(self, found: Candidates, relevant: np.ndarray) -> None:
            alive.append(weakref.ref(found))
            super().see(found, relevant)
            gc.collect()
            assert len({id(one()) for one in alive} - {id(None)}) <= 2  # each is seen by a fit for every rule

    gc.freeze()  # else every collection looks through all that was imported
    sums = MatchOptions(fit=True)
    monkeypatch.setattr(module, "fit_for", lambda _matching: Forgetful(sums))
    gdr(matching=MatchOptions(fit=True), training=HELD, search_options=ALL).fit(questions())
    assert len(alive) > 2


@pytest.mark.parametrize(
    ("holdout", "split", "is_refused"),
    [(0.0, "train", True), (0.29, "test+train", True), (0.3, "train", False), (0.0, "test", False)],
)
@pytest.mark.parametrize("matching", [MatchOptions(fit=True), MatchOptions(rule="learned"), MatchOptions()])
def test_the_score_is_not_fitted_on_queries_that_the_vectors_learned(
    holdout: float, split: str, is_refused: bool, matching: MatchOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    dense = Dense(backbone=SMALL, training=Tuning(steps=1, batch=2, holdout=holdout, split=split))
    made = gdr(vectors=dense, matching=matching, training=DocidTuning(steps=0, holdout=0.3))
    monkeypatch.setattr(Dense, "learn", lambda *_: pytest.fail("too late"))
    if is_refused and matching.fits:
        said = rf"trained on queries of train .*holdout is {holdout}, training.holdout is 0.3; set vectors.training"
        with pytest.raises(UsageError, match=said):
            made.fit(questions())
    else:
        data = questions()
        made._check(data, triever.data.store.DocumentStore.of(data.documents()))


def test_weights_are_learned_at_each_evaluation_of_a_training() -> None:
    training = DocidTuning(steps=2, batch=6, rounds=2, holdout=0.5)
    fitted = gdr(matching=MatchOptions(rule="learned"), training=training, search_options=ALL).fit(questions())
    assert any(engine_of(fitted).fitted[Way("learned", None, None)])
    assert "| held-out RR@10 |" in fitted.card


def test_what_is_learned_is_kept_and_told(tmp_path: Path) -> None:
    fitted = gdr(matching=MatchOptions(rule="learned", depth=1), training=HELD, search_options=ALL).fit(questions())
    weights = engine_of(fitted).fitted[Way("learned", 1, None)]
    assert len(weights) == len(FEATURES)
    assert "'log P of the cluster': " in fitted.card
    fitted.save(tmp_path / "m")
    again = triever.load(tmp_path / "m")
    assert engine_of(again).fitted == engine_of(fitted).fitted
    assert again.search_many(QUERIES, 5) == fitted.search_many(QUERIES, 5)
    nothing = again.searched_with({"matching": {"depth": 0}})
    plain = again.searched_with({"matching": {"depth": 0, "rule": "loglinear"}})
    assert "| learned weights | {} |" in nothing.card
    for query in QUERIES:  # there is one cluster, and nothing to learn of it
        assert [hit.id for hit in nothing.search(query, 5)] == [hit.id for hit in plain.search(query, 5)]
    untaught = replace(engine_of(again), fitted={})
    with pytest.raises(UsageError, match="no weights were learned for rule learned with depth 1; fit the retriever"):
        _ = untaught.scoring
    with pytest.raises(UsageError, match=r"matching\.rule = learned needs held-out queries, but no query of train"):
        gdr(matching=MatchOptions(rule="learned"), training=DocidTuning(steps=0, holdout=0.0)).fit(questions())
