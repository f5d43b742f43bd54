"""A training that is killed goes on to the same weights, bit for bit."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from torch import nn

from tests.marks import quick
from tests.training.test_loop import lines, options, same
from tests.training.toys import LONG, Pairs, Toy, long_training, mined, square, toy, worth
from tests.warm import ROOT, Begun
from triever.errors import ArtifactError, Busy, UsageError
from triever.training.checkpoints import Checkpoints
from triever.training.loop import train

KILLS = 15
TRAIN = "import sys; from tests.training.toys import long_training; long_training(*sys.argv[1:])"


def killed(folder: Path, optimizer: str, keep: str, seed: int, kills: int = KILLS) -> list[int]:
    """Kill a training at random moments, again and again; gives the steps at which its folder stood after each."""
    chance = random.Random(seed)
    stood = []
    for kill in range(kills):
        begun = folder.with_name(f"{folder.name}-begun{kill}")
        process = Begun([TRAIN, folder, optimizer, keep, begun], ROOT, code=True)
        while process.running() and not begun.exists():
            time.sleep(0.001)
        wait_for_commits(folder, chance.randrange(3), process)
        time.sleep(chance.random() * 0.06)  # about as long as from one checkpoint to the next
        process.kill()
        process.wait()
        stood.append(standing(folder))
    return stood


def standing(folder: Path) -> int:
    """The step of the newest checkpoint."""
    state = folder / "training.json"
    return json.loads(state.read_bytes())["standing"]["step"] if state.exists() else 0


def wait_for_commits(folder: Path, commits: int, process: Begun) -> None:
    """Wait until so many checkpoints have been made, or the training is over."""
    before = standing(folder)
    while commits and process.running():
        time.sleep(0.001)
        if standing(folder) != before:
            before, commits = standing(folder), commits - 1


def without_speeds(folder: Path) -> list[dict[str, Any]]:
    timed = {"steps_per_second", "examples_per_second", "waited", "seconds"}
    return [{name: value for name, value in line.items() if name not in timed} for line in lines(folder)]


@pytest.mark.parametrize(("optimizer", "keep"), quick(("adamw", "last"), of=[("adamw", "last"), ("adafactor", "best")]))
def test_kills_do_not_change_the_result(optimizer: str, keep: str, tmp_path: Path) -> None:
    stood = killed(tmp_path / "killed", optimizer, keep, seed=len(optimizer))
    assert len(set(stood) - {0, LONG.steps}) > 2, "hardly any kill met the training at work"
    resumed = long_training(str(tmp_path / "killed"), optimizer, keep)
    whole = long_training(str(tmp_path / "whole"), optimizer, keep)
    assert same(resumed, whole)
    assert without_speeds(tmp_path / "killed") == without_speeds(tmp_path / "whole")


@pytest.mark.long
@pytest.mark.parametrize(("optimizer", "keep"), [("adamw", "best"), ("adafactor", "last")])
def test_sixty_kills_in_four_trainings(optimizer: str, keep: str, tmp_path: Path) -> None:
    whole = long_training(str(tmp_path / "whole"), optimizer, keep)
    for number in range(2):
        folder = tmp_path / f"killed{number}"
        stood = killed(folder, optimizer, keep, seed=number, kills=KILLS)
        assert len(set(stood) - {0, LONG.steps}) > 2, "hardly any kill met the training at work"
        assert same(long_training(str(folder), optimizer, keep), whole)
        assert without_speeds(folder) == without_speeds(tmp_path / "whole")


class Stop(Exception):
    """Ends a training in its middle."""


def stopping(at: int) -> Any:
    """A loss that ends the training after so many calls."""
    calls = iter(range(at))

    def loss(model: nn.Module, batch: Any) -> Any:
        if next(calls, None) is None:
            raise Stop
        return square(model, batch)

    return loss


@pytest.mark.parametrize("at", [0, 7, 29])
def test_every_place_can_be_gone_on_from(at: int, tmp_path: Path) -> None:
    model = toy(dropout=0.2)
    with pytest.raises(Stop):
        train(model, stopping(at), mined(model), LONG, evaluate=worth, folder=tmp_path)
    resumed = toy(dropout=0.2, seed=at + 1)  # what it is given does not matter: the folder has the first weights too
    done = train(resumed, square, mined(resumed), LONG, evaluate=worth, folder=tmp_path)
    assert done.resumed_from == max(at // 3 * 3, at // 5 * 5)
    whole = toy(dropout=0.2)
    train(whole, square, mined(whole), LONG, evaluate=worth)
    assert same(resumed, whole)


def test_a_resume_compares_each_file_with_its_hash_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(Stop):
        train(toy(), stopping(7), Pairs, LONG, evaluate=worth, folder=tmp_path)
    compared: list[str] = []
    compare = Checkpoints._compare_hash

    def counting(self: Checkpoints, name: str, sha256: str) -> None:
        compared.append(name)
        compare(self, name, sha256)

    monkeypatch.setattr(Checkpoints, "_compare_hash", counting)
    with pytest.raises(Stop):
        train(toy(), stopping(0), Pairs, LONG, evaluate=worth, folder=tmp_path)
    assert sorted(compared) == sorted(path.name for path in tmp_path.glob("*.safetensors"))


def ending(measure: Any, at: int) -> Any:
    """An evaluation that ends the training when it is asked for the n-th time."""
    calls = iter(range(at))

    def evaluate(model: nn.Module) -> dict[str, float]:
        if next(calls, None) is None:
            raise Stop
        return measure(model)

    return evaluate


@pytest.mark.parametrize(("at", "step"), [(0, 0), (1, 5), (2, 10)])
def test_a_kill_in_an_evaluation_loses_no_step(at: int, step: int, tmp_path: Path) -> None:
    chosen = options(keep="best", log_every=3)
    first, resumed, whole = toy(dropout=0.2), toy(dropout=0.2, seed=1), toy(dropout=0.2)
    with pytest.raises(Stop):
        train(first, square, mined(first), chosen, evaluate=ending(worth, at), folder=tmp_path / "killed")
    done = train(resumed, square, mined(resumed), chosen, evaluate=worth, folder=tmp_path / "killed")
    assert done.resumed_from == step
    train(whole, square, mined(whole), chosen, evaluate=worth, folder=tmp_path / "whole")
    assert same(resumed, whole)
    assert without_speeds(tmp_path / "killed") == without_speeds(tmp_path / "whole")
    assert [line["step"] for line in lines(tmp_path / "killed") if "evaluation" in line] == [0, 5, 10]


def test_the_first_evaluation_is_made_once(tmp_path: Path) -> None:
    chosen, asked = options(keep="best"), []

    def evaluate(model: nn.Module) -> dict[str, float]:
        asked.append(model)
        return {"q": -float(len(asked))}

    with pytest.raises(Stop):
        train(toy(), stopping(0), Pairs, chosen, evaluate=evaluate, folder=tmp_path)
    model = toy(seed=1)
    done = train(model, square, Pairs, chosen, evaluate=evaluate, folder=tmp_path)
    assert len(asked) == 3
    assert (done.resumed_from, done.best_step, done.best) == (0, 0, {"q": -1.0})
    assert same(model, toy()), "the best are the weights it was begun with, not those of the second call"


# Checkpoints by the clock, and when somebody interrupts


@pytest.mark.parametrize(("minutes", "step"), [(1e-9, 3), (5.0, 0), (0.0, 0)])
def test_checkpoints_are_made_by_the_clock_too(minutes: float, step: int, tmp_path: Path) -> None:
    chosen = options(checkpoint_every=0, checkpoint_minutes=minutes)
    with pytest.raises(Stop):
        train(toy(dropout=0.2), stopping(3), Pairs, chosen, folder=tmp_path)
    resumed, whole = toy(seed=1, dropout=0.2), toy(dropout=0.2)
    assert train(resumed, square, Pairs, options(), folder=tmp_path).resumed_from == step
    train(whole, square, Pairs, options())
    assert same(resumed, whole)


def signalling(at: int, times: int = 1, number: int = signal.SIGINT) -> Any:
    """A loss in whose n-th call, counted from 0, signals come."""
    calls = iter(range(at))

    def loss(model: nn.Module, batch: Any) -> Any:
        if next(calls, None) is None:
            for _ in range(times):
                signal.raise_signal(number)
        return square(model, batch)

    return loss


@pytest.mark.parametrize(("at", "workers"), [(0, 0), (3, 0), (4, 0), (7, 0), (9, 0), (3, 1)])
def test_after_an_interrupt_it_goes_on_from_that_step(at: int, workers: int, tmp_path: Path) -> None:
    chosen = options(log_every=3, workers=workers)
    handler = signal.getsignal(signal.SIGINT)
    first, resumed, whole = toy(dropout=0.2), toy(dropout=0.2, seed=1), toy(dropout=0.2)
    with pytest.raises(KeyboardInterrupt):
        train(first, signalling(at), mined(first), chosen, evaluate=worth, folder=tmp_path / "killed")
    assert signal.getsignal(signal.SIGINT) is handler
    done = train(resumed, square, mined(resumed), options(log_every=3), evaluate=worth, folder=tmp_path / "killed")
    assert done.resumed_from == at + 1
    train(whole, square, mined(whole), options(log_every=3), evaluate=worth, folder=tmp_path / "whole")
    assert same(resumed, whole)
    assert without_speeds(tmp_path / "killed") == without_speeds(tmp_path / "whole")


def test_a_second_interrupt_ends_it_at_once(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        train(toy(), signalling(7, times=2), Pairs, options(), folder=tmp_path)
    assert train(toy(), square, Pairs, options(), folder=tmp_path).resumed_from == 5


def test_an_interrupt_without_a_folder_ends_it_at_once() -> None:
    with pytest.raises(KeyboardInterrupt):
        train(toy(), signalling(7), Pairs, options())


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_who_has_another_use_for_a_signal_gets_it(number: int, tmp_path: Path) -> None:
    came: list[int] = []
    before = signal.signal(number, lambda got, _frame: came.append(got))
    try:
        model, whole = toy(dropout=0.2), toy(dropout=0.2)
        done = train(model, signalling(7, number=number), mined(model), options(), folder=tmp_path)
    finally:
        signal.signal(number, before)
    train(whole, square, mined(whole), options())
    assert (came, done.steps) == ([number] * 3, 10), "in the steps 8, 9 and 10"
    assert same(model, whole)


def test_a_signal_that_is_ignored_stays_so(tmp_path: Path) -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        assert train(toy(), signalling(7), Pairs, options(), folder=tmp_path).steps == 10
    finally:
        signal.signal(signal.SIGINT, before)


def test_a_training_in_a_thread_leaves_signals_alone(tmp_path: Path) -> None:
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(train, toy(), square, Pairs, options(), folder=tmp_path).result().steps == 10


def test_a_finished_folder_answers_at_once(tmp_path: Path) -> None:
    def never(*_: Any) -> Any:
        raise AssertionError("it was finished")

    chosen = options(keep="best")
    model, again = toy(), toy(seed=1)
    first = train(model, square, Pairs, chosen, evaluate=worth, folder=tmp_path)
    second = train(again, never, never, chosen, evaluate=never, folder=tmp_path)
    assert same(model, again)
    assert second.resumed_from == second.steps == 10
    assert (second.best_step, second.best, second.seconds) == (first.best_step, first.best, first.seconds)


def test_only_what_is_needed_is_kept(tmp_path: Path) -> None:
    values = iter([0.5, 0.9, 0.1, 0.2])
    chosen = options(steps=14, keep="best", checkpoint_every=2)
    train(toy(), square, Pairs, chosen, evaluate=lambda _: {"q": next(values)}, folder=tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        ".lock",
        "metrics.jsonl",
        "optimizer-00000014.safetensors",
        "training.json",
        "weights-00000005.safetensors",  # the best
        "weights-00000010.safetensors",  # the beginning of the round
        "weights-00000014.safetensors",
    ]


def test_tied_weights_stay_tied(tmp_path: Path) -> None:
    def tied(seed: int) -> Toy:
        model = toy(seed=seed)
        model.second.weight = nn.Parameter(model.first.weight.detach().T.clone())
        model.third = nn.Linear(16, 6, bias=False)
        model.third.weight = model.second.weight
        return model

    chosen = options(checkpoint_every=2)
    with pytest.raises(Stop):
        train(tied(0), stopping(7), Pairs, chosen, folder=tmp_path)
    resumed, whole = tied(1), tied(0)
    train(resumed, square, Pairs, chosen, folder=tmp_path)
    train(whole, square, Pairs, chosen)
    assert resumed.third.weight is resumed.second.weight
    assert same(resumed, whole)


# Folders that do not fit


@pytest.mark.parametrize("change", [{"learning_rate": 0.02}, {"seed": 1}, {"accumulate": 2}, {"keep": "best"}])
def test_other_options_are_refused(change: dict[str, Any], tmp_path: Path) -> None:
    train(toy(), square, Pairs, options(), folder=tmp_path)
    ((name, value),) = change.items()
    old = getattr(options(), name)
    with pytest.raises(
        UsageError, match=f"holds a training with {name} = {old!r}, not {value!r}; continue with the same"
    ):
        train(toy(), square, Pairs, options(**change), folder=tmp_path)


def test_options_that_change_no_result_may_change(tmp_path: Path) -> None:
    with pytest.raises(Stop):
        train(toy(), stopping(7), Pairs, options(checkpoint_every=2), folder=tmp_path)
    resumed, whole = toy(), toy()
    others = options(checkpoint_every=3, checkpoint_minutes=1.0, log_every=1, workers=1, tensorboard=True)
    assert train(resumed, square, Pairs, others, folder=tmp_path).resumed_from == 6
    train(whole, square, Pairs, options())
    assert same(resumed, whole)


def test_more_steps_go_on_where_the_schedule_allows(tmp_path: Path) -> None:
    more, whole = toy(), toy()
    train(toy(), square, Pairs, options(steps=7), folder=tmp_path)
    assert train(more, square, Pairs, options(steps=12), folder=tmp_path).resumed_from == 7
    train(whole, square, Pairs, options(steps=12))
    assert same(more, whole)
    with pytest.raises(UsageError, match=r"holds 12 steps .*, which does not fit steps = 11"):
        train(more, square, Pairs, options(steps=11), folder=tmp_path)


def test_more_steps_are_refused_where_they_would_change_the_past(tmp_path: Path) -> None:
    train(toy(), square, Pairs, options(decay="linear"), folder=tmp_path)
    with pytest.raises(UsageError, match="holds 10 steps of a training with steps = 10, which does not fit"):
        train(toy(), square, Pairs, options(decay="linear", steps=20), folder=tmp_path)


def test_another_model_is_refused(tmp_path: Path) -> None:
    train(toy(), square, Pairs, options(), folder=tmp_path)
    with pytest.raises(UsageError, match="holds the training of another model; name a new folder"):
        train(nn.Linear(6, 6), square, Pairs, options(), folder=tmp_path)


def test_other_data_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Stop):
        train(toy(), stopping(7), Pairs, options(checkpoint_every=2), folder=tmp_path)
    with pytest.raises(UsageError, match="round 1 had 5 batches and has 6 now"):
        train(toy(), square, lambda n: Pairs(n, length=6), options(), folder=tmp_path)


@pytest.mark.parametrize("other", [{"docids": "b"}, {}, {"docids": "a", "queries": "c"}])
def test_what_is_learned_must_be_the_same_to_go_on(other: dict[str, str], tmp_path: Path) -> None:
    with pytest.raises(Stop):
        train(toy(), stopping(7), Pairs, options(checkpoint_every=2), folder=tmp_path, given={"docids": "a"})
    with pytest.raises(UsageError, match=r"holds a training with other (docids|queries); name a new"):
        train(toy(), square, Pairs, options(), folder=tmp_path, given=other)
    assert train(toy(), square, Pairs, options(), folder=tmp_path, given={"docids": "a"}).resumed_from == 6


@pytest.mark.parametrize("content", ["{", "[]", json.dumps({"format": "triever-training", "version": 99})])
def test_a_state_that_is_not_ours_is_refused(content: str, tmp_path: Path) -> None:
    (tmp_path / "training.json").write_text(content)
    with pytest.raises(ArtifactError, match=r"training\.json"):
        train(toy(), square, Pairs, options(), folder=tmp_path)
    assert (tmp_path / "training.json").read_text() == content


def test_a_folder_in_use_is_refused(tmp_path: Path) -> None:
    hold = (
        "import fcntl, sys; f = open(sys.argv[1], 'a+b'); fcntl.lockf(f, fcntl.LOCK_EX); print(1, flush=True); input()"
    )
    command = [sys.executable, "-c", hold, str(tmp_path / ".lock")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        other.stdout.readline()
        with pytest.raises(Busy, match="in use by another training"):
            train(toy(), square, Pairs, options(), folder=tmp_path)
        other.communicate(b"\n")
    assert train(toy(), square, Pairs, options(), folder=tmp_path).steps == 10


def test_other_files_in_a_folder_are_left_alone(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    (tmp_path / ".lock").touch()
    left = ["weights-00000000.safetensors", ".weights-00000000.safetensors.0a1b2c3d.tmp"]
    for name in left:
        (tmp_path / name).write_bytes(b"torn")  # as a killed training may leave it
    train(toy(), square, Pairs, options(), folder=tmp_path)
    assert (tmp_path / "notes.txt").read_text() == "mine"
    assert not any((tmp_path / name).exists() for name in left)


def test_checkpoints_without_their_state_are_refused(tmp_path: Path) -> None:
    with pytest.raises(Stop):
        train(toy(), stopping(7), Pairs, options(), folder=tmp_path)
    (tmp_path / "training.json").unlink()
    with pytest.raises(ArtifactError, match=r"holds optimizer-00000005\.safetensors but no training\.json; name a new"):
        train(toy(), square, Pairs, options(), folder=tmp_path)
    assert (tmp_path / "weights-00000005.safetensors").exists()


def test_nothing_in_a_folder_is_pickle(tmp_path: Path) -> None:
    train(toy(), square, Pairs, options(optimizer="adafactor"), evaluate=worth, folder=tmp_path)
    names = {path.suffix or path.name for path in tmp_path.iterdir()}
    assert names == {".lock", ".json", ".jsonl", ".safetensors"}
