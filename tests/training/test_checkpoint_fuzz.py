"""Checkpoints are damaged in every way: a resume refuses them in a sentence, or gives what it would have given."""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import os
import random
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Generator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from tests.training.test_loop import same
from tests.training.test_resume import Stop, stopping
from tests.training.toys import Toy, mined, square, toy, worth
from triever.errors import TrieverError
from triever.training.loop import TrainOptions, train

OPTIONS = TrainOptions(steps=13, learning_rate=0.01, checkpoint_every=2, log_every=3)
KINDS = {"adamw": "last", "adafactor": "best"}
MOST = 30.0  # seconds of a resume, which takes a fraction of one; anything longer is a hang


def chosen(optimizer: str) -> TrainOptions:
    return replace(OPTIONS, optimizer=optimizer, keep=KINDS[optimizer])


@pytest.fixture(scope="module", params=KINDS)
def begun(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A training that stopped in the middle of its second round, in a folder with its optimizer's name."""
    folder = tmp_path_factory.mktemp("begun") / request.param
    model = toy(dropout=0.2)
    with pytest.raises(Stop):
        train(model, stopping(9), mined(model), chosen(folder.name), evaluate=worth, folder=folder)
    return folder


def resumed(folder: Path, optimizer: str) -> tuple[Any, ...]:
    """All that a resume gives: the weights, and which step was best."""
    model: Toy = toy(dropout=0.2, seed=1)
    done = train(model, square, mined(model), chosen(optimizer), evaluate=worth, folder=folder)
    assert done.resumed_from == 8
    weights = {name: tensor.tolist() for name, tensor in model.state_dict().items()}
    return weights, done.steps, done.best_step, done.best, done.latest


@contextlib.contextmanager
def awake() -> Generator[None]:
    """Ends what waits for ever, as it would for the other end of a pipe."""

    def stop(*_: object) -> None:
        raise AssertionError("it hangs")

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, MOST)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


# Damage that hashes tell: anything, to any file


def flip(path: Path, chance: random.Random) -> None:
    content = bytearray(path.read_bytes())
    if content:
        content[chance.randrange(len(content))] ^= 1 << chance.randrange(8)
    path.write_bytes(content)


def truncate(path: Path, chance: random.Random) -> None:
    os.truncate(path, chance.randrange(path.stat().st_size + 1))


def append(path: Path, chance: random.Random) -> None:
    path.write_bytes(path.read_bytes() + chance.randbytes(chance.randrange(1, 100)))


def scramble(path: Path, chance: random.Random) -> None:
    path.write_bytes(chance.randbytes(path.stat().st_size))


def swap(path: Path, chance: random.Random) -> None:
    other = chance.choice(sorted(path.parent.iterdir()))
    content = path.read_bytes()
    path.write_bytes(other.read_bytes())
    other.write_bytes(content)


def gone(path: Path, _: random.Random) -> None:
    path.unlink()


def pipe(path: Path, _: random.Random) -> None:
    path.unlink()
    os.mkfifo(path)


def link(path: Path, chance: random.Random) -> None:
    """To the very same content elsewhere, or to something that never ends."""
    elsewhere = path.parent.with_name("elsewhere")
    shutil.copy(path, elsewhere)
    path.unlink()
    path.symlink_to(chance.choice([elsewhere, Path("/dev/zero"), path]))


def folder(path: Path, _: random.Random) -> None:
    path.unlink()
    path.mkdir()


def deep(path: Path, chance: random.Random) -> None:
    path.write_bytes(chance.choice([b"[", b'{"a":', b'{"files":{"a":']) * 100_000)


ANY = [flip, truncate, append, scramble, swap, gone, pipe, link, folder, deep]


def damage_any(folder: Path, chance: random.Random) -> str:
    path, damage = chance.choice(sorted(folder.iterdir())), chance.choice(ANY)
    damage(path, chance)
    return f"{damage.__name__} {path.name}"


# Damage by somebody who knows how to sign: values of the wrong kind

WRONG: list[Any] = [None, True, -1, -(10**6), 1.5, 10**30, 10**400, math.nan, "x", "", [], {}, [[]], {"x": None}]


