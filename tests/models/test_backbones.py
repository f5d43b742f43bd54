"""Backbones by name, on tiny random models of every kind; nothing is fetched."""

from __future__ import annotations

import json
import logging
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from huggingface_hub.errors import LocalEntryNotFoundError
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers import (
    AutoModel,
    BertConfig,
    BertForMaskedLM,
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedTokenizerFast,
    RobertaConfig,
    RobertaModel,
    T5Config,
    T5ForConditionalGeneration,
    T5Model,
)

from triever.errors import ArtifactError, DataError, UsageError
from triever.models import backbones, weights
from triever.models.backbones import Backbone, load_backbone
from triever.models.tokens import TextTokenizer

TEXTS = ["the quick brown fox jumps over the lazy dog", "who reads this, and why?", "東京 is a city", "numbers 1 2 3"]


def has_minilm() -> bool:
    try:
        weights.find("minilm")
    except (UsageError, DataError):
        return False
    return True


needs_minilm = pytest.mark.skipif(not has_minilm(), reason="run: triever weights install minilm")


def wordpiece() -> Tokenizer:
    """As BERT has it."""
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.train_from_iterator(TEXTS, trainers.WordPieceTrainer(special_tokens=special, show_progress=False))
    tokenizer.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    tokenizer.enable_padding(length=128)  # as some published files have it
    tokenizer.enable_truncation(128)
    return tokenizer


