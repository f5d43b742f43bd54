"""The only training loop of Triever. It knows nothing about search: it gets rounds of batches and an `evaluate`.

    trained = train(model, loss, rounds, TrainOptions(steps=4000), evaluate=evaluate, watch="nDCG@10", folder=folder)

Before round n the loop asks `rounds(n)` for its batches. That may mine negatives with the model as it is then, or
rebuild its buffers, but it must not change the shape of anything. The model is evaluated between rounds, and with
keep="best" also before the first step: a training that does only harm leaves the model as it came. With a folder, a
training that ended early, by Ctrl-C or by a kill, goes on where it was, to the same weights.
Every process of `accelerate launch` calls all of these, and each must get the same from them.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import math
import os
import time
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from torch import Tensor, nn

from triever import config, progress
from triever.errors import UsageError, nearest
from triever.models.named_weights import named_tensors, set_weights
from triever.models.precision import device_of
from triever.printable import mean_text
from triever.training import randomness
from triever.training.checkpoints import Checkpoints, Standing
from triever.training.compiled import CompiledBlocks
from triever.training.interrupts import Interrupts
from triever.training.loader import Batches, Feed, Pace, ProcessBatches, rows
from triever.training.memory_estimate import SMALLER
from triever.training.metrics import History, Meter, Timed, Window
from triever.training.optimizers import RateShare as RateShare
from triever.training.optimizers import make_optimizer, trained
from triever.training.options import TrainOptions, rate
from triever.training.processes import first_row, gathered

if TYPE_CHECKING:
    from accelerate import Accelerator  # elsewhere only where it is used: a search does not wait for it

__all__ = ["Batches", "Loss", "TrainOptions", "Trained", "first_row", "gathered", "train"]

Loss = Callable[[Any, Any], Mapping[str, Tensor]]
"""From a model and a batch to named scalars, each a mean over the rows of the batch.

The loop minimises their sum. A name that begins with `_` is not added, only logged (without the `_`), such as an
accuracy or the loss of a part that is not trained. Everything that is learned must belong to the model.
"""
Evaluate = Callable[[Any], Mapping[str, float]]
"""From a model to measures by name."""

T = TypeVar("T")
logger = logging.getLogger("triever")

OUT_OF_MEMORY = ("out of memory", "can't allocate memory", "not enough memory")
ADVICE = "try more training queries or a lower training.learning_rate"
LIKELIHOOD = "likelihood"
"""Measures with this in their name are 0 at best; all others at worst, where nothing is found."""
SHARDED = ("FSDP", "DEEPSPEED", "MEGATRON_LM", "XLA")
"""Accelerate's names for processes that have a part of the model each."""


@dataclass(frozen=True)
class Trained:
    """How a training went. The model itself holds the weights, and is in eval mode on the device it was trained on."""

    steps: int
    rounds: int  # those that were begun
    best_step: int | None  # None: nothing was evaluated
    best: Mapping[str, float]  # measures of the best step
    latest: Mapping[str, float]  # measures of the last evaluation
    stopped_early: bool  # patience ran out before the steps did
    seconds: float  # in all, also before a resume
    waited: float  # share of the steps' time that was spent waiting for batches
    history: Path | None  # the lines of metrics
    resumed_from: int | None  # the step from which this call went on; None: it began anew
    start: Mapping[str, float] = field(default_factory=dict)  # the watched measure before the first step, if evaluated


