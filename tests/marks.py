"""Which cases of a test are quick: those run in `make test`, the others only in `make test-all`."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

import pytest


def quick(*chosen: Any, of: Iterable[Any]) -> list[Any]:
    """All cases in their order, as parameters of a test; those that are not chosen are marked long."""
    cases = list(of)
    unknown = [case for case in chosen if case not in cases]
    assert not unknown, f"{unknown} are no cases of this test"
    return [case if case in chosen else _long(case) for case in cases]


def _long(case: Any) -> Any:
    values: Collection[Any] = case if isinstance(case, tuple) else (case,)
    return pytest.param(*values, marks=pytest.mark.long)