def places(raw: Any) -> list[tuple[Any, Any]]:
    """Each table or list in a JSON value, with each key that it has."""
    if not isinstance(raw, dict | list):
        return []
    keys = list(raw) if isinstance(raw, dict) else range(len(raw))
    return [place for key in keys for place in ((raw, key), *places(raw[key]))]


def sign(folder: Path, raw: dict[str, Any]) -> None:
    """Write a training.json with the right digest."""
    body = {key: value for key, value in raw.items() if key != "digest"}
    digest = hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()
    (folder / "training.json").write_text(json.dumps({**body, "digest": digest}))


def damage_signed(folder: Path, chance: random.Random) -> str:
    raw = json.loads((folder / "training.json").read_bytes())
    del raw["digest"]
    place, key = chance.choice(places(raw))
    before = place[key]
    how = chance.randrange(10)
    if how == 0:
        del place[key]
    elif how == 1 and isinstance(place, dict):
        place["another"] = place.pop(key)
    else:
        place[key] = chance.choice(WRONG)
    sign(folder, raw)
    return f"{key}: {before!r:.50} -> {place[key] if how > 1 else 'gone'!r:.50}"


def as_type(dtype: torch.dtype) -> Callable[[dict[str, torch.Tensor], str], None]:
    def change(tensors: dict[str, torch.Tensor], name: str) -> None:
        tensors[name] = tensors[name].to(dtype)

    return change


def with_value(value: float) -> Callable[[dict[str, torch.Tensor], str], None]:
    def change(tensors: dict[str, torch.Tensor], name: str) -> None:
        changed = tensors[name].double()
        changed.view(-1)[0] = value
        tensors[name] = changed.to(tensors[name].dtype) if tensors[name].is_floating_point() else changed

    return change


def renamed(tensors: dict[str, torch.Tensor], name: str) -> None:
    tensors[f"{name}x"] = tensors.pop(name)


def flat(tensors: dict[str, torch.Tensor], name: str) -> None:
    tensors[name] = tensors[name].reshape(1, -1)


def longer(tensors: dict[str, torch.Tensor], name: str) -> None:
    tensors[name] = torch.cat([tensors[name].reshape(-1), torch.ones(1)])


def dropped(tensors: dict[str, torch.Tensor], name: str) -> None:
    del tensors[name]


def more(tensors: dict[str, torch.Tensor], _: str) -> None:
    tensors["more"] = torch.ones(3)


FORMS = [renamed, flat, longer, dropped, more, *map(as_type, (torch.float16, torch.float64, torch.int32, torch.bool))]
VALUES = [with_value(value) for value in (math.nan, math.inf, -math.inf)]


def damage_tensors(folder: Path, chance: random.Random) -> str:
    """Other names, shapes or types, or numbers that are not finite, with the right hashes."""
    path = chance.choice(sorted(folder.glob("*.safetensors")))
    tensors = load_file(path)
    name = chance.choice([name for name in sorted(tensors) if name != "shift"])  # a buffer may hold infinities
    change = chance.choice(FORMS + VALUES)
    change(tensors, name)
    save_file(tensors, path)
    raw = json.loads((folder / "training.json").read_bytes())
    content = path.read_bytes()
    raw["files"][path.name] = {"sha256": hashlib.sha256(content).hexdigest(), "bytes": len(content)}
    sign(folder, raw)
    return f"{change.__qualname__} {name} of {path.name}"


DAMAGE = [damage_any, damage_any, damage_signed, damage_tensors]


def outcome(folder: Path, optimizer: str) -> tuple[Any, ...] | TrieverError:
    """What a resume gives, or the sentence with which it refuses; anything else is a bug."""
    try:
        with awake():
            return resumed(folder, optimizer)
    except TrieverError as error:
        return error


def fuzz(begun: Path, place: Path, count: int, seed: int) -> None:
    expected, refused = resumed(shutil.copytree(begun, place / "whole"), begun.name), 0
    for number in range(count):
        folder = shutil.copytree(begun, place / str(number) / "folder")
        said = DAMAGE[number % len(DAMAGE)](folder, random.Random(1_000_000 * seed + number))
        print(number, said)  # shown if it fails
        found = outcome(folder, begun.name)
        if isinstance(found, TrieverError):
            assert "\n" not in str(found)
            assert found.hint
            refused += 1
        else:
            assert found == expected, "another result, and not a word"
        shutil.rmtree(place / str(number))
    assert count / 2 < refused < count, "some damage does no harm: a log that is gone, or its size"


