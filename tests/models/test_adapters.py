"""Adapters inside encoders: they begin as nothing, are as large as was asked for, and LoRA is that of peft."""

from __future__ import annotations

import copy
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from transformers import AutoModel, AutoModelForCausalLM

from tests.marks import quick
from tests.models.causal import save_causal
from tests.models.test_backbones import KINDS, TEXTS, folders, save  # noqa: F401 - a fixture
from triever import Contextual, Dataset, Dense, Document, Generative, MultiVector
from triever.errors import MissingExtra, UsageError
from triever.models.adapters import AdapterOptions, adapter_weights, attach, backbone_tensors, check_values, is_new
from triever.models.backbones import load_backbone
from triever.models.bert_reader import empty_reader
from triever.models.encoder import Encoder, EncoderShape, turned
from triever.models.named_backbones import weights_hash
from triever.models.named_weights import named_tensors

BOTH = [AdapterOptions("lora", rank=4), AdapterOptions("bottleneck", budget=0.5)]
LAYERS = 2


@pytest.fixture(scope="session")
def places(folders: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:  # noqa: F811
    return {**folders, "qwen2": save_causal(tmp_path_factory.mktemp("qwen2"), "qwen2", TEXTS)}


def encoder(folder: Path, adapter: AdapterOptions | None = None) -> Encoder:
    return Encoder(load_backbone(str(folder)), adapter=adapter).eval()


def read(model: Encoder) -> tuple[torch.Tensor, torch.Tensor]:
    ids = torch.tensor([row[:5] for row in model.tokenizer.ids(TEXTS[:2])])
    return ids, torch.ones_like(ids)


@torch.no_grad()
def disturbed(model: Encoder) -> Encoder:
    """As if its adapter had learned something."""
    torch.manual_seed(1)
    for weight in adapter_weights(model.module):
        weight.add_(torch.randn_like(weight) * 0.3)
    return model


@pytest.mark.parametrize("options", BOTH, ids=lambda options: options.kind)
@pytest.mark.parametrize("kind", quick("bert", "gpt2", "t5", of=[*KINDS, "qwen2"]))
@torch.inference_mode()
def test_an_adapter_begins_as_nothing_and_then_counts(
    places: dict[str, Path], kind: str, options: AdapterOptions
) -> None:
    plain, adapted = encoder(places[kind]), encoder(places[kind], options)
    texts = read(plain)
    assert torch.equal(adapted.states(*texts), plain.states(*texts))
    before = {name: tensor.clone() for name, tensor in plain.module.state_dict().items()}
    found = backbone_tensors(adapted.module)
    assert before.keys() == found.keys()
    assert all(torch.equal(before[name], tensor) for name, tensor in found.items())
    assert not torch.allclose(disturbed(adapted).states(*texts), plain.states(*texts))


@pytest.mark.parametrize("kind", [*KINDS, "qwen2"])
def test_a_bottleneck_stands_behind_the_feed_forward_of_every_layer(places: dict[str, Path], kind: str) -> None:
    made = encoder(places[kind], BOTH[1])
    own = sum(weight.numel() for weight in made.backbone.encoder_module().parameters())
    new = adapter_weights(made.module)
    assert len(new) == 2 * LAYERS
    assert abs(sum(weight.numel() for weight in new) - own / 2) <= LAYERS * 2 * made.backbone.hidden
    last = {"bert": "output.dense", "roberta": "output.dense", "gpt2": "mlp.c_proj", "t5": "wo"}.get(kind, "down_proj")
    names = [name for name, _ in made.module.named_parameters() if is_new(name)]
    assert all(f"{last}.bottleneck_" in name and "attention" not in name for name in names)


@given(
    hidden=st.integers(1, 24).map(lambda half: 2 * half),
    layers=st.integers(1, 4),
    words=st.integers(10, 300),
    budget=st.floats(0.001, 2.0),
)
def test_the_number_of_new_weights_is_that_of_the_budget(hidden: int, layers: int, words: int, budget: float) -> None:
    sizes = {"hidden_size": hidden, "num_hidden_layers": layers, "num_attention_heads": 2, "vocab_size": words}
    shares = {"layer_norm_eps": 0.0, "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    rest = {"intermediate_size": 2 * hidden, "max_position_embeddings": 8, "type_vocab_size": 1}
    reader = empty_reader({**sizes, **shares, **rest, "model_type": "bert"})
    own = sum(weight.numel() for weight in reader.parameters())
    attach(reader, AdapterOptions("bottleneck", budget=budget), "bert")
    new = sum(weight.numel() for weight in adapter_weights(reader))
    assert abs(new - budget * own) <= layers * 2 * hidden  # one more unit of width in every layer


@pytest.mark.parametrize("kind", quick("gpt2", "llama", of=["bert", "gpt2", "llama", "qwen2"]))
@torch.inference_mode()
def test_lora_is_that_of_peft(places: dict[str, Path], kind: str) -> None:
    from peft import LoraConfig, get_peft_model

    ours = disturbed(encoder(places[kind], AdapterOptions("lora", rank=3, alpha=12)))
    auto: Any = AutoModel if kind == "bert" else AutoModelForCausalLM
    own = {"add_pooling_layer": False} if kind == "bert" else {}
    base = auto.from_pretrained(places[kind], dtype=torch.float32, **own)
    theirs = get_peft_model(base, LoraConfig(r=3, lora_alpha=12, target_modules="all-linear")).eval()
    inside = theirs.get_base_model() if kind == "bert" else theirs.get_base_model().base_model
    new = {name: weight for name, weight in ours.module.named_parameters() if is_new(name)}
    assert new.keys() == {name for name, _ in inside.named_parameters() if is_new(name)}
    inside.load_state_dict(new, strict=False)
    ids, mask = read(ours)
    states, answer = ours.states(ids, mask), theirs(input_ids=ids, attention_mask=mask)
    if kind == "bert":
        torch.testing.assert_close(states, answer.last_hidden_state)
    else:
        torch.testing.assert_close(states @ base.get_output_embeddings().weight.T, answer.logits)


def test_what_learns(places: dict[str, Path]) -> None:
    for options in BOTH:
        made = encoder(places["bert"], options)
        learning = {name for name, weight in made.named_parameters() if weight.requires_grad}
        new = {name for name, _ in made.named_parameters() if is_new(name)}
        assert learning == (new if options.kind == "lora" else {name for name, _ in made.named_parameters()})
        made.let_learn(backbone=False)
        assert {name for name, weight in made.named_parameters() if weight.requires_grad} == new
        made.requires_grad_(False)
        assert not any(weight.requires_grad for weight in made.parameters())
        made.let_learn(backbone=True)
        assert {name for name, weight in made.named_parameters() if weight.requires_grad} == learning
    other = encoder(places["bert"], replace(BOTH[0], freeze=False))
    assert all(weight.requires_grad for weight in other.parameters())


def test_a_frozen_backbone_is_in_no_checkpoint_if_it_can_be_found_again(places: dict[str, Path]) -> None:
    model = nn.Sequential(encoder(places["llama"], BOTH[0]), nn.Linear(2, 2))
    assert all(is_new(name) or name.startswith("1.") for name in named_tensors(model))
    scratch = load_backbone("scratch:hidden=8,layers=1,heads=2,vocabulary=300", texts=TEXTS)
    assert any(not is_new(name) for name in named_tensors(Encoder(scratch, adapter=BOTH[0])))
    assert any(not is_new(name) for name in named_tensors(encoder(places["llama"], BOTH[1])))


@torch.inference_mode()
def test_copies_and_turned_ones_keep_the_adapter(places: dict[str, Path]) -> None:
    made = disturbed(encoder(places["bert"], BOTH[0]))
    texts = read(made)
    for other in (copy.deepcopy(made), turned(made, torch.eye(made.size))):
        assert torch.allclose(other(*texts), made(*texts), atol=1e-6)
        assert (other.adapter, other.named) == (made.adapter, made.named)
        assert not any(tensor.requires_grad for tensor in other.frozen_tensors())


def test_a_hash_is_of_numbers_and_not_of_how_they_lie() -> None:
    rows = torch.arange(6.0).reshape(2, 3)
    assert weights_hash({"a": rows}) == weights_hash({"a": rows.t().contiguous().t()})
    others = [{"b": rows}, {"a": rows.reshape(3, 2)}, {"a": rows.double()}, {"a": rows + 1}, {"a": rows, "b": rows}]
    assert len({weights_hash(tensors) for tensors in ({"a": rows}, *others)}) == 6


@pytest.mark.parametrize("options", BOTH, ids=lambda options: options.kind)
def test_layers_that_are_not_known_are_refused(options: AdapterOptions) -> None:
    bag_of_words = load_backbone("scratch:hidden=8,layers=0,heads=2,vocabulary=300", texts=TEXTS)
    with pytest.raises(UsageError, match="no place for"):
        Encoder(bag_of_words, adapter=options)


def test_bottlenecks_are_refused_behind_another_feed_forward(places: dict[str, Path]) -> None:
    class Other(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.ModuleList([nn.ModuleDict({"experts": nn.Linear(2, 2)})])

    with pytest.raises(UsageError, match=r"^mixture has no layers whose feed-forward is known"):
        attach(Other(), BOTH[1], "mixture")


def test_a_second_adapter_is_refused(places: dict[str, Path]) -> None:
    with pytest.raises(UsageError, match="has an adapter already"):
        encoder(places["bert"], BOTH[0]).adapt(BOTH[1])


def test_without_peft_it_is_said_what_to_install(places: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _name: None)
    with pytest.raises(MissingExtra, match=r"pip install 'triever\[lora\]'"):
        encoder(places["bert"], BOTH[0])
    encoder(places["bert"], BOTH[1])


@pytest.mark.parametrize(
    "wrong", [{"rank": 0}, {"alpha": 0}, {"dropout": 1.0}, {"budget": 0.0}, {"budget": 1e9}, {"kind": "prefix"}]
)
def test_values_out_of_range_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        AdapterOptions(**wrong)


@pytest.mark.parametrize(
    ("options", "unheeded"),
    [
        ({"budget": 0.3}, r"budget = 0\.3 has no effect with adapter\.kind = none; .* set adapter\.kind=bottleneck"),
        ({"kind": "lora", "budget": 0.3}, r"budget = 0\.3 has no effect with adapter\.kind = lora"),
        ({"kind": "bottleneck", "rank": 4}, r"rank = 4 has no effect with .* bottleneck; .* set adapter\.kind=lora"),
        ({"kind": "bottleneck", "alpha": 4}, "alpha = 4 has no effect"),
        ({"dropout": 0.1}, r"dropout = 0\.1 has no effect"),
    ],
)
@pytest.mark.parametrize("system", [Dense, MultiVector, Generative, Contextual])
def test_a_fit_refuses_values_of_another_kind(options: dict[str, Any], unheeded: str, system: Any) -> None:
    adapter, backbone = AdapterOptions(**options), "scratch:hidden=32,layers=1,heads=2"
    retriever = system(backbone=backbone, adapter=adapter, training={"steps": 0})
    with pytest.raises(UsageError, match=unheeded):
        retriever.fit(Dataset.of("one", [Document("tea", "Brew it.", "Tea")]))


def test_values_of_a_kind_are_taken() -> None:
    for options in (AdapterOptions(), AdapterOptions("lora", 4, 8, 0.1), AdapterOptions("bottleneck", budget=0.3)):
        check_values(options)


def test_a_shape_behind_an_adapter_learns_too(places: dict[str, Path]) -> None:
    shape = EncoderShape(size=4, projection="linear")
    made = Encoder(load_backbone(str(places["bert"])), shape, adapter=AdapterOptions(freeze=True))
    learning = [name for name, weight in made.named_parameters() if weight.requires_grad]
    assert learning == ["projection.weight"]
