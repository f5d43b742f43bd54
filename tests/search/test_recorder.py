"""What a search takes down against a beam that is written out over all docids."""

from __future__ import annotations

import math
from collections import defaultdict

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.search.test_search import STOP, WRONG_TURN, at_once, changed, normalisations, pairs, sizes
from tests.search.toy import Pair, Toy, docid_logprob, log_softmax
from triever.docids.trie import Trie
from triever.docids.walk import Walk
from triever.search.beam import BeamOptions, beam
from triever.search.exact import exact
from triever.search.recorder import Recorder

Prefix = tuple[int, ...]
Levels = dict[int, dict[Prefix, tuple[str, float]]]


def after(toy: Toy, prefix: Prefix, listed: list[Pair], normalisation: str) -> dict[int, float]:
    """The log-probability of each symbol that may follow a prefix."""
    follow = sorted({docid[len(prefix)] for docid, _ in listed if docid[: len(prefix)] == prefix})
    over = follow if normalisation == "trie" else range(toy.width)
    scores = toy.scores("q", prefix)
    logs = dict(zip(over, log_softmax([scores[symbol] for symbol in over]), strict=True))
    return {symbol: logs[symbol] for symbol in follow}


def written_out(toy: Toy, listed: list[Pair], options: BeamOptions, keep: int) -> Levels:
    """A beam in plain Python: what became of each prefix that it came to, with its log-probability."""
    width, over_all = options.width, options.normalisation == "vocabulary"
    docids = {docid for docid, _ in listed}
    beams: dict[Prefix, float] = {(): 0.0}
    pool: list[tuple[float, Prefix]] = []
    levels: Levels = defaultdict(dict)
    while beams:
        children = {
            (*prefix, symbol): mass + more
            for prefix, mass in beams.items()
            for symbol, more in after(toy, prefix, listed, options.normalisation).items()
        }
        # Documents that share a docid are two, and neither is alone.
        below = {prefix: [docid for docid, _ in listed if docid[: len(prefix)] == prefix] for prefix in children}
        alone = {prefix for prefix in children if options.finish and len(below[prefix]) == 1}
        final = {prefix for prefix in children if prefix in docids or (prefix in alone and not over_all)}
        pool += [(children[prefix], prefix) for prefix in final]
        best = sorted(children.keys() - final, key=lambda prefix: -children[prefix])[:width]
        for prefix in alone & {*best}:
            pool.append((docid_logprob(toy, "q", below[prefix][0], listed, options.normalisation), prefix))
        pool = sorted(pool, reverse=True)[:keep]
        lowest = pool[-1][0] if len(pool) == keep else -math.inf
        beams = {prefix: children[prefix] for prefix in best if prefix not in alone and children[prefix] > lowest}
        for prefix, mass in children.items():
            levels[len(prefix)][prefix] = ("kept" if prefix in beams else "pruned", mass)
    for _, prefix in pool:
        levels[len(prefix)][prefix] = ("ended", levels[len(prefix)][prefix][1])
    return levels


def taken_down(recorder: Recorder) -> Levels:
    return {
        level.length: {seen.prefix: (seen.outcome, seen.logprob) for seen in level.prefixes}
        for level in recorder.levels()
    }


def assert_same(levels: Levels, expected: Levels) -> None:
    assert levels.keys() == expected.keys()
    for length, prefixes in levels.items():
        assert {prefix: outcome for prefix, (outcome, _) in prefixes.items()} == {
            prefix: outcome for prefix, (outcome, _) in expected[length].items()
        }
        masses = {prefix: mass for prefix, (_, mass) in expected[length].items()}
        assert {prefix: mass for prefix, (_, mass) in prefixes.items()} == pytest.approx(masses, abs=1e-4)


