"""Filters by metadata, held to the obvious evaluation of every document by itself."""

from __future__ import annotations

from datetime import date

import pytest
from hypothesis import given
from hypothesis import strategies as st

import triever
from triever import Document, UsageError
from triever.data.filters import Filter, parsed_where
from triever.data.store import DocumentStore
from triever.held import NO_DOCUMENTS
from triever.validation import Json


def left(where: dict[str, object], values: list[Json], key: str = "key") -> list[Json]:
    """The values that a filter leaves."""
    store = DocumentStore.of(Document(str(row), "x", metadata={key: value}) for row, value in enumerate(values))
    return [value for value, keep in zip(values, Filter.of(where).rows(store), strict=True) if keep]


NUMBERS = st.integers(-5, 5) | st.floats(-5, 5, allow_nan=False)


@given(st.lists(NUMBERS, min_size=1), NUMBERS, NUMBERS)
def test_numbers_are_compared_as_numbers(values: list[Json], low: float, high: float) -> None:
    assert left({"key": f">={low}"}, values) == [value for value in values if value >= low]
    assert left({"key": {">": low, "<=": high}}, values) == [value for value in values if low < value <= high]
    assert left({"key": low}, values) == [value for value in values if value == low]
    assert left({"key": f"!={low}"}, values) == [value for value in values if value != low]
    assert left({"key": [low, high]}, values) == [value for value in values if value in (low, high)]
    written = [str(value) for value in values]
    assert left({"key": f"<{low}"}, written) == [text for text in written if float(text) < low]


@given(st.lists(st.dates(date(1990, 1, 1), date(2030, 12, 31)), min_size=1), st.dates(date(1990, 1, 1)))
def test_dates_are_compared_as_dates_and_a_year_is_all_of_it(days: list[date], border: date) -> None:
    texts = [day.isoformat() for day in days]
    assert left({"key": f">={border.isoformat()}"}, texts) == [
        t for t, day in zip(texts, days, strict=True) if day >= border
    ]
    assert left({"key": f"<{border.isoformat()}"}, texts) == [
        t for t, day in zip(texts, days, strict=True) if day < border
    ]
    year = border.year
    assert left({"key": f"<={year:04}"}, texts) == [t for t, day in zip(texts, days, strict=True) if day.year <= year]
    assert left({"key": f">{year:04}"}, texts) == [t for t, day in zip(texts, days, strict=True) if day.year > year]
    assert left({"key": f"{year:04}..{year:04}"}, texts) == [
        t for t, day in zip(texts, days, strict=True) if day.year == year
    ]


@given(st.lists(st.text("ab", max_size=3), min_size=1), st.text("ab", min_size=1, max_size=3))
def test_texts_are_compared_as_they_are(values: list[Json], text: str) -> None:
    assert left({"key": text}, values) == [value for value in values if value == text]
    assert left({"key": f">{text}"}, values) == [value for value in values if value > text]
    assert left({"key": f"={text}"}, values) == left({"key": text}, values)


@given(st.lists(st.lists(st.integers(0, 4), max_size=3), min_size=1), st.integers(0, 4))
def test_of_a_list_one_value_is_enough_but_none_may_be_unwanted(values: list[Json], number: int) -> None:
    assert left({"key": number}, values) == [value for value in values if number in value]
    assert left({"key": f"!={number}"}, values) == [value for value in values if number not in value]
    within = [value for value in values if any(1 <= each <= 2 for each in value)]
    assert left({"key": "1..2"}, values) == within
    assert left({"key": {">=": 1, "<=": 2}}, values) == within


@pytest.mark.parametrize(
    ("condition", "values", "expected"),
    [
        (True, [True, False, "true", 1], [True, "true"]),
        ("false", [True, False, 0], [False]),
        (None, [None, "", 0], [None]),
        (2020, ["2020", 2020, "2020-05-01", 2020.0], ["2020", 2020, 2020.0]),
        (">=2020", ["2020-05-01", 2021, "unknown", "2019-12-31", None, True], ["2020-05-01", 2021]),
        ("<=2020-02", ["2020-02-29", "2020-03-01", "2020"], ["2020-02-29", "2020"]),
        (">=2020-01-01T12:00", ["2020-01-01T12:00:00Z", "2020-01-01T11:59"], ["2020-01-01T12:00:00Z"]),
        ("2020-01-01T12:00:00+01:00..", ["2020-01-01T11:00", "2020-01-01T10:59"], ["2020-01-01T11:00"]),
        ("1..", [0, 1, 2], [1, 2]),
        ("..1", [0, 1, 2], [0, 1]),
        ("a..b", ["a", "a..b"], ["a..b"]),
        ("=>=1", [">=1", 1], [">=1"]),
        (">=2020-13", ["2020-12", "2021-01"], ["2021-01"]),  # no date, so a text
        ([">5", "<2"], [1, 3, 6], [1, 6]),
    ],
)
def test_what_conditions_mean(condition: object, values: list[Json], expected: list[Json]) -> None:
    assert left({"key": condition}, values) == expected


def test_a_document_without_the_key_satisfies_nothing_and_tables_are_looked_into() -> None:
    metadata: list[dict[str, Json]] = [{"author": {"name": "Ada"}}, {"author.name": "Bob"}, {"author": "Eve"}, {}]
    store = DocumentStore.of(Document(str(row), "x", metadata=each) for row, each in enumerate(metadata))
    assert Filter.of({"author.name": ["Ada", "Bob"]}).rows(store).tolist() == [True, True, False, False]
    assert Filter.of({"author": "!=Eve"}).rows(store).tolist() == [True, False, False, False]
    with pytest.raises(UsageError, match="no document has the metadata key 'autor'; did you mean author"):
        Filter.of({"autor": "Ada"}).rows(store)


