"""Checks of the options of benchmarks: sizes that make sense, and enough memory for them."""

from __future__ import annotations

from triever.errors import UsageError
from triever.training.memory_estimate import GIB, available

LARGEST = 10**9
"""The largest size that is allowed; a smaller one may still need more memory than there is."""


def check_sizes(options: object, *names: str) -> None:
    """Refuse a size below 1 or above LARGEST, alone or in a list, and an empty list."""
    for name in names:
        value = getattr(options, name)
        check_filled(options, name)
        if not all(1 <= size <= LARGEST for size in (value if isinstance(value, tuple) else (value,))):
            raise UsageError(f"{name} = {_joined(value)} should be from 1 to {LARGEST:,}", "correct the value")


def check_filled(options: object, *names: str) -> None:
    """Refuse an empty list, with which there would be nothing to measure."""
    for name in names:
        if getattr(options, name) == ():
            raise UsageError(f"{name} is empty", "name at least one value, or leave it out for the default")


def check_memory(needed: float, device: str, smaller: str) -> None:
    """Refuse work that needs more memory than there is; `smaller` says which options make it less."""
    there = available(device)
    if needed > there:
        problem = (
            f"the work needs about {needed / GIB:,.1f} GiB of memory on {device}, but {there / GIB:,.1f} GiB are free"
        )
        raise UsageError(problem, f"set a smaller {smaller}")


def _joined(value: object) -> str:
    return ",".join(map(str, value)) if isinstance(value, tuple) else str(value)
