"""Constrained decoding beside transformers' `generate`, in the same process, on the same weights.

The work: a T5 of random weights, docids of six symbols, queries of sixteen tokens. The peer is
`generate(prefix_allowed_tokens_fn=...)` over a dict of prefixes, as the field's code has it. A row's
`ratio` is the peer's time over ours, `overlap` the share of the peer's first ten that we find too, `identical`
how often the first ten are the same, and `not_worse` how often ours have at least the peer's probability.
`invalid` counts hits that are no documents, repeated or not finite. A search goes its `way` `plain`, step by step, or
`recorded`: in fixed shapes, which a GPU records and replays.
With `finish` on, a docid that no other shares its prefix with leaves the beam early and makes room. The hits can only
get better, so they need not be identical. With it off, the search is step for step the peer's.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np
import torch
from torch import Tensor

from triever.config import option, validate
from triever.docids.trie import Paths, Trie
from triever.docids.walk import Walk
from triever.errors import UsageError
from triever.lab.sizes import check_filled, check_memory, check_sizes
from triever.models.cross_decoder import Seq2SeqGenerator
from triever.models.docid_model import laid_out
from triever.models.fused_decoder import FusedGenerator
from triever.models.precision import device_of, fast_dtype
from triever.models.t5 import T5, from_transformers
from triever.progress import track
from triever.search.beam import BeamOptions, beam
from triever.search.hits import documents
from triever.search.scores import Normalisation
from triever.search.steady_search import SteadySearch

if TYPE_CHECKING:
    from transformers import T5ForConditionalGeneration

ScoredNumbers: TypeAlias = list[tuple[int, float]]
"""Documents and their log-probabilities, best first."""
Allowed: TypeAlias = Callable[[int, Tensor], list[int]]
"""From the row of a batch and what is written there to the tokens that may follow."""

VOCABULARY = 32_128
FIRST_TOKEN = 1000
"""Docid symbol i is token 1000 + i of the model's vocabulary."""
FILLED_UP = -1e8
"""If there are fewer docids than beams, the peer fills up with other sequences, whose scores are below this."""
NORMALISATIONS: tuple[Normalisation, ...] = ("trie", "vocabulary")
HEADS, HEAD = 6, 64
SETTING = ("queries", "beams", "normalisation", "dtype", "finish", "way")
"""What a row was measured with."""
LEAST = 2 / 3
"""The share of an earlier ratio below which a benchmark fails."""


@dataclass(frozen=True)
class DecodeOptions:
    """The size of the work; the defaults are the reference."""

    docids: int = option(100_000, "how many docids")
    length: int = option(6, "symbols in a docid")
    symbols: int = option(256, "how many different symbols")
    queries: tuple[int, ...] = option((8,), "queries in a batch")
    beams: tuple[int, ...] = option((10, 40), "widths of the beam")
    rounds: int = option(3, "how often each is timed; the median counts")
    query_tokens: int = option(16, "tokens in a query")
    device: str = option("cpu", "cpu, cuda, or auto: cuda where there is one")
    dtypes: tuple[Literal["auto", "float32", "bfloat16", "float16"], ...] = option(
        ("auto",), "what our model computes in; auto is float32, and bfloat16 beside it where the hardware has it"
    )
    layers: int = option(8, "layers of the encoder and of the decoder")
    width: int = option(512, "the model's width")
    finish: tuple[bool, ...] = option((True, False), "finish lone docids in one pass, or step by step")
    ways: tuple[Literal["plain", "recorded"], ...] = option(
        ("plain", "recorded"), "step by step, or in fixed shapes, which a GPU records once and replays"
    )
    peer: bool = option(True, "run the peer too")
    peer_dtype: Literal["float32", "bfloat16", "float16"] = option("float32", "what the peer computes in")

    def __post_init__(self) -> None:
        validate(self)
        check_sizes(self, "docids", "length", "symbols", "queries", "beams", "rounds")
        check_sizes(self, "query_tokens", "layers", "width")
        check_filled(self, "dtypes", "finish", "ways")
        object.__setattr__(self, "device", str(device_of(self.device)))
        if self.symbols > VOCABULARY - FIRST_TOKEN:
            problem = f"symbols = {self.symbols:,} is more than the model's vocabulary has room for"
            raise UsageError(problem, f"set at most {VOCABULARY - FIRST_TOKEN:,}")

    def check_memory(self) -> None:
        """Refuse work for which the memory is not enough, by a rough count of docids, weights and beams."""
        docids = self.docids * self.length * (400 if self.peer else 50)  # the peer's are a dict of tuples
        check_memory(docids, "cpu", "docids or length")
        weights = 2 * VOCABULARY * self.width + 12 * self.layers * self.width * (HEADS * HEAD + self.width)
        kept = VOCABULARY + 2 * self.layers * HEADS * HEAD * (self.length + self.query_tokens)
        numbers = weights + max(self.queries) * max(self.beams) * kept
        check_memory(3 * 4 * numbers, self.device, "queries, beams, length, layers or width")


