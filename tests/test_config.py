"""Options from mappings, TOML and words, and back."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from triever import Dense, config
from triever.errors import UsageError


@dataclass(frozen=True)
class Inner:
    branch: int = 10


@dataclass(frozen=True)
class Options:
    name: str = "x"
    rate: float = 0.5
    steps: int = 3
    fresh: bool = False
    method: Literal["a", "b"] = "a"
    views: tuple[str, ...] = ()
    limit: int | None = None
    inner: Inner = field(default_factory=Inner)


def test_words_are_parsed_as_the_option_asks() -> None:
    words = [
        "name=12",
        "rate=1",
        "steps=7",
        "fresh=true",
        "method=b",
        "views=daq,d2q",
        "limit=4",
        "inner.branch=5",
    ]
    found = config.build(Options, config.assignments(words))
    assert found == Options("12", 1.0, 7, True, "b", ("daq", "d2q"), 4, Inner(5))


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({"stpes": 1}, "stpes is not an option of Options; did you mean steps?"),
        ({"inner": {"brunch": 1}}, "inner.brunch is not an option of Inner; did you mean branch?"),
        ({"steps": "many"}, "steps = 'many' should be a whole number"),
        ({"steps": 1.5}, "steps = 1.5 should be a whole number"),
        ({"steps": True}, "steps = True should be a whole number"),
        ({"fresh": "perhaps"}, "fresh = 'perhaps' should be true or false"),
        ({"name": 3}, "name = 3 should be text"),
        ({"method": "c"}, "method = 'c' is not one of the choices; known: a, b"),
        ({"views": 3}, "views = 3 should be a list"),
        ({"inner": 3}, "inner = 3 should be a table"),
    ],
)
def test_what_does_not_fit_is_named(values: dict[str, object], sentence: str) -> None:
    with pytest.raises(UsageError) as caught:
        config.build(Options, values)
    assert str(caught.value).startswith(sentence)


@pytest.mark.parametrize(
    ("word", "sentence"),
    [
        (
            "views=[a, b-1]",
            """views = [a, b-1] is not valid TOML; texts inside need quotes: --set 'views=["a", "b-1"]'""",
        ),
        ("views=[a, 2]", """--set 'views=["a", 2]'"""),
        ("views=[a", "views = [a is not valid TOML; write lists as"),
        ("inner={branch=x}", """--set 'inner={branch="x"}'"""),
        ("inner={branch=x", "write lists as"),
    ],
)
def test_lists_and_tables_that_are_not_toml_are_shown_with_quotes(word: str, sentence: str) -> None:
    with pytest.raises(UsageError) as caught:
        config.from_words(Options, [word])
    assert sentence in str(caught.value)


def test_lists_and_tables_may_be_words() -> None:
    found = config.from_words(Options, ['views=["a", "b, c"]', "inner={branch=5}", "name={query}"])
    assert found == Options(views=("a", "b, c"), inner=Inner(5), name="{query}")
    assert config.from_words(Outer, ["named={steps=4}"]) == Outer(Inner(7), Options(steps=4, rate=0.1))
    assert config.from_words(Options, None) == Options()


@pytest.mark.parametrize("word", ["k1", "=3", ""])
def test_words_without_a_key_or_value_are_refused(word: str) -> None:
    with pytest.raises(UsageError, match="key=value"):
        config.assignments([word])


@pytest.mark.parametrize("words", [["docids=semantic", "docids.branch=3"], ["docids.branch=3", "docids=semantic"]])
def test_a_value_with_parts_is_their_kind(words: list[str]) -> None:
    assert config.assignments(words) == {"docids": {"kind": "semantic", "branch": "3"}}
    with pytest.raises(UsageError, match=r"training\.kind is not an option"):
        config.from_words(Dense, ["training=5", "training.steps=3"])


def test_files_that_are_not_toml(tmp_path) -> None:
    with pytest.raises(UsageError, match="No such file"):
        config.read_toml(tmp_path / "none.toml")
    (tmp_path / "bad.toml").write_text("k1 = = 3")
    with pytest.raises(UsageError, match=r"bad.toml: not valid TOML.*line 1"):
        config.read_toml(tmp_path / "bad.toml")


texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)


@given(st.builds(Options, name=texts, steps=st.integers(), views=st.lists(texts, max_size=3).map(tuple)))
def test_options_come_back_as_they_went(options: Options) -> None:
    assert config.build(Options, config.to_dict(options)) == options


@dataclass(frozen=True)
class Outer:
    inner: Inner = config.option(Inner(branch=7), "nested")
    named: Options = config.option(Options(steps=9, rate=0.1), "nested too")


def test_parts_of_a_nested_option_leave_its_other_parts_as_its_default_has_them() -> None:
    found = config.build(Outer, config.assignments(["named.steps=4", "named.inner.branch=2"]))
    assert found == Outer(Inner(7), Options(steps=4, rate=0.1, inner=Inner(2)))