@pytest.mark.parametrize("operand", ["19OO", "abc", "", "2020-13-01"])
@pytest.mark.parametrize("values", [[1871, 1900.5], [[1871], [1900.5, 1872]], [1871, None, 1900.5]])
def test_a_text_among_numbers_is_no_filter_that_leaves_nothing(operand: str, values: list[Json]) -> None:
    message = rf"key holds numbers, and '{operand}' is none; compare it with a number, such as 1871 or 1900\.5"
    for condition in (operand, f"!={operand}", {"=": operand}, ["1900", operand]):
        with pytest.raises(UsageError, match=message):
            left({"key": condition}, values)
    for condition in (f">={operand}", {"<": 1900, ">": operand}) if operand else ():
        with pytest.raises(UsageError, match=message):
            left({"key": condition}, values)


@pytest.mark.parametrize(
    ("condition", "values", "expected"),
    [
        (">=19OO", [1871, "unknown", "20"], ["unknown", "20"]),  # a document has a text, so that texts are compared
        ("19OO", ["1871", "8000"], []),  # texts of digits, such as codes
        ("abc", ["ab", "b"], []),
        ("abc", [True, 1], []),
        ("true", [1, 2], None),
        (True, [1, 2], []),
        (None, [1, 2], []),
        ("2020-05-01", [2019, 2020], []),
        (">=2020-01-01", [2019, 2020], [2020]),
        (">=19OO", [], []),
        (">=19OO", [None], []),
    ],
)
def test_texts_among_texts_are_compared(condition: object, values: list[Json], expected: list[Json] | None) -> None:
    if expected is None:
        with pytest.raises(UsageError, match="key holds numbers"):
            left({"key": condition}, values)
    else:
        assert left({"key": condition}, values) == expected


def test_numbers_that_are_written_as_texts_are_compared_with_numbers() -> None:
    with pytest.raises(UsageError, match=r"year holds numbers, and '19OO' is none; .* such as 1871 or 1923$"):
        left({"year": ">=19OO"}, ["1923", "1871"], key="year")


@pytest.mark.parametrize(
    ("where", "said"),
    [
        ({"place": "ribe"}, "; place is 'Ribe' in some documents, and never 'ribe'"),
        ({"place": ["ribe", "AARHUS"]}, "; place is 'Ribe' in some documents, and never 'ribe'"),
        ({"place": "Aarhus"}, ""),
        ({"code": "80O0"}, "; code holds numbers, and '80O0' is none"),
        ({"code": "8001"}, ""),
        ({"place": "Ribe", "year": 1900}, ""),
    ],
)
def test_a_text_that_looks_like_a_slip_finds_nothing_and_is_told_of(where: dict[str, object], said: str) -> None:
    documents = [
        Document("a", "a lamp", metadata={"place": "Ribe", "year": 1871, "code": "8000"}),
        Document("b", "a lamp", metadata={"place": ["Fanø"], "year": 1900}),
    ]
    result = triever.BM25().fit(triever.Dataset.of("lamps", documents)).search("lamp", where=where)
    assert [*result] == []
    assert result.note == f"{NO_DOCUMENTS}{said}"


@pytest.mark.parametrize(
    ("where", "message"),
    [
        ({"year": []}, "the filter for year has no values"),
        ({"year": {}}, "the filter for year has no operators"),
        ({"year": {">=": [1]}}, "year cannot be compared with"),
        ({"year": ">="}, "year cannot be compared with"),
        ({"year": {"deep": 1}}, "'deep' in the filter for year is no operator; use one of >=, "),
        ("year", "where = 'year' should be a mapping"),
    ],
)
def test_slips_are_named(where: object, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        Filter.of(where)  # ty: ignore[invalid-argument-type]


def test_expressions_of_the_command_line() -> None:
    assert parsed_where(["a.b != x", "year=1, 2"]) == {"a.b": {"!=": "x"}, "year": ["1", "2"]}
    assert parsed_where(["year=2010..2020"]) == {"year": "2010..2020"}
    assert parsed_where(["year=1,"]) == {"year": "1"}
    for wrong in ("year", "=2", "year>="):
        with pytest.raises(UsageError, match=r"is no condition; for example: --where 'year>=2020'"):
            parsed_where([wrong])
    for twice in (["a=1", "a=2"], ["a>1", "a=2"], ["a>1", "a>2"]):
        with pytest.raises(UsageError, match="--where has two conditions for a"):
            parsed_where(twice)
    with pytest.raises(UsageError, match="!= takes one value"):
        parsed_where(["a!=1,2"])


def test_the_latest_filters_are_kept_and_forgotten_with_a_change() -> None:
    retriever = triever.BM25().fit(
        triever.Dataset.of("years", [Document(str(year), f"year {year}", metadata={"year": year}) for year in range(9)])
    )
    for year in range(9):
        assert [hit.id for hit in retriever.search(f"year {year}", where={"year": year})] == [str(year)]
    retriever.add([Document("new", "year 8 again", metadata={"year": 8})])
    assert {hit.id for hit in retriever.search("year 8", where={"year": 8})} == {"8", "new"}
    retriever.delete(["8"])
    assert {hit.id for hit in retriever.search("year 8", where={"year": 8})} == {"new"}
