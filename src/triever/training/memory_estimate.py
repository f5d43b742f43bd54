"""Estimates the memory that a training needs, and refuses it before the first step if there is too little."""

from __future__ import annotations

from pathlib import Path

import torch

from triever.errors import UsageError

FLOAT = 4  # bytes of a weight, a gradient and each part of an optimizer's state
OPTIMIZER = {"adamw": 2.0, "adafactor": 0.05}  # numbers of state for each weight; Adafactor's are rows and columns
SCORES = 5  # copies of each token-with-token score at the peak: itself, masked, and in the backward pass
SLACK = 1.1
GIB = 2**30
SMALLER = (
    "halve the batch and double accumulate (which also halves the in-batch negatives of a query, if it has any), "
    "or set optimizer = adafactor"
)
"""The hint for too little memory."""


def estimate(
    parameters: int,
    *,
    batch: int,
    length: int,
    d_model: int,
    layers: int,
    d_ff: int = 0,
    heads: int = 0,
    vocabulary: int = 0,
    scores: int = 0,
    trainable: int | None = None,
    optimizer: str = "adamw",
    precision: str = "float32",
) -> int:
    """The bytes that training a transformer takes at its peak, within a factor of two.

    It adds four sums: the weights, the gradients, the optimizer's state, and the activations that the forward pass
    keeps for the backward pass; a tenth is added for temporary values. Activations are counted for `batch` rows of
    `length` tokens through `layers` layers (those of encoder and decoder together), as in Korthikanti et al.,
    "Reducing Activation Recomputation": for each token and layer twelve times `d_model` (norms, residuals, dropouts,
    the query, key, value and output of attention) and four times `d_ff` (by default 4 · d_model). `heads` counts the
    attention matrices; it is 0 if attention is fused and never makes them. `vocabulary` counts logits for every token;
    it is 0 if only some are scored. `scores` is the number of token-with-token scores, if a loss compares the tokens
    of every query with those of every document.
    """
    weights = FLOAT * parameters
    learned = FLOAT * (parameters if trainable is None else trainable)
    tokens = batch * length
    number = 4 if precision == "float32" else 2.5  # norms, softmax and sums stay float32 under autocast
    kept = layers * tokens * (12 * d_model + 4 * (d_ff or 4 * d_model)) * number
    kept += layers * batch * heads * length**2 * 4 * number
    kept += tokens * vocabulary * 3 * FLOAT  # logits, their softmax and its gradient
    kept += scores * SCORES * number
    copies = 0 if precision == "float32" else weights / 2  # autocast casts each weight once in a pass
    return int(SLACK * (weights + learned * (1 + OPTIMIZER[optimizer]) + copies + kept))


def available(device: str | torch.device = "cpu") -> int:
    """The free bytes of a GPU, or those of main memory that the system and the limits of its container leave."""
    target = torch.device(device)
    if target.type == "cuda":
        free, _ = torch.cuda.mem_get_info(target)
        return free + torch.cuda.memory_reserved(target) - torch.cuda.memory_allocated(target)
    return min(_system(), *_limits(Path("/sys/fs/cgroup")))


def check(needed: int, device: str | torch.device = "cpu", work: str = "training", hint: str = SMALLER) -> None:
    """Refuse work that needs more memory than there is."""
    free = available(device)
    if needed > free:
        problem = (
            f"{work} needs about {_gib(needed)} of memory on {torch.device(device).type}, but {_gib(free)} are free"
        )
        raise UsageError(problem, hint)


def _gib(size: int) -> str:
    return f"{size / GIB:.1f} GiB"


def _system() -> int:
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
    except OSError:  # not Linux: the memory is unknown, so nothing is refused
        return 2**63 - 1
    fields = dict(line.split(":", 1) for line in lines)
    return int(fields["MemAvailable"].split()[0]) * 1024


def _limits(root: Path) -> list[int]:
    """The bytes that the limits of a container leave, by control groups of version 2 and 1; 2**63 - 1 without any."""
    pairs = [("memory.max", "memory.current"), ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes")]
    limits = [(_number(root / limit), _number(root / used)) for limit, used in pairs]
    # Files that the kernel caches count as used, but it frees them when memory is needed.
    files = _cached(root / "memory.stat") or _cached(root / "memory" / "memory.stat")
    return [max(0, limit - used + files) for limit, used in limits if limit is not None and used is not None] or [
        2**63 - 1
    ]


def _number(path: Path) -> int | None:
    try:
        return int(path.read_text(encoding="ascii"))
    except (OSError, ValueError):  # there is no file, or it says "max", which means no limit
        return None


def _cached(path: Path) -> int:
    try:
        fields = dict(line.split() for line in path.read_text(encoding="ascii").splitlines())
    except OSError:
        return 0
    return int(fields.get("inactive_file", 0))