def byte_pairs() -> Tokenizer:
    """As GPT-2 and Llama have it: nothing is added to a text."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    special = ["<|end|>", "<|pad|>"]
    trainer = trainers.BpeTrainer(special_tokens=special, initial_alphabet=alphabet, show_progress=False)
    tokenizer.train_from_iterator(TEXTS, trainer)
    return tokenizer


def unigram() -> Tokenizer:
    """As T5 has it."""
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    special = ["<pad>", "</s>", "<unk>"]
    trainer = trainers.UnigramTrainer(special_tokens=special, unk_token="<unk>", show_progress=False)
    tokenizer.train_from_iterator(TEXTS, trainer)
    tokenizer.post_processor = processors.TemplateProcessing(single="$A </s>", special_tokens=[("</s>", 1)])
    return tokenizer


def sized(size: int) -> dict[str, Any]:
    shape = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48}
    return {"vocab_size": size, "max_position_embeddings": 64, **shape}


def bert(size: int) -> Any:
    return BertForMaskedLM(BertConfig(**sized(size)))


def roberta(size: int) -> Any:
    return RobertaModel(RobertaConfig(**sized(size), pad_token_id=1))


def llama(size: int) -> Any:
    config = LlamaConfig(**sized(size), num_key_value_heads=2, eos_token_id=0, bos_token_id=0, pad_token_id=None)
    return LlamaForCausalLM(config)


def gpt2(size: int) -> Any:
    return GPT2LMHeadModel(GPT2Config(vocab_size=size, n_embd=32, n_layer=2, n_head=4, n_positions=64))


def t5(size: int) -> Any:
    sizes = {"d_model": 32, "d_kv": 8, "num_heads": 4, "d_ff": 48, "num_layers": 2}
    config = T5Config(vocab_size=size, **sizes, feed_forward_proj="gated-gelu", tie_word_embeddings=False)
    return T5ForConditionalGeneration(config)


KINDS = {
    "bert": (wordpiece, bert, {"pad_token": "[PAD]", "cls_token": "[CLS]", "sep_token": "[SEP]"}),
    "roberta": (byte_pairs, roberta, {"pad_token": "<|pad|>"}),
    "llama": (byte_pairs, llama, {"eos_token": "<|end|>", "pad_token": "<|pad|>"}),
    "gpt2": (byte_pairs, gpt2, {"eos_token": "<|end|>"}),
    "t5": (unigram, t5, {"pad_token": "<pad>", "eos_token": "</s>", "unk_token": "<unk>"}),
}


def save(kind: str, folder: Path) -> Path:
    """A tiny model of random weights, saved in half precision as most published ones are."""
    torch.manual_seed(0)
    make_tokenizer, make_model, special = KINDS[kind]
    tokenizer = make_tokenizer()
    model = make_model(tokenizer.get_vocab_size())
    with torch.no_grad():  # initial weights hide mistakes: norms of one, biases of nothing
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.2)
    model.to(torch.bfloat16).save_pretrained(folder)
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, **special).save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    place = tmp_path_factory.mktemp("backbones")
    return {kind: save(kind, place / kind) for kind in KINDS}


@pytest.fixture(params=list(KINDS))
def kind(request: pytest.FixtureRequest) -> str:
    return request.param


def inputs(backbone: Backbone) -> dict[str, torch.Tensor]:
    ids = torch.tensor([row[:5] for row in backbone.tokenizer.ids(TEXTS[:2])])
    return {"input_ids": ids, "attention_mask": torch.ones_like(ids)}


def test_a_folder_gives_the_states_of_transformers(folders: dict[str, Path], kind: str) -> None:
    backbone = load_backbone(str(folders[kind]))
    module = backbone.encoder_module()
    model: Any = T5Model if kind == "t5" else AutoModel
    theirs = model.from_pretrained(folders[kind], dtype=torch.float32)
    theirs = theirs.get_encoder() if kind == "t5" else theirs
    with torch.inference_mode():
        found = module(**inputs(backbone)).last_hidden_state
        torch.testing.assert_close(found, theirs(**inputs(backbone)).last_hidden_state, atol=1e-5, rtol=1e-5)
    assert found.shape[2] == backbone.hidden == 32
    assert {parameter.dtype for parameter in module.parameters()} == {torch.float32}
    assert not module.training
    assert module.config._attn_implementation == "sdpa"


def test_every_parameter_is_used(folders: dict[str, Path], kind: str) -> None:
    backbone = load_backbone(str(folders[kind]))
    module = backbone.encoder_module()
    module(**inputs(backbone)).last_hidden_state.square().sum().backward()
    assert [name for name, parameter in module.named_parameters() if parameter.grad is None] == []


def test_state_and_weights_make_the_same_module(folders: dict[str, Path], kind: str) -> None:
    backbone = load_backbone(str(folders[kind]))
    state = json.loads(json.dumps(backbone.to_state()))
    again = Backbone.from_state(state, TextTokenizer.from_str(backbone.tokenizer.to_str()))
    first, second = backbone.encoder_module(), again.encoder_module(empty=True)
    second.load_state_dict(first.state_dict())
    with torch.inference_mode():
        found = second(**inputs(again)).last_hidden_state
        assert torch.equal(found, first(**inputs(backbone)).last_hidden_state)
    assert again.to_state() == state
    assert (again.longest, again.causal, again.hidden) == (backbone.longest, backbone.causal, backbone.hidden)


def test_what_stands_around_a_text(folders: dict[str, Path]) -> None:
    found = {kind: load_backbone(str(folder)) for kind, folder in folders.items()}
    around = {kind: (one.tokenizer.before, one.tokenizer.after, one.tokenizer.pad) for kind, one in found.items()}
    assert around == {
        "bert": ([2], [3], 0),
        "roberta": ([], [], 1),
        "llama": ([], [0], 1),  # for its last token to know the whole text
        "gpt2": ([], [0], 0),
        "t5": ([], [1], 0),
    }
    assert {kind: one.causal for kind, one in found.items()} == {
        "bert": False,
        "roberta": False,
        "llama": True,
        "gpt2": True,
        "t5": False,
    }
    assert [found[kind].longest for kind in KINDS] == [64, 62, 64, 64, None]


def test_numbers_are_those_of_transformers(folders: dict[str, Path], kind: str) -> None:
    theirs: Any = PreTrainedTokenizerFast.from_pretrained(folders[kind])
    ours = load_backbone(str(folders[kind])).tokenizer
    expected = [list(theirs(text, truncation=False).input_ids) for text in TEXTS]
    if kind in ("llama", "gpt2"):
        expected = [[*ids, 0] for ids in expected]
    assert ours.ids(TEXTS) == expected


def test_heads_for_generation(folders: dict[str, Path]) -> None:
    ids = torch.tensor([[3, 4, 5]])
    with torch.inference_mode():
        for kind, model in (("llama", LlamaForCausalLM), ("gpt2", GPT2LMHeadModel)):
            expected = model.from_pretrained(folders[kind], dtype=torch.float32)(ids).logits
            found = load_backbone(str(folders[kind])).causal_module()(ids).logits
            torch.testing.assert_close(found, expected)
        theirs = T5ForConditionalGeneration.from_pretrained(folders["t5"], dtype=torch.float32)
        ours = load_backbone(str(folders["t5"])).seq2seq_module()
        expected = theirs(input_ids=ids, decoder_input_ids=ids).logits
        torch.testing.assert_close(ours(input_ids=ids, decoder_input_ids=ids).logits, expected)
    tied: Any = load_backbone(str(folders["gpt2"])).causal_module(empty=True)
    assert tied.lm_head.weight is tied.transformer.wte.weight
    with pytest.raises(UsageError, match="bert model, which transformers cannot load by AutoModelForSeq2SeqLM"):
        load_backbone(str(folders["bert"])).seq2seq_module()


def test_older_vocabulary_files_are_read(folders: dict[str, Path], tmp_path: Path) -> None:
    folder = copied(folders["bert"], tmp_path)
    vocabulary = Tokenizer.from_file(str(folder / "tokenizer.json")).get_vocab()
    (folder / "vocab.txt").write_text("\n".join(sorted(vocabulary, key=lambda piece: vocabulary[piece])))
    (folder / "tokenizer.json").unlink()
    (folder / "tokenizer_config.json").write_text('{"tokenizer_class": "BertTokenizer"}')
    assert load_backbone(str(folder)).tokenizer.ids(TEXTS) == load_backbone(str(folders["bert"])).tokenizer.ids(TEXTS)


def copied(folder: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(folder, tmp_path / folder.name))


def test_a_folder_without_a_tokenizer_is_refused(folders: dict[str, Path], tmp_path: Path, kind: str) -> None:
    folder = copied(folders[kind], tmp_path)
    for path in folder.glob("*token*"):
        path.unlink()
    with pytest.raises(DataError, match="tokenizer") as caught:
        load_backbone(str(folder))
    assert "tokenizer.json" in caught.value.hint
    assert "\n" not in str(caught.value)


def test_tokenizers_of_another_model_are_refused(folders: dict[str, Path], tmp_path: Path) -> None:
    folder = copied(folders["bert"], tmp_path)
    shutil.copy(folders["llama"] / "tokenizer.json", folder)
    with pytest.raises(DataError, match="is not the model's"):
        load_backbone(str(folder))
    (folder / "tokenizer.json").write_text("{")
    with pytest.raises(DataError, match="is not a tokenizer"):
        load_backbone(str(folder))
    (folder / "tokenizer.json").write_bytes((folders["bert"] / "tokenizer.json").read_bytes())
    (folder / "tokenizer_config.json").write_text("{")
    with pytest.raises(DataError, match="is not valid JSON"):
        load_backbone(str(folder))


def test_weights_that_are_missing_or_do_not_fit_are_refused(folders: dict[str, Path], tmp_path: Path) -> None:
    folder = copied(folders["bert"], tmp_path)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"num_hidden_layers": 3}))
    with pytest.raises(DataError, match=r"lack 16 tensors that the model needs, such as encoder\.layer\.2"):
        load_backbone(str(folder)).encoder_module()
    (folder / "config.json").write_text(json.dumps(config | {"hidden_size": 16}))
    with pytest.raises(DataError, match=r"have other shapes than its config\.json: .* is 32.*, and the model needs 16"):
        load_backbone(str(folder)).encoder_module()
    weights = folder / "model.safetensors"
    for size in (weights.stat().st_size - 100, 1000, 4, 0):  # as a download that was broken off leaves it
        weights.write_bytes(weights.read_bytes()[:size])
        with pytest.raises(DataError, match="cannot be loaded"):
            load_backbone(str(folder)).encoder_module()
    weights.unlink()
    with pytest.raises(DataError, match="cannot be loaded"):
        load_backbone(str(folder)).encoder_module()
    (folder / "config.json").unlink()
    with pytest.raises(UsageError, match="holds no model"):
        load_backbone(str(folder))


def test_code_beside_weights_is_not_run(folders: dict[str, Path], tmp_path: Path) -> None:
    folder = copied(folders["bert"], tmp_path)
    (folder / "evil.py").write_text("raise SystemExit('run')")
    (folder / "config.json").write_text(
        json.dumps({"model_type": "evil", "auto_map": {"AutoConfig": "evil.Config", "AutoModel": "evil.Model"}})
    )
    with pytest.raises(UsageError, match="holds no model"):
        load_backbone(str(folder))


def test_a_stranger_s_state_chooses_no_code(folders: dict[str, Path]) -> None:
    backbone = load_backbone(str(folders["bert"]))
    state = backbone.to_state()
    keys = {
        "attn_implementation": "someone/kernel",
        "_attn_implementation": "someone/kernel",
        "auto_map": {"AutoModel": "x"},
    }
    module = Backbone.from_state(state | {"config": state["config"] | keys}, backbone.tokenizer).encoder_module()
    assert module.config._attn_implementation == "sdpa"
    with pytest.raises(ArtifactError, match="cannot be made"):
        Backbone.from_state(state | {"config": {"model_type": "no-such"}}, backbone.tokenizer)
    with pytest.raises(ArtifactError, match="cannot be made"):
        Backbone.from_state({}, backbone.tokenizer)


def test_scratch_learns_from_the_texts() -> None:
    backbone = load_backbone("scratch:hidden=64, layers=2", texts=TEXTS * 3)
    module = backbone.encoder_module()
    assert (backbone.hidden, backbone.longest, backbone.causal) == (64, 512, False)
    assert module.config.num_hidden_layers == 2
    assert module.config.vocab_size == backbone.tokenizer.size < 16_000
    upper, lower = backbone.tokenizer.ids(["The FOX", "the fox"])
    assert upper == lower
    assert len(lower) < len("the fox")
    text = "北京 Привет 😀"
    ids = backbone.tokenizer.ids([text])[0]
    assert backbone.tokenizer.text(ids).strip() == text.lower()  # nothing was unknown
    assert backbone.licence.startswith("none")


def test_scratch_begins_with_words_wherever_they_stand() -> None:
    backbone = load_backbone("scratch:hidden=64,layers=0", texts=TEXTS * 3)
    ids = torch.tensor(backbone.tokenizer.ids(["the quick fox", "fox quick the"]))
    assert ids[0].tolist() != ids[1].tolist()
    one, other = backbone.encoder_module()(input_ids=ids).last_hidden_state.mean(1)
    torch.testing.assert_close(one, other)


@pytest.mark.parametrize("texts", [[], [""], ["\ud800"]])
def test_scratch_without_words_still_has_bytes(texts: list[str]) -> None:
    tokenizer = load_backbone("scratch", texts=texts).tokenizer
    assert tokenizer.size >= 260
    assert len(tokenizer.ids(["東京"])[0]) > 4


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("scratch:hiden=64", "did you mean hidden"),
        ("scratch:hidden", "not of the form key=value"),
        ("scratch:hidden=wide", "should be a whole number"),
        ("scratch:hidden=30", "hidden = 30 is not a multiple of heads = 4"),
        ("scratch:layers=-1", "too small"),
        ("scratch:vocabulary=100", "set it to 260 or more"),
    ],
)
def test_sizes_that_do_not_fit(name: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        load_backbone(name, texts=TEXTS)


def test_scratch_needs_texts() -> None:
    with pytest.raises(UsageError, match="pass the texts of the corpus"):
        load_backbone("scratch")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("minlm", "did you mean minilm"),
        ("Smollm", "did you mean smollm2"),
        ("../no/such/folder", "there is no folder"),
        ("some/model", "--set fetch=true"),
        ("some-model", "fetch=True"),
        ("", "known: minilm, scratch, smollm2"),
    ],
)
def test_unknown_names(name: str, message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir("/")
    with pytest.raises(UsageError, match=message):
        load_backbone(name)


def test_packaged_weights_that_are_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRIEVER_CACHE", str(tmp_path))
    monkeypatch.delenv("TRIEVER_WEIGHTS", raising=False)
    monkeypatch.setattr(weights, "_carried", lambda _entry: None)
    with pytest.raises(UsageError, match="run: triever weights install smollm2"):
        load_backbone("smollm2")


class Hub:
    """The Hugging Face hub in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.cached = False
        self.fetched = 0

    def snapshot_download(self, name: str, local_files_only: bool = False, **_: Any) -> str:
        if name == "some/model" and (self.cached or not local_files_only):
            self.fetched += not local_files_only
            self.cached = True
            return str(self.folder)
        if local_files_only:
            raise LocalEntryNotFoundError("not there")
        raise OSError("404\nmore about it")


