"""Titles that a language model writes in its own tokens behind a prompt, judged by transformers' own model."""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

import triever
from tests.marks import quick
from tests.models.causal import END, save_causal
from tests.models.test_backbones import needs_minilm
from tests.retrievers.contract import DOCUMENTS, QUERIES, Contract, dataset
from triever import (
    GDR,
    AdapterOptions,
    Atomic,
    Contextual,
    DecoderOptions,
    Dense,
    DocidTuning,
    Generative,
    SearchOptions,
    Title,
    UsageError,
    ViewOptions,
)
from triever.commands.use import search
from triever.learning.docid_views import views_of
from triever.models.backbones import Backbone, load_backbone
from triever.models.precision import say_without_effect
from triever.models.prompts import ASK, LONGEST_THOUGHT, PROMPTS, THINK, THINKING, Prompts
from triever.models.token_decoder import TokenDecoder

TEXTS = [*(document.full_text for document in DOCUMENTS), "\n".join(PROMPTS.values()), " ".join(THINKING.values())]
SCRATCH = "scratch:causal=true,hidden=32,layers=1,heads=2,vocabulary=1000"
WIDE = SearchOptions(width=50)


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    kinds = ("llama", "qwen2", "gpt2", "gemma2")
    return {kind: str(save_causal(tmp_path_factory.mktemp(kind), kind, TEXTS)) for kind in kinds}


def titled(backbone: str, steps: int = 0, **options: Any) -> Generative:
    training = DocidTuning(steps=steps, batch=8, rounds=1, learning_rate=1e-2, holdout=0.0)
    return Generative(backbone=backbone, docids=Title(tokenizer="backbone"), training=training, **options)


@functools.cache
def transformers_model(folder: str) -> tuple[Any, Any]:
    return AutoTokenizer.from_pretrained(folder), AutoModelForCausalLM.from_pretrained(folder)


@torch.inference_mode()
def logprob(folder: str, prompt: str, title: str) -> float:
    """The log-probability of a title and the end of the text behind a prompt, by transformers alone."""
    tokenizer, model = transformers_model(folder)
    before, whole = (tokenizer(text)["input_ids"] for text in (prompt, f"{prompt} {title}{END}"))
    assert whole[: len(before)] == before
    scores = model(input_ids=torch.tensor([whole])).logits[0].log_softmax(1)
    return sum(float(scores[at - 1, whole[at]]) for at in range(len(before), len(whole)))


@pytest.mark.parametrize(
    ("kind", "prompt"),
    quick(
        ("llama", "paper"),
        ("gpt2", ""),
        of=[(kind, prompt) for kind in ("llama", "qwen2", "gpt2") for prompt in ("", "paper", "{query} is told in")],
    ),
)
def test_an_untrained_model_scores_titles_as_the_language_model_does(
    folders: dict[str, str], kind: str, prompt: str
) -> None:
    fitted = titled(folders[kind], prompt=prompt, search_options=WIDE).fit(dataset())
    template = PROMPTS.get(prompt or "question", prompt)
    for query in QUERIES[:2]:
        for hit in fitted.search(query, len(DOCUMENTS))[::4]:
            truth = logprob(folders[kind], template.replace("{query}", query.text), hit.title or hit.id)
            assert hit.score == pytest.approx(truth, abs=1e-3)


