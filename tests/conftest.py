"""What all tests share."""

from __future__ import annotations

import gc
import os
import signal
from collections.abc import Generator
from pathlib import Path

import pytest
from hypothesis import settings

# A busy machine is not a failing test, and the same code passes or fails twice: a person who looks for what nobody
# thought of asks for examples that were not drawn before (HYPOTHESIS=explore make test). `make test-all` runs all tests
# of hypothesis once more, with half as many examples again.
settings.register_profile("triever", deadline=None, derandomize=True, max_examples=20)
settings.register_profile("thorough", deadline=None, derandomize=True, max_examples=30)
settings.register_profile("explore", deadline=None, max_examples=100)
settings.load_profile(os.environ.get("HYPOTHESIS", "triever"))


if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as a shell leaves it for what runs in its background
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """What the imports make stays: collecting garbage need not look through it, neither now nor later."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.fixture(autouse=True, scope="session")
def no_network() -> None:
    """Nothing may reach a model hub from a test."""
    os.environ["HF_HUB_OFFLINE"] = "1"


@pytest.fixture(autouse=True, scope="session")
def one_precision() -> None:
    """Compute in float32 on every processor: oracles are about what is computed, and not about its last bits.

    Processes that tests start do so too. What differs where a processor is faster in bfloat16 has tests of its own.
    """
    os.environ["TRIEVER_FLOAT32"] = "1"


@pytest.fixture(scope="session")
def root() -> Path:
    """The project's root."""
    return Path(__file__).parent.parent
