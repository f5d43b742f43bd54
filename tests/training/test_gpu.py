"""What only a GPU can show; run with `-m slow` where there is one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.retrievers.contract import dataset
from tests.training.test_loop import options, same
from tests.training.test_resume import Stop, stopping
from tests.training.toys import Pairs, Toy, square, toy, worth
from triever import Dense
from triever.errors import UsageError
from triever.models.precision import device_of
from triever.training import memory_estimate
from triever.training.loop import TrainOptions, train
from triever.training.metrics import History
from triever.training.tuning import Tuning

pytestmark = [pytest.mark.slow, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")]


@pytest.mark.parametrize("optimizer", ["adamw", "adafactor"])
@pytest.mark.parametrize("workers", [0, 2])
def test_no_step_waits_for_the_gpu(workers: int, optimizer: str) -> None:
    calls = 0

    def loss(model: nn.Module, batch: Any) -> dict[str, Tensor]:
        nonlocal calls
        calls += 1
        # From here on anything that waits is an error: from the third step to the last, which makes a line of metrics
        torch.cuda.set_sync_debug_mode({3: "error", 20: "default"}.get(calls, torch.cuda.get_sync_debug_mode()))
        return {**square(model, batch), "_calls": torch.ones((), device="cuda")}

    chosen = options(steps=20, clip=1.0, log_every=100, workers=workers, optimizer=optimizer)
    try:
        train(toy(dropout=0.1), loss, lambda n: Pairs(n, 20), chosen)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert calls == 20


def test_one_process_trains_on_one_device_after_the_other() -> None:
    for device in ("cpu", "cuda", "cpu", "cuda:0"):
        model = toy(dropout=0.2)
        train(model, square, Pairs, options(), device=device)
        assert next(model.parameters()).device.type == torch.device(device).type


def test_auto_is_bfloat16_with_weights_in_float32() -> None:
    seen = set()

    def watched(model: Toy, batch: Any) -> dict[str, Tensor]:
        seen.add(model.first(batch["x"]).dtype)
        return square(model, batch)

    model = toy()
    train(model, watched, Pairs, options())
    assert seen == {torch.bfloat16}
    assert {(parameter.dtype, parameter.device.type) for parameter in model.parameters()} == {(torch.float32, "cuda")}


@pytest.mark.parametrize("optimizer", ["adamw", "adafactor"])
def test_a_training_goes_on_to_the_same_weights(optimizer: str, tmp_path: Path) -> None:
    """Bit for bit, since nothing in this model adds up in an order that differs from run to run."""
    chosen = options(steps=20, checkpoint_every=3, optimizer=optimizer)
    with pytest.raises(Stop):
        train(toy(dropout=0.2), stopping(11), Pairs, chosen, evaluate=worth, folder=tmp_path)
    resumed, whole = toy(dropout=0.2, seed=1), toy(dropout=0.2)
    assert train(resumed, square, Pairs, chosen, evaluate=worth, folder=tmp_path).resumed_from == 10
    train(whole, square, Pairs, chosen, evaluate=worth)
    assert same(resumed, whole)


def test_the_callers_generator_is_left_as_it_was() -> None:
    torch.manual_seed(5)
    expected = torch.rand(3, device="cuda")
    torch.manual_seed(5)
    train(toy(dropout=0.3), square, Pairs, options())
    assert torch.equal(torch.rand(3, device="cuda"), expected)


def test_memory_that_is_not_enough_says_what_to_do() -> None:
    def hungry(model: nn.Module, batch: Any) -> dict[str, Tensor]:
        return {"loss": torch.empty(2**45, device="cuda").mean()}

    with pytest.raises(UsageError, match="too little memory for step 1; halve the batch and double accumulate"):
        train(toy(), hungry, Pairs, options())


class Tokens:
    """Rows of vectors, made at once."""

    def __init__(self, number: int) -> None:
        self.rows = torch.randn(64, 256, 512)

    def __len__(self) -> int:
        return 5

    def __getitem__(self, step: int) -> Tensor:
        return self.rows


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_the_estimate_is_within_a_factor_of_two(precision: str) -> None:
    layer = nn.TransformerEncoderLayer(512, 8, 2048, batch_first=True)
    model = nn.TransformerEncoder(layer, 6, enable_nested_tensor=False)
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    chosen = TrainOptions(steps=5, precision=precision)
    train(model, lambda m, x: {"loss": m(x).float().square().mean()}, Tokens, chosen)
    measured = torch.cuda.max_memory_allocated() - before
    parameters = sum(parameter.numel() for parameter in model.parameters())
    shape = {"batch": 64, "length": 256, "d_model": 512, "layers": 6}
    said = memory_estimate.estimate(parameters, **shape, precision=precision)
    print(f"{precision}: {measured / 2**20:.0f} MiB measured, {said / 2**20:.0f} MiB estimated")
    assert said / 2 < measured < said * 2
    assert 0 < memory_estimate.available("cuda") <= torch.cuda.get_device_properties(0).total_memory


def test_attention_does_not_plan_for_every_shape() -> None:
    assert device_of("cuda").type == "cuda"
    assert not torch.backends.cuda.cudnn_sdp_enabled()


def test_compiled_layers_learn_nearly_what_others_do() -> None:
    small = "scratch:hidden=64,layers=2,heads=2,vocabulary=500"
    losses = []
    for compiled in (False, True):
        tuning = Tuning(steps=30, batch=8, holdout=0.0, learning_rate=1e-3, compile=compiled, log_every=1)
        watched: list[float] = []
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(History, "write", lambda _, line, seen=watched: seen.append(line.get("loss")))
            Dense(backbone=small, training=tuning).fit(dataset())
        losses.append(watched)
    assert len(losses[0]) == len(losses[1]) > 0
    assert losses[1] == pytest.approx(losses[0], rel=0.05, abs=0.05)
