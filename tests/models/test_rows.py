"""An output layer in blocks against one in a piece: scores, loss, gradients, a whole model."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn import functional

from triever.models.rows import ShardedRows
from triever.models.t5 import T5, T5Shape


@given(st.integers(1, 20), st.integers(1, 7), st.integers(1, 9), st.integers(0, 99))
def test_blocks_give_what_one_layer_gives(width: int, shards: int, count: int, seed: int) -> None:
    torch.manual_seed(seed)
    rows, hidden = torch.randn(width, 5), torch.randn(count, 5, requires_grad=True)
    targets = torch.randint(width, (count,))
    layer = ShardedRows(5, width, shards)
    layer.load(rows)
    assert torch.equal(layer.weight, rows)
    assert torch.allclose(layer(hidden), hidden @ rows.T, atol=1e-6)
    loss = layer.cross_entropy(hidden, targets)
    whole = rows.clone().requires_grad_()
    expected = functional.cross_entropy(hidden @ whole.T, targets, reduction="sum")
    assert loss.item() == pytest.approx(expected.item(), abs=1e-5)
    found = torch.autograd.grad(loss, [hidden, *layer.blocks])
    wanted = torch.autograd.grad(expected, [hidden, whole])
    assert torch.allclose(found[0], wanted[0], atol=1e-5)
    assert torch.allclose(torch.cat(found[1:]), wanted[1], atol=1e-5)


def test_a_model_in_blocks_is_the_model_in_one_piece_and_can_be_widened() -> None:
    shape = T5Shape.for_docids(30, 11, d_model=16, d_kv=4, heads=4, d_ff=8, encoder_layers=1, decoder_layers=1)
    torch.manual_seed(0)
    whole, blocks = T5(shape).eval(), T5(replace(shape, shards=3)).eval()
    weights = {name: weight for name, weight in whole.state_dict().items() if not name.startswith("output")}
    blocks.load_state_dict({**blocks.state_dict(), **weights})
    blocks.set_rows(whole.output.weight.detach())
    ids, mask, docids = torch.randint(30, (3, 6)), torch.ones(3, 6, dtype=torch.long), torch.randint(11, (3, 2))
    docids[0, 1] = -100
    with torch.inference_mode():
        assert torch.allclose(blocks(ids, mask, docids.clamp(min=0)), whole(ids, mask, docids.clamp(min=0)), atol=1e-6)
        assert blocks.loss(ids, mask, docids, -100).item() == pytest.approx(whole.loss(ids, mask, docids, -100).item())
        hidden, candidates = torch.randn(2, 16), torch.tensor([[0, 10], [5, 5]])
        assert torch.allclose(blocks.logits_of(hidden, candidates), whole.logits_of(hidden, candidates), atol=1e-6)
        larger = blocks.widened([[1, 2], []])
        assert torch.allclose(larger.output.weight, whole.widened([[1, 2], []]).output.weight)
        apart = [one.widened([[1, 2], []], torch.ones(2, 16)).output.weight for one in (blocks, whole)]
        assert torch.allclose(*apart)


def test_a_decoder_that_reads_no_symbol_has_none() -> None:
    shape = T5Shape.for_docids(30, 1000, d_model=16, d_kv=4, heads=4, d_ff=8, encoder_layers=1, decoder_layers=1)
    model = T5(replace(shape, inputs=1, start=0))
    assert model.symbols.weight.shape == (1, 16)
    assert model.widened([[]]).symbols.weight.shape == (1, 16)
    loss = model.loss(torch.ones(2, 3, dtype=torch.long), torch.ones(2, 3), torch.tensor([[999], [0]]), -100)
    assert loss.isfinite()
