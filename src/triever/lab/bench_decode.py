"""Constrained decoding beside transformers' `generate`, in the same process, on the same weights.

The work: a T5 of random weights, docids of six symbols, queries of sixteen tokens. The peer is
`generate(prefix_allowed_tokens_fn=...)` over a dict of prefixes, as the field's code has it. A row's
`ratio` is the peer's time over ours, `overlap` how much of the peer's first ten we find too.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from triever.config import option
from triever.docids.trie import Paths, Trie
from triever.docids.walk import Walk
from triever.models.seq2seq import Seq2SeqGenerator
from triever.models.t5 import T5, from_transformers, narrowed
from triever.progress import track
from triever.search.beam import BeamOptions, beam
from triever.search.hits import documents

FIRST_TOKEN = 1000
"""Docid symbol i is token 1000 + i of the model's vocabulary."""


@dataclass(frozen=True)
class DecodeOptions:
    """The size of the work; the defaults are the reference."""

    docids: int = option(100_000, "how many docids")
    length: int = option(6, "symbols in a docid")
    symbols: int = option(256, "how many different ones")
    queries: tuple[int, ...] = option((8,), "queries in a batch")
    beams: tuple[int, ...] = option((10, 40), "widths of the beam")
    rounds: int = option(3, "how often each is timed; the median counts")
    query_tokens: int = option(16, "tokens in a query")
    device: str = option("cpu", "cpu or cuda")
    dtypes: tuple[str, ...] = option(("float32",), "what our model computes in: float32, bfloat16")
    layers: int = option(8, "layers of the encoder and of the decoder")
    width: int = option(512, "the model's width")
    peer: bool = option(True, "run the peer too")


def bench_decode(options: DecodeOptions | None = None) -> list[dict[str, Any]]:
    """One row for each batch, beam, normalisation and type."""
    chosen = options or DecodeOptions()
    work = _Work(chosen)
    cells = [(queries, width) for queries in chosen.queries for width in chosen.beams]
    return [row for cell in track(cells, "decoding") for row in work.rows(*cell)]