def bench_decode(options: DecodeOptions | None = None) -> list[dict[str, object]]:
    """One row for each batch, beam, normalisation and type."""
    chosen = options or DecodeOptions()
    chosen.check_memory()
    work = Work(chosen)
    cells = [(queries, width) for queries in chosen.queries for width in chosen.beams]
    return [row for cell in track(cells, "decoding", unit="settings") for row in work.rows(*cell)]


@dataclass(frozen=True)
class Compared:
    """How the rows of a benchmark compare with earlier ones."""

    matched: int  # rows that were there before
    slower: tuple[str, ...]  # what became slower, and by how much
    invalid: int  # hits that are no documents, repeated or not finite
    hits: int

    def text(self) -> str:
        """The same in words."""
        if not self.matched:
            return "no row has the setting of an earlier one, so that nothing can be compared"
        found = "; ".join(self.slower) or f"none of {self.matched} settings is a third slower than before"
        return f"{found}; {self.invalid} of {self.hits} hits are invalid"


def compared(rows: Sequence[Mapping[str, object]], earlier: Sequence[Mapping[str, object]]) -> Compared:
    """Compare ratios to generate: those of the same run, so that the machine's other work counts for both."""
    before = {_setting(row): row for row in earlier if "ratio" in row}
    matched = [(row, before[_setting(row)]) for row in rows if "ratio" in row and _setting(row) in before]
    slower = [
        f"{', '.join(f'{name} {row[name]}' for name in SETTING if name in row)}: {row['ratio']} times generate, "
        f"{old['ratio']} before"
        for row, old in matched
        if float(str(row["ratio"])) < LEAST * float(str(old["ratio"]))
    ]
    invalid, hits = (sum(int(str(row.get(name, 0))) for row in rows) for name in ("invalid", "hits"))
    return Compared(len(matched), tuple(slower), invalid, hits)


def _setting(row: Mapping[str, object]) -> tuple[object, ...]:
    return tuple(row.get(name, "plain" if name == "way" else None) for name in SETTING)


