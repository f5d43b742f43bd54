"""BERT as it reads, held to transformers' own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

import triever
from triever import Dense, Document, Tuning
from triever.models.backbones import load_backbone
from triever.models.bert_reader import BertSizes, empty_reader, reads

CONFIG = {
    "hidden_size": 24,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "intermediate_size": 40,
    "vocab_size": 50,
}


def theirs(**options: Any) -> tuple[Any, dict[str, Any]]:
    torch.manual_seed(0)
    config = transformers.BertConfig(**CONFIG, **options)
    model = transformers.BertModel(config, add_pooling_layer=False).eval()
    for parameter in model.parameters():  # away from zeros and ones, which would hide a wrong place
        torch.nn.init.normal_(parameter, std=0.3)
    return model, config.to_dict()


@pytest.mark.parametrize("options", [{}, {"layer_norm_eps": 1e-5, "type_vocab_size": 1, "pad_token_id": None}])
def test_states_are_those_of_transformers(options: dict[str, Any]) -> None:
    model, config = theirs(**options)
    assert reads(config)
    reader = empty_reader(config)
    reader.load_state_dict(model.state_dict())
    ids = torch.randint(0, 50, (5, 17))
    mask = (torch.arange(17) < torch.tensor([17, 3, 1, 9, 16])[:, None]).long()
    expected = model(input_ids=ids, attention_mask=mask).last_hidden_state
    found = reader(input_ids=ids, attention_mask=mask).last_hidden_state
    torch.testing.assert_close(found[mask.bool()], expected[mask.bool()], rtol=1e-4, atol=1e-5)


def test_gradients_are_those_of_transformers_too() -> None:
    model, config = theirs(hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
    reader = empty_reader(config)
    reader.load_state_dict(model.state_dict())
    ids, mask = torch.randint(1, 50, (3, 8)), torch.ones(3, 8, dtype=torch.long)
    for module in (model.train(), reader.train()):
        module(input_ids=ids, attention_mask=mask).last_hidden_state.square().sum().backward()
    for (name, one), other in zip(reader.named_parameters(), model.parameters(), strict=True):
        torch.testing.assert_close(one.grad, other.grad, rtol=1e-3, atol=1e-4, msg=name)


@pytest.mark.parametrize(
    "options", [{"hidden_act": "relu"}, {"is_decoder": True}, {"position_embedding_type": "relative_key"}]
)
def test_an_unusual_bert_is_left_to_transformers(options: dict[str, Any]) -> None:
    assert not reads({**theirs()[1], **options})
    assert not reads({"model_type": "roberta"})


@pytest.mark.parametrize("wrong", [{"hidden_size": "24"}, {"num_attention_heads": 5}, {"layer_norm_eps": -1}])
def test_an_impossible_config_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"config has|do not share"):
        BertSizes.of({**theirs()[1], **wrong})


@pytest.mark.long
def test_a_saved_model_is_opened_and_searched_without_transformers_and_accelerate(tmp_path: Path) -> None:
    small = "scratch:hidden=32,layers=1,heads=2,vocabulary=300"
    documents = [Document("tea", "boiling water and leaves"), Document("bike", "a wheel and a puncture")]
    dense = Dense(backbone=small, training=Tuning(steps=0)).fit(triever.Dataset.of("two", documents))
    dense.save(tmp_path / "model")
    code = (
        "import sys, triever; r = triever.load(sys.argv[1]); h = r.search('water leaves')[0]; "
        "print(h.id, repr(h.score), not {'transformers', 'accelerate'}.isdisjoint(sys.modules))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "model")], capture_output=True, text=True, check=True
    )
    name, score, imported = done.stdout.split()
    best = dense.search("water leaves")[0]
    assert (name, imported) == (best.id, "False")
    assert float(score) == pytest.approx(best.score, abs=1e-5)
    assert (
        load_backbone(small, texts=["a text"]).encoder_module(empty=True).get_input_embeddings().weight.shape[1] == 32
    )
