"""Models of retrieval as attention come back from an artifact as they were, or not at all."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.models.tiny_reatt import FORMS, answers, documents, questions, tiny
from triever import artifact
from triever.errors import TrieverError
from triever.models import reatt_files
from triever.models.reatt import ReAttModel


def put(model: ReAttModel, folder: Path, change: Callable[[dict[str, Any]], None] | None = None) -> Path:
    with artifact.writing(folder) as writer:
        reatt_files.write(model, writer)
        writer.commit("toy", {}, {}, "")
    if change:
        with artifact.read(folder) as snapshot:
            state, weights = snapshot.json("reatt"), snapshot.tensors("reatt_weights")
            tokenizer = snapshot.json("reatt_tokenizer")
        change({"state": state, "weights": weights, "tokenizer": tokenizer})
        with artifact.writing(folder) as writer:
            writer.json("reatt", state)
            writer.json("reatt_tokenizer", tokenizer)
            writer.tensors("reatt_weights", weights)
            writer.commit("toy", {}, {}, "")
    return folder


@torch.no_grad()
def scores(model: ReAttModel) -> list[torch.Tensor]:
    (ids, mask), (document_ids, document_mask) = questions(), documents()
    asked, held = model.query_states(ids, mask), model.document_states(document_ids, document_mask)[:3]
    relevance = model.relevance(asked, mask, held, document_mask[:3])
    given = ids, document_ids[:3, None]
    read = model.read(model.encode_pairs(asked, mask, held[:, None], document_mask[:3, None], given))
    return [model.weighed(relevance), model.answer_logprobs(read, answers())]


@pytest.mark.parametrize("form", ["t5", "bert"])
def test_a_model_that_was_saved_without_a_number_has_half_of_its_layers_apart(form: str, tmp_path: Path) -> None:
    half = 2 if form == "t5" else 1  # of four and of three
    model = tiny(form, apart=half).model.float()

    def forgets(parts: dict[str, Any]) -> None:
        parts["state"]["shape"]["apart"] = None

    with artifact.read(put(model, tmp_path / "model", forgets)) as snapshot:
        again = reatt_files.read(snapshot)
    assert (again.shape.apart, again.encoder.apart) == (None, half)
    for ours, expected in zip(scores(again), scores(model), strict=True):
        assert torch.equal(ours, expected)


@pytest.mark.parametrize("form", FORMS)
def test_a_model_comes_back(form: str, tmp_path: Path) -> None:
    model = tiny(form).model.float()
    model.head_logits.data.copy_(torch.tensor([0.0, 0.001, 0.0]))
    chance = torch.random.get_rng_state()
    with artifact.read(put(model, tmp_path / "model")) as snapshot:
        assert "decoder.symbols.weight" not in snapshot.tensors("reatt_weights")
        again = reatt_files.read(snapshot)
    assert torch.equal(torch.random.get_rng_state(), chance)
    assert again.shape == model.shape
    assert again.retrieval_head == 1
    assert not again.training
    assert again.decoder.symbols.weight is again.encoder.words.weight
    for ours, expected in zip(scores(again), scores(model), strict=True):
        assert torch.equal(ours, expected)


WRONG: dict[str, Callable[[dict[str, Any]], Any]] = {
    "other weights": lambda parts: parts["weights"].update(strange=torch.zeros(2)),
    "no words": lambda parts: [parts["weights"].pop(name) for name in list(parts["weights"]) if "embed" in name],
    "another width": lambda parts: parts["state"]["decoder"].update(d_model=12),
    "no heads": lambda parts: parts["state"]["decoder"].update(heads=0),
    "a start that is no word": lambda parts: parts["state"]["decoder"].update(start=300),
    "another split": lambda parts: parts["state"]["shape"].update(apart=7),
    "no end": lambda parts: parts["tokenizer"].update(after=[]),
    "a size beyond reason": lambda parts: parts["state"]["decoder"].update(decoder_layers=10**9),
    "another backbone": lambda parts: parts["state"]["backbone"]["config"].update(model_type="gpt2"),
    "no shape": lambda parts: parts["state"].pop("shape"),
}


@pytest.mark.parametrize("form", ["t5", "bert"])
@pytest.mark.parametrize("wrong", WRONG)
def test_what_does_not_fit_is_refused(form: str, wrong: str, tmp_path: Path) -> None:
    folder = put(tiny(form).model.float(), tmp_path / "model", WRONG[wrong])
    with artifact.read(folder) as snapshot, pytest.raises(TrieverError):
        reatt_files.read(snapshot)
