"""Questions by whether training questions were about their documents, against sets that are written out by hand."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.evaluation.test_overlap import CGR, DOCUMENTS, GENRE, QRELS, QUERIES, run
from triever import DataError, Dataset, Query, UsageError
from triever.evaluation.report import evaluate
from triever.evaluation.seen import seen

LEARNED = {"t1": {"forum": 1, "town": 0}, "t2": {"sign": 1}}
ASKED = [*QUERIES, Query("t1", "an assembly"), Query("t2", "dots")]
DATA = Dataset.of("hand", DOCUMENTS, ASKED, {"test": QRELS, "train": LEARNED, "other": {"t1": {"town": 1}}})


def test_a_question_is_seen_where_training_was_about_a_document_of_it() -> None:
    found = seen({"genre": GENRE, "cgr": CGR}, DATA).values
    assert found["questions"] == {
        "seen": 2,
        "unseen": 2,
        "all": 4,
    }  # q1 and q3; town was judged, and is not what t1 is about
    means = {name: [one["mean"] for one in scores.values()] for name, scores in found["scores"].items()}
    assert means == {"genre": [1 / 2, 0, 1 / 4], "cgr": [1, 1 / 2, 3 / 4]}
    assert seen({"cgr": CGR}, DATA, train="other").values["questions"] == {"seen": 1, "unseen": 3, "all": 4}


@given(st.sets(st.sampled_from([document.id for document in DOCUMENTS])))
def test_groups_divide_the_questions(learned: set[str]) -> None:
    train = {"t1": dict.fromkeys(learned, 1)} if learned else {"t1": {"forum": 0}}
    data = Dataset.of("hand", DOCUMENTS, ASKED, {"test": QRELS, "train": train})
    found = seen({"cgr": CGR}, data, measure="RR").values
    wanted = [query for query, grades in QRELS.items() if any(grades.get(one, 0) > 0 for one in learned)]
    assert (found["questions"]["seen"], found["questions"]["unseen"]) == (len(wanted), 4 - len(wanted))
    if not wanted:
        assert found["scores"]["cgr"]["seen"] is None
        return
    mean = evaluate(CGR, {query: QRELS[query] for query in wanted}, ["RR"]).scores["run"]["RR"].mean
    assert found["scores"]["cgr"]["seen"]["mean"] == mean


def test_it_is_told_and_drawn(tmp_path: Path) -> None:
    found = seen({"genre": GENRE, "cgr": CGR}, DATA)
    assert [list(row)[1:] for row in found.parts[0].rows] == [["seen (2)", "unseen (2)", "all (4)"]] * 2
    assert "a question of train is about one of their documents, of which there are 2" in found.parts[0].lines[0]
    found.plot(tmp_path / "seen.svg")
    assert "unseen (2)" in (tmp_path / "seen.svg").read_text()


@pytest.mark.parametrize(
    ("found", "train", "message"),
    [
        (run(q9="forum"), "train", "mine has no results for any question of the split 'test' of hand"),
        (run(q1="elsewhere"), "train", "none of the documents that mine retrieves is in hand, such as 'elsewhere'"),
        (CGR, "tarin", "tarin"),
    ],
)
def test_what_does_not_fit_is_refused(found: object, train: str, message: str) -> None:
    with pytest.raises((DataError, UsageError), match=message):
        seen({"mine": found}, DATA, train=train)  # type: ignore[dict-item]
