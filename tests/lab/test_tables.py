"""Verdicts are what one would say by hand, and do not contradict each other."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from triever.errors import DataError
from triever.evaluation.report import ScoreRecord
from triever.lab.results import without_paths
from triever.lab.run_results import Beside, RunReport, RunResult, packed, unpacked
from triever.lab.tables import Plan, PlannedCell, PlannedOrder, PlannedPair, RecipeTable, Row, aligned
from triever.lab.verdicts import FAILS, HOLDS, MISSING, OPEN, EachQuestion, Measured, together, verdict

VALUE = st.integers(0, 8).map(lambda eighths: eighths / 8)  # few values, so that ties come


def several(width: st.SearchStrategy[float], least: int, most: int) -> st.SearchStrategy[Measured]:
    """Made-up seeds, each with an interval around it that is so wide on either side."""
    seed = st.tuples(VALUE, width, width).map(lambda one: (one[0], one[0] - one[1], one[0] + one[2]))
    return st.lists(seed, min_size=least, max_size=most).map(
        lambda seeds: Measured(*map(tuple, zip(*seeds, strict=True)))
    )


SURE = st.just(0.0)
MANY, ONE, ANY = several(VALUE, 2, 4), several(VALUE, 1, 1), several(VALUE, 1, 3)


@given(several(SURE, 2, 4), several(SURE, 2, 4))
def test_with_seeds_it_is_told_by_all_pairs_of_them(less: Measured, more: Measured) -> None:
    pairs = [(one, other) for one in less.means for other in more.means]
    below, above = all(one < other for one, other in pairs), all(one >= other for one, other in pairs)
    assert verdict(less, more, strict=True) == (HOLDS if below else FAILS if above else OPEN)


@given(MANY, MANY)
def test_seeds_that_agree_are_not_enough_where_questions_leave_it_open(less: Measured, more: Measured) -> None:
    told = verdict(less, more, strict=True)
    widths = [(high - low) / 2 for low, high in (less.span(False), more.span(False))]
    if abs(more.mean - less.mean) < max(widths):
        assert told == OPEN
    elif abs(more.mean - less.mean) > sum(widths):
        sure = (Measured(one.means, one.means, one.means) for one in (less, more))
        assert told == verdict(*sure, strict=True)


def asked(*seeds: Sequence[float], questions: str = "the same") -> Measured:
    """A system that was asked some questions with several seeds: what it has for each question."""
    means = tuple(map(fmean, seeds))
    wide = [(mean - 0.5, mean + 0.5) for mean in means]
    values = np.mean(seeds, axis=0)
    return Measured(means, *map(tuple, zip(*wide, strict=True)), EachQuestion(questions, values))


def test_where_each_question_is_known_systems_are_compared_question_by_question() -> None:
    """One finds every fourth of a hundred questions, another every second: these and as many again."""
    some, many = [float(at % 4 == 0) for at in range(100)], [float(at % 2 == 0) for at in range(100)]
    assert verdict(asked(some, some), asked(many, many), strict=True) == HOLDS
    assert verdict(asked(many, many), asked(some, some), strict=True) == FAILS
    assert verdict(asked(some, some), asked(many, many, questions="others"), strict=True) == OPEN, "intervals are wide"
    one_more = [1.0, 1.0, *some[2:]]
    assert verdict(asked(some, some), asked(one_more, one_more), strict=True) == OPEN, "it may be chance"
    assert verdict(asked(some, some), asked(some, some), strict=True) == FAILS
    assert verdict(asked(some, some), asked(some, some), strict=False) == HOLDS


@given(st.lists(st.floats(0, 1, width=16), min_size=1, max_size=200))
def test_what_each_question_has_stays_whole_in_the_file_of_a_run(values: list[float]) -> None:
    """A file has no path of the machine, and compressed values may look like one."""
    kept = packed({"RR@10": {f"q{at:03}": value for at, value in enumerate(values)}}, ["RR@10"])
    assert unpacked(without_paths(kept)["values"]["RR@10"]).tolist() == values


def test_values_that_somebody_changed_are_refused_in_one_sentence() -> None:
    row = run("a=1", (0.5,))
    row.results[0]["reports"]["test"]["each"] = {"questions": "q", "values": {"RR@10": "eNrFmWuOw"}}
    with pytest.raises(DataError, match="the RR@10 of each question was changed in the result of a=1, seed 0"):
        row.measured("test", "RR@10")


@pytest.mark.parametrize("values", [{"q1": 1.0, "q0": 0.0, "q2": 0.3}, {}], ids=len)
def test_what_each_question_has_is_kept_to_three_digits(values: dict[str, float]) -> None:
    kept = packed({"RR@10": values, "Brier": values}, ["RR@10", "Success@1"])
    assert list(kept["values"]) == ["RR@10"]
    assert unpacked(kept["values"]["RR@10"]) == pytest.approx([values[name] for name in sorted(values)], rel=1e-3)
    assert kept["questions"] != packed({"RR@10": {**values, "q3": 1.0}}, ["RR@10"])["questions"]


@given(ONE, ONE)
def test_without_seeds_it_is_told_by_the_intervals(less: Measured, more: Measured) -> None:
    below, above = less.highs[0] < more.lows[0], less.lows[0] >= more.highs[0]
    assert verdict(less, more, strict=True) == (HOLDS if below else FAILS if above else OPEN)


@given(ANY, ANY)
def test_not_above_is_the_opposite_of_above(one: Measured, other: Measured) -> None:
    opposite = {HOLDS: FAILS, FAILS: HOLDS, OPEN: OPEN}
    assert verdict(one, other, strict=False) == opposite[verdict(other, one, strict=True)]


@pytest.mark.parametrize("strict", [True, False])
@pytest.mark.parametrize("seeds", [MANY, ONE])
def test_an_order_is_transitive(strict: bool, seeds: st.SearchStrategy[Measured]) -> None:
    @given(seeds, seeds, seeds)
    def check(first: Measured, second: Measured, third: Measured) -> None:
        if verdict(first, second, strict=strict) == verdict(second, third, strict=strict) == HOLDS:
            assert verdict(first, third, strict=strict) == HOLDS

    check()


@given(ANY, ANY, ANY)
def test_no_order_goes_round_in_a_circle(first: Measured, second: Measured, third: Measured) -> None:
    """Also where some are told by seeds and others by intervals."""
    if verdict(first, second, strict=True) == verdict(second, third, strict=True) == HOLDS:
        assert first.mean < third.mean
        assert verdict(first, third, strict=True) != FAILS


@given(VALUE, st.integers(2, 4))
def test_a_tie_without_any_spread_is_no_order(value: float, seeds: int) -> None:
    tied = Measured((value,) * seeds, (value,) * seeds, (value,) * seeds)
    assert verdict(tied, tied, strict=True) == FAILS
    assert verdict(tied, tied, strict=False) == HOLDS
    alone = Measured((value,), (value - 1,), (value + 1,))
    assert verdict(alone, tied, strict=True) == verdict(alone, tied, strict=False) == OPEN


@given(ANY, ANY)
def test_a_difference_is_taken_seed_by_seed_and_has_the_width_of_both(one: Measured, other: Measured) -> None:
    difference = one.minus(other)
    assert difference.mean == pytest.approx(one.mean - other.mean)
    if len(one.means) == len(other.means):
        assert difference.means == tuple(first - second for first, second in zip(one.means, other.means, strict=True))
    (low, high), (other_low, other_high) = one.span(False), other.span(False)
    assert difference.span(False) == pytest.approx((low - other_high, high - other_low))


def run(cell: str, values: Sequence[float], width: float = 0.05, queries: int = 100) -> Row:
    """A cell with these means of its seeds, each with an interval around it that is so wide on either side."""
    results = [
        RunResult(
            cell=cell,
            seed=seed,
            reports={
                "test": RunReport(scores={cell: {"RR@10": score(value, width)}}, extra={}, queries=queries),
            },
        )
        for seed, value in enumerate(values)
    ]
    return Row(cell, tuple(results), {}, len(values))


def plan_of(cells: Sequence[str], order: Sequence[PlannedOrder]) -> Plan:
    return Plan(
        name="toy",
        setting="mini",
        title="toy",
        about="",
        measure="RR@10",
        split="test",
        measures=["RR@10"],
        cells=[PlannedCell(cell=cell, runs=[]) for cell in cells],
        values=[],
        order=[*order],
    )


def score(value: float, width: float = 0.05) -> ScoreRecord:
    return {"mean": value, "low": value - width, "high": value + width, "p": None}


@pytest.mark.parametrize(
    ("dense", "expected"),
    [((0.6, 0.5), HOLDS), ((0.85, 0.85), FAILS), ((0.6, 0.85), OPEN), ((0.82,), OPEN)],
    ids=str,
)
def test_an_order_of_differences(dense: tuple[float, ...], expected: str) -> None:
    """Generative retrieval falls from .8 to .7 with both seeds; dense retrieval from .9 to this."""
    rows = {"a": (0.9,) * len(dense), "b": dense, "c": (0.8, 0.8), "d": (0.7, 0.7)}
    pair = PlannedPair(less="c", less_minus="d", more="a", more_minus="b", strict=True)
    order = PlannedOrder(statement="c - d < a - b", measure="RR@10", pairs=(pair,))
    table = RecipeTable(plan_of([*rows], [order]), tuple(run(cell, values, 0.01) for cell, values in rows.items()))
    [line] = table.verdicts
    assert line["verdict"] == expected
    assert expected == HOLDS or line["why"].startswith("c - d 0.100, a - b 0.")
    assert table.narrowed(["a", "b", "c"]).verdicts == []


@given(several(SURE, 2, 4), st.data())
def test_two_searches_of_one_model_are_compared_seed_by_seed(less: Measured, data: st.DataObject) -> None:
    more = data.draw(several(SURE, len(less.means), len(less.means)))
    below = all(one < other for one, other in zip(less.means, more.means, strict=True))
    above = all(one >= other for one, other in zip(less.means, more.means, strict=True))
    assert verdict(less, more, strict=True, one_model=True) == (HOLDS if below else FAILS if above else OPEN)
    opposite = {HOLDS: FAILS, FAILS: HOLDS, OPEN: OPEN}
    told = verdict(less, more, strict=True, one_model=True)
    assert verdict(more, less, strict=False, one_model=True) == opposite[told]


@pytest.mark.parametrize(
    ("kinds", "expected"),
    [(("@model", "@model"), HOLDS), (("@model", "@other"), OPEN), (("dense", "dense"), OPEN)],
    ids=str,
)
def test_an_order_of_searches_of_one_part_is_told_seed_by_seed(kinds: tuple[str, str], expected: str) -> None:
    """Seeds are far apart, and one search finds a little more with each of them."""
    rows = [run("beam", (0.5, 0.8), width=0.001), run("exact", (0.51, 0.81), width=0.001)]
    for row, kind in zip(rows, kinds, strict=True):
        for result in row.results:
            result["system"] = {"kind": kind, "parts": {kind.removeprefix("@"): {"kind": "generative"}}}
    pair = PlannedPair(less="beam", more="exact", strict=True)
    order = PlannedOrder(statement="beam < exact", measure="RR@10", pairs=(pair,))
    table = RecipeTable(plan_of(["beam", "exact"], [order]), tuple(rows))
    assert table.verdicts[0]["verdict"] == expected


@pytest.mark.parametrize("values", [(0.0,), (0.0, 0.0)], ids=len)
@pytest.mark.parametrize(("queries", "expected"), [(1, OPEN), (19, OPEN), (20, HOLDS)])
def test_few_questions_tell_nothing(values: tuple[float, ...], queries: int, expected: str) -> None:
    """The interval over one question has no width, and would tell everything."""
    rows = run("a", values, 0.0, queries), run("b", [value + 1 for value in values], 0.0, queries)
    pair = PlannedPair(less="a", more="b", strict=True)
    [line] = RecipeTable(plan_of(["a", "b"], [order_of(pair)]), rows).verdicts
    reason = "a 0.000, b 1.000; fewer than 20 questions tell nothing"
    assert (line["verdict"], line["why"]) == (expected, reason if expected == OPEN else "")
    gains = PlannedPair(less="a", less_minus="a", more="b", more_minus="a", strict=True)
    [line] = RecipeTable(plan_of(["a", "b"], [order_of(gains)]), rows).verdicts
    assert line["verdict"] == expected


@pytest.mark.parametrize(("measure", "why"), [("Brier", "no probabilities from b"), ("EM", "no answers from b")])
def test_an_order_of_what_a_system_does_not_give_says_so(measure: str, why: str) -> None:
    rows = run("a", (0.5,)), run("b", (0.6,))
    rows[0].results[0]["reports"]["test"]["scores"]["a"][measure] = score(0.5)
    order = order_of(PlannedPair(less="a", more="b", strict=True), measure)
    [line] = RecipeTable(plan_of(["a", "b"], [order]), rows).verdicts
    assert (line["verdict"], line["why"]) == (MISSING, why)
    [line] = RecipeTable(plan_of(["a", "b"], [order]), (rows[0], Row("b", (), {}, 1))).verdicts
    assert (line["verdict"], line["why"]) == (MISSING, ""), "it was not run"


def order_of(pair: PlannedPair, measure: str = "RR@10") -> PlannedOrder:
    return PlannedOrder(statement="a < b", measure=measure, pairs=(pair,))


def test_a_line_goes_through_the_seeds_that_all_of_its_points_have() -> None:
    rows = (run("a=1", (0.5, 0.9)), run("a=2", (0.6,)), run("a=4", (0.7, 0.1)), Row("a=8", (), {}, 1))
    plan = plan_of([row.cell for row in rows], [])
    plan["plot"] = {"axis": "a", "lines": {"a": {row.cell: row.cell for row in rows}}}
    [panel] = RecipeTable(plan, rows).panels()
    assert panel.series["a"] == [0.5, 0.6, 0.7, None]
    assert panel.over_seeds["a"] == [(0.5, 0.9), None, (0.1, 0.7), None]


ALONE, SHARED, OLDER = {"load": 1.0}, {"load": 12.5, "gpu_mb": 50_000}, None
BUSY = {"load": 12.5, "gpu_mb": 0}


@pytest.mark.parametrize(
    ("besides", "sentence"),
    [
        ([ALONE, ALONE], "Nothing else ran on the machine."),
        ([ALONE, BUSY], "The load of the machine, which has 16 cores, was at most 12.5, and the runs themselves are"),
        ([ALONE, OLDER], "Whether other work ran beside it was not recorded."),
        ([ALONE, {}], "Whether other work ran beside it was not recorded."),
        ([ALONE, SHARED], "beside other work on the same machine, and so are longer than alone: b."),
        ([SHARED, SHARED], "All times were taken beside other work on the same machine"),
    ],
    ids=str,
)
def test_a_load_that_may_be_that_of_others_is_not_called_nothing(
    besides: Sequence[Beside | None], sentence: str
) -> None:
    rows = []
    for cell, beside in zip("ab", besides, strict=True):
        row = run(cell, (0.5,))
        (result,) = row.results
        result["reports"]["test"]["extra"] = {cell: {"queries/s": 100}}
        result["data"], result["hardware"] = {"dataset": "toy"}, {"processor": "x", "cores": 16, "system": "x"}
        if beside is not None:
            result["beside"] = beside
        rows.append(row)
    plan = plan_of(["a", "b"], [])
    plan["costs"] = True
    costs = RecipeTable(plan, tuple(rows)).costs()
    assert sentence in costs
    assert ("Nothing else ran" in costs) == (sentence == "Nothing else ran on the machine.")


def test_several_verdicts_are_as_good_as_the_worst() -> None:
    assert together([HOLDS, HOLDS]) == HOLDS
    assert together([HOLDS, OPEN]) == OPEN
    assert together([OPEN, MISSING, HOLDS]) == MISSING
    assert together([MISSING, FAILS, HOLDS]) == FAILS


def test_seeds_are_told_by_their_mean_and_deviation() -> None:
    assert str(Measured((0.1, 0.3), (0, 0), (1, 1))) == "0.200 ± 0.141"  # of two: |a - b| / sqrt(2)
    assert str(Measured((0.25,), (0.2,), (0.31,))) == "0.250 [0.200, 0.310]"


def test_a_row_without_results_has_nothing_to_tell() -> None:
    row = Row("a", (), {}, 2)
    assert (row.measured("test", "RR@10"), row.seconds, row.splits) == (None, None, [])
    assert aligned([]) == ""
