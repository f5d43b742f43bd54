"""How much of the hardware a training uses: our loop and model beside a plain loop over transformers' model.

The work: a T5-base-shaped encoder and an in-batch contrastive loss on pairs of texts. A row's `share` is
the arithmetic of the model, forward and backward, over what the hardware does in plain matrix products of
the same type, measured in the same run; `waited` is the share of time spent waiting for batches. All rows
compute in what a training computes in: bfloat16 on a GPU that has it, and float32 on any CPU.
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from triever.config import option, validate
from triever.errors import UsageError
from triever.lab.sizes import check_filled, check_memory, check_sizes
from triever.models.encoder import pooled
from triever.models.precision import device_of, fast_dtype
from triever.models.t5 import T5, T5Shape
from triever.models.tokens import Tokens
from triever.training.loop import TrainOptions, train
from triever.training.losses import contrastive
from triever.training.memory_estimate import estimate

VOCABULARY = 32_128
HEAD = 64
"""Width of an attention head."""


@dataclass(frozen=True)
class TrainBenchOptions:
    """The size of the work; the defaults are the reference."""

    batch: int = option(512, "texts in a batch, an even number: half of them are queries")
    length: int = option(128, "tokens of a text")
    layers: int = option(12, "layers of the encoder")
    width: int = option(768, "the model's width, a multiple of 64")
    inner: int = option(3072, "width of the inner layers")
    steps: int = option(20, "steps that are timed, after as many that are not")
    device: str = option("cpu", "cpu, cuda, or auto: cuda where there is one")
    compile: tuple[bool, ...] = option((False,), "whether torch compiles our model; several are measured in turn")
    matrix: int = option(8192, "side of the matrices whose product gives the hardware's rate")
    peer: bool = option(True, "run the peer too")

    def __post_init__(self) -> None:
        validate(self)
        check_sizes(self, "batch", "length", "layers", "width", "inner", "steps", "matrix")
        check_filled(self, "compile")
        object.__setattr__(self, "device", str(device_of(self.device)))
        if self.batch % 2:
            raise UsageError(
                f"batch = {self.batch} should be an even number: half of the texts are queries", "for example: batch=64"
            )
        if self.width % HEAD:
            problem = f"width = {self.width} should be a multiple of {HEAD}, the width of an attention head"
            raise UsageError(problem, f"for example: width={4 * HEAD}")

    @property
    def dtype(self) -> torch.dtype:
        """What all rows compute in, which is what a training computes in."""
        return fast_dtype(self.device) if self.device.startswith("cuda") else torch.float32

    @property
    def weights(self) -> int:
        """The weights of the layers."""
        return self.layers * (4 * self.width**2 + 2 * self.width * self.inner)

    def check_memory(self) -> None:
        """Refuse work for which the memory is not enough, by a rough count."""
        trained = estimate(
            VOCABULARY * self.width + self.weights,
            batch=self.batch,
            length=self.length,
            d_model=self.width,
            layers=self.layers,
            d_ff=self.inner,
            precision=name_of(self.dtype),
        )
        matrices = 3 * self.matrix**2 * self.dtype.itemsize
        check_memory(max(trained, matrices), self.device, "batch, length, layers, width, inner or matrix")


def bench_train(options: TrainBenchOptions | None = None) -> list[dict[str, object]]:
    """The hardware's rate, then a row for each way to train."""
    chosen = options or TrainBenchOptions()
    chosen.check_memory()
    work = _Work(chosen)
    rate = _matrix_rate(chosen)
    numbers = {"dtype": name_of(chosen.dtype)}
    rows: list[dict[str, object]] = [
        {"what": "matrix product", **numbers, "tflops": round(rate / 1e12, 2), "share": 1.0}
    ]
    ways = [(f"triever{', compiled' if compiled else ''}", compiled) for compiled in chosen.compile]
    timed = [(name, *work.ours(compiled)) for name, compiled in ways]
    if chosen.peer:
        timed.append(("transformers, plain loop", *work.peer()))
    for name, seconds, waited in timed:
        done = work.arithmetic / seconds
        row: dict[str, object] = {
            "what": name,
            **numbers,
            "tflops": round(done / 1e12, 2),
            "share": round(done / rate, 3),
        }
        row |= {"texts_per_second": round(chosen.batch / seconds, 1)}
        rows.append(row if math.isnan(waited) else row | {"waited": waited})
    if chosen.peer:
        rows[1]["ratio"] = round(timed[-1][1] / timed[0][1], 2)
    return rows


