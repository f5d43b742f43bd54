"""Compiled layers against the same layers: the same weights come out, and nothing stays behind."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import torch
from torch import nn

from tests.retrievers.contract import dataset
from triever import Contextual, Dense, DocidTuning, Generative
from triever.docids.schemes import Semantic
from triever.retriever import Retriever
from triever.training.compiled import CompiledBlocks, repeated
from triever.training.tuning import Tuning

SMALL = "scratch:hidden=32,layers=4,heads=2,vocabulary=500"
LITTLE = {"steps": 3, "batch": 4, "holdout": 0.0, "learning_rate": 1e-3}


@pytest.fixture
def programs(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What torch compiled, without a compiler of C++: the graphs that it would be given run as they are."""
    made: list[Any] = []
    compiling = torch.compile

    def eager(graph: torch.fx.GraphModule, _inputs: object) -> Any:
        made.append(graph)
        return graph.forward

    monkeypatch.setattr(torch, "compile", partial(compiling, backend=eager))
    torch._dynamo.reset()
    return made


def fitted(kind: str, *, program: bool) -> Retriever:
    tuning = DocidTuning(**LITTLE, compile=program, rounds=1)
    if kind == "dense":
        retriever: Retriever = Dense(backbone=SMALL, training=Tuning(**LITTLE, compile=program))
    elif kind == "generative":
        retriever = Generative(docids=Semantic(branch=2, leaf=3), backbone=SMALL, training=tuning)
    else:
        retriever = Contextual(backbone=SMALL, training=tuning)
    return retriever.fit(dataset())


def models(retriever: Retriever) -> list[nn.Module]:
    engine = retriever.engine
    held = {**vars(engine), **vars(getattr(engine, "docids", engine))}
    return [value for value in held.values() if isinstance(value, nn.Module)]


@pytest.mark.long
@pytest.mark.parametrize("kind", ["dense", "generative", "contextual"])
def test_compiled_layers_learn_what_others_do(kind: str, programs: list[Any]) -> None:
    plain = fitted(kind, program=False)
    assert not programs
    compiled = fitted(kind, program=True)
    assert programs
    assert len(programs) <= 3, "for a kind of layer, not for each layer or each length of texts"
    pairs = list(zip(models(plain), models(compiled), strict=True))
    assert pairs
    for one, other in pairs:
        theirs = other.state_dict()
        for name, weight in one.state_dict().items():
            torch.testing.assert_close(weight, theirs[name], rtol=1e-3, atol=1e-4)
        assert not any("forward" in vars(block) for block in repeated(other))
    queries = dataset().queries("test")
    assert [hit.id for hit in plain.search(queries[0], 3)] == [hit.id for hit in compiled.search(queries[0], 3)]


def test_blocks_are_the_outermost_lists() -> None:
    inner = nn.ModuleList([nn.ModuleList([nn.Linear(1, 1)]), nn.Linear(2, 2)])
    model = nn.Sequential(nn.Linear(3, 3), nn.ModuleDict({"layers": inner}))
    assert list(repeated(model)) == list(inner)


def test_an_error_inside_leaves_the_layers_as_they_were(programs: list[Any]) -> None:
    model = nn.Module()
    model.layers = nn.ModuleList([nn.Linear(2, 2)])
    with pytest.raises(ZeroDivisionError), CompiledBlocks(model):
        assert "forward" in vars(model.layers[0])
        raise ZeroDivisionError
    assert "forward" not in vars(model.layers[0])
    assert not programs, "nothing was computed"