def test_the_hub_is_asked_only_if_allowed(
    folders: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub = Hub(copied(folders["bert"], tmp_path))
    (hub.folder / "README.md").write_text("---\nlanguage: en\nlicense: mit\n---\n# Model\n")
    monkeypatch.setattr("huggingface_hub.snapshot_download", hub.snapshot_download)
    with pytest.raises(UsageError, match="not on this machine"):
        load_backbone("some/model")
    backbone = load_backbone("some/model", fetch=True)
    assert (backbone.source, backbone.licence) == ("hub some/model at bert", "mit")
    assert load_backbone("some/model").to_state() == load_backbone("some/model", fetch=True).to_state()
    assert hub.fetched == 1
    with pytest.raises(UsageError, match="cannot be fetched from the Hugging Face hub: 404; check the name"):
        load_backbone("no/model", fetch=True)
    (hub.folder / "model.safetensors").unlink()
    with pytest.raises(UsageError, match="not on this machine"):
        load_backbone("some/model")
    with pytest.raises(UsageError, match="no weights in a format"):
        load_backbone("some/model", fetch=True)


@needs_minilm
@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("Die Müllabfuhr kommt am Dienstag und holt auch das Altglas", "look German"),
        ("図書館の本は二週間借りることができます", "do not look English"),
        ("the library lends books for two weeks", ""),
    ],
)
def test_texts_that_minilm_cannot_read_are_warned_of(text: str, said: str, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "triever"):
        load_backbone("minilm", texts=[text])
    assert said in caplog.text if said else not caplog.text


