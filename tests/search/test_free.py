"""Free decoding against enumeration of everything that a tiny model could write, and against a slow beam."""

from __future__ import annotations

import math
from collections.abc import Iterator

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tests.search.test_search import QUERIES, STOP, changed, pairs
from tests.search.toy import Pair, Toy, brute_force, log_softmax
from triever.search.beam import BeamOptions
from triever.search.free import Written, free

Docid = tuple[int, ...]
stops = st.sampled_from([None, STOP])
few_gone = st.sets(st.integers(0, 7), max_size=3)


def is_over(written: Docid, docids: set[Docid], stop: int | None) -> bool:
    return written in docids or (bool(written) and written[-1] == stop) or len(written) == max(map(len, docids))


def everything(docids: set[Docid], stop: int | None, begun: Docid = ()) -> Iterator[Docid]:
    """All that can be written: to the end of a docid, to a stop symbol, to the length of the longest docid."""
    if is_over(begun, docids, stop):
        yield begun
        return
    for symbol in range(STOP + 1):
        yield from everything(docids, stop, (*begun, symbol))


def slow_beam(toy: Toy, query: str, docids: set[Docid], stop: int | None, width: int) -> list[tuple[float, Docid]]:
    """The best few prefixes at each length, in plain Python."""
    done: list[tuple[float, Docid]] = []
    beams: list[tuple[float, Docid]] = [(0.0, ())]
    while beams:
        grown = [
            (logprob + more, (*prefix, symbol))
            for logprob, prefix in beams
            for symbol, more in enumerate(log_softmax(toy.scores(query, prefix)))
        ]
        grown = sorted(grown, reverse=True)[:width]
        done += [one for one in grown if is_over(one[1], docids, stop)]
        beams = [one for one in grown if not is_over(one[1], docids, stop)]
    return sorted(done, reverse=True)[:width]


def shown(written: Written, k: int = 100) -> list[tuple[dict[int, float], int, int]]:
    """Probabilities of documents, how many docids do not exist, and how many were written."""
    return [
        ({document: math.exp(mass) for document, mass in hits}, invalid, total)
        for hits, invalid, total in written.documents(k)
    ]


@given(pairs, pairs, few_gone, stops)
def test_a_wide_beam_writes_everything_and_counts_what_does_not_exist(
    listed: list[Pair], added: list[Pair], gone: set[int], stop: int | None
) -> None:
    walk, left = changed(listed, added, gone)
    assume(left)
    toy, docids = Toy(STOP + 1), {docid for docid, _ in left}
    found = free(toy, *toy.prefill(QUERIES), walk, BeamOptions(width=400), stop=stop)
    total = len(list(everything(docids, stop)))
    for query, (masses, invalid, written) in zip(QUERIES, shown(found), strict=True):
        assert (invalid, written) == (total - len(docids), total)
        assert masses == pytest.approx(brute_force(toy, query, left, "vocabulary"), abs=1e-5)
    assert found.logprob.exp().sum(1).tolist() == pytest.approx([1.0] * len(QUERIES), abs=1e-4)


def longest_common(written: Docid, docids: set[Docid]) -> int:
    """How many first symbols of what was written a docid has, at most."""
    return max(length for length in range(len(written) + 1) if any(one[:length] == written[:length] for one in docids))


def mapped_by_hand(written: list[tuple[float, Docid]], left: list[Pair]) -> dict[int, float]:
    """The probability of every document if all that was written stands for the docids that agree with it longest."""
    masses: dict[int, float] = {}
    for logprob, docid in written:
        length = longest_common(docid, {known for known, _ in left})
        documents = [document for known, document in left if known[:length] == docid[:length]] if length else []
        for document in documents:
            masses[document] = masses.get(document, 0.0) + math.exp(logprob) / len(documents)
    return masses


@given(pairs, pairs, few_gone, stops, st.sampled_from([1, 3, 6, 400]))
def test_what_does_not_exist_is_mapped_to_the_docids_that_agree_longest(
    listed: list[Pair], added: list[Pair], gone: set[int], stop: int | None, width: int
) -> None:
    walk, left = changed(listed, added, gone)
    assume(left)
    toy, docids = Toy(STOP + 1), {docid for docid, _ in left}
    found = free(toy, *toy.prefill(QUERIES), walk, BeamOptions(width=width), stop=stop)
    for query, (hits, invalid, total) in zip(QUERIES, found.mapped(100), strict=True):
        written = slow_beam(toy, query, docids, stop, width)
        masses = {document: math.exp(mass) for document, mass in hits}
        assert masses == pytest.approx(mapped_by_hand(written, left), abs=1e-5)
        assert (invalid, total) == (sum(one not in docids for _, one in written), len(written))


@given(pairs, few_gone, stops, st.integers(1, 6))
def test_a_narrow_beam_is_the_slow_one(listed: list[Pair], gone: set[int], stop: int | None, width: int) -> None:
    walk, left = changed(listed, [], gone)
    assume(left)
    toy, docids = Toy(STOP + 1), {docid for docid, _ in left}
    found = free(toy, *toy.prefill(QUERIES), walk, BeamOptions(width=width), stop=stop)
    for row, (masses, invalid, total) in enumerate(shown(found)):
        logprobs, written = zip(*slow_beam(toy, QUERIES[row], docids, stop, width), strict=True)
        assert (invalid, total) == (sum(one not in docids for one in written), len(written))
        assert found.logprob[row, :total].tolist() == pytest.approx(logprobs, abs=1e-4)
        assert set(masses) == {document for docid, document in left if docid in written}
