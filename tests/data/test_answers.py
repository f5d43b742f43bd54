"""Answers, against values worked out by hand and against SQuAD 2's own functions."""

from __future__ import annotations

import re
import string
from collections import Counter

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from triever.data.answers import exact_match, f1, has_answer, normalise_answer
from triever.data.records import normalise


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("The Beatles!", "beatles"),
        ("  an   apple a day ", "apple day"),
        ("Theatre", "theatre"),  # an article only as a word
        ("U.S.A.", "usa"),
        ("well-known", "wellknown"),  # as SQuAD: punctuation goes, no space comes
        ("$5.00", "500"),
        ("“Quoted” – text…", "“quoted” – text…"),  # as SQuAD: only ASCII's punctuation goes
        ("東京。", "東京。"),
        ("Cafe\u0301", "café"),
        ("!?", ""),
    ],
)
def test_normalised_answers(text: str, expected: str) -> None:
    assert normalise_answer(text) == expected


def test_exact_match_is_after_normalisation_and_over_all_answers() -> None:
    assert exact_match("the Beatles", ["Rolling Stones", "Beatles!"]) == 1.0
    assert exact_match("Beatle", ["Beatles"]) == 0.0


def test_a_question_without_answers_wants_an_empty_one() -> None:
    assert [score("", []) for score in (exact_match, f1)] == [1.0, 1.0]
    assert [score("the!", []) for score in (exact_match, f1)] == [1.0, 1.0]  # nothing is left of it
    assert [score("x", []) for score in (exact_match, f1)] == [0.0, 0.0]
    assert [score("", ["x"]) for score in (exact_match, f1)] == [0.0, 0.0]
    assert [score("", ["the", "x"]) for score in (exact_match, f1)] == [0.0, 0.0]  # an empty answer is none


def test_f1_by_hand() -> None:
    # given "big red house", wanted "red house": 2 common, p = 2/3, r = 2/2
    assert f1("a big red house", ["the red house"]) == pytest.approx(2 * (2 / 3) * 1 / (2 / 3 + 1))
    # a repeated token counts as often as both have it: "no no no" and "no no": 2 common, p = 2/3, r = 2/2
    assert f1("no no no", ["no no"]) == pytest.approx(2 * (2 / 3) * 1 / (2 / 3 + 1))
    assert f1("red house", ["green garden", "red"]) == pytest.approx(2 * (1 / 2) * 1 / (1 / 2 + 1))
    assert f1("red", ["green"]) == 0.0
    assert f1("the", ["a"]) == 1.0  # both are empty after normalisation, as in SQuAD 2
    assert f1("the", ["red"]) == 0.0


def test_f1_knows_only_words_between_spaces() -> None:
    assert f1("東京都", ["東京"]) == 0.0
    assert f1("東京 都", ["東京"]) == pytest.approx(2 * (1 / 2) * 1 / (1 / 2 + 1))


# --- the judge: what SQuAD 2's script does, written as it is there ------------------------------------------


def squad_normalise(text: str) -> str:
    bare = "".join(letter for letter in text.lower() if letter not in set(string.punctuation))
    return " ".join(re.sub(re.compile(r"\b(a|an|the)\b", re.UNICODE), " ", bare).split())


def squad_exact(gold: str, given: str) -> float:
    return float(squad_normalise(gold) == squad_normalise(given))


def squad_f1(gold: str, given: str) -> float:
    gold_words, words = squad_normalise(gold).split(), squad_normalise(given).split()
    same = sum((Counter(gold_words) & Counter(words)).values())
    if not gold_words or not words:
        return float(gold_words == words)
    if same == 0:
        return 0.0
    precision, recall = same / len(words), same / len(gold_words)
    return 2 * precision * recall / (precision + recall)


WORDS = st.sampled_from(["the", "A", "an", "Nile", "nile", "river", "«Nil»", "ナイル川", "U.S.", "!", "…", "Ünal", "_"])
PHRASES = st.lists(WORDS, max_size=5).map(" ".join) | st.text(max_size=8).map(normalise)


@given(PHRASES, st.lists(PHRASES, max_size=3))
def test_answers_are_judged_as_squad_judges_them(answer: str, answers: list[str]) -> None:
    golds = [gold for gold in answers if squad_normalise(gold)] or [""]
    assert normalise_answer(answer) == squad_normalise(answer)
    assert exact_match(answer, answers) == max(squad_exact(gold, answer) for gold in golds)
    assert f1(answer, answers) == pytest.approx(max(squad_f1(gold, answer) for gold in golds))


# --- texts that hold an answer ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("The capital is Paris, France.", "paris"),
        ("He lived in the U.S. for years", "U.S."),
        ("SPIDER-MAN  returns", "Spider-Man"),
        ("one\ntwo\tthree", "two three"),
        ("日本の首都は東京です。", "東京"),
        ("北京是中国的首都", "中国"),
        ("กรุงเทพเป็นเมืองหลวง", "กรุงเทพ"),
        ("भारत की राजधानी दिल्ली है", "दिल्ली"),
        ("서울 한국", "서울"),
        ("Le cafe\u0301 est bon", "CAFÉ"),
        ("built in 1889 (Eiffel)", "1889"),
        ("tab\u200bstop", "stop"),
    ],
)
def test_texts_that_hold_the_answer(text: str, answer: str) -> None:
    assert has_answer(text, ["something else", answer])


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("A comparison of prices", "paris"),  # a part of a word
        ("Paris and then France", "Paris France"),  # not a run
        ("the year 18890", "1889"),
        ("दिल्लीवाले", "दिल्ली"),  # vowel signs belong to their word
        ("日本の首都", "東京"),
        ("text", ""),
        ("text", "  "),
        ("", "text"),
    ],
)
def test_texts_that_do_not(text: str, answer: str) -> None:
    assert not has_answer(text, [answer])


def test_no_answers_no_match() -> None:
    assert not has_answer("text", [])


@given(st.text(), st.text(min_size=1), st.text())
def test_an_answer_between_spaces_is_found(before: str, answer: str, after: str) -> None:
    """Whatever the script; `has_answer` of the answer itself is False only where nothing of it is visible."""
    assume(has_answer(answer, [answer]))
    assert has_answer(f"{before} {answer} {after}", [answer])


@given(st.text(st.characters(categories=["L", "N", "P", "S"]), min_size=1))
def test_a_visible_answer_is_found_in_itself(answer: str) -> None:
    assert has_answer(answer, [answer])


@given(st.text())
def test_an_answer_equals_itself(text: str) -> None:
    assert exact_match(text, [text]) == 1.0
    assert f1(text, [text]) == 1.0