@given(pairs, normalisations, st.integers(1, 4), st.integers(1, 6), st.booleans())
def test_a_beam_takes_down_what_one_in_plain_python_does(
    listed: list[Pair], normalisation: str, width: int, keep: int, finish: bool
) -> None:
    walk, toy, recorder = Walk(Trie.of(listed)), Toy(STOP + 1), Recorder(pruned=None)
    options = BeamOptions(width, normalisation, finish=finish)
    frontier = beam(toy, *toy.prefill(["q"]), walk, options, keep=keep, recorder=recorder)
    assert_same(taken_down(recorder), written_out(toy, listed, options, max(width, keep)))
    plain = beam(toy, *toy.prefill(["q"]), walk, options, keep=keep)
    assert torch.equal(frontier.state, plain.state), "a recorder changes nothing"
    for level in recorder.levels():
        assert level.kept + level.ended + level.pruned == len(level.prefixes)


@given(pairs, pairs, st.sets(st.integers(0, 7), max_size=3), normalisations, st.integers(1, 3))
def test_also_where_documents_were_added_and_deleted(
    listed: list[Pair], added: list[Pair], gone: set[int], normalisation: str, width: int
) -> None:
    (walk, left), toy, recorder = changed(listed, added, gone), Toy(STOP + 1), Recorder(pruned=None)
    options = BeamOptions(width, normalisation, finish=False)
    beam(toy, *toy.prefill(["q"]), walk, options, recorder=recorder)
    levels = {length: prefixes for length, prefixes in taken_down(recorder).items() if prefixes}
    assert_same(levels, written_out(toy, left, options, width) if left else {})


@given(pairs, normalisations, st.integers(1, 4), sizes)
def test_an_exact_search_takes_down_what_it_opens_and_returns(
    listed: list[Pair], normalisation: str, k: int, sizes: dict[str, int]
) -> None:
    walk, toy, recorder = Walk(Trie.of(listed)), Toy(STOP + 1), Recorder(pruned=None)
    with at_once(sizes):
        [result] = exact(toy, *toy.prefill(["q"]), walk, k, normalisation=normalisation, recorder=recorder)
    levels = recorder.levels()
    assert sum(level.kept for level in levels) == result.opened - 1, "and the root"
    ended = {seen.prefix for level in levels for seen in level.prefixes if seen.outcome == "ended"}
    found = {document for document, _ in result.documents}
    assert {document for docid, document in listed if any(docid[: len(end)] == end for end in ended)} >= found
    for level in levels:
        for seen in level.prefixes:
            whole = sum(
                after(toy, seen.prefix[:at], listed, normalisation)[symbol] for at, symbol in enumerate(seen.prefix)
            )
            assert seen.logprob == pytest.approx(whole, abs=1e-4)


def test_few_pruned_prefixes_are_taken_down_and_all_are_counted() -> None:
    listed = [((symbol, last), 2 * symbol + last) for symbol in range(50) for last in range(2)]
    walk, toy, recorder = Walk(Trie.of(listed)), Toy(50), Recorder(pruned=3)
    beam(toy, *toy.prefill(["q"]), walk, BeamOptions(width=2), recorder=recorder)
    first = recorder.levels()[0]
    assert (first.kept, first.ended, first.pruned) == (2, 0, 48)
    assert [seen.outcome for seen in first.prefixes] == ["kept"] * 2 + ["pruned"] * 3


def test_a_prefix_to_which_a_search_backs_off_counts_as_kept() -> None:
    walk, toy, recorder = Walk(Trie.of(WRONG_TURN)), Toy(4, sharpness=1.0), Recorder()
    beam(toy, *toy.prefill(["q"]), walk, BeamOptions(width=1, backoff=3), keep=16, recorder=recorder)
    assert [(level.kept, level.ended, level.pruned) for level in recorder.levels()] == [(4, 0, 0), (0, 16, 0)]


def test_at_a_depth_prefixes_end_and_an_earlier_search_is_forgotten() -> None:
    walk, toy, recorder = Walk(Trie.of(WRONG_TURN)), Toy(4), Recorder()
    for width in (1, 2):
        beam(toy, *toy.prefill(["q"]), walk, BeamOptions(width=width), depth=1, recorder=recorder)
        [level] = recorder.levels()
        assert (level.kept, level.ended, level.pruned) == (0, width, 4 - width)