@needs_minilm
def test_minilm_is_there() -> None:
    backbone = load_backbone("minilm")
    assert (backbone.licence, backbone.hidden, backbone.longest, backbone.causal) == ("Apache-2.0", 384, 512, False)
    assert backbone.tokenizer.ids(["hello world"], 128) == [[101, 7592, 2088, 102]]
    assert sum(parameter.numel() for parameter in backbone.encoder_module().parameters()) == 22_565_376


def test_nothing_was_fetched() -> None:
    assert os.environ["HF_HUB_OFFLINE"] == "1"
    assert backbones.NAMES == ("minilm", "smollm2", "scratch")


def test_a_config_does_not_say_what_a_model_gives_besides() -> None:
    """A saved config may come from a stranger, and transformers fails late on odd values of these."""
    backbone = load_backbone("scratch:causal=true,hidden=32,layers=1,heads=2,vocabulary=300", texts=["some words"])
    odd = {"output_hidden_states": [["no"]], "output_attentions": {"no": 1}, "return_dict": "no"}
    state = backbone.to_state()
    again = Backbone.from_state({**state, "config": {**state["config"], **odd}}, backbone.tokenizer)
    ids = torch.tensor([[5, 6]])
    assert again.causal_module()(input_ids=ids).logits.shape[:2] == (1, 2)