def test_damaged_checkpoints_are_refused_or_do_no_harm(begun: Path, tmp_path: Path) -> None:
    fuzz(begun, tmp_path, 40, seed=1)


@pytest.mark.long
def test_three_hundred_damaged_checkpoints(begun: Path, tmp_path: Path) -> None:
    fuzz(begun, tmp_path, 300, seed=2)


# Each in its own words


def changed(begun: Path, tmp_path: Path) -> Path:
    return shutil.copytree(begun, tmp_path / "folder")


def test_a_flipped_bit_is_said_to_be_one(begun: Path, tmp_path: Path) -> None:
    for name in ("weights-00000008", "optimizer-00000008"):
        folder = changed(begun, tmp_path / name)
        flip(folder / f"{name}.safetensors", random.Random(0))
        with pytest.raises(TrieverError, match=rf"{name}\.safetensors was changed after it was written; name a new"):
            resumed(folder, begun.name)


def test_a_checkpoint_of_an_earlier_version_says_what_to_do(begun: Path, tmp_path: Path) -> None:
    folder = changed(begun, tmp_path)
    raw = json.loads((folder / "training.json").read_bytes())
    del raw["digest"]
    earlier = {**raw, "version": 1, "files": list(raw["files"])}
    (folder / "training.json").write_text(json.dumps(earlier))
    with pytest.raises(TrieverError, match=r"by an earlier version of Triever, .*; finish it with that version"):
        resumed(folder, begun.name)


def test_a_checkpoint_that_does_not_know_its_evaluations_is_gone_on_from(begun: Path, tmp_path: Path) -> None:
    folder, whole = changed(begun, tmp_path / "earlier"), changed(begun, tmp_path / "whole")
    raw = json.loads((folder / "training.json").read_bytes())
    assert raw["standing"].pop("watched")
    sign(folder, raw)
    assert resumed(folder, begun.name) == resumed(whole, begun.name)


def test_the_log_is_not_written_through_a_link(begun: Path, tmp_path: Path) -> None:
    folder = changed(begun, tmp_path)
    (tmp_path / "thesis.txt").write_text("years of work")
    (folder / "metrics.jsonl").unlink()
    (folder / "metrics.jsonl").symlink_to(tmp_path / "thesis.txt")
    with pytest.raises(TrieverError, match=r"metrics\.jsonl cannot be written: it is not an ordinary file"):
        resumed(folder, begun.name)
    assert (tmp_path / "thesis.txt").read_text() == "years of work"


LIMITED = """
import resource, sys
from pathlib import Path
from tests.training.test_checkpoint_fuzz import chosen
from tests.training.toys import mined, square, toy, worth
from triever.training.loop import train
calls = iter(range(7))
def loss(model, batch):
    if next(calls, None) is None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]), resource.RLIM_INFINITY))
    return square(model, batch)
model = toy(dropout=0.2)
train(model, loss, mined(model), chosen("adamw"), evaluate=worth, folder=Path(sys.argv[1]))
"""


@pytest.mark.long
def test_a_limit_on_files_says_what_to_do_and_loses_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    command = [sys.executable, "-c", LIMITED, str(folder), "1500"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=Path(__file__).parents[2])
    last = done.stderr.strip().splitlines()[-1]
    assert re.search(r"DataError: .*optimizer-0+8\.safetensors cannot be .*: File too large.*; make room", last), last
    model, whole = toy(dropout=0.2, seed=1), toy(dropout=0.2)
    done = train(model, square, mined(model), chosen("adamw"), evaluate=worth, folder=folder)
    train(whole, square, mined(whole), chosen("adamw"), evaluate=worth)
    assert done.resumed_from == 6
    assert same(model, whole)
    assert not any(path.name.endswith(".tmp") for path in folder.iterdir())


@pytest.mark.parametrize("name", ["weights-00000000.safetensors", "metrics.jsonl"])
def test_files_that_only_have_our_names_are_left_alone(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text("mine")
    with pytest.raises(TrieverError, match=rf"holds {name} but no training\.json, so it may be somebody else's"):
        resumed(tmp_path, "adamw")
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {name: "mine"}
