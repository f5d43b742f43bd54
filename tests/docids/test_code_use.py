"""How docids use their symbols, counted the obvious way; cards, fits and `docids info` say what is bad."""

from __future__ import annotations

import logging
import math
import re
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.docids.test_quantize import noisy
from triever import (
    GDR,
    Atomic,
    Cluster,
    Codebook,
    Contextual,
    Dataset,
    DecoderOptions,
    Dense,
    DocidTuning,
    Document,
    Generative,
    Naive,
    Retriever,
    Semantic,
    Title,
)
from triever.docids.code_use import CodeUse, code_use
from triever.docids.schemes import Docid, Scheme
from triever.docids.trie import Trie
from triever.lab.docids import describe_docids

TINY = "scratch:hidden=8,layers=1,heads=2,vocabulary=270,positions=64"
NOTHING = DocidTuning(steps=0)
DOCUMENTS = [Document(str(number), f"word{number % 40} word{number // 40}") for number in range(1000)]


def use_of(docids: list[Docid], scheme: Scheme) -> CodeUse:
    use = code_use(Trie.of(zip(docids, range(len(docids)), strict=True)), scheme)
    assert use is not None
    return use


def fitted_use(scheme: Scheme, vectors: torch.Tensor) -> CodeUse:
    return use_of(scheme.fit(DOCUMENTS[: len(vectors)], vectors), scheme)


# --- what is counted ------------------------------------------------------------------------------------------

CODES = st.lists(st.lists(st.integers(0, 3), min_size=3, max_size=3).map(tuple), min_size=1, max_size=30)
PATHS = st.lists(st.sampled_from([(0, 0), (0, 1, 0), (0, 1, 1), (1, 0), (1, 1), (2, 2, 2, 0)]), min_size=1, max_size=30)


def assert_counted(use: CodeUse, codes: list[Docid]) -> None:
    """The numbers of a use are those of a count by hand."""
    assert len(use.positions) == max(map(len, codes))
    for at, position in enumerate(use.positions):
        counts = Counter(code[at] for code in codes if len(code) > at)
        total = sum(counts.values())
        entropy = -sum(count / total * math.log(count / total) for count in counts.values())
        assert position.symbols == len(counts)
        assert position.commonest == pytest.approx(max(counts.values()) / len(codes), abs=1e-4)
        assert position.perplexity == pytest.approx(math.exp(entropy), abs=0.06)
        beginnings = Counter(code[:at] for code in codes)
        undecided = sum(beginnings[code[:at]] > 1 for code in codes if len(code) > at)
        assert position.undecided == pytest.approx(undecided / len(codes), abs=1e-4)
    assert use.shared == pytest.approx(sum(codes.count(code) > 1 for code in codes) / len(codes), abs=1e-4)


@given(CODES)
def test_the_symbols_of_codebooks_are_counted_without_the_number(codes: list[Docid]) -> None:
    seen: Counter[Docid] = Counter()
    docids = []
    for code in codes:
        docids.append((*code, seen[code]))
        seen[code] += 1
    assert_counted(use_of(docids, Codebook(levels=3, bits=6)), codes)


@given(PATHS)
def test_docids_of_several_lengths_are_counted_as_far_as_they_go(docids: list[Docid]) -> None:
    assert_counted(use_of(docids, Cluster(clusters=6, branch=3)), docids)
    assert_counted(use_of(docids, Semantic(branch=3, leaf=3)), [docid[:-1] for docid in docids])


def test_one_cluster_and_no_tree_are_no_codes() -> None:
    assert use_of([(0,), (1,), (2,)], Semantic()).positions == ()
    assert code_use(Trie.of([]), Codebook()) is None
    for scheme in (Atomic(), Naive(), Title()):
        assert code_use(Trie.of([((0,), 0)]), scheme) is None


# --- what is bad ----------------------------------------------------------------------------------------------


def test_a_collapsed_codebook_is_warned_of_and_a_good_one_is_not() -> None:
    vectors = noisy()
    crowded, shared = fitted_use(Codebook(levels=4, bits=6, balanced=False), vectors).warnings()
    assert re.match(r"at positions? [1-4, ]+ of docids, one symbol stands for [\d%, ]+ of 1,000 docids, so", crowded)
    assert crowded.endswith(" little; set balanced=true for the docids")
    assert "docids share their code and differ in a number alone; set balanced=true for the docids, or raise" in shared
    good = fitted_use(Codebook(levels=4, bits=6), vectors)
    assert good.warnings() == []
    assert "warning about codes" not in good.facts()