def test_titles_are_searched_in_bfloat16_if_asked_where_that_is_faster(
    folders: dict[str, str], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    fitted = titled(folders["llama"], search_options=WIDE).fit(dataset())
    whole = scored(fitted)
    say_without_effect.cache_clear()
    assert scored(fitted.searching(precision="bfloat16")) == whole, "this processor is not said to be faster in it"
    assert [record.message for record in caplog.records if "bfloat16" in record.message] == [
        "search_options.precision=bfloat16 has no effect: this cpu is not faster in it, so it computes in float32"
    ], "once, however many searches there are"
    monkeypatch.setattr("triever.models.precision.has_matrix_unit", lambda: True)
    assert scored(fitted) == whole
    rounded = fitted.searching(precision="bfloat16")
    near, engine = scored(rounded), rounded.engine
    assert near != whole
    assert near == [pytest.approx(each, abs=0.2) for each in whole]
    steady = engine.made_steady()
    recorded = steady.search([query.text for query in QUERIES], engine.search_options.beam(50), 50)
    assert [sorted(score for _, score in found) for found in recorded] == [
        pytest.approx(sorted(each.values()), abs=0.2) for each in whole
    ]
    thoughtful = rounded.searching(think=4)
    assert thoughtful.search(QUERIES[0], 3)[0].score != fitted.searching(think=4).search(QUERIES[0], 3)[0].score


def scored(fitted: Generative) -> list[dict[str, float]]:
    """The score of every document for every query."""
    return [{hit.id: hit.score for hit in fitted.search(query, len(DOCUMENTS))} for query in QUERIES]


@pytest.mark.parametrize("kind", quick("qwen2", of=["llama", "qwen2", "gpt2"]))
def test_a_small_folder_is_saved_and_opened(folders: dict[str, str], kind: str, tmp_path: Path) -> None:
    fitted = titled(folders[kind], search_options=WIDE).fit(dataset())
    fitted.save(tmp_path / "m")
    assert scored(triever.load(tmp_path / "m")) == scored(fitted)


def test_a_long_question_leaves_its_thought_whole(folders: dict[str, str]) -> None:
    docids = titled(folders["llama"], query_length=5000).fit(dataset()).engine.docids
    (asked,) = docids.with_thoughts(["tea leaves " * 400], ["and a thought about bread"])
    assert asked.endswith(" and a thought about bread")
    tokenizer = docids.model.encoder.tokenizer
    length, _ = docids.queries
    tokens = docids.reading.query_tokens(docids.model, [asked], length + 32)
    assert "thought about bread" in tokenizer.text(tokens.flat.tolist())


def test_a_thought_that_ends_at_once_is_said(folders: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    thoughtful = titled(folders["llama"]).fit(dataset()).searching(think=8)
    monkeypatch.setattr(TokenDecoder, "continued_freely", lambda _self, prompts, *_: [[] for _ in prompts])
    assert thoughtful.search("tea", 3).note == "the language model ended its thought at once"


def test_what_leaves_nothing_to_learn_is_refused_before_a_training(folders: dict[str, str]) -> None:
    with pytest.raises(
        UsageError, match=r"adapter\.freeze = true leaves nothing to train, because the backbone writes"
    ):
        titled(folders["llama"], steps=2, adapter=AdapterOptions(freeze=True))


@pytest.mark.parametrize("kind", quick("llama", of=["llama", "gpt2"]))
def test_lora_teaches_titles_and_leaves_the_language_model_as_it_is(
    folders: dict[str, str], kind: str, tmp_path: Path
) -> None:
    fitted = titled(folders[kind], steps=3, adapter=AdapterOptions("lora", rank=2)).fit(dataset())
    model, (_, whole) = fitted.engine.docids.model, transformers_model(folders[kind])
    learns = {name for name, weight in model.named_parameters() if weight.requires_grad}
    assert learns
    assert all(".lora_" in name for name in learns)
    assert torch.equal(model.symbols.weight, whole.get_input_embeddings().weight)
    assert torch.equal(model.rows, whole.get_output_embeddings().weight[: model.shape.width])
    untrained = titled(folders[kind]).fit(dataset())
    assert fitted.search(QUERIES[0], 3)[0].score != untrained.search(QUERIES[0], 3)[0].score
    fitted.save(tmp_path / "m")
    opened = triever.load(tmp_path / "m", backbone=folders[kind])
    assert [list(opened.search(query, 5)) for query in QUERIES] == [list(fitted.search(query, 5)) for query in QUERIES]
    assert _bytes(tmp_path / "m") < _bytes(Path(folders[kind])), "the backbone is only named"


def _bytes(folder: Path) -> int:
    """The bytes of the weights in a folder."""
    return sum(path.stat().st_size for path in folder.rglob("*.safetensors"))


def test_weights_of_words_are_shared_and_an_output_layer_of_its_own_is_kept(folders: dict[str, str]) -> None:
    tied, apart = (titled(folders[kind]).fit(dataset()).engine.docids.model for kind in ("gpt2", "llama"))
    assert isinstance(tied, TokenDecoder)
    assert not [name for name, _ in tied.named_parameters() if not name.startswith("reader.")]
    assert [name for name, _ in apart.named_parameters() if not name.startswith("reader.")] == ["output.weight"]
    assert tied.symbols is tied.encoder.module.get_input_embeddings()  # ty: ignore[call-non-callable]


def test_a_title_with_the_mark_of_the_end_or_with_lines_is_one_line_of_text(folders: dict[str, str]) -> None:
    odd = [triever.Document("odd", "text", f"Two\n lines {END} here"), *DOCUMENTS]
    engine = titled(folders["llama"]).fit(dataset(odd)).engine.docids
    docid, tokenizer = engine.docid(0), engine.model.encoder.tokenizer
    assert docid.count(engine.scheme.stop) == 1
    assert tokenizer.text(docid) == f" Two lines {END} here"


def test_prompts_have_the_sentences_of_the_paper() -> None:
    assert ASK == "Given the question, predict the document title that most likely contains the answer. The title is:"
    assert THINK == "Briefly think about the document title that may contain the answer to this question."
    assert PROMPTS["paper"].startswith(ASK)
    assert PROMPTS["question"].endswith(ASK)


@pytest.mark.parametrize("views", ["labelled", "chunks"])
def test_a_training_reads_what_a_search_reads(views: str) -> None:
    fitted = titled(SCRATCH, views=ViewOptions(names=(views,), length=16)).fit(dataset())
    docids, store = fitted.engine.docids, fitted.documents
    made, _ = views_of(fitted, docids, dataset(), store, None)
    examples, _ = made[views].take(torch.arange(4).numpy(), _chance())
    tokenizer = docids.model.encoder.tokenizer
    if views == "labelled":
        generator = docids.generator()
        ids, mask = generator.tokenise([query.text for query in QUERIES])  # ty: ignore[unresolved-attribute]
        searched = [row[kept == 1].tolist() for row, kept in zip(ids, mask, strict=True)]
        assert sorted(examples[at].tolist() for at in range(4)) == sorted(searched)
    for row in range(len(examples)):
        text = tokenizer.text(examples[row].tolist())
        assert text.strip().startswith("question:")
        assert text.strip().endswith(ASK.lower())  # a tokenizer that starts from nothing knows small letters alone


def _chance() -> Any:
    import numpy as np

    return np.random.default_rng(0)


@pytest.mark.long
def test_a_light_training_on_questions_teaches_their_titles(folders: dict[str, str]) -> None:
    fitted = titled(folders["llama"], steps=40, views=ViewOptions(names=("labelled",))).fit(dataset())
    for query in QUERIES:
        assert fitted.search(query, 1)[0].id in dataset().qrels("train")[query.id]


def test_an_untrained_fit_is_no_mistake(folders: dict[str, str], caplog: pytest.LogCaptureFixture) -> None:
    titled(folders["llama"]).fit(dataset())
    assert not caplog.records


@pytest.mark.long
class TestZeroShot(Contract):
    understands = False

    def make(self) -> triever.Retriever:
        return titled(SCRATCH)


@pytest.mark.long
class TestThinking(Contract):
    understands = False

    def make(self) -> triever.Retriever:
        return titled(SCRATCH, search_options=SearchOptions(think=4))


@pytest.mark.long
class TestTrained(Contract):
    understands = False

    def make(self) -> triever.Retriever:
        return titled(SCRATCH, steps=5, search_options=SearchOptions(method="exact"))


def test_a_thought_is_what_transformers_writes_and_stands_behind_the_query(folders: dict[str, str]) -> None:
    folder = folders["llama"]
    fitted = titled(folder, search_options=SearchOptions(width=50, think=6)).fit(dataset())
    tokenizer, model = transformers_model(folder)
    for query, result in zip(QUERIES, fitted.search_many(QUERIES, 10), strict=True):
        prompt = tokenizer(THINKING["question"].replace("{query}", query.text), return_tensors="pt")
        written = model.generate(**prompt, max_new_tokens=6, do_sample=False)[0, prompt["input_ids"].shape[1] :]
        assert result.thought == " ".join(tokenizer.decode(written, skip_special_tokens=True).split())
        asked = PROMPTS["question"].replace("{query}", f"{query.text} {result.thought}")
        assert result[0].score == pytest.approx(logprob(folder, asked, result[0].title or result[0].id), abs=1e-3)
        assert fitted.search(query, 3).thought == result.thought
    assert fitted.searching(think=0).search(QUERIES[0]).thought == ""


@pytest.mark.parametrize("prompt", ["", "paper", "{query}\n"])
def test_the_longest_thought_leaves_room_for_a_question_and_a_title(prompt: str) -> None:
    backbone = f"{SCRATCH},positions=200"
    with pytest.raises(
        UsageError, match=r"may have \d+ tokens beside a prompt and a title, because it reads 200"
    ) as told:
        titled(backbone, prompt=prompt, search_options=SearchOptions(think=500)).fit(dataset())
    most = int(told.value.hint.removeprefix("set search_options.think=").removesuffix(" or less"))
    fitted = titled(backbone, prompt=prompt).fit(dataset())
    with pytest.raises(UsageError, match=f"think = {most + 1} is too long"):
        fitted.searching(think=most + 1)
    tokenizer = fitted.engine.docids.model.encoder.tokenizer
    (read,) = Prompts.of(prompt).thinking.ids(tokenizer, ["tea leaves"], 200 - most)
    assert "tea leaves" in tokenizer.text(read)
    result = fitted.searching(think=most).search("tea leaves " * 100, 3)
    assert [hit.title for hit in result]


def test_a_model_that_reads_any_number_of_tokens_thinks_for_so_long_at_most(
    folders: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    backbone, prompts = load_backbone(folders["llama"]), Prompts.of("")
    monkeypatch.setattr(Backbone, "longest", None)
    prompts.check_thought(LONGEST_THOUGHT, backbone, 64)
    with pytest.raises(UsageError, match=r"may have 4096 tokens; set search_options\.think=4096 or less"):
        prompts.check_thought(LONGEST_THOUGHT + 1, backbone, 64)


@pytest.mark.parametrize(
    ("prompt", "shown"),
    [
        ("", "question"),
        ("paper", "paper"),
        (r"{query}\nTitle:", r"{query}\nTitle:"),
        ("a|b\n{query}\n", r"a\|b\n{query}\n"),
    ],
)
def test_a_card_has_the_prompt_in_one_cell(prompt: str, shown: str) -> None:
    assert f"\n| prompt | {shown} |\n" in titled(SCRATCH, prompt=prompt).fit(dataset()).card


def test_a_thought_is_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fitted = titled(SCRATCH, search_options=SearchOptions(think=4)).fit(dataset())
    fitted.save(tmp_path / "model")
    thought = fitted.search("tea").thought
    assert thought
    search(tmp_path / "model", "tea", k=2)
    assert f"thought: {thought}" in capsys.readouterr().err
    search(tmp_path / "model", "tea", k=2, json_=True)
    assert [row["thought"] for row in json.loads(capsys.readouterr().out)] == [thought, thought]
    search(tmp_path / "model", "tea", set_=["search_options.think=0"], json_=True)
    assert "thought" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: titled(SCRATCH, prompt="the title:"), r"has no \{query\}, where the question stands"),
        (lambda: titled(SCRATCH, prompt="{query} {query}"), r"has more than one \{query\}"),
        (lambda: titled(SCRATCH, vectors=Dense()), "vectors = dense has no effect"),
        (lambda: titled(SCRATCH, decoder=DecoderOptions(rows="nodes")), "rows of nodes score no tokens"),
        (lambda: titled(SCRATCH, decoder=DecoderOptions(rows="random")), "are about rows of symbols"),
        (lambda: Generative(prompt="paper"), "a prompt is for titles"),
        (
            lambda: Generative(docids=Atomic(), search_options=SearchOptions(think=3)),
            "think = 3 needs a language model",
        ),
        (lambda: GDR(search_options=SearchOptions(think=3)), "think = 3 needs a language model"),
        (lambda: Contextual(search_options=SearchOptions(think=3)), "think = 3 needs a language model"),
        (lambda: SearchOptions(think=-1), "think = -1 should not be negative"),
        pytest.param(
            lambda: titled("minilm").fit(dataset()),
            "needs a causal language model, and minilm is none",
            marks=needs_minilm,
        ),
        (lambda: titled("scratch").fit(dataset()), "needs a causal language model, and scratch is none"),
        (lambda: titled(f"{SCRATCH},positions=80").fit(dataset()), "tokens, and scratch:.* reads 80 with a title"),
        (lambda: Title(tokenizer="backbone").fit(DOCUMENTS), "needs a causal language model"),
    ],
)
def test_what_cannot_be_is_refused_in_one_sentence(make: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        make()


def test_a_backbone_that_caps_its_scores_is_refused(folders: dict[str, str]) -> None:
    with pytest.raises(UsageError, match="scores tokens by more than one matrix"):
        titled(folders["gemma2"]).fit(dataset())
