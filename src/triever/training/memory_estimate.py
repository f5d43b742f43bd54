"""How much memory a training needs, roughly, and whether it is there. Better known before the first step than at it."""

from __future__ import annotations

from pathlib import Path

import torch

from triever.errors import UsageError

FLOAT = 4  # bytes of a weight, a gradient and each part of an optimizer's state
OPTIMIZER = {"adamw": 2.0, "adafactor": 0.05}  # numbers of state for each weight; Adafactor's are rows and columns
SCORES = 5  # times that a score of two tokens is there at the peak: itself, masked, and on the way back
SLACK = 1.1
GIB = 2**30
SMALLER = "halve the batch and double accumulate (a query has half as many in-batch negatives then, where it has any)"
"""What to do where memory is not enough."""


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

    They are four sums: the weights, the gradients, the optimizer's state, and what the forward pass keeps
    for the backward one, with a tenth for what is made on the way. The last sum is counted for `batch` rows
    of `length` tokens through `layers` layers (those of encoder and decoder together), in the manner of
    Korthikanti et al., "Reducing Activation Recomputation": for each token and layer twelve times `d_model`
    (norms, residuals, dropouts, the query, key, value and output of attention) and four times `d_ff`
    (4 · d_model unless told). `heads` counts the attention matrices, and is 0 where attention is fused and
    never makes them; `vocabulary` counts logits for every token, and is 0 where only some are scored. `scores`
    are those of tokens with tokens, where a loss compares the ones of every query with the ones of every document.
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
    """The bytes that can still be had: on a GPU, or of the main memory that the system and its limits leave."""
    place = torch.device(device)
    if place.type == "cuda":
        free, _ = torch.cuda.mem_get_info(place)
        return free + torch.cuda.memory_reserved(place) - torch.cuda.memory_allocated(place)
    return min(_system(), *_limits(Path("/sys/fs/cgroup")))


def check(needed: int, device: str | torch.device = "cpu", what: str = "training") -> None:
    """Refuse work that needs more memory than there is."""
    there = available(device)
    if needed > there:
        problem = (
            f"{what} needs about {_gib(needed)} of memory on {torch.device(device).type}, and {_gib(there)} are free"
        )
        raise UsageError(problem, f"{SMALLER}, or set optimizer = adafactor")


def _gib(size: int) -> str:
    return f"{size / GIB:.1f} GiB"


def _system() -> int:
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
    except OSError:  # no Linux: then nothing is known, and nothing is refused
        return 2**63 - 1
    fields = dict(line.split(":", 1) for line in lines)
    return int(fields["MemAvailable"].split()[0]) * 1024


def _limits(root: Path) -> list[int]:
    """What the limits of a container leave, by version 2 and 1 of the kernel's control groups; none without them."""
    pairs = [("memory.max", "memory.current"), ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes")]
    found = [(_number(root / limit), _number(root / used)) for limit, used in pairs]
    # Files that the kernel holds in memory count as used, but it gives them up when asked.
    files = _cached(root / "memory.stat") or _cached(root / "memory" / "memory.stat")
    return [max(0, limit - used + files) for limit, used in found if limit is not None and used is not None] or [
        2**63 - 1
    ]


def _number(path: Path) -> int | None:
    try:
        return int(path.read_text(encoding="ascii"))
    except (OSError, ValueError):  # not there, or "max", which is no limit
        return None


def _cached(path: Path) -> int:
    try:
        fields = dict(line.split() for line in path.read_text(encoding="ascii").splitlines())
    except OSError:
        return 0
    return int(fields.get("inactive_file", 0))