class Work:
    """The model, the docids and the queries."""

    def __init__(self, options: DecodeOptions) -> None:
        torch.manual_seed(0)
        chance = np.random.default_rng(0)
        self.options = options
        self.docids = np.unique(chance.integers(0, options.symbols, (options.docids, options.length)), axis=0)
        self.walk = Walk(_trie(self.docids), options.device)
        self.peer = _model(options).to(options.device, getattr(torch, options.peer_dtype))
        self.ids = torch.from_numpy(chance.integers(2, 32_000, (max(options.queries), options.query_tokens)))
        self.tokens = FIRST_TOKEN + torch.arange(options.symbols, device=options.device)
        self._batch = self.ids

    def rows(self, queries: int, width: int) -> Iterator[dict[str, object]]:
        for normalisation in NORMALISATIONS:
            peer_seconds, expected = self._peer(queries, width, normalisation)
            for dtype, finish, way in itertools.product(self._dtypes(), self.options.finish, self.options.ways):
                options = BeamOptions(width=width, normalisation=normalisation, finish=finish)
                seconds, hits = self._ours(queries, options, dtype, way)
                row: dict[str, object] = {"queries": queries, "beams": width, "normalisation": normalisation}
                row |= {"dtype": dtype, "finish": finish, "way": way}
                row |= {"seconds": round(seconds, 5), "queries_per_second": round(queries / seconds, 1)}
                row |= {"hits": sum(map(len, hits)), "invalid": self.invalid(hits)}
                if peer_seconds:
                    row |= {"generate_seconds": round(peer_seconds, 4), "ratio": round(peer_seconds / seconds, 2)}
                    row |= agreement(expected, hits)
                yield row

    def invalid(self, hits: list[ScoredNumbers]) -> int:
        """How many hits are no documents, repeated, or without a finite score."""
        valid = (
            {number for number, score in found if 0 <= number < len(self.docids) and np.isfinite(score)}
            for found in hits
        )
        return sum(len(found) - len(numbers) for found, numbers in zip(hits, valid, strict=True))

    def _dtypes(self) -> list[str]:
        fast = str(fast_dtype(self.options.device)).removeprefix("torch.")
        named = (["float32", fast] if dtype == "auto" else [dtype] for dtype in self.options.dtypes)
        return list(dict.fromkeys(itertools.chain.from_iterable(named)))

    def _ours(self, queries: int, options: BeamOptions, dtype: str, way: str) -> tuple[float, list[ScoredNumbers]]:
        return self._timed(self.searching(queries, options, dtype, way))

    def searching(self, queries: int, options: BeamOptions, dtype: str, way: str) -> Callable[[], list[ScoredNumbers]]:
        """A function that searches once."""
        generator = self.generator(options.normalisation, dtype)
        walk, ids, k = self.walk_for(options.normalisation), self.ids[:queries], min(10, options.width)

        def plain() -> list[ScoredNumbers]:
            self._batch = ids
            return documents(walk, beam(generator, *generator.prefill([""] * queries), walk, options), k)

        if way == "plain":
            return plain
        search = SteadySearch(FusedGenerator(generator.model, generator.tokenise), walk)
        mask = torch.ones_like(ids)
        for _ in range(2):  # measured, then recorded
            search.search_tokens(ids, mask, options, k)
        return lambda: search.search_tokens(ids, mask, options, k)

    def generator(self, normalisation: str, dtype: str) -> Seq2SeqGenerator:
        """A generator of docid symbols alone; of the whole vocabulary only if the normalisation is over it."""
        model: T5 = from_transformers(self.peer)
        narrow = model.narrowed(self.tokens) if normalisation == "trie" else model
        narrow = narrow.to(self.options.device, getattr(torch, dtype))
        return Seq2SeqGenerator(laid_out(narrow), lambda _texts: (self._batch, torch.ones_like(self._batch)))

    def walk_for(self, normalisation: str) -> Walk:
        if normalisation == "trie":
            return self.walk
        if not hasattr(self, "_wide"):
            self._wide = Walk(_trie(self.docids + FIRST_TOKEN), self.options.device)
        return self._wide

    def _peer(self, queries: int, width: int, normalisation: str) -> tuple[float, list[ScoredNumbers]]:
        if not self.options.peer:
            return 0.0, []
        return self._timed(lambda: self._generate(queries, width, normalisation))

    def _generate(self, queries: int, width: int, normalisation: str) -> list[ScoredNumbers]:
        ids = self.ids[:queries].to(self.options.device)
        out = generated(
            self.peer,
            (ids, torch.ones_like(ids)),
            width,
            self.options.length,
            self._allowed,
            renormalize_logits=normalisation == "trie",
        )
        numbers = self._numbers(out.sequences[:, 1:].reshape(queries, -1, self.options.length))
        scores = out.sequences_scores.reshape(queries, -1).tolist()
        pairs = [list(zip(*row, strict=True)) for row in zip(numbers, scores, strict=True)]
        return [[(number, score) for number, score in row if score > FILLED_UP] for row in pairs]

    def _allowed(self, _batch: int, prefix: Tensor) -> list[int]:
        if not hasattr(self, "_following"):
            self._following = following(map(tuple, (self.docids + FIRST_TOKEN).tolist()))
        return self._following[tuple(prefix[1:].tolist())]

    def _numbers(self, sequences: Tensor) -> list[list[int]]:
        """The number of each docid in the sorted list, -1 for what is none."""
        if not hasattr(self, "_number_of"):
            self._number_of = {docid: number for number, docid in enumerate(map(tuple, self.docids.tolist()))}
        return [[self._number_of.get(tuple(docid), -1) for docid in row] for row in (sequences - FIRST_TOKEN).tolist()]

    def _timed(self, run: Callable[[], list[ScoredNumbers]]) -> tuple[float, list[ScoredNumbers]]:
        hits = run()  # not counted: the first call prepares things
        times = []
        for _ in range(self.options.rounds):
            self._wait()
            started = time.perf_counter()
            run()
            self._wait()
            times.append(time.perf_counter() - started)
        return float(np.median(times)), hits

    def _wait(self) -> None:
        if self.options.device.startswith("cuda"):
            torch.cuda.synchronize()