class _Work:
    """The model, the docids and the queries."""

    def __init__(self, options: DecodeOptions) -> None:
        torch.manual_seed(0)
        chance = np.random.default_rng(0)
        self.options = options
        self.docids = np.unique(chance.integers(0, options.symbols, (options.docids, options.length)), axis=0)
        self.walk = Walk(_trie(self.docids), options.device)
        self.peer = _model(options).to(options.device)
        self.ids = torch.from_numpy(chance.integers(2, 32_000, (max(options.queries), options.query_tokens)))
        self.tokens = FIRST_TOKEN + torch.arange(options.symbols, device=options.device)
        self._batch = self.ids

    def rows(self, queries: int, width: int) -> Iterator[dict[str, Any]]:
        for normalisation in ("trie", "vocabulary"):
            peer_seconds, expected = self._peer(queries, width, normalisation)
            for dtype in self.options.dtypes:
                seconds, found = self._ours(queries, width, normalisation, dtype)
                row: dict[str, Any] = {
                    "queries": queries,
                    "beams": width,
                    "normalisation": normalisation,
                    "dtype": dtype,
                }
                row |= {"seconds": round(seconds, 4), "queries_per_second": round(queries / seconds, 1)}
                if peer_seconds:
                    row |= {"generate_seconds": round(peer_seconds, 4), "ratio": round(peer_seconds / seconds, 2)}
                    row |= agreement(expected, found)
                yield row

    def _ours(self, queries: int, width: int, normalisation: str, dtype: str) -> tuple[float, list[list[int]]]:
        generator = self._generator(normalisation, dtype)
        options = BeamOptions(width=width, normalisation=normalisation)  # ty: ignore[invalid-argument-type]

        def run() -> list[list[int]]:
            self._batch = self.ids[:queries]
            frontier = beam(generator, *generator.prefill([""] * queries), self.walk_for(normalisation), options)
            found = documents(self.walk_for(normalisation), frontier, 10)
            return [[number for number, _ in one] for one in found]

        return self._timed(run)

    def _generator(self, normalisation: str, dtype: str) -> Seq2SeqGenerator:
        """Over the docid symbols alone; all of the vocabulary only where the normalisation asks for it."""
        model: T5 = from_transformers(self.peer)
        narrow = narrowed(model, self.tokens) if normalisation == "trie" else model
        narrow = narrow.to(self.options.device, getattr(torch, dtype))
        return Seq2SeqGenerator(narrow, lambda _texts: (self._batch, torch.ones_like(self._batch)))

    def walk_for(self, normalisation: str) -> Walk:
        if normalisation == "trie":
            return self.walk
        if not hasattr(self, "_wide"):
            self._wide = Walk(_trie(self.docids + FIRST_TOKEN), self.options.device)
        return self._wide

    def _peer(self, queries: int, width: int, normalisation: str) -> tuple[float, list[list[int]]]:
        if not self.options.peer:
            return 0.0, []
        return self._timed(lambda: self._generate(queries, width, normalisation))

    def _generate(self, queries: int, width: int, normalisation: str) -> list[list[int]]:
        ids = self.ids[:queries].to(self.options.device)
        sequences = self.peer.generate(
            input_ids=ids,
            attention_mask=torch.ones_like(ids),
            num_beams=width,
            num_return_sequences=min(width, 10),
            max_new_tokens=self.options.length,
            length_penalty=0.0,
            do_sample=False,
            prefix_allowed_tokens_fn=self._allowed,
            renormalize_logits=normalisation == "trie",
        )
        return self._numbers(sequences[:, 1:]).reshape(queries, -1).tolist()

    def _allowed(self, _batch: int, prefix: Tensor) -> list[int]:
        if not hasattr(self, "_following"):
            self._following = _following(self.docids + FIRST_TOKEN)
        return self._following[tuple(prefix[1:].tolist())]

    def _numbers(self, sequences: Tensor) -> np.ndarray:
        """The number of each docid in the sorted list."""
        wanted = (sequences.cpu().numpy() - FIRST_TOKEN).astype(np.int64)
        powers = self.options.symbols ** np.arange(self.options.length - 1, -1, -1)
        return np.searchsorted(self.docids @ powers, wanted @ powers)

    def _timed(self, run: Any) -> tuple[float, list[list[int]]]:
        found = run()  # not counted: the first call prepares things
        times = []
        for _ in range(self.options.rounds):
            self._wait()
            started = time.perf_counter()
            run()
            self._wait()
            times.append(time.perf_counter() - started)
        return float(np.median(times)), found

    def _wait(self) -> None:
        if self.options.device.startswith("cuda"):
            torch.cuda.synchronize()


def agreement(expected: list[list[int]], found: list[list[int]]) -> dict[str, float]:
    """How many of the first ten are the same, and how often all of them are, in order."""
    shares = [len(set(one) & set(two)) / max(len(one), 1) for one, two in zip(expected, found, strict=True)]
    same = [one == two[: len(one)] for one, two in zip(expected, found, strict=True)]
    return {"overlap": round(float(np.mean(shares)), 4), "identical": round(float(np.mean(same)), 4)}


def _trie(docids: np.ndarray) -> Trie:
    count, length = docids.shape
    return Trie.of(Paths(docids.ravel(), np.arange(count + 1) * length, np.arange(count)))


def _following(docids: np.ndarray) -> dict[tuple[int, ...], list[int]]:
    """The peer's constraint: prefix to next tokens, as a dict."""
    following: dict[tuple[int, ...], set[int]] = {}
    for docid in map(tuple, docids.tolist()):
        for depth in range(len(docid)):
            following.setdefault(docid[:depth], set()).add(docid[depth])
    return {prefix: sorted(symbols) for prefix, symbols in following.items()}


def _model(options: DecodeOptions) -> Any:
    from transformers import T5Config, T5ForConditionalGeneration

    config = T5Config(
        vocab_size=32_128,
        d_model=options.width,
        d_kv=64,
        num_heads=6,
        d_ff=2 * options.width,
        num_layers=options.layers,
        feed_forward_proj="gated-gelu",
    )
    config.decoder_start_token_id = 0
    return T5ForConditionalGeneration(config).eval()
