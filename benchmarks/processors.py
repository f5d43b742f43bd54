"""What a model costs on a processor: `python benchmarks/processors.py padding|encode|types|decode …`.

padding: the share of what is computed that stands for no token, for few and many texts, in batches of several sizes.
encode: texts to vectors with MiniLM in batches of two sizes, beside sentence-transformers if it is installed: those of
one large batch of the corpus, which are of nearly one length, and as many by chance.
types: the same and a beam search in int8 (torch's dynamic quantisation; one scale for each token and each output; that
for the widest products alone) and bfloat16, with what they lose.
decode: `triever bench decode` on two threads, beside generate.

Every part replaces its own rows in processors.json, or in the file that `--out` names. Ways of encoding take short
turns on one thread. `seconds` are the processor's in the quickest turn of a way; its ratio is the median over turns,
each compared with the same turn of the other way, as other work comes and goes. Every way has a process of its own:
what one asks of the system's memory would make the next one faster.
"""

from __future__ import annotations

import argparse
import copy
import importlib.util
import itertools
import os
import time
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import cache
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

import triever
from triever.errors import DataError, UsageError
from triever.lab import results
from triever.lab.bench_decode import DecodeOptions, Work, agreement, bench_decode
from triever.models.backbones import load_backbone
from triever.models.cross_decoder import Seq2SeqGenerator
from triever.models.encoder import BATCH_ROWS, BATCH_TOKENS, Encoder, encode
from triever.models.tokens import Tokens, by_length
from triever.models.weights import find
from triever.search.beam import BeamOptions, beam
from triever.search.hits import documents
from triever.terminal import emit, table

OUT = Path(__file__).with_suffix(".json")
SIZES = (1_024, 2_048, 4_096, 8_192)
BEFORE, NOW = 8_192, BATCH_TOKENS["cpu"]
"""What a batch had until sizes were measured, and what it has."""
PEER = "sentence-transformers"
PEER_ROWS = 32
"""Texts of a batch of the peer: its default."""
TURNS = 6
COUNTS, DRAWN = (50, 150, 500, 2_000), 10
"""Numbers of texts, and how often so many are drawn."""
LENGTHS = (64, 256)
"""Tokens of a document: those of the quickstart, and the default."""
Rows = list[dict[str, object]]


def padding() -> Rows:
    """How much of what is computed stands for no token."""
    rows: Rows = []
    for name in ("python", "wiki60k"):
        try:
            data = triever.load_dataset(name)
        except (DataError, UsageError) as error:
            emit(f"{name} is left out: {error}")
            continue
        tokens = Tokens.of((document.full_text for document in data.documents()), _backbone().tokenizer, LENGTHS[-1])
        for length, count in itertools.product(LENGTHS, (*COUNTS, len(tokens))):
            row = {"data": name, "length": length, "texts": count}
            rows += [{**row, **_paddings(np.minimum(tokens.lengths, length), count)}]
    return rows


def _paddings(lengths: np.ndarray, count: int) -> dict[str, object]:
    """The mean padding of so many texts by chance, for every size of a batch."""
    chance = np.random.default_rng(0)
    drawn = [lengths[chance.choice(len(lengths), count, replace=False)] for _ in range(DRAWN)]
    return {
        f"{size:,} tokens": round(float(np.mean([_padding(own, by_length(own, BATCH_ROWS, size)) for own in drawn])), 3)
        for size in SIZES
    }


def _padding(lengths: np.ndarray, batches: Sequence[np.ndarray]) -> float:
    places = sum(len(rows) * int(lengths[rows].max()) for rows in batches)
    return 1 - int(lengths.sum()) / places


def encoding() -> Rows:
    """Documents to vectors, from their texts on."""
    ways = {f"{size:,} tokens": ("as it is", size) for size in (BEFORE, NOW)}
    if importlib.util.find_spec("sentence_transformers"):
        ways[PEER] = (PEER, PEER_ROWS)
    rows: Rows = []
    workers = _workers(ways)
    for length, by_chance in itertools.product(LENGTHS, (False, True)):
        texts = sample(length, by_chance=by_chance)
        made = _in_turns(workers, ways, texts, length)
        turns, expected = made[f"{BEFORE:,} tokens"]
        for way, (own, vectors) in made.items():
            row = {"length": length, "texts": len(texts), "by_chance": by_chance, "way": way}
            row["seconds"] = round(min(own), 2)
            closest = float((vectors * expected).sum(1).min())
            rows.append({**row, "ratio": _ratio(turns, own), "least_cosine": round(closest, 6)})
    return rows


def _ratio(turns: Sequence[float], own: Sequence[float]) -> float:
    """How many times faster a way is than another one, turn by turn."""
    return round(float(np.median(np.array(turns) / np.array(own))), 2)


