"""Reports: the numbers in them, the tables made of them, and the way to JSON and back."""

from __future__ import annotations

import io
import json
import math
import re
import sys
import unicodedata
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from rich.console import Console
from rich.table import Table

from triever.data.records import Hit, Query, Result
from triever.errors import DataError, MissingExtra, UsageError
from triever.evaluation.picture import check_picture
from triever.evaluation.report import Report, Score, evaluate
from triever.evaluation.significance import bootstrap, holm, randomisation_test

QUERIES = [f"q{number}" for number in range(20)]
MEASURES = ["nDCG@10", "Brier"]


def column(seed: int, shift: float = 0.0) -> dict[str, float]:
    drawn = np.random.default_rng(seed).random(len(QUERIES)) / 2 + shift
    return dict(zip(QUERIES, drawn.tolist(), strict=True))


VALUES = {
    "bm25": {"nDCG@10": column(0), "Brier": column(1)},
    "dsi": {"nDCG@10": column(2, 0.4), "Brier": column(3)},
    "gdr": {"nDCG@10": column(4), "Brier": column(5, 0.4)},
}
EXTRA = {"bm25": {"documents": 12_345, "queries/s": 810.04}, "dsi": {"documents": np.int64(7), "where": Path("x|y")}}
REPORT = Report.of(VALUES, extra=EXTRA, title="A title", about={"data": "python", "split": "test"})


def numbers(system: str, measure: str) -> np.ndarray:
    return np.array([VALUES[system][measure][query] for query in QUERIES])


# --- numbers ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("measure", MEASURES)
def test_scores_are_what_the_parts_say(measure: str) -> None:
    raw = [randomisation_test(numbers(system, measure), numbers("bm25", measure)) for system in ("dsi", "gdr")]
    expected = {"bm25": None, **dict(zip(("dsi", "gdr"), holm(raw), strict=True))}
    for system in VALUES:
        score = REPORT.scores[system][measure]
        assert score.mean == pytest.approx(math.fsum(numbers(system, measure)) / 20)
        assert (score.low, score.high) == pytest.approx(bootstrap(numbers(system, measure)))
        assert score.p == expected[system]


def test_a_real_difference_is_significant_and_none_is_not() -> None:
    assert REPORT.scores["dsi"]["nDCG@10"].significant
    assert not REPORT.scores["gdr"]["nDCG@10"].significant
    assert not REPORT.scores["bm25"]["nDCG@10"].significant


def test_identical_systems_do_not_differ() -> None:
    report = Report.of({"a": VALUES["bm25"], "b": VALUES["bm25"]})
    assert {score.p for score in report.scores["b"].values()} == {1.0}


def test_one_query_has_an_interval_of_its_own_value() -> None:
    report = Report.of({"a": {"RR": {"q": 0.5}}, "b": {"RR": {"q": 0.25}}})
    assert report.scores == {"a": {"RR": Score(0.5, 0.5, 0.5)}, "b": {"RR": Score(0.25, 0.25, 0.25, 1.0)}}


def test_the_baseline_can_be_named() -> None:
    report = Report.of(VALUES, baseline="gdr")
    assert report.scores["gdr"]["Brier"].p is None
    assert report.scores["bm25"]["Brier"].p is not None
    with pytest.raises(UsageError, match="the report has no system 'bm2'; did you mean bm25"):
        Report.of(VALUES, baseline="bm2")


def test_the_best_may_be_the_least() -> None:
    assert REPORT.best("nDCG@10") == {"dsi"}
    means = {system: columns["Brier"].mean for system, columns in REPORT.scores.items()}
    assert REPORT.best("Brier") == {min(means, key=means.__getitem__)}
    assert Report.of({"a": VALUES["bm25"], "b": VALUES["bm25"]}).best("Brier") == {"a", "b"}
    assert Report.of({"a": VALUES["bm25"]}).best("Brier") == set()


def test_single_queries_can_be_looked_at() -> None:
    assert REPORT.per_query("dsi", "Brier") == VALUES["dsi"]["Brier"]
    ordered = sorted(VALUES["dsi"]["nDCG@10"].items(), key=lambda one: one[1])
    assert REPORT.worst("dsi", "nDCG@10", 3) == ordered[:3]
    most = sorted(VALUES["dsi"]["Brier"].items(), key=lambda one: one[1], reverse=True)
    assert REPORT.worst("dsi", "Brier", 3) == most[:3]
    with pytest.raises(UsageError, match="the report has no measure 'nDCG'; did you mean nDCG@10"):
        REPORT.per_query("dsi", "nDCG")


