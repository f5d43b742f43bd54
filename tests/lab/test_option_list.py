"""The list of options: every one that a system has, each as `--set` takes it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.packages import on_path, write_package
from triever import UsageError, config, plugins
from triever.docids.schemes import SCHEMES
from triever.lab.option_list import Option, by_choice, listed
from triever.retriever import KINDS, system


def names(values: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    """The full names of all options that a written-out table has."""
    for key, value in values.items():
        if isinstance(value, Mapping):
            yield from names(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}"


def words(option: Option) -> list[str]:
    """What a command line would say to set an option to its default."""
    given = [option.given] if option.given else []
    return [*given, *([] if option.word is None else [f"{option.name}={option.word}"])]


def unset(name: str) -> dict[str, Any]:
    """The table that sets an option to nothing; a kind that is not set is a table that is not there."""
    *parents, last = name.removesuffix(".kind").split(".")
    values: dict[str, Any] = {last: None}
    for parent in reversed(parents):
        values = {parent: values}
    return values


@pytest.mark.parametrize("kind", KINDS)
def test_every_option_that_is_listed_is_accepted_with_its_default(kind: str) -> None:
    usual = config.to_dict(system(kind)())
    for option in listed(kind):
        if option.word is None:
            made = config.build(system(kind), unset(option.name))
        else:
            made = config.from_words(system(kind), words(option))
        if not option.given:
            assert config.to_dict(made) == usual, option.name
        # Other choices may want a second option beside them, which their error names.
        for choice in option.choices if option.name.endswith(".kind") else ():
            config.from_words(system(kind), [*filter(None, [option.given]), f"{option.name}={choice}"])


@pytest.mark.parametrize("kind", KINDS)
def test_no_option_is_missing(kind: str) -> None:
    options = listed(kind)
    by_name = {option.name.removesuffix(".kind") if option.default is None else option.name for option in options}
    assert set(names(config.to_dict(system(kind)()))) <= by_name
    assert all(option.meaning for option in options)


def test_every_docid_scheme_is_listed_with_its_own_options() -> None:
    groups = by_choice(listed("generative"))
    for kind, scheme in SCHEMES.items():
        own = [option.name for option in groups.get(f"docids.kind={kind}", ())]
        assert own == [f"docids.{name}" for name in config.options(scheme)]
    [docids] = listed("generative", "docids.kind")[:1]
    assert (docids.default, set(docids.choices)) == ("atomic", set(SCHEMES))


def test_what_a_system_refuses_is_no_choice() -> None:
    [docids] = [option for option in listed("contextual") if option.name == "docids.kind"]
    assert docids.choices == ("title",)


def test_a_part_has_the_defaults_of_its_system() -> None:
    by_name = {option.name: option.default for option in listed("reranked")}
    assert (by_name["negatives.count"], by_name["first.kind"], by_name["first.k1"]) == (7, "bm25", 1.2)
    assert {option.name: option.word for option in listed("fused")}["systems"] == "bm25"


def test_a_text_chooses_by_name_or_meaning() -> None:
    assert [option.name for option in listed("bm25", "K1")] == ["k1"]
    assert [option.name for option in listed("bm25", "stop WORDS")] == ["language"]
    with pytest.raises(UsageError, match="no option of bm25 mentions 'teacher'; leave it out to see all 8"):
        listed("bm25", "teacher")


def test_an_unknown_system_suggests_the_nearest() -> None:
    with pytest.raises(UsageError, match="did you mean dense"):
        listed("dens")


BROUGHT = """
from dataclasses import dataclass, field
from typing import ClassVar
from triever import BM25, Naive
from triever.config import option

@dataclass(eq=False)
class Plain(BM25):
    kind: ClassVar[str] = "plain"
    window: int = option(3, "words that are read together")
    bare: tuple[str, ...] = field(default_factory=tuple)

@dataclass(eq=False)
class Letters(Naive):
    kind: ClassVar[str] = "letters"
    case: bool = option(True, "whether capitals are letters of their own")
"""


def test_what_packages_bring_is_listed_and_what_is_broken_is_not(tmp_path: Path) -> None:
    retrievers = {"plain": "brought:Plain", "broken": "brought:Missing"}
    entries = {plugins.RETRIEVERS: retrievers, plugins.SCHEMES: {"letters": "brought:Letters", "no": "brought:No"}}
    write_package(tmp_path, "brought", {"brought.py": BROUGHT}, entries)
    with on_path(tmp_path, ["brought"]):
        own = [option.name for option in listed("plain") if not option.name.startswith("cut.")]
        assert own[-2:] == ["window", "bare"]
        letters = by_choice(listed("generative"))["docids.kind=letters"]
        assert [(option.name, option.word) for option in letters] == [("docids.case", "true")]
        first = next(option for option in listed("reranked") if option.name == "first.kind")
        assert "plain" in first.choices
        assert "broken" not in first.choices