def types() -> Rows:
    """Documents to vectors and a whole search, in other numbers than float32, on one thread."""
    ways = {name: (name, BATCH_TOKENS["cpu"]) for name in ("float32", *IN_INT8, "bfloat16")}
    questions = [query.text for query in triever.load_dataset("python").queries("test")]
    texts = sample(LENGTHS[0], by_chance=False)
    made = _in_turns(_workers(ways), ways, [*texts, *questions], LENGTHS[0])
    found = {way: _first_ten(vectors, len(texts)) for way, (_, vectors) in made.items()}
    rows: Rows = []
    for way, (turns, _) in made.items():
        shared = [len({*own} & {*right}) / 10 for own, right in zip(found[way], found["float32"], strict=True)]
        row = {"what": f"{len(texts)} documents and {len(questions)} questions, MiniLM", "way": way}
        row |= {"seconds": round(min(turns), 2), "ratio": _ratio(made["float32"][0], turns)}
        rows.append({**row, "overlap": round(float(np.mean(shared)), 4)})
    return rows + _searches()


def _first_ten(vectors: np.ndarray, count: int) -> list[list[int]]:
    """The documents, which are the first so many vectors, that are nearest to each question behind them."""
    return np.argsort(-(vectors[count:] @ vectors[:count].T), axis=1, kind="stable")[:, :10].tolist()


def _searches(queries: int = 8, width: int = 10) -> Rows:
    """Reading queries, and a whole search, by a T5 of 60M random weights."""
    torch.set_num_threads(1)
    work, options = Work(DecodeOptions(queries=(queries,), peer=False)), BeamOptions(width, "trie")
    plain, walk = work.generator("trie", "float32"), work.walk_for("trie")
    models = {"float32": plain.model, "bfloat16": copy.deepcopy(plain.model).bfloat16()}
    models |= {name: convert(plain.model) for name, convert in IN_INT8.items()}
    generators = {name: Seq2SeqGenerator(model, plain.tokenise) for name, model in models.items()}
    asked = [""] * queries
    rows: Rows = []
    with torch.inference_mode():
        reading = {name: lambda own=own: own.prefill(asked) for name, own in generators.items()}
        whole = {
            name: lambda own=own: documents(walk, beam(own, *own.prefill(asked), walk, options), 10)
            for name, own in generators.items()
        }
        for what, runs in ((f"reading {queries} queries", reading), (f"a search, {queries} × {width}, trie", whole)):
            seconds, made = _turns(runs)
            for name, own in seconds.items():
                row = {"what": f"{what}, 60M T5", "way": name, "seconds": round(min(own), 3)}
                row["ratio"] = _ratio(seconds["float32"], own)
                same = agreement(made["float32"], made[name]) if runs is whole else {}
                rows.append({**row, **{key: same[key] for key in ("overlap",) if key in same}})
    return rows


def _turns(runs: Mapping[str, Callable[[], Any]]) -> tuple[dict[str, list[float]], dict[str, Any]]:
    """The seconds of each turn of each run, and what it makes."""
    made = {name: run() for name, run in runs.items()}  # not counted: the first call prepares things
    seconds: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(TURNS):
        for name, run in runs.items():
            begun = time.process_time()
            run()
            seconds[name].append(time.process_time() - begun)
    return seconds, made


def decoding() -> Rows:
    """Searches on two threads, beside generate."""
    torch.set_num_threads(2)
    return bench_decode(DecodeOptions(queries=(8,), beams=(10, 40), finish=(True,), ways=("plain",)))


# Encoding, a process for each way