def train(
    model: nn.Module,
    loss: Loss,
    rounds: Callable[[int], Batches],
    options: TrainOptions,
    *,
    evaluate: Evaluate | None = None,
    watch: str = "",
    folder: str | Path | None = None,
    given: Mapping[str, str] | None = None,
    label: str = "training",
    device: str = "auto",
    share: RateShare | None = None,
    advice: str = ADVICE,
) -> Trained:
    """Train a model in place, for as many rounds as the steps need.

    `watch` names the measure of `evaluate` that decides which step is best, the higher the better; by default it is
    the first measure. `evaluate` must not change the model. `share` gives a parameter's share of the learning rate
    by the parameter's name. Several processes need a folder that all can read. `given` has fingerprints, by name, of
    what is learned from: a folder that was begun with other fingerprints is refused. `label` names the training in
    messages. `advice` ends the warning after a training that did not make the model better.
    """
    accelerator = _accelerator(device)
    torch_device = _device(device, accelerator)
    precision = _precision(options, torch_device)
    work_folder = Path(folder) if folder else None
    store = _store(work_folder, options, given, watch, precision)
    history = History(work_folder if accelerator.is_main_process else None, tensorboard=options.tensorboard)
    with contextlib.ExitStack() as stack:
        stack.enter_context(randomness.restored(torch_device))
        if torch_device.type == "cuda":
            stack.enter_context(torch.cuda.device(torch_device))  # seeds and events are those of the current device
        if store and accelerator.is_main_process:
            stack.enter_context(store.held())
        stack.callback(history.close)
        work = _Work(
            accelerator, torch_device, model, loss, rounds, options, precision, evaluate, watch, label, share, advice
        )
        return _Run(work, store, history).play()


def _accelerator(device: str) -> Accelerator:
    from accelerate import Accelerator, DistributedDataParallelKwargs
    from accelerate.state import is_initialized

    # A loss may leave parts of a model unused. Buffers are not sent: they are equal in all processes, and may be large.
    handler = DistributedDataParallelKwargs(find_unused_parameters=True, broadcast_buffers=False)
    # Accelerate takes its device and precision only once in a process. So this loop does both itself: it moves the
    # model, and puts autocast around the loss. Accelerate needs to know of the CPU only if torchrun started several
    # processes.
    cpu = device_of(device).type == "cpu" and "LOCAL_RANK" in os.environ and not is_initialized()
    accelerator = Accelerator(cpu=cpu, device_placement=False, mixed_precision="no", kwargs_handlers=[handler])
    if accelerator.distributed_type in SHARDED:
        problem = f"Triever cannot train with {accelerator.distributed_type.value}"
        raise UsageError(problem, "run accelerate launch with --multi_gpu, where each process has the whole model")
    return accelerator


def _of_first(value: T) -> T:
    """The value that the first process has."""
    from accelerate.utils import broadcast_object_list

    return broadcast_object_list([value])[0]


def _device(name: str, accelerator: Accelerator) -> torch.device:
    """The device with this name; of several processes, each has a device of its own."""
    asked, assigned = device_of(name), accelerator.device
    if accelerator.distributed_type == "NO":
        return asked
    if name != "auto" and asked.type != assigned.type:
        problem = f"device = {name!r}, but these processes were started for {assigned.type}"
        raise UsageError(problem, "leave device out, or start the processes for that device")
    return assigned


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
    """Model and loss as one forward pass, so that a loss may call any method of the model, any number of times.

    Accelerate wraps this, not the model, to average gradients over processes.
    """

    def __init__(self, model: nn.Module, loss: Loss) -> None:
        super().__init__()
        self.model = model
        self.loss = loss

    def forward(self, batch: object) -> tuple[Tensor, dict[str, Tensor]]:
        parts = self.loss(self.model, batch)
        counted = [value for name, value in parts.items() if not name.startswith("_")]
        if not counted:
            raise UsageError("the loss has no part to minimise", "return a part whose name does not begin with _")
        for name, value in parts.items():
            if value.ndim:
                raise UsageError(
                    f"part {name} of the loss has the shape {tuple(value.shape)}, not a single number",
                    "return its mean",
                )
        total = functools.reduce(torch.add, counted)  # their types may differ under autocast
        return total, {name.removeprefix("_"): value.detach() for name, value in parts.items()}