def test_systems_must_be_measured_alike() -> None:
    with pytest.raises(UsageError, match="nothing to report"):
        Report.of({})
    with pytest.raises(UsageError, match="nothing to report"):
        Report.of({"a": {}})
    with pytest.raises(UsageError, match="'b' was measured on other queries"):
        Report.of({"a": {"RR": {"q": 1.0}}, "b": {"RR": {"r": 1.0}}})
    with pytest.raises(UsageError, match="'b' was measured by other measures"):
        Report.of({"a": {"RR": {"q": 1.0}}, "b": {"AP": {"q": 1.0}}})
    with pytest.raises(UsageError, match="nothing to report; measure at least one query"):
        Report.of({"a": {"RR": {}}})
    with pytest.raises(UsageError, match="no system 'c'"):
        Report.of({"a": {"RR": {"q": 1.0}}}, extra={"c": {}})


def test_the_order_of_queries_does_not_matter() -> None:
    turned = {s: {m: dict(reversed(c.items())) for m, c in columns.items()} for s, columns in VALUES.items()}
    turned["bm25"] = VALUES["bm25"]  # the first decides
    assert Report.of(turned).scores == Report.of(VALUES).scores


# --- JSON ---------------------------------------------------------------------------------------------------


def test_a_report_survives_json() -> None:
    text = json.dumps(REPORT.to_dict(per_query=True), allow_nan=False)
    assert Report.from_dict(json.loads(text)) == REPORT


def test_a_report_without_its_values_keeps_everything_else() -> None:
    data = json.loads(json.dumps(REPORT.to_dict(), allow_nan=False))
    again = Report.from_dict(data)
    assert again.to_dict() == data
    assert (str(again), again.markdown()) == (str(REPORT), REPORT.markdown())
    with pytest.raises(UsageError, match="saved without its values"):
        again.per_query("dsi", "Brier")


def test_what_json_cannot_hold_becomes_what_it_can() -> None:
    report = Report.of({"a": VALUES["bm25"]}, extra={"a": {"x": math.inf, "y": [Path("p"), (1, None)], "z": np.True_}})
    assert report.extra == {"a": {"x": None, "y": ["p", [1, None]], "z": True}}


@pytest.mark.parametrize("data", [{}, {"format": 2}, {"format": 1}, {"format": 1, "scores": {"a": {"RR": {"x": 1}}}}])
def test_what_is_no_report_is_refused(data: dict[str, object]) -> None:
    with pytest.raises(DataError):
        Report.from_dict(data)


@given(
    st.dictionaries(
        st.text(min_size=1),
        st.lists(st.floats(0, 1), min_size=3, max_size=3),
        min_size=1,
        max_size=3,
    )
)
@example({"[/]": [0.0] * 3, "[bold]\\": [0.0] * 3})
def test_any_report_survives_json_and_can_be_shown(systems: dict[str, list[float]]) -> None:
    report = Report.of({name: {"RR": dict(zip("abc", v, strict=True))} for name, v in systems.items()})
    again = Report.from_dict(json.loads(json.dumps(report.to_dict(per_query=True))))
    assert again == report
    assert all(score.low <= score.mean <= score.high for one in report.scores.values() for score in one.values())
    assert str(report)
    assert report.markdown()
    shown(report.table())


# --- tables -------------------------------------------------------------------------------------------------

SMALL = Report(
    scores={
        "bm25": {"RR": Score(0.5, 0.4, 0.6), "NumRet": Score(150.0, 100.0, 200.0)},
        "dsi|x": {"RR": Score(0.75, 0.7, 0.8, 0.01), "NumRet": Score(99.5, 90.0, 1000.0, 0.5)},
    },
    baseline="bm25",
    queries=1234,
    extra={"dsi|x": {"documents": 4496}},
    about={"data": "python"},
)


def shown(table: Table, width: int = 80) -> str:
    console = Console(file=io.StringIO(), width=width, color_system=None)
    console.print(table)
    return console.file.getvalue()  # type: ignore[attr-defined]


def test_plain_text() -> None:
    assert str(SMALL).splitlines() == [
        "system                     RR                    NumRet  documents",
        "bm25     0.500 [0.400, 0.600]      150.0 [100.0, 200.0]",
        "dsi|x   0.750† [0.700, 0.800]  99.500 [90.000, 1,000.0]      4,496",
        "data python; 1,234 queries; 95% bootstrap intervals; † differs from bm25 (p < 0.05, randomisation test, Holm)",
    ]


def test_markdown() -> None:
    assert SMALL.markdown().splitlines() == [
        "| system | RR | NumRet | documents |",
        "| --- | ---: | ---: | ---: |",
        "| bm25 | 0.500 [0.400, 0.600] | **150.0** [100.0, 200.0] |  |",
        r"| dsi\|x | **0.750†** [0.700, 0.800] | 99.500 [90.000, 1,000.0] | 4,496 |",
        "",
        "1,234 queries; 95% bootstrap intervals; † differs from bm25 (p < 0.05, randomisation test, Holm)",
    ]


def test_a_table_for_a_terminal() -> None:
    text = shown(SMALL.table())
    assert [line.split() for line in text.splitlines()][1:7] == [
        ["system", "RR", "NumRet"],
        ["─" * len(text.splitlines()[2].strip())],
        ["bm25", "0.500", "150.0"],
        [".400–.600", "100.0–200.0"],
        ["dsi|x", "0.750†", "99.500"],
        ["documents", "4,496", ".700–.800", "90.000–1,000.0"],
    ]


