"""Views and their batches, against the obvious: what stands where, and how often."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from triever.errors import UsageError
from triever.models.backbones import load_backbone
from triever.models.tokens import TextTokenizer, Tokens
from triever.training.pairs import Pairs
from triever.training.views import (
    IGNORED,
    Behind,
    Chunks,
    Generated,
    Labelled,
    ViewBatches,
    ViewOptions,
    check_shares,
    coverage,
    docid_rows,
    split_by,
)

TEXTS = ["a b c d e f g h i j k l m n o p", "one", "", "x y z " * 40]
TOKENIZER: TextTokenizer = load_backbone(
    "scratch:hidden=8,layers=1,heads=1,vocabulary=300", texts=["a b c d e f g x y z one"]
).tokenizer


def documents(most: int = 512) -> Tokens:
    return Tokens.of(TEXTS, TOKENIZER, most)


def labelled() -> Labelled:
    pairs = Pairs(["q0", "q1"], ["first", "second"], np.array([0, 3, 1]), np.array([0, 2, 3]), np.ones(2))
    return Labelled(pairs, Tokens.of(pairs.texts, TOKENIZER, 16))


def generated() -> Generated:
    return Generated(Tokens.of(["who", "what", "when"], TOKENIZER, 16), np.array([3, 0, 0]))


@given(
    st.lists(st.integers(0, 3), min_size=1, max_size=12),
    st.integers(3, 20),
    st.integers(0, 99),
    st.booleans(),
    st.lists(st.integers(5, 9), max_size=3),
)
def test_a_chunk_is_a_piece_of_its_document_between_what_stands_around_every_text(
    rows: list[int], length: int, seed: int, fresh: bool, prefix: list[int]
) -> None:
    whole = documents()
    view = Chunks(
        whole, TOKENIZER, length + len(prefix), 10, fresh, seed, ([*TOKENIZER.before, *prefix], TOKENIZER.after)
    )
    tokens, found = view.take(np.array(rows), np.random.default_rng(seed))
    before, after = [*TOKENIZER.before, *prefix], TOKENIZER.after
    room = length - len(TOKENIZER.before) - len(after)
    for place, row in enumerate(rows):
        piece, text = tokens[place].tolist(), whole[row].tolist()
        inner = text[len(TOKENIZER.before) : len(text) - len(after)]
        chunk = piece[len(before) : len(piece) - len(after)]
        assert found[place] == row
        assert piece[: len(before)] == before
        assert piece[len(piece) - len(after) :] == after
        assert len(chunk) == min(room, len(inner))
        assert any(inner[at : at + len(chunk)] == chunk for at in range(len(inner) + 1))


def test_every_place_of_a_document_comes_up_as_a_fresh_chunk() -> None:
    view = Chunks(documents(), TOKENIZER, 3 + len(TOKENIZER.before) + len(TOKENIZER.after), 10, True)
    tokens, _ = view.take(np.zeros(2000, int), np.random.default_rng(0))
    inner = len(documents()[0]) - len(TOKENIZER.before) - len(TOKENIZER.after)
    assert len({tuple(tokens[at].tolist()) for at in range(2000)}) == inner - 3 + 1


def test_fixed_chunks_are_the_same_in_every_pass_and_fresh_ones_are_not() -> None:
    examples = np.full(8, 3)
    for fresh in (False, True):
        view = Chunks(documents(), TOKENIZER, 8, 10, fresh)
        once, again = (view.take(examples, np.random.default_rng(seed))[0].flat.tolist() for seed in (1, 2))
        assert (once == again) != fresh
        assert len(view) == len(TEXTS) * (1 if fresh else 10)
    many = Chunks(documents(), TOKENIZER, 8, 10, False)
    pieces = [tuple(many.take(np.array([3 + 4 * at]), np.random.default_rng(0))[0].flat.tolist()) for at in range(10)]
    assert len(set(pieces)) > 1  # ten chunks of one document, not ten times one


def test_the_first_view_is_the_beginning() -> None:
    view = Chunks(documents(), TOKENIZER, 8, 0, False)
    tokens, rows = view.take(np.arange(4), np.random.default_rng(0))
    assert rows.tolist() == [0, 1, 2, 3]
    for at in range(4):
        assert tokens[at].tolist() == TOKENIZER.ids([TEXTS[at]], 8)[0]


def test_queries_come_with_their_documents() -> None:
    chance = np.random.default_rng(0)
    _, rows = labelled().take(np.zeros(200, int), chance)
    assert Counter(rows.tolist()).keys() == {0, 3}
    tokens, rows = generated().take(np.array([2, 0]), chance)
    assert rows.tolist() == [0, 3]
    assert [tokens[at].tolist() for at in range(2)] == TOKENIZER.ids(["when", "who"], 16)


@given(st.lists(st.floats(0.01, 100), min_size=1, max_size=6), st.integers(0, 1000))
def test_a_batch_is_split_as_the_weights_say(weights: list[float], total: int) -> None:
    shares = split_by(weights, total)
    assert sum(shares) == total
    for share, weight in zip(shares, weights, strict=True):
        assert abs(share - weight / sum(weights) * total) <= 1 + 1e-6


@given(st.lists(st.floats(0.01, 100), min_size=1, max_size=6), st.integers(0, 20))
def test_a_batch_is_refused_if_a_view_gets_nothing_of_it(weights: list[float], batch: int) -> None:
    names = [f"view {number}" for number in range(len(weights))]
    left_out = [name for name, share in zip(names, split_by(weights, batch), strict=True) if share == 0]
    if not left_out:
        check_shares(names, weights, batch)
        return
    with pytest.raises(UsageError, match=f"is too small for {len(names)} views: it has no room for {left_out[0]}"):
        check_shares(names, weights, batch)


def test_batches_follow_from_their_number_and_pass_over_everything() -> None:
    views = {"labelled": labelled(), "generated": generated()}
    docids = docid_rows([(1, 2), (3,), (4, 5, 6), (7, 8)])
    batches = ViewBatches(views, [1, 3], docids, batch=4, steps=6, seed=1, pad=TOKENIZER.pad)
    again = ViewBatches(views, [1, 3], docids, batch=4, steps=6, seed=1, pad=TOKENIZER.pad)
    for step in (3, 0):
        assert all((batches[step][key] == again[step][key]).all() for key in ("ids", "mask", "targets"))
    rows = [row[mask.bool()] for step in range(6) for row, mask in zip(*_texts(batches[step]), strict=True)]
    written = Counter(tuple(row.tolist()) for row in rows)
    assert sorted(written.values()) == [6, 6, 6]  # 18 places for three generated queries
    assert batches[0]["targets"].shape == (4, 2)  # no document of these views has the longest docid
    with pytest.raises(IndexError):
        batches[6]


def test_the_rounds_together_pass_over_everything_as_often() -> None:
    many = Tokens.of([f"word{number}" for number in range(50)], TOKENIZER, 16)
    view = Generated(many, np.arange(50))
    docids = docid_rows([(number,) for number in range(50)])
    rounds = [
        ViewBatches({"generated": view}, [1], docids, batch=8, steps=25, seed=2, round=number) for number in range(4)
    ]
    taught = [batch["targets"].ravel().tolist() for one in rounds for batch in one]
    assert set(Counter(row for some in taught for row in some).values()) == {16}, "800 places for 50 texts"
    assert len({tuple(some) for some in taught}) > 90, "hardly any batch twice"


def test_fresh_chunks_are_others_in_every_step_and_every_round() -> None:
    one = Tokens.of([TEXTS[3]], TOKENIZER, 512)  # a single example, so that chance alone can tell batches apart
    view = {"chunks": Chunks(one, TOKENIZER, 8, 10, True)}
    rounds = [ViewBatches(view, [1], docid_rows([(0,)]), 16, 5, seed=3, round=number) for number in range(2)]
    assert len({tuple(batch["ids"].ravel().tolist()) for batches in rounds for batch in batches}) == 10


def test_a_view_behind_others_is_the_same_but_for_its_rows() -> None:
    examples, (one, behind) = np.array([2, 0, 1]), (generated(), Behind(generated(), 7))
    (texts, rows), (same, moved) = (view.take(examples, np.random.default_rng(0)) for view in (one, behind))
    assert moved.tolist() == [row + 7 for row in rows]
    assert same.flat.tolist() == texts.flat.tolist()
    assert behind.covered().tolist() == [7, 10]
    assert len(behind) == len(one)


def _texts(batch: dict[str, torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
    """Those of the second view, which has three places of four."""
    return batch["ids"][1:], batch["mask"][1:]


def test_docids_are_filled_up_with_what_the_loss_ignores() -> None:
    assert docid_rows([(1, 2), (3,)]).tolist() == [[1, 2], [3, IGNORED]]


def test_coverage_is_the_share_of_documents_with_examples() -> None:
    views = {"labelled": labelled(), "generated": generated(), "chunks": Chunks(documents(), TOKENIZER, 8, 10, True)}
    found = {name: about["documents covered"] for name, about in coverage(views, 4).items()}
    assert found == {"labelled": 0.75, "generated": 0.5, "chunks": 0.75}  # one document has no words


def test_the_papers_names_are_known() -> None:
    assert ViewOptions(names=("d2q", "daq", "firstp")).names == ("generated", "chunks", "first")
    with pytest.raises(UsageError, match="chunks"):
        ViewOptions(names=("chunk",))


def test_names_may_be_one_text_as_on_the_command_line() -> None:
    assert ViewOptions(names="daq").names == ("chunks",)  # ty: ignore[invalid-argument-type]
    assert ViewOptions(names="daq,labelled").names == ("chunks", "labelled")  # ty: ignore[invalid-argument-type]
    with pytest.raises(UsageError, match="'chunk', which is not a view; did you mean chunks"):
        ViewOptions(names="chunk")  # ty: ignore[invalid-argument-type]
