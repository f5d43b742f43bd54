"""A decoder that begins as a copy of its reader, against transformers' own BERT as a decoder."""

from __future__ import annotations

import pytest
import torch
from transformers import BertConfig, BertModel

from triever.errors import UsageError
from triever.models.backbones import load_backbone
from triever.models.cross_decoder import CrossDecoder
from triever.models.decoders import DecoderOptions, check_backbone, cross_decoder
from triever.models.encoder import Encoder, EncoderShape

TEXTS = ["the sea rises twice a day", "tea with milk", "a bicycle has two wheels"] * 3


@pytest.fixture(scope="module")
def reader() -> Encoder:
    torch.manual_seed(1)
    backbone = load_backbone("scratch:hidden=32,layers=2,heads=4,vocabulary=400,positions=24", texts=TEXTS)
    made = Encoder(backbone, EncoderShape(unit=False)).eval()
    with torch.no_grad():  # as after a training: nothing is nought or one
        for weight in made.parameters():
            weight.add_(0.2 * torch.randn_like(weight))
    return made


def theirs(model: CrossDecoder, reader: Encoder) -> BertModel:
    """The same decoder in transformers, with our attention to the text."""
    config = BertConfig(**reader.module.config.to_dict() | {"is_decoder": True, "add_cross_attention": True})
    made = BertModel(config, add_pooling_layer=False).eval()
    weights = reader.module.state_dict()
    ours = {"query": "q", "key": "k", "value": "v"}
    own = model.state_dict()
    for layer in range(2):
        place = f"encoder.layer.{layer}.crossattention"
        for part in ("weight", "bias"):
            for name, short in ours.items():
                weights[f"{place}.self.{name}.{part}"] = own[f"layers.{layer}.cross.{short}.{part}"]
            weights[f"{place}.output.dense.{part}"] = own[f"layers.{layer}.cross.o.{part}"]
            weights[f"{place}.output.LayerNorm.{part}"] = own[f"layers.{layer}.cross_norm.{part}"]
    made.load_state_dict({name: weight for name, weight in weights.items() if "pooler" not in name})
    return made


def test_states_are_those_of_transformers(reader: Encoder) -> None:
    model = cross_decoder(reader, 9, DecoderOptions(copy=True), None, seed=0).eval()
    tokens = torch.tensor([[9, 3, 5, 0, 2], [9, 1, 1, 8, 7]])
    ids, mask = torch.randint(4, 300, (2, 6)), torch.tensor([[1] * 6, [1, 1, 1, 1, 0, 0]])
    with torch.no_grad():
        read = model.read(ids, mask)
        hidden, _ = model.decode(tokens, None, read)
        expected = theirs(model, reader)(
            inputs_embeds=model.symbols(tokens),
            encoder_hidden_states=model.encode(ids, mask),
            encoder_attention_mask=mask,
            use_cache=False,
        ).last_hidden_state
        first, past = model.decode(tokens[:, :2], None, read)
        second, _ = model.decode(tokens[:, 2:], past, read)
    torch.testing.assert_close(hidden, expected, atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(torch.cat([first, second], 1), hidden, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("texts", [[0, 0, 0, 2], [1], [0, 1, 1, 2, 2, 2], [2, 0, 0, 2]])
@pytest.mark.parametrize("copy", [True, False])
def test_texts_may_have_unequally_many_prefixes(reader: Encoder, texts: list[int], copy: bool) -> None:
    model = cross_decoder(reader, 9, DecoderOptions(copy=copy), None, seed=0).eval()
    generator = model.generator(8)
    cache, _ = generator.prefill(TEXTS[:3])
    symbols = torch.arange(2 * len(texts)).reshape(-1, 2) % 9
    after, together = generator.extend(cache, torch.tensor(texts), symbols)
    _, longer = generator.extend(after, torch.arange(len(texts)), symbols[:, :1])
    for row, text in enumerate(texts):
        own, alone = generator.extend(generator.prefill([TEXTS[text]])[0], torch.tensor([0]), symbols[row, None])
        torch.testing.assert_close(together[row], alone[0], atol=1e-5, rtol=1e-4)
        _, alone = generator.extend(own, torch.tensor([0]), symbols[row, None, :1])
        torch.testing.assert_close(longer[row], alone[0], atol=1e-5, rtol=1e-4)


def test_it_begins_as_the_reader_that_sees_nothing_ahead(reader: Encoder) -> None:
    """With attention to the text at nought, the first state is that of the reader for the same first symbol alone."""
    model = cross_decoder(reader, 9, DecoderOptions(copy=True), None, seed=0).eval()
    module = reader.module
    with torch.no_grad():
        for layer in model.cross_layers():
            layer.cross.o.weight.zero_()  # ty: ignore
            layer.cross.o.bias.zero_()  # ty: ignore
            layer.cross_norm = torch.nn.Identity()
        symbol = torch.tensor([[5]])
        model.symbols.weight[3] = module.embeddings.word_embeddings.weight[5]  # ty: ignore
        read = model.read(symbol, torch.ones_like(symbol))
        hidden, _ = model.decode(torch.tensor([[3]]), None, read)
        torch.testing.assert_close(hidden, module(input_ids=symbol).last_hidden_state, atol=1e-5, rtol=1e-4)


def test_only_a_bert_can_be_copied(reader: Encoder) -> None:
    other = load_backbone("scratch:hidden=32,layers=1,heads=2,vocabulary=400", texts=TEXTS)
    check_backbone(other, DecoderOptions(copy=True))
    from dataclasses import replace

    mpnet = replace(other, config={**other.config, "model_type": "mpnet"})
    with pytest.raises(UsageError, match="needs a backbone like BERT"):
        check_backbone(mpnet, DecoderOptions(copy=True))
    with pytest.raises(UsageError, match="begins with symbols"):
        DecoderOptions(copy=True, begin="mean")