@dataclass(frozen=True)
class _Work:
    """The arguments of `train`."""

    accelerator: Accelerator
    device: torch.device
    model: nn.Module
    loss: Loss
    rounds: Callable[[int], Batches]
    options: TrainOptions
    precision: str
    evaluate: Evaluate | None
    watch: str
    name: str
    share: RateShare | None
    advice: str


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
        self.behind = False  # whether the weights are still those of the round's start, not those of the step
        self.best_weights: dict[str, Tensor] = {}  # used only without a folder
        self.window = Window()
        self.note = ""  # the text beside the progress bar
        self.timed = Timed()
        self.started = time.perf_counter()  # minus the seconds of earlier calls
        self.saved = self.started  # when the last checkpoint was made

    def play(self) -> Trained:
        """Train to the end."""
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
        standing = self.store.read(self.options) if self.store else None
        self.accelerator.wait_for_everyone()  # all have read before the first writes
        if standing:
            self._go_on(standing)
        elif self.options.steps == 0:
            self.standing.finished = "steps"
        self.started = time.perf_counter() - self.standing.seconds
        if self.store and self.accelerator.is_main_process:
            self.store.clean()
        self.history.open(self.standing.history, self.standing.step)
        if not standing:
            self._save()

    def _go_on(self, standing: Standing) -> None:
        assert self.store is not None  # the standing was read from it
        self.standing = standing
        self.resumed_from = standing.step
        if standing.finished == "steps" and standing.step < self.options.steps:
            standing.finished = ""
        if not standing.finished:
            self.store.load_optimizer(self.optimizer, self.model, standing.step)
            self.store.load_weights(self.model, standing.round_start)
            self.meter.load(standing.meter)
            self.behind = standing.round_start != standing.step
        logger.info("%s goes on from step %d of %s", self.work.name, standing.step, self.store.folder)

    def _save(self) -> None:
        """Make a checkpoint. Every process must call this, because the checkpoint holds sums over all of them."""
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
        preparing = progress.phase(f"{self.work.name}: preparing round {standing.round + 1:,}")
        with preparing, self._looking(randomness.ROUND, standing.round):
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
    def _looking(self, kind: int, number: int) -> Generator[None]:
        """Set the model up to be looked at, not trained: the same seed in every process, no dropout, no gradients."""
        randomness.set_seeds(self.device, self.options.seed, kind, number)
        self.model.eval()
        with torch.no_grad():
            yield

    def _take_steps(self, batches: Batches) -> None:
        """Take the steps of a round, or as many as are left."""
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
                logger.warning("%s can go on from step %d", self.work.name, standing.step)
                interrupts.deliver()

    def _take_steps_until(self, interrupts: Interrupts, share: ProcessBatches, positions: range) -> None:
        """Take the steps for these positions of the round, or stop at the first interrupt."""
        standing, options = self.standing, self.options
        self.window.restart()
        with (
            contextlib.closing(Feed(share, positions, self.device, options.workers)) as feed,
            self._bar() as show,
        ):
            while standing.position < positions.stop and interrupts.came is None:
                self._step(feed, min(options.accumulate, standing.length - standing.position))
                show(standing.step, self.note)
                self._after_step()

    def _bar(self) -> contextlib.AbstractContextManager[Callable[[int, str], object]]:
        """The progress bar, in the main process only."""
        if self.accelerator.is_main_process:
            return progress.bar(self.work.name, self.options.steps, self.standing.step, unit="steps")
        return contextlib.nullcontext(lambda _done, _note: None)

    def _end_round(self) -> None:
        """Evaluate if that is due, and save."""
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
        """Take one step of the optimizer, over `count` micro batches."""
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

    def _micro_step(self, batch: object, count: int, *, last: bool) -> None:
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
        if self.accelerator.is_main_process:
            self.timed.tell(self.work.name, seconds, self.options.steps - self.standing.step)

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
        # Asking the first process takes time, so it is asked only when a line of metrics is written.
        return self.standing.step % options.log_every == 0 and _of_first(late)

    # Metrics

    def _log(self) -> None:
        """Write a line of metrics about the steps since the last line."""
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
        """Evaluate the model as it came, if the best step is kept: a later step has to be better."""
        standing = self.standing
        wanted = self.work.evaluate and self.options.keep == "best" and not standing.finished
        if wanted and standing.step == 0 and not standing.latest:
            self._evaluate()
            standing.since_best = 0  # patience counts only evaluations after steps
            self._save()

    def _evaluate(self) -> None:
        standing = self.standing
        started = time.perf_counter()
        measures = self._measures()
        seconds = time.perf_counter() - started
        is_better = self._is_best(measures)
        is_best = is_better or self._finds_as_little(measures)
        watch = self._watch(measures)
        standing.latest = measures
        if standing.step:
            standing.watched.append(measures[watch])
        else:
            standing.start = {watch: measures[watch]}
        standing.since_best = 0 if is_better else standing.since_best + 1
        if is_best:
            standing.best_step, standing.best = standing.step, measures
            self._remember()
        line = {"step": standing.step, "round": standing.round, "evaluation": measures}
        self.history.write({**line, "best": is_best, "seconds": seconds})
        logger.info("%s: step %d: %s", self.work.name, standing.step, measures)

    def _measures(self) -> dict[str, float]:
        """The measures of `evaluate`; all processes take those of the first, so that all decide alike."""
        assert self.work.evaluate is not None  # the caller has checked
        judging = progress.phase(f"{self.work.name}: evaluating step {self.standing.step:,}")
        with judging, self._looking(randomness.EVALUATION, self.standing.step):
            measures = {name: float(value) for name, value in self.work.evaluate(self.model).items()}
        return _of_first(measures)

    def _is_best(self, measures: Mapping[str, float]) -> bool:
        watch = self._watch(measures)
        value, best = measures[watch], self.standing.best.get(watch, -math.inf)
        # Of equal steps the first is best, but a trained step that is as good as the untrained model is better.
        return value > best or (self.standing.best_step <= 0 and value >= best)

    def _finds_as_little(self, measures: Mapping[str, float]) -> bool:
        """Whether nothing was found so far, and nothing now: then the later step is kept, which has learned longer."""
        watch = self._watch(measures)
        return LIKELIHOOD not in watch and measures[watch] == self.standing.best.get(watch) == 0

    def _watch(self, measures: Mapping[str, float]) -> str:
        """The name of the measure that decides which step is best."""
        watch = self.work.watch or next(iter(measures), "")
        if watch not in measures:
            raise UsageError(f"watch = {watch!r} is not a measure of the evaluation", nearest(watch, measures))
        return watch

    def _remember(self) -> None:
        if self.store is None and self.options.keep == "best":
            self.best_weights = {name: tensor.cpu().clone() for name, tensor in named_tensors(self.model).items()}

    def _hold_what_is_kept(self) -> None:
        """Leave the model with the weights that the options ask for."""
        standing = self.standing
        best = self.options.keep == "best" and standing.best_step >= 0
        if best and standing.best_step == 0 and self.accelerator.is_main_process:
            self._warn_of_no_gain()
        if self.accelerator.is_main_process:
            self._warn_of_no_difference()
        self.accelerator.wait_for_everyone()  # the first process may still be writing
        if self.store and (self.resumed_from == standing.step or best):
            self.store.load_weights(self.model, standing.best_step if best else standing.step)
        elif best:
            set_weights(self.model, self.best_weights)
        self.optimizer.zero_grad()
        self.model.eval()

    def _warn_of_no_gain(self) -> None:
        """Say that the model stays as it came, what was measured, and what else may be tried."""
        best, watched = self.standing.best, self.standing.watched
        name = self._watch(best)
        measured = f"{name} was {mean_text(best[name])} at the start, then {', '.join(map(mean_text, watched))}"
        message = "%s: no evaluation was as good as the first, so the model stays as it was before training: %s; %s"
        logger.warning(message, self.work.name, measured, self.work.advice)

    def _warn_of_no_difference(self) -> None:
        """Say that held-out queries cannot choose a step, if all of several evaluations were equal."""
        standing = self.standing
        values = [*standing.start.values(), *standing.watched]
        if len(values) > 1 and len(set(values)) == 1 and standing.finished:
            message = "%s: %s was %s in all %d evaluations, so held-out queries tell no step from another"
            logger.warning(message, self.work.name, self._watch(standing.latest), mean_text(values[0]), len(values))

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
            start=standing.start,
        )


@contextlib.contextmanager
def _memory_hint(step: int) -> Generator[None]:
    """Turn torch's out-of-memory errors into a hint about what to change."""
    try:
        yield
    except (torch.OutOfMemoryError, MemoryError, RuntimeError) as error:
        known = isinstance(error, torch.OutOfMemoryError | MemoryError) or any(
            words in str(error) for words in OUT_OF_MEMORY
        )
        if not known:
            raise
        problem = f"the device has too little memory for step {step + 1}"
        raise UsageError(problem, SMALLER) from error