def test_where_vectors_decide_documents_may_share_codes() -> None:
    use = fitted_use(Codebook(levels=2, bits=3), noisy())
    [warning] = use.warnings()
    assert warning.endswith("differ in a number alone; raise levels or bits of the docids")
    assert use.warnings(ranked=True) == []


@pytest.mark.parametrize(
    ("scheme", "remedy"),
    [
        (Semantic(branch=4, leaf=20), "their vectors are nearly alike"),
        (Codebook(levels=2, bits=4), "their vectors are nearly alike"),
        (Cluster(clusters=8), "set method=balanced for the docids"),
        (Cluster(clusters=8, method="agglomerative"), "set method=balanced for the docids"),
    ],
    ids=str,
)
def test_documents_that_are_alike_crowd_every_scheme(scheme: Scheme, remedy: str) -> None:
    vectors = torch.cat([torch.ones(900, 8), torch.randn(100, 8, generator=torch.Generator().manual_seed(0))])
    warning = fitted_use(scheme, vectors).warnings()[0]
    assert "one symbol stands for 9" in warning
    assert remedy in warning


@pytest.mark.parametrize(
    ("docids", "scheme"),
    [
        ([(number % 20 // 7 > 0,) for number in range(1000)], Cluster(clusters=2)),  # 65% in one of two clusters
        ([(0,)] * 1000, Cluster(clusters=1)),
        ([(0, number) for number in range(50)], Codebook(levels=1)),  # too few documents to say anything
        ([(number % 10, number // 10) for number in range(1000)], Semantic()),
        ([(number, 0, 0) for number in range(1000)], Codebook(levels=2, bits=10)),  # the first symbol tells all
    ],
)
def test_what_cannot_be_better_is_no_ground_for_a_warning(docids: list[Docid], scheme: Scheme) -> None:
    assert use_of(docids, scheme).warnings() == []


def test_two_crowded_positions_are_one_warning() -> None:
    docids: list[Docid] = [(0, number % 4, min(number, 5), number) for number in range(200)]
    [warning, _] = use_of(docids, Codebook(levels=3, bits=3)).warnings()
    assert warning.startswith("at positions 1, 3 of docids, one symbol stands for 100%, 98% of 200 docids, so")


def titled(*titles: str) -> Dataset:
    return Dataset.of("titled", [Document(str(number), "x", title) for number, title in enumerate(titles)])


@pytest.mark.parametrize(
    ("shared", "alone", "warned"), [(10, 20, True), (10, 190, False), (9, 1, False), (0, 30, False), (30, 0, True)]
)
def test_documents_that_share_a_title_are_counted(shared: int, alone: int, warned: bool) -> None:
    data = titled(*["Alike"] * shared, *(f"Title {number}" for number in range(alone)))
    facts = describe_docids(data, "title", ["vocabulary=300"], None)
    warning = (
        f"{shared} of {shared + alone} documents or passages share their title docid with another one, so that a "
        "search cannot tell these apart; unless they are passages of one document, fit generative with "
        "docids=semantic, or give every document a title of its own"
    )
    assert facts.get("warning about codes") == (warning if warned else None)


def test_a_fit_warns_of_titles_that_documents_share(caplog: pytest.LogCaptureFixture) -> None:
    data = titled(*["Alike", "Other"] * 10)
    with caplog.at_level(logging.WARNING, "triever"):
        retriever = Generative(docids=Title(vocabulary=300), backbone=TINY, training=NOTHING).fit(data)
    assert "20 of 20 documents or passages share their title docid" in caplog.text
    assert "docids=semantic" in line_of(retriever.card, "warning about codes")


def test_a_fit_of_contextual_titles_warns_of_the_same(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "triever"):
        Contextual(backbone=TINY, training=NOTHING).fit(titled(*["Alike", "Other"] * 10))
    assert "20 of 20 documents or passages share their title docid" in caplog.text


@pytest.mark.parametrize("system", [Generative, Contextual])
def test_documents_that_are_added_are_warned_of_too(system: Any, caplog: pytest.LogCaptureFixture) -> None:
    retriever = system(backbone=TINY, docids=Title(vocabulary=300), training=NOTHING)
    if system is Contextual:
        retriever = system(backbone=TINY, training=NOTHING)
    retriever.fit(titled("Tea", "Coffee"))
    with caplog.at_level(logging.WARNING, "triever"):
        retriever.add([Document(f"few {number}", "x", "Alike") for number in range(3)])
        assert not caplog.records
        retriever.add([Document(f"new {number}", "x", "Alike") for number in range(10)])
    assert "13 of 15 documents or passages share their title docid" in caplog.text


def test_long_titles_that_are_cut_are_told_of_the_option() -> None:
    long = [f"one two three four {number}" for number in range(20)]
    facts = describe_docids(titled(*long), "title", ["vocabulary=300", "most=4"], None)
    assert "these titles are cut behind 4 pieces: raise docids.most if" in str(facts["warning about codes"])
    assert "warning about codes" not in describe_docids(titled(*long), "title", ["vocabulary=300", "most=8"], None)


# --- where it is said -----------------------------------------------------------------------------------------


def line_of(card: str, key: str) -> str:
    [line] = [line for line in card.splitlines() if line.startswith(f"| {key} |")]
    return line


TEXTS = ["the same" if number < 90 else f"word{number}" for number in range(100)]
ALIKE = Dataset.of("alike", [Document(str(number), text) for number, text in enumerate(TEXTS)])
SHARED = "share of docids with the code of another"
WAYS: dict[str, Retriever] = {
    "generative": Generative(docids=Codebook(levels=2, bits=3), backbone=TINY, training=NOTHING),
    "nodes": Generative(
        docids=Codebook(levels=2, bits=3), backbone=TINY, training=NOTHING, decoder=DecoderOptions(rows="nodes")
    ),
    "gdr": GDR(vectors=Dense(backbone=TINY), docids=Cluster(clusters=8), training=NOTHING),
}


@pytest.mark.parametrize("name", WAYS)
def test_a_fit_warns_and_the_card_keeps_it(name: str, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "triever"):
        retriever = WAYS[name].fit(ALIKE)
    assert "one symbol stands for" in caplog.text
    assert "'symbols':" in line_of(retriever.card, "code position 1")
    warning = line_of(retriever.card, "warning about codes")
    assert "one symbol stands for" in warning
    assert ("share their code" in warning) == ("share their code" in caplog.text) == (name == "generative")


def test_docids_info_describes_the_use_of_symbols(tmp_path: Path) -> None:
    np.save(tmp_path / "v.npy", noisy().numpy())
    data = Dataset.of("noisy", DOCUMENTS)
    words = ("levels=4", "bits=6")
    good = describe_docids(data, "codebook", words, tmp_path / "v.npy")
    bad = describe_docids(data, "codebook", (*words, "balanced=false"), tmp_path / "v.npy")
    assert {f"code position {at}" for at in range(1, 5)} < set(good)
    assert "code position 5" not in good, "the number at the end is no code"
    assert "warning about codes" not in good
    assert "set balanced=true for the docids" in str(bad["warning about codes"])
    assert bad[SHARED] > 0.2
    assert good[SHARED] < 0.05
    assert "code position 1" not in describe_docids(data, "naive", (), None)


@pytest.mark.parametrize(
    ("untitled", "alone", "warned"), [(12, 0, True), (4, 30, True), (3, 30, False), (0, 3, False), (0, 0, False)]
)
def test_a_fit_warns_of_documents_without_a_title(
    untitled: int, alone: int, *, warned: bool, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "triever"):
        titles = *[""] * untitled, *(f"Title {number}" for number in range(alone))
        Title(vocabulary=300).fit([Document(str(number), "x", title) for number, title in enumerate(titles)])
    message = (
        f"{untitled} of {untitled + alone} documents have no title, so their ids are written instead, which tell a "
        "model little; give every document a title, or fit generative with docids=semantic"
    )
    assert [record.getMessage() for record in caplog.records] == [message] * warned


def test_contextual_and_generative_titles_that_are_ids_are_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    for retriever in (
        Generative(docids=Title(vocabulary=300), backbone=TINY, training=NOTHING),
        Contextual(backbone=TINY, training=NOTHING),
    ):
        caplog.clear()
        with caplog.at_level(logging.WARNING, "triever"):
            retriever.fit(titled("", "", "Tea"))
        assert "2 of 3 documents have no title" in caplog.text
