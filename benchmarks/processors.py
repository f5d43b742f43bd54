"""What a model costs on a processor: `python benchmarks/processors.py padding|encode|types|decode …`.

padding: the share of a batch that stands for no token, in batches of several sizes, and in the order of a corpus.
encode: documents to vectors with MiniLM in batches of several sizes, beside sentence-transformers if it is installed.
types: the same and a beam search in int8 (torch's dynamic quantisation) and bfloat16, with what they lose.
decode: `triever bench decode` on two threads, beside generate.

Every part replaces its own rows in processors.json. Ways take turns, the quickest turn of each counts, and only ratios
mean something on a busy machine. On one thread `seconds` are those of the processor, on two those of the clock. Ways of
encoding have a process each: what one asks of the system's memory would make the next one faster.
"""

from __future__ import annotations

import argparse
import copy
import importlib.util
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
BEFORE = 8_192
"""What a batch had until sizes were measured."""
PEER = "sentence-transformers"
PEER_ROWS = 32
"""Texts of a batch of the peer: its default."""
TURNS = 3
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
        for length in LENGTHS:
            lengths = np.minimum(tokens.lengths, length)
            unsorted = np.array_split(np.arange(len(lengths)), -(-len(lengths) // PEER_ROWS))
            about = {"data": name, "texts": len(lengths), "length": length}
            rows += [{**about, "batches": f"{PEER_ROWS} texts, unsorted", "padding": _padding(lengths, unsorted)}]
            for size in SIZES:
                batches = by_length(lengths, BATCH_ROWS, size)
                rows.append({**about, "batches": f"{size:,} tokens", "padding": _padding(lengths, batches)})
    return rows


def _padding(lengths: np.ndarray, batches: Sequence[np.ndarray]) -> float:
    places = sum(len(rows) * int(lengths[rows].max()) for rows in batches)
    return round(1 - int(lengths.sum()) / places, 4)


def encoding() -> Rows:
    """Documents to vectors, from their texts on."""
    ways = {f"{size:,} tokens": ("float32", size) for size in SIZES}
    if importlib.util.find_spec("sentence_transformers"):
        ways[PEER] = (PEER, PEER_ROWS)
    rows: Rows = []
    workers = _workers(ways)
    for threads, length in ((1, LENGTHS[0]), (1, LENGTHS[1]), (2, LENGTHS[0])):
        made = _in_turns(workers, ways, sample(length), length, threads)
        seconds, expected = made[f"{BEFORE:,} tokens"]
        for way, (own, vectors) in made.items():
            row = {"threads": threads, "length": length, "way": way, "seconds": round(own, 2)}
            closest = float((vectors * expected).sum(1).min())
            rows.append({**row, f"times_{BEFORE}": round(seconds / own, 2), "least_cosine": round(closest, 6)})
    return rows


def types() -> Rows:
    """Documents to vectors and a whole search, in other numbers than float32, on one thread."""
    ways = {name: (name, BATCH_TOKENS["cpu"]) for name in ("float32", "int8", "bfloat16")}
    questions = [query.text for query in triever.load_dataset("python").queries("test")]
    texts = sample(LENGTHS[0])
    made = _in_turns(_workers(ways), ways, [*texts, *questions], LENGTHS[0], 1)
    found = {way: _first_ten(vectors, len(texts)) for way, (_, vectors) in made.items()}
    rows: Rows = []
    for way, (seconds, _) in made.items():
        shared = [len({*own} & {*right}) / 10 for own, right in zip(found[way], found["float32"], strict=True)]
        row = {"what": f"{len(texts)} documents and {len(questions)} questions, MiniLM", "way": way}
        row |= {"seconds": round(seconds, 2), "times_float32": round(made["float32"][0] / seconds, 2)}
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
    models = {"float32": plain.model, "int8": _int8(plain.model), "bfloat16": copy.deepcopy(plain.model).bfloat16()}
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
            seconds, made = _quickest(runs)
            for name, own in seconds.items():
                row = {"what": f"{what}, 60M T5", "way": name, "seconds": round(own, 3)}
                row["times_float32"] = round(seconds["float32"] / own, 2)
                same = agreement(made["float32"], made[name]) if runs is whole else {}
                rows.append({**row, **{key: same[key] for key in ("overlap",) if key in same}})
    return rows


def _quickest(runs: Mapping[str, Callable[[], Any]]) -> tuple[dict[str, float], dict[str, Any]]:
    made = {name: run() for name, run in runs.items()}  # not counted: the first call prepares things
    seconds = dict.fromkeys(runs, np.inf)
    for _ in range(2 * TURNS):
        for name, run in runs.items():
            begun = time.process_time()
            run()
            seconds[name] = min(seconds[name], time.process_time() - begun)
    return seconds, made


def decoding() -> Rows:
    """Searches on two threads, beside generate."""
    torch.set_num_threads(2)
    return bench_decode(DecodeOptions(queries=(8,), beams=(10, 40), finish=(True,), ways=("plain",)))


# Encoding, a process for each way


def sample(length: int) -> list[str]:
    """Texts of two of the batches that the whole corpus has, of longer and of shorter ones.

    Texts by chance would be farther apart in length than those of a whole corpus, which large batches would pay for.
    """
    texts = [document.full_text for document in triever.load_dataset("python").documents()]
    tokens = Tokens.of(texts, _backbone().tokenizer, length)
    batches = by_length(tokens.lengths, BATCH_ROWS, BEFORE)
    chosen = len(batches) // 4, 3 * len(batches) // 4
    return [texts[row] for row in np.sort(np.concatenate([batches[at] for at in chosen]))]


def _workers(ways: Iterable[str]) -> dict[str, ProcessPoolExecutor]:
    """A process for each way."""
    os.environ["TOKENIZERS_PARALLELISM"] = "false"  # so that one thread is one thread
    return {way: ProcessPoolExecutor(1, mp_context=get_context("spawn")) for way in ways}


def _in_turns(
    workers: Mapping[str, ProcessPoolExecutor],
    ways: Mapping[str, tuple[str, int]],
    texts: list[str],
    length: int,
    threads: int,
) -> dict[str, tuple[float, np.ndarray]]:
    """The seconds of each way's quickest turn, and its vectors."""
    made: dict[str, tuple[float, np.ndarray]] = {}
    for turn in range(TURNS + 1):
        for way, (kind, size) in ways.items():
            texts_now = texts if turn else texts[:PEER_ROWS]  # the first turn loads the model
            seconds, vectors = workers[way].submit(_encoded, kind, size, texts_now, length, threads).result()
            if turn:
                made[way] = min(seconds, made[way][0] if way in made else np.inf), vectors
                emit(f"{threads} threads, {length} tokens, {way}: {seconds:.2f} s")
    return made


def _encoded(kind: str, size: int, texts: list[str], length: int, threads: int) -> tuple[float, np.ndarray]:
    torch.set_num_threads(threads)
    run = _peer(length, size) if kind == PEER else _ours(kind, length, size)
    clock = time.process_time if threads == 1 else time.perf_counter
    begun = clock()
    vectors = run(texts)
    return clock() - begun, vectors


@cache
def _ours(kind: str, length: int, size: int) -> Callable[[list[str]], np.ndarray]:
    encoder = Encoder(_backbone()).eval()
    if kind == "int8":
        encoder.module = _int8(encoder.module)

    def run(texts: list[str]) -> np.ndarray:
        tokens = Tokens.of(texts, encoder.tokenizer, length)
        if kind == "bfloat16":  # `encode` computes in bfloat16 by itself only where a processor has a unit for it
            return _in_bfloat16(encoder, tokens, size)
        return encode(encoder, tokens, device="cpu", batch_tokens=size)

    return run


def _in_bfloat16(encoder: Encoder, tokens: Tokens, size: int) -> np.ndarray:
    out = np.empty((len(tokens), encoder.size), np.float32)
    with torch.inference_mode(), torch.autocast("cpu", torch.bfloat16):
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


@cache
def _backbone() -> Any:
    return load_backbone("minilm")


PARTS: dict[str, Callable[[], Rows]] = {"padding": padding, "encode": encoding, "types": types, "decode": decoding}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("parts", nargs="*", choices=list(PARTS), default=list(PARTS))
    for name in parser.parse_args().parts:
        rows = [{"part": name, **row} for row in PARTS[name]()]
        emit(table(rows))
        kept = [row for row in (results.earlier_rows(OUT) if OUT.exists() else []) if row["part"] != name]
        results.write(OUT, results.benchmark(["python", "benchmarks/processors.py", *PARTS], [*kept, *rows]))


if __name__ == "__main__":
    main()
