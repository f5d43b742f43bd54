"""How well a model answers with the right passage given: exact match and F1 after some steps of training.

    TRIEVER_DATA=... python benchmarks/reader_gold.py squad-partial --steps 2000 --batch 64 --device cuda
    TRIEVER_DATA=... python benchmarks/reader_gold.py squad-partial --backbone smollm2 --steps 1000 --batch 32

`minilm` (or `scratch`, or a T5) reads as retrieval as attention does: some layers apart, the others together, and a
decoder that writes. A causal model such as `smollm2` continues the passage and the question by the answer.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import torch

import triever
from triever.data.answers import exact_match, f1
from triever.models.backbones import Backbone, load_backbone
from triever.models.language_model import end_of
from triever.models.precision import device_of, fast_dtype
from triever.models.reatt import ANSWER_TOKENS, ReAttModel, ReAttShape, new_reatt
from triever.models.sampling import Sampling, continued
from triever.models.tokens import TextTokenizer, Tokens, by_length
from triever.queries.query_writer import questions_of
from triever.queries.writer_tuning import WriterTuning, tune
from triever.training.epochs import epoch_batches
from triever.training.loop import TrainOptions, train
from triever.training.pairs import Pairs
from triever.training.reatt_batches import answer_rows, reading_batch
from triever.training.reatt_loss import ReAttLoss

RATES = {"reatt": 3e-4, "causal": 1e-4}
"""Learning rates where none is given."""


@dataclass(frozen=True)
class Examples:
    """Questions with the passage that answers each."""

    questions: list[str]
    passages: list[str]
    answers: list[tuple[str, ...]]

    def __len__(self) -> int:
        return len(self.questions)


def examples_of(dataset: triever.Dataset, split: str, limit: int) -> Examples:
    """The questions of a split that have an answer and a relevant document, in their order."""
    texts = {document.id: document.full_text for document in dataset.documents()}
    qrels, made = dataset.qrels(split), Examples([], [], [])
    for query in dataset.queries(split):
        relevant = [document for document, grade in qrels.get(query.id, {}).items() if grade > 0]
        if query.answers and relevant and len(made) < (limit or len(made) + 1):
            made.questions.append(query.text)
            made.passages.append(texts[relevant[0]])
            made.answers.append(query.answers)
    return made


@dataclass(frozen=True)
class GoldBatches:
    """Batches of questions, each with its passage alone and its first answer."""

    order: np.ndarray  # (steps, batch)
    questions: Tokens
    passages: Tokens
    answers: np.ndarray
    pad: int

    def __len__(self) -> int:
        return len(self.order)

    def __getitem__(self, step: int) -> dict[str, torch.Tensor]:
        rows = self.order[step]
        return reading_batch(self.questions, rows, self.passages, rows[:, None], self.answers[rows], pad=self.pad)


def trained_reatt(backbone: Backbone, examples: Examples, words: argparse.Namespace) -> Callable:
    """An encoder and decoder that were trained to answer; called with examples, it gives its answers."""
    shape = ReAttShape(apart=words.apart, query_length=words.query_length, copy=words.copy)
    model = new_reatt(backbone, shape, words.seed)
    tokenizer = model.tokenizer
    questions = Tokens.of(examples.questions, tokenizer, words.query_length)
    passages = Tokens.of(examples.passages, tokenizer, words.document_length)
    answers = answer_rows([answers[0] for answers in examples.answers], tokenizer, ANSWER_TOKENS)
    order = epoch_batches(len(examples), min(words.batch, len(examples)), words.steps, 0, words.seed)
    options = TrainOptions(
        steps=words.steps, learning_rate=words.rate or RATES["reatt"], keep="last", evaluate_every=0, seed=words.seed
    )
    batches = GoldBatches(order, questions, passages, answers, tokenizer.pad)
    train(model, ReAttLoss(alpha=0.0), lambda _round: batches, options, device=words.device)
    return partial(reatt_answers, model, words)


@torch.inference_mode()
def reatt_answers(model: ReAttModel, words: argparse.Namespace, examples: Examples) -> list[list[int]]:
    questions = Tokens.of(examples.questions, model.tokenizer, words.query_length)
    passages = Tokens.of(examples.passages, model.tokenizer, words.document_length)
    written: list[list[int]] = [[]] * len(examples)
    dtype = fast_dtype(model.device)
    for rows in by_length(passages.lengths, rows=256, tokens=32_768):
        parts = (*questions.padded(rows, model.tokenizer.pad), *passages.padded(rows, model.tokenizer.pad))
        ids, mask, passage_ids, passage_mask = (part.to(model.device) for part in parts)
        with torch.autocast(model.device.type, dtype, enabled=dtype != torch.float32):
            texts = ids, passage_ids[:, None]
            asked, held = model.query_states(ids, mask), model.document_states(passage_ids, passage_mask)
            read = model.read(model.encode_pairs(asked, mask, held[:, None], passage_mask[:, None], texts))
            answers = model.generate(read).tokens
        for row, tokens in zip(rows, answers, strict=True):
            written[row] = tokens
    return written


def prompts_of(tokenizer: TextTokenizer, examples: Examples, words: argparse.Namespace) -> Tokens:
    """A passage, cut where it is too long, and the question behind it."""
    passages = tokenizer.ids(examples.passages, words.document_length, special=False)
    asked = tokenizer.ids([f"\n\nQuestion: {question}\nAnswer:" for question in examples.questions], special=False)
    return Tokens.from_lists([[*before, *after] for before, after in zip(passages, asked, strict=True)], tokenizer.size)


def trained_causal(backbone: Backbone, examples: Examples, words: argparse.Namespace) -> Callable:
    """A causal model that was trained to continue passage and question by the answer."""
    model = backbone.causal_module().to(device_of(words.device))
    numbers = np.arange(len(examples))
    texts = [answers[0] for answers in examples.answers]
    pairs = Pairs(list(map(str, numbers)), texts, numbers, np.arange(len(examples) + 1), np.ones(len(examples)))
    options = WriterTuning(
        steps=words.steps,
        batch=words.batch,
        rounds=1,
        holdout=0.0,
        learning_rate=words.rate or RATES["causal"],
        seed=words.seed,
    )
    prompts = prompts_of(backbone.tokenizer, examples, words)
    tune(model, pairs, prompts, questions_of(backbone), ANSWER_TOKENS, options)
    return partial(causal_answers, model.eval(), backbone, words)


def causal_answers(
    model: torch.nn.Module, backbone: Backbone, words: argparse.Namespace, examples: Examples
) -> list[list[int]]:
    prompts = prompts_of(backbone.tokenizer, examples, words)
    end = end_of(backbone)
    how = Sampling(frozenset([end]), ANSWER_TOKENS, top=1, batch=256)
    written: list[list[int]] = [[]] * len(examples)
    device = next(model.parameters()).device
    dtype = fast_dtype(device)
    for rows in by_length(prompts.lengths, rows=256, tokens=65_536):
        chance = np.zeros((len(rows), 1, ANSWER_TOKENS))
        with torch.autocast(device.type, dtype, enabled=dtype != torch.float32):
            answers = continued(model, prompts.take(rows), chance, how, backbone.tokenizer.pad)
        for row, (tokens,) in zip(rows, answers, strict=True):
            written[row] = [token for token in tokens if token != end]
    return written


def measured(tokenizer: TextTokenizer, examples: Examples, written: Sequence[Sequence[int]]) -> dict[str, float]:
    """Exact match and F1 of answers as the passage writes them, where it does, and as the tokenizer writes them."""
    plain = [tokenizer.text(tokens).strip() for tokens in written]
    in_passage = [tokenizer.text_in(ids, text) for ids, text in zip(written, examples.passages, strict=True)]
    texts = [text or other for text, other in zip(in_passage, plain, strict=True)]
    means = {
        name: np.mean([measure(text, answers) for text, answers in zip(texts, examples.answers, strict=True)])
        for name, measure, texts in (("EM", exact_match, texts), ("F1", f1, texts), ("EM plain", exact_match, plain))
    }
    means["in the passage"] = np.mean([text is not None for text in in_passage])
    return {name: round(float(mean), 4) for name, mean in means.items()}


def shown(tokenizer: TextTokenizer, examples: Examples, written: Sequence[Sequence[int]]) -> Iterable[str]:
    for row in range(min(5, len(examples))):
        yield f"{examples.questions[row]} -> {tokenizer.text(written[row])!r}; right: {examples.answers[row]}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", help="a dataset, by name or folder")
    parser.add_argument("--backbone", default="minilm")
    parser.add_argument("--train", default="train", help="the split to train on")
    parser.add_argument("--test", default="dev", help="the split to answer")
    parser.add_argument("--train-limit", type=int, default=0, help="questions to train on; 0 is all")
    parser.add_argument("--test-limit", type=int, default=0, help="questions to answer; 0 is all")
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--rate", type=float, default=0.0, help="learning rate; 0 is that of the kind of model")
    parser.add_argument("--apart", type=int, default=None, help="encoder layers that read apart; not given: one")
    parser.add_argument("--copy", action=argparse.BooleanOptionalAction, help="whether tokens are copied")
    parser.add_argument("--query-length", type=int, default=48)
    parser.add_argument("--document-length", type=int, default=400)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, help="also write the result there, as JSON")
    words = parser.parse_args()
    dataset = triever.load_dataset(words.data)
    learned, tested = (
        examples_of(dataset, split, limit)
        for split, limit in ((words.train, words.train_limit), (words.test, words.test_limit))
    )
    backbone = load_backbone(words.backbone, texts=learned.passages)
    started = time.perf_counter()
    answer = (trained_causal if backbone.causal else trained_reatt)(backbone, learned, words)
    seconds = time.perf_counter() - started
    written = answer(tested)
    settings = {name: value for name, value in vars(words).items() if name != "out"}
    counts = {"trained on": len(learned), "answered": len(tested)}
    measures = measured(backbone.tokenizer, tested, written)
    result = {**settings, **counts, **measures, "seconds of training": round(seconds, 1)}
    result["seconds in all"] = round(time.perf_counter() - started, 1)
    print(*shown(backbone.tokenizer, tested, written), json.dumps(result), sep="\n", flush=True)
    if words.out:
        words.out.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