def agreement(expected: list[ScoredNumbers], hits: list[ScoredNumbers]) -> dict[str, float]:
    """How the first ten compare: as sets, as lists, and by the sum of their probabilities."""
    pairs = list(zip(expected, hits, strict=True))
    overlap = [len(dict(peers).keys() & dict(ours).keys()) / max(len(peers), 1) for peers, ours in pairs]
    identical = [[number for number, _ in peers] == [number for number, _ in ours] for peers, ours in pairs]
    not_worse = [_mass(ours) >= _mass(peers) * (1 - 1e-4) for peers, ours in pairs]
    columns = {"overlap": overlap, "identical": identical, "not_worse": not_worse}
    return {name: round(float(np.mean(values)), 4) for name, values in columns.items()}


def _mass(hits: ScoredNumbers) -> float:
    return float(np.exp([score for _, score in hits]).sum())


def _trie(docids: np.ndarray) -> Trie:
    count, length = docids.shape
    return Trie.of(Paths(docids.ravel(), np.arange(count + 1) * length, np.arange(count)))


def following(docids: Iterable[tuple[int, ...]]) -> dict[tuple[int, ...], list[int]]:
    """The peer's constraint: prefix to next tokens, as a dict."""
    after: dict[tuple[int, ...], set[int]] = {}
    for docid in docids:
        for depth in range(len(docid)):
            after.setdefault(docid[:depth], set()).add(docid[depth])
    return {prefix: sorted(symbols) for prefix, symbols in after.items()}


def generated(
    model: Any, texts: tuple[Tensor, Tensor], width: int, longest: int, allowed: Allowed, **more: object
) -> Any:
    """What a model of transformers writes behind the tokens and the mask of texts under a constraint: the ten best."""
    ids, mask = texts
    return model.generate(
        input_ids=ids,
        attention_mask=mask,
        num_beams=width,
        num_return_sequences=min(width, 10),
        max_new_tokens=longest,
        length_penalty=0.0,
        do_sample=False,
        prefix_allowed_tokens_fn=allowed,
        return_dict_in_generate=True,
        output_scores=True,
        **more,
    )


def _model(options: DecodeOptions) -> T5ForConditionalGeneration:
    from transformers import T5Config, T5ForConditionalGeneration

    config = T5Config(
        vocab_size=VOCABULARY,
        d_model=options.width,
        d_kv=HEAD,
        num_heads=HEADS,
        d_ff=2 * options.width,
        num_layers=options.layers,
        feed_forward_proj="gated-gelu",
    )
    config.decoder_start_token_id = 0
    return T5ForConditionalGeneration(config).eval()