def _matrix_rate(options: TrainBenchOptions) -> float:
    """Operations in a second of one large product, in the type that training computes in; the best of several."""
    left, right = (
        torch.randn(options.matrix, options.matrix, device=options.device, dtype=options.dtype) for _ in range(2)
    )
    best = 0.0
    for _ in range(8):
        _wait(options)
        started = time.perf_counter()
        left @ right
        _wait(options)
        best = max(best, 2 * options.matrix**3 / (time.perf_counter() - started))
    return best


class _Work:
    """The texts, and both models."""

    def __init__(self, options: TrainBenchOptions) -> None:
        self.options = options
        chance = np.random.default_rng(0)
        rows = 4 * options.batch
        flat = chance.integers(2, VOCABULARY, rows * options.length)
        self.tokens = Tokens(flat.astype(np.uint16), np.arange(rows + 1) * options.length)

    @property
    def arithmetic(self) -> float:
        """Operations of a step: two for each weight and token forward, four backward, and attention's products."""
        shape = self.options
        tokens = shape.batch * shape.length
        return 6 * shape.weights * tokens + 12 * shape.layers * shape.width * shape.length * tokens

    def ours(self, compiled: bool) -> tuple[float, float]:
        """Seconds a step, and the share of them spent waiting."""
        torch.manual_seed(0)
        heads = self.options.width // HEAD
        sizes = {"d_model": self.options.width, "heads": heads, "d_ff": self.options.inner, "gated": False}
        model = T5(T5Shape.for_docids(VOCABULARY, 1, encoder_layers=self.options.layers, decoder_layers=0, **sizes))
        model = model.to(self.options.device)

        def loss(model: T5, batch: Mapping[str, Tensor]) -> dict[str, Tensor]:
            return {"contrastive": _pairs_loss(model.encode(batch["ids"], batch["mask"]), batch["mask"])}

        settings = TrainOptions(
            steps=self.options.steps,
            learning_rate=1e-5,
            log_every=1000,
            compile=compiled,
            precision=name_of(self.options.dtype),
        )
        train(model, loss, self._batches, settings, device=self.options.device)
        trained = train(model, loss, self._batches, replace(settings, seed=1), device=self.options.device)
        return trained.seconds / self.options.steps, round(trained.waited, 3)

    def _batches(self, _round: int) -> _Texts:
        return _Texts(self.tokens, self.options.batch, self.options.steps)

    def peer(self) -> tuple[float, float]:
        """A loop as the field's scripts have it."""
        from transformers import T5Config, T5EncoderModel

        torch.manual_seed(0)
        config = T5Config(
            vocab_size=VOCABULARY,
            d_model=self.options.width,
            d_kv=HEAD,
            num_heads=self.options.width // HEAD,
            d_ff=self.options.inner,
            num_layers=self.options.layers,
            dropout_rate=0.0,
        )
        model = T5EncoderModel(config).to(self.options.device).train()
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)
        batches: Iterator[int] = itertools.cycle(range(self.options.steps))
        for _ in range(self.options.steps):
            self._peer_step(model, optimizer, next(batches))
        _wait(self.options)
        started = time.perf_counter()
        for _ in range(self.options.steps):
            self._peer_step(model, optimizer, next(batches))
        _wait(self.options)
        return (time.perf_counter() - started) / self.options.steps, math.nan

    def _peer_step(self, model: nn.Module, optimizer: torch.optim.Optimizer, step: int) -> None:
        batch = {name: tensor.to(self.options.device) for name, tensor in self._batches(0)[step].items()}
        dtype, kind = self.options.dtype, torch.device(self.options.device).type
        with torch.autocast(kind, dtype, enabled=dtype != torch.float32):
            states = model(input_ids=batch["ids"], attention_mask=batch["mask"]).last_hidden_state
            loss = _pairs_loss(states, batch["mask"])
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()


@dataclass(frozen=True)
class _Texts:
    tokens: Tokens
    batch: int
    steps: int

    def __len__(self) -> int:
        return self.steps

    def __getitem__(self, step: int) -> dict[str, Tensor]:
        rows = (np.arange(self.batch) + step * self.batch) % len(self.tokens)
        ids, mask = self.tokens.padded(rows)
        return {"ids": ids, "mask": mask}


def _pairs_loss(states: Tensor, mask: Tensor) -> Tensor:
    """The first half of the texts are queries, the other half their documents."""
    vectors = functional.normalize(pooled(states, mask, "mean"), dim=-1)
    queries, documents = vectors.chunk(2)
    return contrastive(queries @ documents.T / 0.05, torch.arange(len(queries), device=states.device))


def name_of(dtype: torch.dtype) -> Literal["float32", "bfloat16"]:
    """A type as the options of a training call it."""
    return "bfloat16" if dtype == torch.bfloat16 else "float32"


def _wait(options: TrainBenchOptions) -> None:
    if options.device.startswith("cuda"):
        torch.cuda.synchronize()