def test_only_the_best_is_bold() -> None:
    console = Console(file=io.StringIO(), width=80, force_terminal=True, color_system="standard")
    console.print(SMALL.table())
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert re.search(r"\x1b\[1m *0\.750†", text)
    assert not re.search(r"\x1b\[1m *0\.500", text)


def test_names_are_not_markup() -> None:
    report = Report.of({"[bold]x[/bold]": {"RR": {"q": 1.0}}})
    assert "[bold]x[/bold]" in shown(report.table())


def test_default_measures_fit_a_narrow_terminal() -> None:
    values = {"dsi, atomic ids + DaQ + D2Q": {m: column(1) for m in ("nDCG@10", "RR@10", "Success@10", "R@100", "P@1")}}
    text = shown(Report.of(values, extra={next(iter(values)): {"documents": 1_234_567, "queries/s": 1}}).table())
    assert "…" not in text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (4496, "4,496"),
        (1234.56, "1,235"),
        (100.4, "100"),
        (42.25, "42.2"),
        (3.14, "3.1"),
        (0.0421, "0.042"),
        (None, ""),
    ],
)
def test_what_stands_beside_the_measures_is_shown_by_its_size(value: float | None, text: str) -> None:
    report = Report.of({"a": {"NumRet": {"q": 42.25}}}, extra={"a": {"x": value}})
    assert report.markdown().splitlines()[2] == f"| a | 42.250 [42.250, 42.250] | {text} |"
    assert f"x {text}".rstrip() in shown(report.table())


# --- pictures -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "start"), [("x.png", b"\x89PNG"), ("deep/x.svg", b"<?xml"), ("x.PDF", b"%PDF")])
def test_a_picture_is_written(tmp_path: Path, name: str, start: bytes) -> None:
    REPORT.plot(tmp_path / name)
    assert (tmp_path / name).read_bytes().startswith(start)


def test_a_picture_is_the_same_each_time(tmp_path: Path) -> None:
    for name in ("a.svg", "b.svg"):
        REPORT.plot(tmp_path / name)
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()


def test_a_picture_of_zeros_can_be_drawn(tmp_path: Path) -> None:
    Report.of({"a": {"RR": {"q": 0.0}, "NumRet": {"q": 1000.0}}}).plot(tmp_path / "x.png")


def test_an_unknown_picture_format_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"end its name with .pdf, .png, .svg"):
        REPORT.plot(tmp_path / "x.bmp")
    with pytest.raises(UsageError, match=r"x.bmp has no known picture format"):
        check_picture(tmp_path / "x.bmp")
    with pytest.raises(UsageError, match=r"bare has no known picture format"):
        check_picture("bare")
    assert not list(tmp_path.iterdir())


def test_a_picture_can_be_checked_before_any_work(tmp_path: Path) -> None:
    check_picture(tmp_path / "new" / "x.PNG")
    assert not list(tmp_path.iterdir())


def test_without_matplotlib_the_way_to_get_it_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(MissingExtra, match=r"run: pip install 'triever\[plot\]'"):
        REPORT.plot(tmp_path / "x.png")
    with pytest.raises(MissingExtra, match=r"run: pip install 'triever\[plot\]'"):
        check_picture(tmp_path / "x.png")


# --- evaluate -----------------------------------------------------------------------------------------------


def test_evaluate_measures_one_run() -> None:
    run = {"q1": Result((Hit("a", 2.0), Hit("b", 1.0)), answer="Nile")}
    qrels = {"q1": {"b": 1}, "q2": {"a": 1}}
    queries = [Query("q1", "?", answers=("the Nile",)), Query("q2", "?", answers=("x",))]
    report = evaluate(run, qrels, ["RR@10", "EM"], name="mine", queries=queries)
    assert report.systems == ["mine"]
    assert report.scores["mine"]["RR@10"].mean == (1 / 2 + 0) / 2
    assert report.scores["mine"]["EM"].mean == (1 + 0) / 2
    assert report.scores["mine"]["RR@10"].p is None
    assert report.caption() == "2 queries; 95% bootstrap intervals"


def test_evaluate_knows_an_id_in_every_spelling_of_unicode() -> None:
    apart = unicodedata.normalize("NFD", "caf\u00e9")
    assert apart != "caf\u00e9"
    for found, judged in ((apart, "caf\u00e9"), ("caf\u00e9", apart)):
        report = evaluate({found: {found: 1.0}}, {judged: {judged: 1}}, ["RR@10"])
        assert report.scores["run"]["RR@10"].mean == 1


def test_evaluate_takes_the_runs_of_pytrec_eval() -> None:
    report = evaluate({"q1": {"a": 2.0, "b": 1.0}}, {"q1": {"b": 1}, "q2": {"a": 1}}, ["RR@10"])
    assert report.scores["run"]["RR@10"].mean == (1 / 2 + 0) / 2
