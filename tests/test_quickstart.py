"""The quickstart with a model that is trained on the spot."""

from __future__ import annotations

import pytest

from triever import quickstart


@pytest.mark.slow
def test_everything_can_be_trained_from_nothing() -> None:
    said: list[str] = []
    quickstart.quickstart(1, lambda what: said.append(str(what)), "scratch")
    assert "generative" in "\n".join(said)
    assert "docid" in "\n".join(said)