def sample(length: int, *, by_chance: bool) -> list[str]:
    """The texts of a large batch of the whole corpus, of middle length; or as many by chance."""
    texts = [document.full_text for document in triever.load_dataset("python").documents()]
    batches = by_length(Tokens.of(texts, _backbone().tokenizer, length).lengths, BATCH_ROWS, BEFORE)
    rows = batches[len(batches) // 2]
    if by_chance:
        rows = np.random.default_rng(0).choice(len(texts), len(rows), replace=False)
    return [texts[row] for row in np.sort(rows)]


def _workers(ways: Iterable[str]) -> dict[str, ProcessPoolExecutor]:
    """A process for each way."""
    os.environ["TOKENIZERS_PARALLELISM"] = "false"  # so that one thread is one thread
    return {way: ProcessPoolExecutor(1, mp_context=get_context("spawn")) for way in ways}


def _in_turns(
    workers: Mapping[str, ProcessPoolExecutor], ways: Mapping[str, tuple[str, int]], texts: list[str], length: int
) -> dict[str, tuple[list[float], np.ndarray]]:
    """The seconds of each way's turns, and its vectors."""
    turns: dict[str, list[tuple[float, np.ndarray]]] = {way: [] for way in ways}
    for turn in range(TURNS + 1):
        for way, (kind, size) in ways.items():
            texts_now = texts if turn else texts[:PEER_ROWS]  # the first turn loads the model
            turns[way].append(workers[way].submit(_encoded, kind, size, texts_now, length).result())
            emit(f"{length} tokens, {way}: {turns[way][-1][0]:.2f} s")
    return {way: ([seconds for seconds, _ in own[1:]], own[-1][1]) for way, own in turns.items()}


def _encoded(kind: str, size: int, texts: list[str], length: int) -> tuple[float, np.ndarray]:
    torch.set_num_threads(1)
    run = _peer(length, size) if kind == PEER else _ours(kind, length, size)
    begun = time.process_time()
    vectors = run(texts)
    return time.process_time() - begun, vectors


@cache
def _ours(kind: str, length: int, size: int) -> Callable[[list[str]], np.ndarray]:
    encoder = Encoder(_backbone()).eval()
    if kind in IN_INT8:
        encoder.module = IN_INT8[kind](encoder.module)

    def run(texts: list[str]) -> np.ndarray:
        tokens = Tokens.of(texts, encoder.tokenizer, length)
        if kind == "as it is":
            return encode(encoder, tokens, device="cpu", batch_tokens=size)
        return _in_numbers(encoder, tokens, size, fast=kind == "bfloat16")

    return run


def _in_numbers(encoder: Encoder, tokens: Tokens, size: int, *, fast: bool) -> np.ndarray:
    """As `encode` does, which chooses by itself: bfloat16 where a processor has a unit for it."""
    out = np.empty((len(tokens), encoder.size), np.float32)
    with torch.inference_mode(), torch.autocast("cpu", torch.bfloat16, enabled=fast):
        for rows in by_length(tokens.lengths, BATCH_ROWS, size):
            out[rows] = encoder(*tokens.padded(rows, encoder.tokenizer.pad)).float().numpy()
    return out


@cache
def _peer(length: int, rows: int) -> Callable[[list[str]], np.ndarray]:
    from sentence_transformers import SentenceTransformer, models

    reader = models.Transformer(str(find("minilm")), max_seq_length=length)
    modules = [reader, models.Pooling(_backbone().hidden), models.Normalize()]
    model = SentenceTransformer(modules=modules, device="cpu")
    return lambda texts: model.encode(texts, batch_size=rows)


def _int8(model: nn.Module) -> Any:
    from torch.ao.quantization import quantize_dynamic

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it is to go from torch some day
        return quantize_dynamic(copy.deepcopy(model), {nn.Linear}, dtype=torch.qint8)


class Int8ByRows(nn.Module):
    """A linear layer in int8 with a scale for each token and each output, as these differ much from one another."""

    def __init__(self, layer: nn.Linear) -> None:
        super().__init__()
        weight, self.scale = _rounded(layer.weight.detach())
        self.weight, self.bias = weight.t().contiguous(), layer.bias
        self.in_features, self.out_features = layer.in_features, layer.out_features

    def forward(self, states: torch.Tensor) -> torch.Tensor:
        rows, scale = _rounded(states.flatten(0, -2))
        result = torch._int_mm(rows, self.weight).float().mul_(scale).mul_(self.scale.t())
        if self.bias is not None:
            result += self.bias
        return result.view(*states.shape[:-1], -1)


def _rounded(rows: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Rows (n, d) as integers from -127 to 127, and the scale (n, 1) of each."""
    scale = rows.abs().amax(1, keepdim=True).clamp_(min=1e-12) / 127
    return (rows / scale).round_().to(torch.int8), scale


def _int8_by_rows(model: nn.Module, least: int = 0) -> Any:
    """A copy whose linear layers with more than so many outputs for each input compute in int8."""
    copied = copy.deepcopy(model)
    for parent in list(copied.modules()):
        for name, layer in list(parent.named_children()):
            if isinstance(layer, nn.Linear) and layer.out_features > least * layer.in_features:
                setattr(parent, name, Int8ByRows(layer))
    return copied


IN_INT8: dict[str, Callable[[nn.Module], Any]] = {
    "int8": _int8,
    "int8 by rows": _int8_by_rows,
    "int8 by rows, widest products alone": lambda model: _int8_by_rows(model, least=1),
}


@cache
def _backbone() -> Any:
    return load_backbone("minilm")


PARTS: dict[str, Callable[[], Rows]] = {"padding": padding, "encode": encoding, "types": types, "decode": decoding}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("parts", nargs="*", choices=list(PARTS), default=list(PARTS))
    parser.add_argument("--out", type=Path, default=OUT, help="the file whose rows are replaced")
    asked = parser.parse_args()
    for name in asked.parts:
        rows = [{"part": name, **row} for row in PARTS[name]()]
        emit(table(rows))
        earlier = results.earlier_rows(asked.out) if asked.out.exists() else []
        kept = [row for row in earlier if row["part"] != name]
        results.write(asked.out, results.benchmark(["python", "benchmarks/processors.py", *PARTS], [*kept, *rows]))


if __name__ == "__main__":
    main()
