"""The quickstart with a model that is trained on the spot."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.retrievers.contract import QUERIES, dataset
from triever import Retriever, quickstart
from triever.data.cache import clear, entries, size
from triever.errors import TrieverError
from triever.models import weights
from triever.terminal import emit


@pytest.mark.long
def test_everything_can_be_trained_from_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    quickstart.quickstart(1, emit, "scratch")
    whole = capsys.readouterr().out
    assert "docid" in whole
    found = {name: float(value) for name, value in re.findall(r"^ (bm25|generative) +\S+ +([\d.]+)", whole, re.M)}
    assert 0.15 < found["generative"] < 1  # Success@10; chance would be 0.002
    assert 0.3 < found["bm25"] < 1


def test_without_weights_there_is_a_model_from_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def cannot(_name: str) -> None:
        raise TrieverError("minilm cannot be had", "connect to the network")

    monkeypatch.setattr(weights, "install", cannot)
    said: list[str] = []
    assert quickstart._start("auto", said.append) == "scratch"
    assert said == ["minilm cannot be had; so a small model is trained from random weights here.\n"]
    with pytest.raises(TrieverError, match="cannot be had"):
        quickstart._start("minilm", said.append)


def test_entries_are_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRIEVER_CACHE", str(tmp_path))
    said: list[str] = []

    def system() -> Retriever:
        return quickstart._as_it_comes(dataset(), said.append, "scratch:hidden=32,layers=1,heads=2,vocabulary=500")

    first, again = system(), system()
    assert [line.split()[0] for line in said] == ["Reading", "All"]
    assert again.search_many(QUERIES, 5) == first.search_many(QUERIES, 5)
    (kept,) = entries()
    assert size(kept) > 1000
    (kept / "manifest.json").write_text("damaged")
    assert system().search_many(QUERIES, 5) == first.search_many(QUERIES, 5)
    assert said[-1].startswith("Reading")
    assert clear() == 1
    assert not entries()
