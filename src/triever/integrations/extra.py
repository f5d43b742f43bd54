"""What is said where the package of a framework is not installed."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

from triever.errors import MissingExtra


@contextmanager
def needed(framework: str, extra: str) -> Generator[None]:
    """Inside of the block modules of a framework are imported; where one is missing, this says how to install it."""
    try:
        yield
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("triever"):
            raise
        raise MissingExtra(f"the adapter for {framework}", f"pip install 'triever[{extra}]'") from error
