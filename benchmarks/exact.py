"""Exact search beside beams, on the same models: `python benchmarks/exact.py --out benchmarks/exact.json`.

The work is that of `triever bench decode`, with a T5 of random weights whose vocabulary is that of the docids. The
model `random` scores symbols by its weights alone, over docids of six symbols out of 256. `peaked` does the same work,
and then scores symbols as a trained model does that knows much and not everything: for each query those of one docid
are likelier than others at their places. Its docids are of five symbols out of 16, so that a tenth of all that can be
written exists, as with docids of clusters.

`ratio_10` and `ratio_40` say how many times longer the exact search for ten documents takes than a beam of 10 and of
40; all take turns, and the medians count. `opened` is the mean number of prefixes that were opened for a query, `most`
the highest, `certified` the share of queries with a certificate, `beam_10` the share of the certified first ten that
the beam finds too. `bookkeeping` is the share of the time that is not spent in the model, from a run of its own in
which the device is waited for. `--profile` prints the functions that take the most time instead.
"""

from __future__ import annotations

import argparse
import cProfile
import itertools
import pstats
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor

from triever.lab import results
from triever.lab.bench_decode import DecodeOptions, Work, agreement
from triever.models.cross_decoder import Seq2SeqCache, Seq2SeqGenerator
from triever.models.docid_model import laid_out
from triever.models.generator import Generator, of_candidates
from triever.models.precision import device_of
from triever.models.t5 import from_transformers
from triever.search.beam import BeamOptions, beam
from triever.search.exact import Certified, exact
from triever.search.hits import documents
from triever.search.scores import Normalisation
from triever.terminal import emit, table

T = TypeVar("T")
NORMALISATIONS: tuple[Normalisation, ...] = ("trie", "vocabulary")
K = 10
KNOWN, UNSURE = 5.0, 1.0
"""What a peaked model adds to the scores of a docid's symbols, and how far those of all symbols differ by chance."""
SHAPES = {"random": {"symbols": 256, "length": 6}, "peaked": {"symbols": 16, "length": 5}}


SETTING = ("label", "device", "model", "normalisation", "queries")


class Peaked(Seq2SeqGenerator):
    """A generator whose scores depend on the query and the place; its states also hold the numbers of these two."""

    def __init__(self, inner: Seq2SeqGenerator, beliefs: Tensor) -> None:
        super().__init__(inner.model, inner.tokenise)
        self.beliefs = beliefs  # (queries, length, symbols)

    def prefill(self, prompts: list[str]) -> tuple[Seq2SeqCache, Tensor]:
        cache, states = super().prefill(prompts)
        return cache, self._noted(cache, states[:, None])[:, 0]

    def extend(self, cache: Seq2SeqCache, parents: Tensor, tokens: Tensor) -> tuple[Seq2SeqCache, Tensor]:
        after, states = super().extend(cache, parents, tokens)
        return after, self._noted(after, states)

    def _noted(self, cache: Seq2SeqCache, states: Tensor) -> Tensor:
        written = cache.past[0][0].shape[2] - 1
        place = torch.arange(written + 1 - states.shape[1], written + 1, device=states.device)
        numbers = torch.stack([cache.text[:, None].expand(states.shape[:2]), place.expand(states.shape[:2])], 2)
        return torch.cat([states, numbers.to(states)], 2)

    def logits(self, hidden: Tensor, candidates: Tensor | None = None) -> Tensor:
        query, place = hidden[..., -2].long(), hidden[..., -1].long()
        known = self.beliefs[query, place.clamp(max=self.beliefs.shape[1] - 1)]
        known = known if candidates is None else of_candidates(known, candidates)
        return known + 0.01 * super().logits(hidden[..., :-2], candidates)


class Made:
    """The work with one model: `Made("peaked", options, "float32")`."""

    def __init__(self, name: str, options: DecodeOptions, dtype: str) -> None:
        self.work = Work(replace(options, **SHAPES[name]))
        model = from_transformers(self.work.peer).narrowed(self.work.tokens)
        self.model = laid_out(model.to(options.device, getattr(torch, dtype)))
        self.peaked = name == "peaked"

    def generator(self, queries: int) -> Seq2SeqGenerator:
        ids = self.work.ids[:queries]
        plain = Seq2SeqGenerator(self.model, lambda _texts: (ids, torch.ones_like(ids)))
        return Peaked(plain, self._beliefs(queries)) if self.peaked else plain

    def _beliefs(self, queries: int) -> Tensor:
        chance, docids, options = np.random.default_rng(1), self.work.docids, self.work.options
        beliefs = UNSURE * chance.standard_normal((queries, options.length, options.symbols))
        targets = docids[chance.integers(0, len(docids), queries)]
        beliefs[np.arange(queries)[:, None], np.arange(options.length), targets] += KNOWN
        return torch.from_numpy(beliefs).to(options.device, torch.float32)


