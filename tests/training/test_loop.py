"""The loop against the obvious one: a few lines of torch."""

from __future__ import annotations

import dataclasses
import json
import math
import random
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from accelerate import DistributedType, PartialState
from torch import Tensor, nn
from transformers.optimization import Adafactor

from tests.training.toys import Pairs, Toy, contrast, square, toy, worth
from triever import progress
from triever.errors import DataError, UsageError
from triever.training import loop
from triever.training.loop import TrainOptions, train
from triever.training.metrics import Timed
from triever.training.options import rate

PLAIN = TrainOptions(steps=10, learning_rate=0.01, warmup=0.0, decay="none", clip=0.0, keep="last")


def options(**changes: Any) -> TrainOptions:
    return dataclasses.replace(PLAIN, **changes)


def weights(model: nn.Module) -> dict[str, Tensor]:
    return {name: tensor.clone() for name, tensor in model.state_dict().items()}


def same(one: nn.Module, other: nn.Module) -> bool:
    return all(torch.equal(part, weights(other)[name]) for name, part in weights(one).items())


def lines(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def naive(model: nn.Module, batches: Iterable[Any], optimizer: torch.optim.Optimizer, clip: float = 0.0) -> list[float]:
    """The obvious loop; gives the lengths of the gradients."""
    norms = []
    for batch in batches:
        sum(square(model, batch).values()).backward()
        norms.append(float(nn.utils.clip_grad_norm_(model.parameters(), clip or math.inf)))
        optimizer.step()
        optimizer.zero_grad()
    return norms


def groups(model: Toy, decay: float) -> list[dict[str, Any]]:
    matrices = [model.first.weight, model.second.weight]
    return [{"params": matrices, "weight_decay": decay}, {"params": [model.first.bias, model.second.bias]}]


def ten_batches() -> list[Any]:
    return [Pairs(number)[step] for number in (0, 1) for step in range(5)]


# Steps


def test_adamw_is_torchs_own() -> None:
    ours, theirs = toy(), toy()
    train(ours, square, Pairs, options(weight_decay=0.1))
    naive(theirs, ten_batches(), torch.optim.AdamW(groups(theirs, 0.1), lr=0.01, weight_decay=0.0))
    assert same(ours, theirs)


@pytest.mark.parametrize("optimizer", ["adamw", "adafactor"])
def test_a_share_of_the_learning_rate_is_a_group_with_that_rate(optimizer: str) -> None:
    ours, theirs = toy(), toy()
    chosen = options(weight_decay=0.0, optimizer=optimizer)
    train(ours, square, Pairs, chosen, share=lambda name: 0.25 if name.startswith("first.") else 1.0)
    rates: list[dict[str, Any]] = [
        {"params": theirs.first.parameters(), "lr": 0.0025},
        {"params": theirs.second.parameters(), "lr": 0.01},
    ]
    plain = (
        torch.optim.AdamW(rates, weight_decay=0.0)
        if optimizer == "adamw"
        else Adafactor(rates, scale_parameter=False, relative_step=False)
    )
    naive(theirs, ten_batches(), plain)
    assert same(ours, theirs)


def test_adafactor_is_that_of_transformers() -> None:
    ours, theirs = toy(), toy()
    train(ours, square, Pairs, options(weight_decay=0.1, optimizer="adafactor"))
    optimizer = Adafactor(groups(theirs, 0.1), lr=0.01, scale_parameter=False, relative_step=False)
    naive(theirs, ten_batches(), optimizer)
    assert same(ours, theirs)


def test_gradients_are_clipped(tmp_path: Path) -> None:
    ours, theirs = toy(), toy()
    train(ours, square, Pairs, options(clip=0.05, log_every=1, weight_decay=0.0), folder=tmp_path)
    norms = naive(theirs, ten_batches(), torch.optim.AdamW(theirs.parameters(), lr=0.01, weight_decay=0.0), 0.05)
    for name, part in weights(ours).items():  # but for the order in which the squares of gradients are added up
        torch.testing.assert_close(part, weights(theirs)[name], rtol=1e-5, atol=1e-6)
    assert not torch.equal(ours.first.weight, toy().first.weight)
    assert [line["gradient_norm"] for line in lines(tmp_path)] == pytest.approx(norms)
    assert min(norms) > 0.05, "nothing was clipped"


class Micro:
    """The same rows, in several times as many batches."""

    def __init__(self, whole: Pairs, parts: int) -> None:
        self.whole, self.parts = whole, parts

    def __len__(self) -> int:
        return len(self.whole) * self.parts

    def __getitem__(self, step: int) -> Any:
        batch = self.whole[step // self.parts]
        return {
            "x": batch["x"].chunk(self.parts)[step % self.parts],
            "more": [(batch["more"][0][0].chunk(self.parts)[step % self.parts],)],
        }


def test_accumulating_equals_one_large_batch() -> None:
    one, many = toy(), toy()
    done = train(one, square, lambda n: Pairs(n, rows=32), options())
    again = train(many, square, lambda n: Micro(Pairs(n, rows=32), 4), options(accumulate=4))
    assert done.rounds == again.rounds == 2
    for name, part in weights(one).items():
        torch.testing.assert_close(part, weights(many)[name], atol=1e-6, rtol=0)


def test_the_last_step_of_a_round_takes_what_is_left() -> None:
    # Five batches in steps of two: the third step is the mean of one
    ours, theirs = toy(), toy()
    done = train(ours, square, Pairs, options(steps=3, accumulate=2, weight_decay=0.0))
    batches = [Pairs(0)[step] for step in range(5)]
    optimizer = torch.optim.AdamW(theirs.parameters(), lr=0.01, weight_decay=0.0)
    for group in (batches[:2], batches[2:4], batches[4:]):
        for batch in group:
            (square(theirs, batch)["square"] / len(group)).backward()
        optimizer.step()
        optimizer.zero_grad()
    assert (done.steps, done.rounds) == (3, 1)
    assert same(ours, theirs)


@pytest.mark.parametrize("decay", ["linear", "cosine", "none"])
@pytest.mark.parametrize("warmup", [0.0, 0.2, 1.0])
def test_schedules(decay: str, warmup: float, tmp_path: Path) -> None:
    chosen = options(decay=decay, warmup=warmup, steps=20, log_every=1)
    rising = int(20 * warmup)
    shape: dict[str, Callable[[float], float]] = {
        "linear": lambda share: 1 - share,
        "cosine": lambda share: 0.5 * (1 + math.cos(math.pi * share)),
        "none": lambda _: 1.0,
    }
    up = [0.01 * (step + 1) / rising for step in range(rising)]
    down = [0.01 * shape[decay](step / (20 - rising)) for step in range(20 - rising)]
    assert [rate(chosen, step) for step in range(20)] == pytest.approx(up + down)
    train(toy(), square, Pairs, chosen, folder=tmp_path)
    assert [line["learning_rate"] for line in lines(tmp_path)] == pytest.approx(up + down)


def test_parts_are_summed_and_those_with_an_underscore_only_logged(tmp_path: Path) -> None:
    def two(model: nn.Module, batch: Any) -> dict[str, Tensor]:
        value = square(model, batch)["square"]
        return {"most": value * 0.75, "rest": value * 0.25, "_seen": value * 100}

    ours, theirs = toy(), toy()
    train(ours, two, Pairs, options(log_every=1), folder=tmp_path)
    train(theirs, square, Pairs, options())
    for name, part in weights(ours).items():
        torch.testing.assert_close(part, weights(theirs)[name], atol=1e-6, rtol=0)
    first = lines(tmp_path)[0]
    assert set(first["parts"]) == {"most", "rest", "seen"}
    assert first["parts"]["most"] + first["parts"]["rest"] == pytest.approx(first["loss"])
    assert first["parts"]["seen"] == pytest.approx(100 * first["loss"])


def test_a_part_that_is_no_number_is_named() -> None:
    with pytest.raises(
        UsageError, match=r"part rows of the loss has the shape \(8, 6\), not a single number; return its mean"
    ):
        train(toy(), lambda model, batch: {"rows": model(batch["x"])}, Pairs, options())
    with pytest.raises(UsageError, match="no part to minimise"):
        train(toy(), lambda model, batch: {"_seen": model(batch["x"]).mean()}, Pairs, options())


def test_bfloat16_keeps_the_weights_in_float32() -> None:
    seen = set()

    def watched(model: Toy, batch: Any) -> dict[str, Tensor]:
        seen.add(model.first(batch["x"]).dtype)
        return square(model, batch)

    model = toy()
    train(model, watched, Pairs, options(precision="bfloat16"))
    assert seen == {torch.bfloat16}
    assert {parameter.dtype for parameter in model.parameters()} == {torch.float32}


def test_no_steps_leave_the_model_as_it_is() -> None:
    model = toy()
    assert train(model, square, Pairs, options(steps=0)).steps == 0
    assert same(model, toy())


# Randomness


def test_one_seed_gives_one_result_and_dropout_is_part_of_it() -> None:
    models = [toy(dropout=0.3) for _ in range(3)]
    for model, seed in zip(models, (1, 1, 2), strict=True):
        torch.rand(3)  # what the caller has drawn does not matter
        train(model, square, Pairs, options(seed=seed))
    assert same(models[0], models[1])
    assert not same(models[0], models[2])


def test_the_callers_generators_are_left_as_they_were() -> None:
    def drawn() -> tuple[float, float, float]:
        return random.random(), float(np.random.rand()), float(torch.rand(()))

    for seed in (random.seed, np.random.seed, torch.manual_seed):
        seed(5)
    expected = drawn()
    for seed in (random.seed, np.random.seed, torch.manual_seed):
        seed(5)
    train(toy(dropout=0.3), square, Pairs, options())
    assert drawn() == expected


# Rounds and evaluations


def test_rounds_are_asked_for_in_order_with_the_model_not_in_training() -> None:
    model = toy()
    asked = []

    def rounds(number: int) -> Pairs:
        asked.append((number, model.training, torch.is_grad_enabled()))
        return Pairs(number, length=4)

    done = train(model, square, rounds, options())
    assert asked == [(0, False, False), (1, False, False), (2, False, False)]
    assert (done.steps, done.rounds) == (10, 3)
    assert not model.training


@pytest.mark.parametrize("with_folder", [False, True])
def test_the_best_step_is_kept(with_folder: bool, tmp_path: Path) -> None:
    values = iter([0.1, 0.2, 0.9, 0.9, 0.4])  # of two equal ones, the first
    seen: list[dict[str, Tensor]] = []

    def evaluate(model: nn.Module) -> dict[str, float]:
        seen.append(weights(model))
        return {"other": 1.0, "quality": next(values)}

    model = toy()
    folder = tmp_path if with_folder else None
    chosen = options(steps=20, keep="best", log_every=5)
    done = train(model, square, Pairs, chosen, evaluate=evaluate, watch="quality", folder=folder)
    assert (done.best_step, done.best["quality"], done.latest["quality"]) == (10, 0.9, 0.4)
    assert all(torch.equal(part, seen[2][name]) for name, part in weights(model).items())
    assert not all(torch.equal(part, seen[4][name]) for name, part in weights(model).items())


@pytest.mark.parametrize("with_folder", [False, True])
def test_a_training_that_only_does_harm_leaves_the_model_as_it_came(
    with_folder: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    values = iter([0.5, 0.4, 0.3])
    model = toy()
    folder = tmp_path if with_folder else None
    chosen = options(keep="best")
    done = train(model, square, Pairs, chosen, evaluate=lambda _: {"q": next(values)}, folder=folder)
    assert (done.steps, done.best_step, done.best) == (10, 0, {"q": 0.5})
    assert same(model, toy())
    assert warnings(caplog) == [
        "training: no evaluation was as good as the first, so the model stays as it was before training: q was 0.500 "
        "at the start, then 0.400, 0.300; try more training queries or a lower training.learning_rate"
    ]


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]


def test_what_a_training_without_gain_measured_is_known_after_a_resume(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    class Stop(Exception):
        pass

    def evaluate(values: list[float]) -> dict[str, float]:
        if not values:
            raise Stop
        return {"q": values.pop(0)}

    first, rest = [0.5, 0.4], [0.3, 0.2]
    chosen = options(keep="best", steps=15)
    with pytest.raises(Stop):
        train(toy(), square, Pairs, chosen, evaluate=lambda _: evaluate(first), folder=tmp_path)
    assert not warnings(caplog)
    train(toy(), square, Pairs, chosen, evaluate=lambda _: evaluate(rest), folder=tmp_path, advice="go for a walk")
    [warning] = warnings(caplog)
    assert "q was 0.500 at the start, then 0.400, 0.300, 0.200; go for a walk" in warning


def test_a_training_that_is_kept_warns_of_nothing(caplog: pytest.LogCaptureFixture) -> None:
    values = iter([0.5, 0.4, 0.6])
    train(toy(), square, Pairs, options(keep="best"), evaluate=lambda _: {"q": next(values)})
    values = iter([0.4, 0.3])
    train(toy(), square, Pairs, options(keep="last"), evaluate=lambda _: {"q": next(values)})
    assert not warnings(caplog)


def test_a_training_that_does_no_harm_is_kept() -> None:
    values = iter([0.5, 0.5, 0.5])
    model, expected = toy(), toy()
    done = train(model, square, Pairs, options(keep="best"), evaluate=lambda _: {"q": next(values)})
    train(expected, square, Pairs, options(steps=5))
    assert done.best_step == 5
    assert same(model, expected)


@pytest.mark.parametrize("with_folder", [False, True])
def test_where_nothing_is_found_the_model_that_learned_longest_is_kept(
    with_folder: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    model, expected = toy(), toy()
    folder = tmp_path if with_folder else None
    chosen = options(steps=15, keep="best")
    done = train(model, square, Pairs, chosen, evaluate=lambda _: {"q": 0.0}, folder=folder)
    train(expected, square, Pairs, options(steps=15))
    assert (done.best_step, done.start) == (15, {"q": 0.0})
    assert same(model, expected)
    [warning] = warnings(caplog)
    assert warning == "training: q was 0.000 in all 4 evaluations, so held-out queries tell no step from another"


@pytest.mark.parametrize(("name", "best"), [("q", 10), ("log-likelihood", 5)])
def test_of_equal_steps_the_later_is_kept_where_nothing_was_found(name: str, best: int) -> None:
    """Nothing is found is 0 for a measure of finding; a log-likelihood of 0 could not be better."""
    values = iter([-1.0 if name == "log-likelihood" else 0.0, 0.0, 0.0])
    done = train(toy(), square, Pairs, options(keep="best"), evaluate=lambda _: {name: next(values)})
    assert done.best_step == best


def test_finding_nothing_ends_a_training_by_patience() -> None:
    done = train(toy(), square, Pairs, options(steps=50, patience=2, keep="best"), evaluate=lambda _: {"q": 0.0})
    assert (done.steps, done.best_step, done.stopped_early) == (15, 15, True)


def test_the_rule_for_nothing_found_is_the_same_after_a_resume(tmp_path: Path) -> None:
    class Stop(Exception):
        pass

    values = [0.0, 0.0, None, 0.0, 0.0]

    def evaluate(_: nn.Module) -> dict[str, float]:
        value = values.pop(0)
        if value is None:
            raise Stop
        return {"q": value}

    chosen = options(keep="best", steps=15)
    with pytest.raises(Stop):
        train(toy(), square, Pairs, chosen, evaluate=evaluate, folder=tmp_path)
    done = train(toy(), square, Pairs, chosen, evaluate=evaluate, folder=tmp_path)
    assert (done.best_step, done.start, values) == (15, {"q": 0.0}, [])


def test_the_first_evaluation_sees_the_model_as_it_came_and_is_told(tmp_path: Path) -> None:
    seen: list[tuple[bool, bool]] = []

    def evaluate(model: nn.Module) -> dict[str, float]:
        seen.append((same(model, toy()), model.training))
        return {"q": float(len(seen))}

    train(toy(), square, Pairs, options(keep="best"), evaluate=evaluate, folder=tmp_path)
    assert seen == [(True, False), (False, False), (False, False)]
    line = lines(tmp_path)[0]
    assert line == {"step": 0, "round": 0, "evaluation": {"q": 1.0}, "best": True, "seconds": line["seconds"]}


def test_the_last_step_is_kept_when_asked_for() -> None:
    ours, theirs = toy(), toy()
    values = iter([1.0, 0.0])
    done = train(ours, square, Pairs, options(keep="last"), evaluate=lambda _: {"q": next(values)})
    train(theirs, square, Pairs, options())
    assert done.best_step == 5
    assert same(ours, theirs)


def test_patience_ends_a_training() -> None:
    values = iter([0.5, 0.6, 0.1, 0.2, 0.9])
    done = train(toy(), square, Pairs, options(steps=50, patience=2), evaluate=lambda _: {"q": next(values)})
    assert (done.steps, done.best_step, done.stopped_early) == (20, 10, True)


@pytest.mark.parametrize(
    ("values", "steps", "best"),
    [
        ([math.nan, math.nan, 0.5, 0.1, 0.2], 20, 10),  # the first of all does not count
        ([0.9, 0.1, 0.2], 10, 0),  # but it is what the others have to beat
        ([0.9, 0.1, 0.95, 0.2, 0.3], 20, 10),
    ],
)
def test_patience_is_for_what_the_training_does(values: list[float], steps: int, best: int) -> None:
    left = iter(values)
    chosen = options(steps=50, patience=2, keep="best")
    done = train(toy(), square, Pairs, chosen, evaluate=lambda _: {"q": next(left)})
    assert (done.steps, done.best_step, done.stopped_early) == (steps, best, True)


@pytest.mark.parametrize(("every", "times"), [(1, [5, 10, 12]), (2, [10, 12]), (0, [12])])
@pytest.mark.parametrize(("keep", "first"), [("last", []), ("best", [0])])
def test_how_often_it_is_evaluated(every: int, times: list[int], keep: str, first: list[int], tmp_path: Path) -> None:
    chosen = options(steps=12, evaluate_every=every, keep=keep)
    train(toy(), square, Pairs, chosen, evaluate=worth, folder=tmp_path)
    assert [line["step"] for line in lines(tmp_path) if "evaluation" in line] == first + times


def test_a_measure_that_is_no_number_is_never_the_best() -> None:
    values = iter([math.nan, math.nan, 0.1])
    done = train(toy(), square, Pairs, options(keep="best"), evaluate=lambda _: {"q": next(values)})
    assert done.best_step == 10


def test_a_watch_that_is_not_measured_is_named() -> None:
    with pytest.raises(UsageError, match="watch = 'nDCG' is not a measure of the evaluation; did you mean nDCG@10"):
        train(toy(), square, Pairs, options(), evaluate=lambda _: {"nDCG@10": 0.5}, watch="nDCG")


# What it says about itself


def test_metrics(tmp_path: Path) -> None:
    done = train(toy(), contrast, Pairs, options(log_every=3, clip=1.0), evaluate=worth, folder=tmp_path)
    assert done.history == tmp_path / "metrics.jsonl"
    found = lines(tmp_path)
    steps = [line for line in found if "loss" in line]
    assert [(line["step"], line["round"]) for line in steps] == [(3, 0), (5, 0), (6, 1), (9, 1), (10, 1)]
    assert set(steps[0]) == {
        *("step", "round", "loss", "parts", "gradient_norm", "learning_rate"),
        *("steps_per_second", "examples_per_second", "waited"),
    }
    assert set(steps[0]["parts"]) == {"contrast", "accuracy"}
    assert steps[0]["examples_per_second"] == pytest.approx(8 * steps[0]["steps_per_second"])
    evaluations = [line for line in found if "evaluation" in line]
    assert [line["step"] for line in evaluations] == [5, 10]
    assert set(evaluations[0]) == {"step", "round", "evaluation", "best", "seconds"}


def test_a_line_is_the_mean_of_its_steps(tmp_path: Path) -> None:
    train(toy(), square, Pairs, options(log_every=1), folder=tmp_path / "one")
    train(toy(), square, Pairs, options(log_every=5), folder=tmp_path / "five")
    single = [line["loss"] for line in lines(tmp_path / "one")]
    mean = [sum(single[:5]) / 5, sum(single[5:]) / 5]
    assert [line["loss"] for line in lines(tmp_path / "five")] == pytest.approx(mean)


def test_nothing_is_written_without_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert train(toy(), square, Pairs, options()).history is None
    assert list(tmp_path.iterdir()) == []


def test_tensorboard_gets_the_same_numbers(tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    train(toy(), square, Pairs, options(tensorboard=True, log_every=5), evaluate=worth, folder=tmp_path)
    events = EventAccumulator(str(tmp_path / "tensorboard"))
    events.Reload()
    losses = [(event.step, event.value) for event in events.Scalars("loss")]
    assert losses == [(line["step"], pytest.approx(line["loss"])) for line in lines(tmp_path) if "loss" in line]
    assert len(events.Scalars("evaluation/worth")) == 2


def test_tensorboard_that_is_missing_is_an_install_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    with pytest.raises(UsageError, match="run: pip install tensorboard"):
        train(toy(), square, Pairs, options(tensorboard=True), folder=tmp_path)


def test_the_bar_counts_steps(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    progress.show(True)
    try:
        train(toy(), square, Pairs, options(log_every=2), label="learning")
    finally:
        progress.show(False)
    shown = capsys.readouterr()
    assert "learning" in shown.err
    assert "10/10" in shown.err
    assert not shown.out


# Batches


class Slow(Pairs):
    """Batches that take a while."""

    def __getitem__(self, step: int) -> dict[str, Any]:
        time.sleep(0.03)
        return super().__getitem__(step)


@pytest.mark.parametrize("workers", [0, 1])
def test_waiting_for_slow_batches_is_seen(workers: int) -> None:
    assert train(toy(), square, Slow, options(workers=workers)).waited > 0.5


def test_batches_are_fetched_ahead() -> None:
    def slow_loss(model: nn.Module, batch: Any) -> dict[str, Tensor]:
        time.sleep(0.05)
        return square(model, batch)

    assert train(toy(), slow_loss, lambda n: Slow(n, length=10), options()).waited < 0.3


def test_workers_change_neither_batches_nor_dropout() -> None:
    thread, process = toy(dropout=0.3), toy(dropout=0.3)
    train(thread, square, Pairs, options())
    train(process, square, Pairs, options(workers=2))
    assert same(thread, process)


class Broken(Pairs):
    """Batches of which one cannot be made."""

    def __getitem__(self, step: int) -> dict[str, Any]:
        if step == 3:
            raise DataError("the text of d3 is missing", "read the corpus again")
        return super().__getitem__(step)


@pytest.mark.parametrize("workers", [0, 1])
def test_an_error_of_a_batch_arrives_as_it_is(workers: int) -> None:
    with pytest.raises(DataError) as caught:
        train(toy(), square, Broken, options(workers=workers))
    assert str(caught.value) == "the text of d3 is missing; read the corpus again"


def test_a_round_without_batches_is_an_error() -> None:
    with pytest.raises(UsageError, match="round 0 has no batches"):
        train(toy(), square, lambda n: Pairs(n, length=0), options())


# Devices


@pytest.mark.skipif(torch.cuda.is_available(), reason="needs a machine without a GPU")
def test_a_device_that_is_not_here_is_refused() -> None:
    with pytest.raises(UsageError, match="device = 'cuda', but no CUDA device is here; use device=cpu"):
        train(toy(), square, Pairs, options(), device="cuda")


def test_it_trains_where_it_is_asked_to_whatever_accelerate_has_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    expected, model = toy(), toy()
    train(expected, square, Pairs, options(), device="cpu")
    monkeypatch.setitem(PartialState._shared_state, "device", torch.device("meta"))  # once, and for the whole process
    train(model, square, Pairs, options(), device="cpu")
    assert same(model, expected)


def test_processes_that_train_together_stay_on_their_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    own = torch.device("cuda", 1)
    together: Any = SimpleNamespace(distributed_type=DistributedType.MULTI_GPU, device=own)
    alone: Any = SimpleNamespace(distributed_type=DistributedType.NO, device=own)
    assert loop._device("auto", together) == loop._device("cuda", together) == own
    assert loop._device("cuda:0", alone) == torch.device("cuda", 0)
    with pytest.raises(UsageError, match="device = 'cpu', but these processes were started for cuda; leave device out"):
        loop._device("cpu", together)


# What can go wrong


def test_memory_that_is_not_enough_says_what_to_do() -> None:
    def hungry(model: nn.Module, batch: Any) -> dict[str, Tensor]:
        return {"loss": torch.empty(2**55).mean()}

    said = (
        "too little memory for step 1; halve the batch and double accumulate .which also halves the in-batch negatives"
    )
    with pytest.raises(UsageError, match=said):
        train(toy(), hungry, Pairs, options())


def test_memory_of_a_gpu_that_is_not_enough_says_what_to_do() -> None:
    def hungry(model: nn.Module, batch: Any) -> dict[str, Tensor]:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 MiB")

    with pytest.raises(UsageError, match="halve the batch and double accumulate"):
        train(toy(), hungry, Pairs, options())


def test_other_errors_of_torch_stay_what_they_are() -> None:
    with pytest.raises(RuntimeError, match="The size of tensor a"):
        train(toy(), lambda model, batch: {"loss": model(batch["x"][:, :2]).sum()}, Pairs, options())


class Poisoned(Pairs):
    """A batch that is not finite, as the eighth."""

    def __getitem__(self, step: int) -> dict[str, Any]:
        batch = super().__getitem__(step)
        return {**batch, "x": batch["x"] * math.nan} if (self.round, step) == (1, 2) else batch


def test_a_loss_that_is_not_finite_names_its_step_and_spares_the_folder(tmp_path: Path) -> None:
    chosen = options(checkpoint_every=2, log_every=100, warmup=0.0)
    with pytest.raises(UsageError, match="the loss was not finite at step 8; lower learning_rate"):
        train(toy(), square, Poisoned, chosen, folder=tmp_path)
    model = toy(seed=9)
    done = train(model, square, Pairs, chosen, folder=tmp_path)
    assert done.resumed_from == 6
    expected = toy()
    train(expected, square, Pairs, chosen)
    assert same(model, expected)


def test_weights_that_are_not_float32_are_refused() -> None:
    with pytest.raises(UsageError, match=r"first.weight is torch.bfloat16, .* model.float\(\)"):
        train(toy().bfloat16(), square, Pairs, options())


def test_a_model_with_nothing_to_train_is_refused() -> None:
    with pytest.raises(UsageError, match="no parameter to train"):
        train(toy().requires_grad_(False), square, Pairs, options())


def test_frozen_parameters_stay() -> None:
    model = toy()
    model.first.requires_grad_(False)
    train(model, square, Pairs, options())
    assert torch.equal(model.first.weight, toy().first.weight)
    assert not torch.equal(model.second.weight, toy().second.weight)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"steps": -1}, "steps = -1 should be at least 0"),
        ({"accumulate": 0}, "accumulate = 0 should be at least 1"),
        ({"learning_rate": 0.0}, "learning_rate = 0.0 should be above 0"),
        ({"warmup": 1.5}, "warmup = 1.5 should be between 0 and 1"),
        ({"decay": "step"}, "decay = 'step' is not one of the choices"),
        ({"seed": -3}, "seed = -3 should be at least 0"),
        ({"checkpoint_minutes": -1.0}, "checkpoint_minutes = -1.0 should be at least 0"),
    ],
)
def test_options_that_do_not_fit_are_named(change: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        options(**change)


# Long trainings


def test_a_training_that_takes_long_says_so_once(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Timed, "KNOWN", 0.0)
    monkeypatch.setattr(Timed, "LONG", 0.0)
    train(toy(), square, Pairs, options(), label="learning to add")
    [warning] = warnings(caplog)
    assert warning.startswith("learning to add: at ")
    assert " the other 8 steps take less than a minute; a GPU," in warning


def test_the_speed_of_a_training_is_that_of_early_steps_without_the_first(
    caplog: pytest.LogCaptureFixture,
) -> None:
    timed = Timed()
    timed.tell("training", 300.0, 502)  # the first step, which compiles
    for left in (501, 500, 499):
        timed.tell("training", 10.0, left)
    assert warnings(caplog) == [
        "training: at 10 s a step the other 500 steps take about 83 minutes; "
        "a GPU, fewer steps or smaller batches take less"
    ]
    slow = Timed()
    slow.tell("training", 3000.0, 2)
    assert "at about 50 minutes a step the other 2 steps take" in warnings(caplog)[1]
    quick = Timed()
    for left in range(3000, 0, -1):
        quick.tell("training", 0.01, left)
    assert len(warnings(caplog)) == 2
