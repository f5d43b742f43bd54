"""The only training loop of Triever. Knows no search: it is handed rounds of batches and an `evaluate` callable.

    trained = train(model, loss, rounds, TrainOptions(steps=4000), evaluate=evaluate, watch="nDCG@10", folder=folder)

Before every round `rounds(n)` is asked for its batches, with the model as it is then: it may mine
negatives with it or rebuild its buffers, but not change the shape of anything. Between rounds the model
is evaluated, and where the best is kept before the first of them too: a training that makes nothing but
harm leaves the model as it came. With a folder, a training that ended early, by Ctrl-C or by a kill,
goes on where it was, to the same weights.
Everything is called in every process of `accelerate launch`, and must give the same in each.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import math
import os
import time
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator, DistributedDataParallelKwargs, DistributedType
from accelerate.state import is_initialized
from accelerate.utils import broadcast_object_list
from torch import Tensor, nn

from triever import config, progress
from triever.errors import UsageError, nearest
from triever.models.precision import device_of
from triever.training import randomness
from triever.training.checkpoints import Checkpoints, Standing, named_tensors, set_weights
from triever.training.compiled import CompiledBlocks
from triever.training.interrupts import Interrupts
from triever.training.loader import Batches, Feed, Pace, ProcessBatches, rows
from triever.training.memory_estimate import SMALLER
from triever.training.metrics import History, Meter, Window
from triever.training.optimizers import RateShare as RateShare
from triever.training.optimizers import make_optimizer, trained
from triever.training.options import TrainOptions, rate
from triever.training.processes import first_row, gathered

__all__ = ["Batches", "Loss", "TrainOptions", "Trained", "first_row", "gathered", "train"]

Loss = Callable[[Any, Any], Mapping[str, Tensor]]
"""From a model and a batch to named scalars, each a mean over the rows of the batch.