class Timed:
    """A generator that counts the seconds that are spent in it."""

    def __init__(self, inner: Seq2SeqGenerator) -> None:
        self.inner, self.width, self.device = inner, inner.width, inner.device
        self.seconds = 0.0

    def prefill(self, prompts: list[str]) -> tuple[Seq2SeqCache, Tensor]:
        return self._counted(lambda: self.inner.prefill(prompts))

    def extend(self, cache: Seq2SeqCache, parents: Tensor, tokens: Tensor) -> tuple[Seq2SeqCache, Tensor]:
        return self._counted(lambda: self.inner.extend(cache, parents, tokens))

    def logits(self, hidden: Tensor, candidates: Tensor | None = None) -> Tensor:
        return self._counted(lambda: self.inner.logits(hidden, candidates))

    def _counted(self, run: Callable[[], T]) -> T:
        took, made = timed(run, self.device)
        self.seconds += took
        return made


def timed(run: Callable[[], T], device: torch.device) -> tuple[float, T]:
    """The seconds of a call: those of the processor, as other work comes and goes, or those on the clock for a GPU."""
    if device.type != "cuda":
        begun = time.process_time()
        made = run()
        return time.process_time() - begun, made
    torch.cuda.synchronize()
    begun = time.perf_counter()
    made = run()
    torch.cuda.synchronize()
    return time.perf_counter() - begun, made


def row_of(made: Made, queries: int, normalisation: Normalisation, budget: int, rounds: int) -> dict[str, object]:
    generator, walk = made.generator(queries), made.work.walk_for("trie")
    asked = [""] * queries

    def searched(own: Generator) -> list[Certified]:
        return exact(own, *own.prefill(asked), walk, K, budget=budget, normalisation=normalisation)

    def beamed(width: int) -> list[list[tuple[int, float]]]:
        options = BeamOptions(width, normalisation)
        return documents(walk, beam(generator, *generator.prefill(asked), walk, options), K)

    runs = {10: lambda: beamed(10), 40: lambda: beamed(40)}
    for run in runs.values():
        run()  # the first call prepares things
    times: dict[int, list[float]] = {0: [], 10: [], 40: []}
    for _ in range(rounds):
        took, found = timed(lambda: searched(generator), generator.device)
        times[0].append(took)
        for width, run in runs.items():
            times[width].append(timed(run, generator.device)[0])
    seconds = {width: float(np.median(turns)) for width, turns in times.items()}
    watched = Timed(generator)
    whole, found = timed(lambda: searched(watched), generator.device)
    opened = [result.opened for result in found]
    sure = [at for at, result in enumerate(found) if result.certified]
    row: dict[str, object] = {"normalisation": normalisation, "queries": queries, "seconds": round(seconds[0], 4)}
    row |= {f"ratio_{width}": round(seconds[0] / seconds[width], 2) for width in runs}
    row |= {"opened": round(float(np.mean(opened)), 1), "most": max(opened), "certified": len(sure) / queries}
    row["bookkeeping"] = round(1 - watched.seconds / whole, 3)
    beam_hits = beamed(10)
    shared = agreement([found[at].documents for at in sure], [beam_hits[at] for at in sure]) if sure else {}
    return {**row, "beam_10": shared.get("overlap", "")}


def profiled(made: Made, queries: int, normalisation: Normalisation, budget: int) -> None:
    generator, walk = made.generator(queries), made.work.walk_for("trie")
    cache, hidden = generator.prefill([""] * queries)
    profile = cProfile.Profile()
    profile.runcall(exact, generator, cache, hidden, walk, K, budget=budget, normalisation=normalisation)
    pstats.Stats(profile).sort_stats("tottime").print_stats(25)


def numbers(text: str) -> tuple[int, ...]:
    return tuple(int(number) for number in text.split(","))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--queries", type=numbers, default=(1, 8, 128))
    parser.add_argument("--docids", type=int, default=100_000)
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--budget", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", choices=tuple(SHAPES))
    parser.add_argument("--normalisation", choices=NORMALISATIONS)
    parser.add_argument("--profile", action="store_true")
    parser.add_argument("--label", default="now", help="which version of the search this is")
    parser.add_argument("--out", type=Path, help="rows of other settings in this file are kept")
    asked = parser.parse_args()
    sizes = {name: getattr(asked, name) for name in ("queries", "docids", "layers", "width")}
    options = DecodeOptions(**sizes, device=str(device_of(asked.device)), peer=False)
    wanted = [asked.normalisation] if asked.normalisation else NORMALISATIONS
    rows: list[dict[str, object]] = []
    for name in [asked.only] if asked.only else SHAPES:
        made = Made(name, options, asked.dtype)
        for normalisation, queries in itertools.product(wanted, asked.queries):
            if asked.profile:
                profiled(made, queries, normalisation, asked.budget)
                continue
            row = {
                "label": asked.label,
                "device": str(options.device),
                "budget": asked.budget,
                "rounds": asked.rounds,
                "model": name,
            }
            row |= row_of(made, queries, normalisation, asked.budget, asked.rounds)
            emit(", ".join(f"{key} {value}" for key, value in row.items()))
            rows.append(row)
    if rows:
        emit(table(rows))
    if asked.out:
        earlier = results.earlier_rows(asked.out) if asked.out.exists() else []
        measured = {tuple(row[name] for name in SETTING) for row in rows}
        kept = [row for row in earlier if tuple(row[name] for name in SETTING) not in measured]
        results.write(asked.out, results.benchmark(["python", *sys.argv], [*kept, *rows]))


if __name__ == "__main__":
    main()