Their sum is what is minimised. Those whose names begin with `_` are no part of it, only logged (without
the `_`): an accuracy, the loss of a part that is not trained. What is learned belongs to the model.
"""

logger = logging.getLogger("triever")

OUT_OF_MEMORY = ("out of memory", "can't allocate memory", "not enough memory")
SHARDED = (DistributedType.FSDP, DistributedType.DEEPSPEED, DistributedType.MEGATRON_LM, DistributedType.XLA)


@dataclass(frozen=True)
class Trained:
    """How a training went. The model itself holds the weights, and is in eval mode on the device it was trained on."""

    steps: int
    rounds: int  # that were begun
    best_step: int | None  # None: nothing was evaluated
    best: Mapping[str, float]  # measures of the best step
    latest: Mapping[str, float]  # measures of the last evaluation
    stopped_early: bool  # patience ran out before the steps did
    seconds: float  # in all, those before a resume included
    waited: float  # share of the steps' time that was spent waiting for batches
    history: Path | None  # the lines of metrics
    resumed_from: int | None  # the step from which this call went on


def train(
    model: nn.Module,
    loss: Loss,
    rounds: Callable[[int], Batches],
    options: TrainOptions,
    *,
    evaluate: Callable[[Any], Mapping[str, float]] | None = None,
    watch: str = "",
    folder: str | Path | None = None,
    given: Mapping[str, str] | None = None,
    what: str = "training",
    device: str = "auto",
    share: RateShare | None = None,
) -> Trained:
    """Train a model in place, for as many rounds as the steps need.

    `watch` names the measure of `evaluate` that tells which step is best, the higher the better; without
    it, the first measure does. `evaluate` must leave the model as it found it. `share` says with which share
    of the learning rate a parameter learns, by its name. Several processes need a folder that all can read.
    `given` has fingerprints of what is learned, by name: a folder that was begun with others is refused.
    """
    accelerator = _accelerator(device)
    there = _device(device, accelerator)
    precision = _precision(options, there)
    place = Path(folder) if folder else None
    store = _store(place, options, given, watch, precision)
    history = History(place if accelerator.is_main_process else None, tensorboard=options.tensorboard)
    with contextlib.ExitStack() as stack:
        stack.enter_context(randomness.restored(there))
        if there.type == "cuda":
            stack.enter_context(torch.cuda.device(there))  # seeds and events are those of the current device
        if store and accelerator.is_main_process:
            stack.enter_context(store.held())
        stack.callback(history.close)
        work = _Work(accelerator, there, model, loss, rounds, options, precision, evaluate, watch, what, share)
        return _Run(work, store, history).play()


def _accelerator(device: str) -> Accelerator:
    # A model may have parts that a loss does not use. Buffers are the same everywhere already, and may be large.
    handler = DistributedDataParallelKwargs(find_unused_parameters=True, broadcast_buffers=False)
    # Accelerate can be told its device and precision only once in a process. So both are set here: autocast around
    # the loss, and the model is moved. It has to know of the CPU only where torchrun has started several processes.
    cpu = device_of(device).type == "cpu" and "LOCAL_RANK" in os.environ and not is_initialized()
    accelerator = Accelerator(cpu=cpu, device_placement=False, mixed_precision="no", kwargs_handlers=[handler])
    if accelerator.distributed_type in SHARDED:
        problem = f"training cannot be split by {accelerator.distributed_type.value}"
        raise UsageError(problem, "run accelerate launch with --multi_gpu, where each process has the whole model")
    return accelerator


def _device(name: str, accelerator: Accelerator) -> torch.device:
    """The device of a name; of several processes, each has its own."""
    asked, own = device_of(name), accelerator.device
    if accelerator.distributed_type == DistributedType.NO:
        return asked
    if name != "auto" and asked.type != own.type:
        problem = f"these processes train on {own.type} together, and device = {name!r} is asked for"
        raise UsageError(problem, "start them anew for another device")
    return own


def _precision(options: TrainOptions, device: torch.device) -> str:
    if options.precision != "auto":
        return options.precision
    return (
        "bfloat16" if device.type == "cuda" and torch.cuda.is_bf16_supported(including_emulation=False) else "float32"
    )


def _store(
    folder: Path | None, options: TrainOptions, given: Mapping[str, str] | None, watch: str, precision: str
) -> Checkpoints | None:
    if folder is None:
        return None
    settings = {**config.to_dict(options), "watch": watch, "precision": precision}
    return Checkpoints(folder, settings, given, keep_best=options.keep == "best")


class _Objective(nn.Module):
    """Model and loss as one forward pass, so that a loss may call the model as often and by whatever method it likes.

    Gradients are averaged over processes by wrapping this, not the model.
    """

    def __init__(self, model: nn.Module, loss: Loss) -> None:
        super().__init__()
        self.model = model
        self.loss = loss

    def forward(self, batch: Any) -> tuple[Tensor, dict[str, Tensor]]:
        parts = self.loss(self.model, batch)
        counted = [value for name, value in parts.items() if not name.startswith("_")]
        if not counted:
            raise UsageError("the loss has no part to minimise", "return one whose name does not begin with _")
        for name, value in parts.items():
            if value.ndim:
                raise UsageError(f"part {name} of the loss has shape {tuple(value.shape)}", "return its mean")
        total = functools.reduce(torch.add, counted)  # their types may differ under autocast
        return total, {name.removeprefix("_"): value.detach() for name, value in parts.items()}


@dataclass(frozen=True)
class _Work:
    """What `train` was asked to do."""

    accelerator: Accelerator
    device: torch.device
    model: nn.Module
    loss: Loss
    rounds: Callable[[int], Batches]
    options: TrainOptions
    precision: str
    evaluate: Callable[[Any], Mapping[str, float]] | None
    watch: str
    what: str
    share: RateShare | None


class _Run:
    """One call of `train`, from where the folder stands to the end."""

    def __init__(self, work: _Work, store: Checkpoints | None, history: History) -> None:
        self.work = work
        self.options = work.options
        self.accelerator = work.accelerator
        self.device = work.device
        self.model = work.model.to(work.device)
        objective = _Objective(work.model, work.loss)
        self.computing = CompiledBlocks(work.model) if work.options.compile else contextlib.nullcontext()
        self.objective = work.accelerator.prepare(objective)
        self.optimizer = make_optimizer(work.model, work.options, work.share)
        self.parameters = list(trained(work.model).values())
        self.store = store
        self.history = history
        self.meter = Meter(work.accelerator)
        self.pace = Pace(work.device)
        self.standing = Standing()
        self.resumed_from: int | None = None
        self.behind = False  # the weights are those of the round's start, not yet those of the step
        self.best_weights: dict[str, Tensor] = {}  # when there is no folder to keep them in
        self.window = Window()
        self.note = ""  # beside the bar
        self.started = time.perf_counter()  # less what earlier calls took
        self.saved = self.started  # when the last checkpoint was made

    def play(self) -> Trained:
        """All that is left to do."""
        self._take_up()
        self._evaluate_first()
        while not self.standing.finished:
            batches = self._begin_round()
            self._take_steps(batches)
            self._end_round()
        self._hold_what_is_kept()
        return self._trained()

    # Where a training begins, and where it goes on

    def _take_up(self) -> None:
        """Go on from the folder, or begin."""
        found = self.store.read(self.options) if self.store else None
        self.accelerator.wait_for_everyone()  # all have read before the first writes
        if found:
            self._go_on(found)
        elif self.options.steps == 0:
            self.standing.finished = "steps"
        self.started = time.perf_counter() - self.standing.seconds
        if self.store and self.accelerator.is_main_process:
            self.store.clean()
        self.history.open(self.standing.history, self.standing.step)
        if not found:
            self._save()

    def _go_on(self, found: Standing) -> None:
        assert self.store is not None  # it was found there
        self.standing = found
        self.resumed_from = found.step
        if found.finished == "steps" and found.step < self.options.steps:
            found.finished = ""
        if not found.finished:
            self.store.load_optimizer(self.optimizer, self.model, found.step)
            self.store.load_weights(self.model, found.round_start)
            self.meter.load(found.meter)
            self.behind = found.round_start != found.step
        logger.info("%s goes on from step %d of %s", self.work.what, found.step, self.store.folder)

    def _save(self) -> None:
        """Make a checkpoint; every process must come here, for the sums of all of them are in it."""
        if self.store is None:
            return
        self.standing.meter = self.meter.state()
        self.standing.seconds = time.perf_counter() - self.started
        self.standing.history = self.history.size
        if self.accelerator.is_main_process:
            self.store.save(self.standing, self.model, self.optimizer)
        self.saved = time.perf_counter()

    # A round

    def _begin_round(self) -> Batches:
        standing = self.standing
        with self._looking(randomness.ROUND, standing.round):
            batches = self.work.rounds(standing.round)
        if len(batches) == 0:
            raise UsageError(f"round {standing.round} has no batches", "check that there is data to train on")
        if standing.position and len(batches) != standing.length:
            problem = f"round {standing.round} had {standing.length} batches and has {len(batches)} now"
            raise UsageError(problem, "resume with the same data, or name a new folder")
        standing.length = len(batches)
        if self.behind and self.store:
            self.store.load_weights(self.model, standing.step)
            self.behind = False
        return batches

    @contextlib.contextmanager
    def _looking(self, place: int, number: int) -> Generator[None]:
        """For those who look at the model but do not train it: the same seed in every process, no dropout."""
        randomness.set_seeds(self.device, self.options.seed, place, number)
        self.model.eval()
        with torch.no_grad():
            yield

    def _take_steps(self, batches: Batches) -> None:
        """The steps of a round, as far as they are wanted."""
        standing, options, accelerator = self.standing, self.options, self.accelerator
        wanted = (options.steps - standing.step) * options.accumulate
        stop = min(len(batches), standing.position + wanted)
        share = ProcessBatches(batches, accelerator.process_index, accelerator.num_processes)
        # Several processes would hear of a signal at different steps, and each would wait for the others to save.
        hold = self.store is not None and accelerator.num_processes == 1
        self.model.train()
        while standing.position < stop:
            with Interrupts(hold=hold) as interrupts:
                self._take_steps_until(interrupts, share, range(standing.position, stop))
            if interrupts.came is not None:
                self._save()
                logger.warning("%s can go on from step %d", self.work.what, standing.step)
                interrupts.deliver()

    def _take_steps_until(self, interrupts: Interrupts, share: ProcessBatches, places: range) -> None:
        """Steps to the end of the places, or to the first interrupt."""
        standing, options = self.standing, self.options
        self.window.restart()
        with (
            contextlib.closing(Feed(share, places, self.device, options.workers)) as feed,
            self._bar() as show,
        ):
            while standing.position < places.stop and interrupts.came is None:
                self._step(feed, min(options.accumulate, standing.length - standing.position))
                show(standing.step, self.note)
                self._after_step()

    def _bar(self) -> contextlib.AbstractContextManager[Callable[[int, str], object]]:
        """The bar, in one of the processes only."""
        if self.accelerator.is_main_process:
            return progress.bar(self.work.what, self.options.steps, self.standing.step)
        return contextlib.nullcontext(lambda _done, _note: None)

    def _end_round(self) -> None:
        """Evaluate where that is due, and save."""
        standing = self.standing
        over = standing.step >= self.options.steps
        self._log()
        if self.work.evaluate and (over or self._is_due()):
            self._save()  # an evaluation may take long, and may be interrupted
            self._evaluate()
        if standing.position >= standing.length:
            standing.round, standing.position, standing.round_start = standing.round + 1, 0, standing.step
        if self.options.patience and standing.since_best >= self.options.patience:
            standing.finished = "patience"
        elif over:
            standing.finished = "steps"
        self._save()

    # A step

    def _step(self, feed: Feed, count: int) -> None:
        """One step of the optimizer, over so many micro batches."""
        standing, process = self.standing, self.accelerator.process_index
        randomness.set_seeds(self.device, self.options.seed, randomness.STEP, standing.step, process)
        with _memory_hint(standing.step):
            for number in range(count):
                self._micro_step(next(feed), count, last=number == count - 1)
            if self.options.clip:
                norm = nn.utils.clip_grad_norm_(self.parameters, self.options.clip)
                self.meter.add({"gradient_norm": norm})
            for group in self.optimizer.param_groups:
                group["lr"] = rate(self.options, standing.step) * group["share"]
            self.optimizer.step()
            self.optimizer.zero_grad()
        self.pace.step()
        standing.step += 1
        standing.position += count
        self._count_time(feed)

    def _micro_step(self, batch: Any, count: int, *, last: bool) -> None:
        together = contextlib.nullcontext() if last else self.accelerator.no_sync(self.objective)
        with together:
            lower = torch.autocast(self.device.type, torch.bfloat16, enabled=self.work.precision == "bfloat16")
            with self.computing, lower:
                total, parts = self.objective(batch)
            self.accelerator.backward(total / count)
        named = {f"parts/{name}": value for name, value in parts.items()}
        self.meter.loss(self.standing.step + 1, {"loss": total, **named})
        self.window.examples += rows(batch) * self.accelerator.num_processes

    def _count_time(self, feed: Feed) -> None:
        seconds, waited = self.window.lap(feed)
        self.standing.stepping += seconds
        self.standing.waited += waited

    def _after_step(self) -> None:
        standing, options = self.standing, self.options
        if standing.step % options.log_every == 0:
            self._log()
        if (options.checkpoint_every and standing.step % options.checkpoint_every == 0) or self._is_late():
            self._save()
            self.window.pause()

    def _is_late(self) -> bool:
        """Whether the last checkpoint was made too many minutes ago, by the clock of the first process."""
        options = self.options
        late = bool(options.checkpoint_minutes) and time.perf_counter() - self.saved >= 60 * options.checkpoint_minutes
        if self.accelerator.num_processes == 1:
            return late
        # To ask the first process takes time, so it is asked only when a line has been written.
        return self.standing.step % options.log_every == 0 and broadcast_object_list([late])[0]

    # What it says about itself

    def _log(self) -> None:
        """Write the line of the steps since the last one."""
        means = self.meter.means()
        if not means:
            return
        parts = {name.removeprefix("parts/"): mean for name, mean in means.items() if name.startswith("parts/")}
        line = {"step": self.standing.step, "round": self.standing.round, "loss": means["loss"], "parts": parts}
        if "gradient_norm" in means:
            line["gradient_norm"] = means["gradient_norm"]
        line["learning_rate"] = rate(self.options, self.standing.step - 1)
        speeds = self.window.speeds()
        self.history.write({**line, **speeds})
        self.note = f"loss {means['loss']:.4f}, {speeds['steps_per_second']:.1f} steps/s"
        self.window.clear()
        self.meter.clear()

    # Which step is best

    def _is_due(self) -> bool:
        every = self.options.evaluate_every
        return bool(every) and (self.standing.round + 1) % every == 0

    def _evaluate_first(self) -> None:
        """Where the best step is kept, the model as it came is the first to be better than."""
        standing = self.standing
        wanted = self.work.evaluate and self.options.keep == "best" and not standing.finished
        if wanted and standing.step == 0 and not standing.latest:
            self._evaluate()
            standing.since_best = 0  # patience is for what the training does
            self._save()

    def _evaluate(self) -> None:
        standing = self.standing
        started = time.perf_counter()
        measures = self._measures()
        seconds = time.perf_counter() - started
        is_best = self._is_best(measures)
        standing.latest = measures
        standing.since_best = 0 if is_best else standing.since_best + 1
        if is_best:
            standing.best_step, standing.best = standing.step, measures
            self._remember()
        line = {"step": standing.step, "round": standing.round, "evaluation": measures}
        self.history.write({**line, "best": is_best, "seconds": seconds})
        logger.info("%s: step %d: %s", self.work.what, standing.step, measures)

    def _measures(self) -> dict[str, float]:
        """What `evaluate` says; with several processes, what it says in the first, so that all decide alike."""
        assert self.work.evaluate is not None  # asked by the caller
        with self._looking(randomness.EVALUATION, self.standing.step):
            said = {name: float(value) for name, value in self.work.evaluate(self.model).items()}
        return broadcast_object_list([said])[0]

    def _is_best(self, measures: Mapping[str, float]) -> bool:
        watch = self.work.watch or next(iter(measures), "")
        if watch not in measures:
            raise UsageError(f"watch = {watch!r} is not a measure of the evaluation", nearest(watch, measures))
        value, best = measures[watch], self.standing.best.get(watch, -math.inf)
        # Of equal steps the first, but a training that does no harm is not thrown away.
        return value > best or (self.standing.best_step <= 0 and value >= best)

    def _remember(self) -> None:
        if self.store is None and self.options.keep == "best":
            self.best_weights = {name: tensor.cpu().clone() for name, tensor in named_tensors(self.model).items()}

    def _hold_what_is_kept(self) -> None:
        """Leave the model with the weights that the options ask for."""
        standing = self.standing
        best = self.options.keep == "best" and standing.best_step >= 0
        if best and standing.best_step == 0:
            logger.warning("%s: no evaluation was as good as the first, so the model stays as it came", self.work.what)
        self.accelerator.wait_for_everyone()  # the first process may still be writing
        if self.store and (self.resumed_from == standing.step or best):
            self.store.load_weights(self.model, standing.best_step if best else standing.step)
        elif best:
            set_weights(self.model, self.best_weights)
        self.optimizer.zero_grad()
        self.model.eval()

    def _trained(self) -> Trained:
        standing = self.standing
        return Trained(
            steps=standing.step,
            rounds=standing.round + bool(standing.position),
            best_step=None if standing.best_step < 0 else standing.best_step,
            best=standing.best,
            latest=standing.latest,
            stopped_early=standing.finished == "patience",
            seconds=standing.seconds if self.store else time.perf_counter() - self.started,
            waited=standing.waited / max(standing.stepping, 1e-9),
            history=self.history.path,
            resumed_from=self.resumed_from,
        )


@contextlib.contextmanager
def _memory_hint(step: int) -> Generator[None]:
    """Turn what torch says about memory into what to do about it."""
    try:
        yield
    except (torch.OutOfMemoryError, MemoryError, RuntimeError) as error:
        known = isinstance(error, torch.OutOfMemoryError | MemoryError) or any(t in str(error) for t in OUT_OF_MEMORY)
        if not known:
            raise
        problem = f"the memory of the device was not enough for step {step + 1}"
        raise UsageError(problem, SMALLER) from error
