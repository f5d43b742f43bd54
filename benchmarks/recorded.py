"""Recorded searches on a GPU: `python benchmarks/recorded.py PART`, a part being one of these.

same: the documents of recorded and of plain searches, in float32 and bfloat16. kernels: each kernel against plain
torch, with its time. profile: where a GPU spends its time, kernel by kernel, before and after. pieces: the time of
reading, of the beam, and of looking documents up. scale [normalisation] [docids]: from 100,000 docids to ten million,
with peak memory. trained: how far bfloat16 agrees with float32 after a model has learned something. models: models of
other shapes, with `generate` and what the products alone would take. valid: a million hits, and how many of them are
none. others [documents]: rows of nodes, contextual titles and GDR, each in fixed shapes beside the search step by step;
and late interaction, where queries that are searched together are compared with queries one by one, and every document
with candidates. wiki [documents]: questions of dev.nq over pages of wiki60k with semantic docids, from texts to
results, by MiniLM with a decoder of two layers and by rows of nodes, with what weights and rows would take.
"""

from __future__ import annotations

import copy
import functools
import itertools
import json
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import torch
from transformers import LlamaConfig, LlamaForCausalLM, T5Config, T5ForConditionalGeneration

import triever
from triever import (
    GDR,
    Cluster,
    Contextual,
    Dataset,
    DecoderOptions,
    DocidTuning,
    Document,
    Generative,
    SearchOptions,
    Semantic,
)
from triever.data.sampling import sample
from triever.docids.contextual_vocabulary import Vocabulary
from triever.docids.trie import Paths, Trie
from triever.docids.walk import Walk
from triever.engines.match_scores import ScoredCandidates
from triever.engines.node_docids import Rows
from triever.engines.node_search import Found
from triever.engines.titles import writing_in
from triever.index.token_vectors import TokenIndex, TokenOptions
from triever.index.trie_vectors import TrieVectors
from triever.lab.bench_decode import FIRST_TOKEN, DecodeOptions, Work, agreement, following, generated
from triever.models import kernels
from triever.models.bert_reader import BertReader, BertSizes
from triever.models.causal import CausalDecoder, CausalGenerator
from triever.models.causal import from_transformers as causal_from_transformers
from triever.models.cross_decoder import Seq2SeqGenerator
from triever.models.even_causal import EvenCausalGenerator
from triever.models.fused_decoder import FusedGenerator
from triever.models.t5 import T5, T5Shape, from_transformers
from triever.search.beam import BeamOptions, beam
from triever.search.hits import documents
from triever.search.many import search_each
from triever.search.recorded import Recorded
from triever.search.scores import Normalisation
from triever.search.steady_beam import measured_beam, steady_beam, symbols_of
from triever.search.steady_search import SteadySearch

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
SIZES = ((1, 10), (128, 10), (128, 40))


def work(docids: int = 100_000, **others: object) -> Work:
    options = {"queries": (128,), "beams": (40,), "device": DEVICE, "peer": False, "peer_dtype": "float32", **others}
    return Work(DecodeOptions(docids=docids, **options))


def seconds(run: Callable[[], object], rounds: int = 20) -> float:
    """The median time of a call that waits for the device."""
    times = []
    for _ in range(rounds):
        wait()
        begun = time.perf_counter()
        run()
        wait()
        times.append(time.perf_counter() - begun)
    return sorted(times)[len(times) // 2]


def wait() -> None:
    if DEVICE == "cuda":
        torch.cuda.synchronize()


def say(**values: object) -> None:
    print(json.dumps(values), flush=True)


def same() -> None:
    made = work()
    for dtype in ("float32", "bfloat16"):
        for queries, width in SIZES:
            for normalisation in ("trie", "vocabulary"):
                for finish in (True, False):
                    options = BeamOptions(width, normalisation, finish=finish)
                    try:
                        plain, recorded = (
                            made.searching(queries, options, dtype, way)() for way in ("plain", "recorded")
                        )
                        row = agreement(plain, recorded) | {"invalid": made.invalid(recorded)}
                        row["farthest"] = max(
                            abs(one - other)
                            for before, after in zip(plain, recorded, strict=True)
                            for (_, one), (_, other) in zip(before, after, strict=True)
                        )
                    except Exception:  # so that the others are seen
                        row = {"failed": traceback.format_exc()[-1500:]}
                    say(dtype=dtype, queries=queries, beams=width, normalisation=normalisation, finish=finish, **row)


def kernel_times() -> None:
    torch.manual_seed(0)
    for dtype in (torch.float32, torch.bfloat16):
        for name, run in runs_of_kernels(dtype).items():
            compare(name, dtype, run)


def compare(name: str, dtype: torch.dtype, run: Callable[[], torch.Tensor]) -> None:
    """The results and times of a function in plain torch and in one kernel."""
    fused = kernels.fused
    try:
        kernels.fused = lambda _like: None
        expected, plain = run().float(), seconds(run)
        kernels.fused = fused
        result, quick = run().float(), seconds(run)
        far = float((result - expected).abs().max() / expected.abs().max())
        say(kernel=name, dtype=str(dtype), farthest=far, plain_us=plain * 1e6, fused_us=quick * 1e6)
    except Exception:  # so that the others are seen
        say(kernel=name, dtype=str(dtype), failed=traceback.format_exc()[-1500:])
    finally:
        kernels.fused = fused


def runs_of_kernels(dtype: torch.dtype) -> dict[str, Callable[[], torch.Tensor]]:
    """A call of every kernel in the sizes of a search for 128 queries with 40 beams."""
    texts, width, length, heads, size = 128, 40, 16, 6, 64
    rows, inner = texts * width, heads * size
    number = {"dtype": dtype, "device": DEVICE}
    logits = torch.randn(rows, 32_128, **number) * 3
    hidden, weight = torch.randn(rows, 512, **number), torch.randn(512, **number)
    both = torch.randn(rows, 2048, **number)
    query, looked_up = torch.randn(rows, inner, **number), torch.randn(texts, length, 16, inner, **number)
    mask = (torch.arange(length) < torch.randint(1, length + 1, (texts, 1))).to(DEVICE, torch.uint8)
    store = torch.randn(3 * rows, 3 * inner, **number)
    ancestors = torch.randint(0, 2 * rows, (rows, 4), device=DEVICE)
    ancestors[:, 3] = 2 * rows + torch.arange(rows, device=DEVICE)
    bias = torch.randn(heads, 4, device=DEVICE)
    near = torch.randn(heads, length, length, device=DEVICE)
    q, k, v = torch.randn(texts * length, 3 * inner, **number).split(inner, 1)
    k, v = k.view(texts, length, -1), v.view(texts, length, -1)
    return {
        "log_sum_exp": lambda: kernels.log_sum_exp(logits),
        "rms_norm": lambda: kernels.rms_norm(hidden, weight, 1e-6),
        "gated_gelu": lambda: kernels.gated_gelu(both),
        "attend_texts": lambda: kernels.attend_texts(query, looked_up[:, :, 0], looked_up[:, :, 1], mask, heads),
        "attend_own_text": lambda: kernels.attend_texts(q, k, v, mask, heads, near),
        "attend_paths": lambda: kernels.attend_paths(store, 2 * rows, rows, ancestors, bias, heads),
    }


def trained() -> None:
    """The overlap of bfloat16 with float32 after a short training, plain and recorded."""
    made = work(20_000, queries=(1024,))
    model: T5 = from_transformers(made.peer).narrowed(made.tokens).float()
    ids = made.ids.to(DEVICE)
    targets = torch.from_numpy(made.docids[: len(ids) * 19 : 19]).to(DEVICE)
    learn(model, ids, targets)
    walk = made.walk_for("trie")
    for normalisation in ("trie", "vocabulary"):
        options = BeamOptions(40, normalisation)
        found = {}
        for dtype in (torch.float32, torch.bfloat16):
            copied = copy.deepcopy(model).to(dtype)
            generator = Seq2SeqGenerator(copied, lambda _: (ids[:128], torch.ones_like(ids[:128])))
            found["plain", dtype] = documents(walk, beam(generator, *generator.prefill([""] * 128), walk, options), 10)
            search = SteadySearch(FusedGenerator(copied, generator.tokenise), walk)
            for _ in range(2):
                found["recorded", dtype] = search.search_tokens(*generator.tokenise([]), options, 10)
        right = sum(hits[0][0] == 19 * at for at, hits in enumerate(found["plain", torch.float32])) / 128
        for way, dtype in found:
            same_as = agreement(found["plain", torch.float32], found[way, dtype])
            say(normalisation=normalisation, way=way, dtype=str(dtype), first_is_right=right, **same_as)


def learn(model: T5, ids: torch.Tensor, targets: torch.Tensor, limit: float = 40) -> None:
    """Learn the docid of each query by heart, as far as it goes in some seconds."""
    optimizer = torch.optim.AdamW(model.train().parameters(), 5e-4)
    begun, step, loss = time.perf_counter(), 0, torch.tensor(0.0)
    while time.perf_counter() - begun < limit and step < 600:
        rows = torch.randint(0, len(ids), (256,), device=ids.device)
        with torch.autocast(DEVICE, torch.bfloat16):
            loss = model.loss(ids[rows], torch.ones_like(ids[rows]), targets[rows], -1)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        step += 1
        if step % 50 == 0 and float(loss) < 0.5:
            break
    say(steps=step, loss=float(loss))
    model.eval()


class BertStates(torch.nn.Module):
    """MiniLM's shape, with random weights."""

    def __init__(self) -> None:
        super().__init__()
        sizes = {"vocab_size": 30_522, "hidden_size": 384, "num_hidden_layers": 6, "num_attention_heads": 12}
        sizes |= {"intermediate_size": 1536, "max_position_embeddings": 512, "type_vocab_size": 2}
        rest = {"layer_norm_eps": 1e-12, "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
        self.module = BertReader(BertSizes(**sizes, **rest))
        for parameter in self.parameters():
            torch.nn.init.normal_(parameter, std=0.05) if parameter.dim() > 1 else torch.nn.init.ones_(parameter)

    def states(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        return self.module(input_ids=ids, attention_mask=mask).last_hidden_state


def minilm(made: Work) -> tuple[T5, type, type]:
    sizes = {"d_model": 384, "d_kv": 64, "heads": 6, "d_ff": 768, "encoder_layers": 0, "decoder_layers": 2}
    model = T5(T5Shape.for_docids(1, len(made.tokens), **sizes, pooled=True), BertStates())
    return model, Seq2SeqGenerator, FusedGenerator


def smollm(made: Work) -> tuple[CausalDecoder, type, type]:
    sizes = {"hidden_size": 576, "num_hidden_layers": 30, "num_attention_heads": 9, "num_key_value_heads": 3}
    config = LlamaConfig(vocab_size=49_152, intermediate_size=1536, **sizes)
    made.peer = LlamaForCausalLM(config).to(DEVICE)
    return causal_from_transformers(made.peer).narrowed(made.tokens), CausalGenerator, EvenCausalGenerator


def t5_base(made: Work) -> tuple[T5, type, type]:
    sizes = {"d_model": 768, "d_kv": 64, "num_heads": 12, "d_ff": 2048, "num_layers": 12}
    config = T5Config(vocab_size=32_128, feed_forward_proj="gated-gelu", decoder_start_token_id=0, **sizes)
    made.peer = T5ForConditionalGeneration(config).to(DEVICE).eval()
    return from_transformers(made.peer).narrowed(made.tokens), Seq2SeqGenerator, FusedGenerator


def models() -> None:
    """Other models beside each other: plain and recorded, with what both find."""
    made = work()
    walk = made.walk_for("trie")
    for make in (minilm, t5_base, smollm):
        for dtype in (torch.float32, torch.bfloat16):
            try:
                model, plain, steady = make(made)
                model = model.to(DEVICE, dtype).eval()
                for queries, width in ((1, 10), (64, 20), (128, 40)):
                    ids = made.ids[:queries].to(DEVICE) % 30_000
                    row = both_ways(walk, plain, steady, model, ids, width)
                    if make is not minilm and dtype == torch.bfloat16:  # generate knows no decoder behind MiniLM
                        row["generate_ms"] = seconds(lambda: by_generate(made, ids, width), 1) * 1e3  # noqa: B023
                    say(model=make.__name__, dtype=str(dtype), queries=queries, beams=width, **row)
            except Exception:  # so that the others are seen
                say(model=make.__name__, dtype=str(dtype), failed=traceback.format_exc()[-1500:])


def both_ways(walk: Walk, plain: type, steady: type, model: object, ids: torch.Tensor, width: int) -> dict[str, object]:
    options, texts = BeamOptions(width, "trie"), (ids, torch.ones_like(ids))
    generator, search = plain(model, lambda _: texts), SteadySearch(steady(model, lambda _: texts), walk)
    step_by_step = lambda: documents(walk, beam(generator, *generator.prefill([""] * len(ids)), walk, options), 10)  # noqa: E731
    recorded = lambda: search.search_tokens(*texts, options, 10)  # noqa: E731
    for _ in range(3):
        found = recorded()
    same_as = agreement(step_by_step(), found)
    times = {"plain_ms": seconds(step_by_step, 5) * 1e3, "recorded_ms": seconds(recorded, 10) * 1e3}
    return times | same_as | {"broken": search.recorded.broken, "limit_ms": limit_ms(model, ids, width)}


PRODUCTS, BANDWIDTH = 989e12, 4.8e12
"""What an H200 computes in bfloat16 in a second at most, and how many bytes it reads."""


def limit_ms(model: torch.nn.Module, ids: torch.Tensor, width: int, length: int = 6) -> float:
    """What the products with the weights take at least: read once a step, or multiplied with every prefix.

    A causal language model reads and writes with the same weights. A decoder looks queries up: their keys and
    values are made once.
    """
    sizes = {name: weight.numel() for name, weight in model.named_parameters() if weight.dim() == 2}
    products = {name: size for name, size in sizes.items() if "embed" not in name and not name.startswith("symbols")}
    reads = lambda name: name.startswith("reader") or ".cross.k" in name or ".cross.v" in name  # noqa: E731
    reading = sum(size for name, size in products.items() if reads(name))
    writing = sum(products.values()) if isinstance(model, CausalDecoder) else sum(products.values()) - reading
    rows = len(ids) * (1 + (length - 1) * width)  # one prefix for each query at the first step
    multiplied = 2 * (reading * ids.numel() + writing * rows) / PRODUCTS
    read = 2 * (reading + length * writing) / BANDWIDTH
    return 1e3 * max(multiplied, read)


def by_generate(made: Work, ids: torch.Tensor, width: int) -> None:
    """The peer under the same constraint, in bfloat16."""
    peer = made.peer.to(torch.bfloat16)
    start = 1 if peer.config.is_encoder_decoder else ids.shape[1]
    after = allowed_after(made)
    more = {"pad_token_id": 0, "eos_token_id": None, "renormalize_logits": True}
    generated(
        peer, (ids, torch.ones_like(ids)), width, 6, lambda _, prefix: after[tuple(prefix[start:].tolist())], **more
    )


@functools.cache
def allowed_after(made: Work) -> dict[tuple[int, ...], list[int]]:
    """Prefix to next tokens, as the field's code has it."""
    return following(map(tuple, (made.docids + FIRST_TOKEN).tolist()))


def valid(batches: int = 400) -> None:
    """Half a million hits under each normalisation, of queries that differ in every batch."""
    made = work()
    for normalisation in sys.argv[2:] or ("trie", "vocabulary"):
        options = BeamOptions(40, normalisation)
        generator, walk = made.generator(normalisation, "bfloat16"), made.walk_for(normalisation)
        search = SteadySearch(FusedGenerator(generator.model, generator.tokenise), walk)
        hits = invalid = 0
        try:
            for _ in range(batches):
                ids = torch.randint(2, 32_000, (128, 16), device=DEVICE)
                found = search.search_tokens(ids, torch.ones_like(ids), options, 10)
                hits, invalid = hits + sum(map(len, found)), invalid + made.invalid(found)
            row = {"hits": hits, "invalid": invalid}
        except Exception:  # so that the other is seen
            row = {"hits": hits, "failed": traceback.format_exc()[-1500:]}
        say(normalisation=normalisation, again=search.again, broken=search.recorded.broken, **row)


WIDE, LAYERS, ASKED = (384, 6, 128) if DEVICE == "cuda" else (32, 1, 8)  # on a processor only to see that it runs
Scored = list[list[tuple[int, float]]]


def others() -> None:
    """What is no beam over docids alone: engines of random weights over random documents, plain and recorded."""
    count = int(sys.argv[2]) if len(sys.argv) > 2 else 60_000
    words = [f"{a}{b}" for a in ("read", "open", "load", "dump", "sort", "join") for b in range(40)]
    chance = np.random.default_rng(0)
    queries = [" ".join(chance.choice(words, 12)) for _ in range(ASKED)]
    texts = ((" ".join(chance.choice(words, 20)), " ".join(words[at : at + 3])) for at in range(200))
    made = Dataset.of("random", [Document(f"d{at}", text, title) for at, (text, title) in enumerate(texts)])
    cases = {
        "nodes to a depth": lambda: nodes(made, count, stops=3),
        "nodes to the ends": lambda: nodes(made, count, stops=None),
        "nodes, every row": lambda: nodes(made, count, stops=0),
        "titles, T5's form": lambda: contextual(made, count, copied=False),
        "titles, BERT's form": lambda: contextual(made, count, copied=True),
        "titles, T5's form, bfloat16": lambda: contextual(made, count, copied=False, precision="bfloat16"),
        "gdr": lambda: gdr(made, count),
        "late interaction": lambda: late_interaction(count),
        "late interaction, every document": lambda: late_interaction(count, every=True),
    }
    for name, make in cases.items():
        try:
            begun = time.perf_counter()
            plain, recorded, facts = make()
            for _ in range(3):
                found = recorded(queries)
            same_as = agreement(plain(queries), found)
            far = [abs(dict(theirs)[number] - score) for theirs, ours in zip(plain(queries), found, strict=True)
                   for number, score in ours if number in dict(theirs)]  # fmt: skip
            times = {"plain_ms": seconds(lambda run=plain: run(queries), 3) * 1e3,
                     "recorded_ms": seconds(lambda run=recorded: run(queries), 10) * 1e3}  # fmt: skip
            same_as |= {"farthest": max(far, default=0.0), "took_s": time.perf_counter() - begun}
            say(case=name, documents=count, queries=ASKED, **times, **same_as, **facts())
        except Exception:  # so that the others are seen
            say(case=name, failed=traceback.format_exc()[-1500:])


Search = Callable[[list[str]], Scored]
Case = tuple[Search, Search, Callable[[], dict[str, object]]]
MINILM = f"scratch:hidden={WIDE},layers={LAYERS},heads={WIDE // 32},vocabulary=2000"
UNTRAINED = {"backbone": MINILM, "training": DocidTuning(steps=0), "device": DEVICE}


def random_tree(count: int, branch: int, levels: int, numbered: bool) -> Trie:
    """So many docids, each of some random symbols and, where they are numbered, its own number."""
    docids = np.random.default_rng(1).integers(0, branch, (count, levels))
    docids = np.concatenate([docids, np.arange(count)[:, None]], 1) if numbered else docids
    return Trie.of(Paths(docids.ravel(), np.arange(count + 1) * docids.shape[1], np.arange(count)))


def nodes(made: Dataset, count: int, stops: int | None) -> Case:
    """Three passages of each document, in clusters of three symbols."""
    scheme, options = Semantic(branch=3, leaf=10), SearchOptions(record=True)
    fitted = Generative(docids=scheme, decoder=DecoderOptions(rows="nodes"), search_options=options, **UNTRAINED)
    engine, passages = fitted.fit(made).engine, 3 * count
    row = np.random.default_rng(2).standard_normal((passages, WIDE), np.float32)
    row /= np.linalg.norm(row, axis=1, keepdims=True)
    rows = Rows(row.astype(np.float16), np.arange(passages) // 3, np.arange(passages), np.ones(passages, np.float32))
    engine = replace(engine, rows=rows, trie=random_tree(passages, 30, 3, numbered=True), scale=20.0)
    engine = replace(engine, depth=stops)
    steady = engine.made_steady()
    step_by_step = steady.plain

    def scored(found: list[Found]) -> Scored:
        return [best_documents(rows.owners[each.positions], each.logprobs) for each in found]

    facts = lambda: {"broken": steady.recorded.broken, "again": steady.again}  # noqa: E731
    return lambda asked: scored(step_by_step.search(asked, 10)), lambda asked: scored(steady.search(asked, 10)), facts


def best_documents(owners: np.ndarray, logprobs: np.ndarray) -> list[tuple[int, float]]:
    """The ten documents with the highest sums."""
    numbers, of = np.unique(owners, return_inverse=True)
    masses = np.full(len(numbers), -np.inf)
    np.logaddexp.at(masses, of, logprobs)
    order = np.lexsort((numbers, -masses))[:10]
    return list(zip(numbers[order].tolist(), masses[order].tolist(), strict=True))


def contextual(made: Dataset, count: int, copied: bool, precision: str = "float32") -> Case:
    """Titles of two to six tokens out of 8,000, of which each has up to five ids."""
    options = SearchOptions(width=10, record=True, precision=precision)
    engine = Contextual(decoder=DecoderOptions(copy=copied), search_options=options, **UNTRAINED).fit(made).engine
    chance, tokens = np.random.default_rng(1), 8_000
    several = chance.integers(1, 6, tokens + 1)
    several[-1] = 1  # the end
    start, shape = np.cumsum(several) - several, engine.docids.model.shape
    known = Vocabulary(start, several, torch.randn(several.sum(), shape.d_model) * 0.3)
    engine = writing_in(engine, known, engine.docids.model.start_row)
    titles = {(*(chance.zipf(1.2, chance.integers(2, 7)) % tokens).tolist(), tokens) for _ in range(count)}
    trie = Trie.of((title, number) for number, title in enumerate(sorted(titles)))
    engine = replace(engine, docids=replace(engine.docids, trie=trie, numbers=np.arange(len(titles))))
    steady, generator, walk, how = engine.made_steady(), engine.generator(), engine.docids.walk, options.beam(10)

    def step_by_step(asked: list[str]) -> Scored:
        find = lambda cache, hidden: documents(walk, beam(generator, cache, hidden, walk, how), 10)  # noqa: E731
        return search_each(generator, asked, find)

    facts = lambda: {"broken": steady.recorded.broken, "again": steady.again, "ids": len(known)}  # noqa: E731
    return step_by_step, lambda asked: steady.search(asked, how, 10), facts


def gdr(made: Dataset, count: int) -> Case:
    """Documents in clusters of three symbols."""
    options = SearchOptions(width=10, record=True)
    engine = GDR(docids=Cluster(clusters=50, branch=10), search_options=options, **UNTRAINED).fit(made).engine
    width, numbers = engine.docids.model.shape.width, np.arange(count)
    trie = random_tree(count, width, 3, numbered=False)
    below = TrieVectors.of(trie, numbers, np.random.default_rng(2).standard_normal((count, WIDE), np.float32), DEVICE)
    engine = replace(engine, docids=replace(engine.docids, trie=trie, numbers=numbers), below=below, taught=None)
    engine = replace(engine, matching=replace(engine.matching, depth=None))
    steady, scoring = engine.made_steady(), engine.scoring

    def scored(found: list[ScoredCandidates]) -> Scored:
        pairs = (sorted(zip(each.numbers.tolist(), each.scores.tolist(), strict=True), key=lambda pair: -pair[1])
                 for each in found)  # fmt: skip
        return [each[:10] for each in pairs]

    facts = lambda: {"broken": steady.recorded.broken, "again": steady.again, "alone": steady.alone, "symbols": width}  # noqa: E731
    return (
        lambda asked: scored(steady.plain.best(asked, scoring, 10)),
        lambda asked: scored(steady.best(asked, scoring, 10)),
        facts,
    )


def late_interaction(count: int, *, every: bool = False) -> Case:
    """Documents of 30 tokens, queries of 16. Nothing is recorded: both ways differ only in copies to the host.

    Where every document is compared, the first way is still that by candidates: how many of its hits are the same?
    """
    chance = np.random.default_rng(1)
    flat = chance.standard_normal((30 * count, 64), np.float32)
    flat /= np.linalg.norm(flat, axis=1, keepdims=True)
    index = TokenIndex.of(
        flat.astype(np.float16), 30 * np.arange(count + 1), TokenOptions(centroids=256, device=DEVICE)
    )
    together = index.rebuilt(TokenOptions(candidates=0, device=DEVICE)) if every else index
    asked = flat[chance.integers(0, len(flat), (ASKED, 16))] + 0.1 * chance.standard_normal((ASKED, 16, 64), np.float32)

    def scored(scores: np.ndarray, rows: np.ndarray) -> Scored:
        return [list(zip(*each, strict=True)) for each in zip(rows.tolist(), scores.tolist(), strict=True)]

    def one_by_one(_queries: list[str]) -> Scored:
        return [found for query in asked for found in scored(*index.search(query[None], None, 10))]

    return one_by_one, lambda _queries: scored(*together.search(asked, None, 10)), dict


def wiki() -> None:
    """Real titles, texts and questions, and the whole way from a question to its result; nothing is trained."""
    count = int(sys.argv[2]) if len(sys.argv) > 2 else 60_000
    data = triever.load_dataset("wiki60k")
    data = data if count == 60_000 else sample(data, count, splits=["dev.nq"])
    asked = [query.text for query in itertools.islice(data.queries("dev.nq"), 1 + ASKED)]
    untrained = {"docids": Semantic(), "training": DocidTuning(steps=0), "device": DEVICE}
    for rows, widths in (("random", (10, 40)), ("nodes", (10, 100))):
        fitted = Generative(decoder=DecoderOptions(rows=rows), **untrained).fit(data)
        for count, width in ((1, widths[0]), (ASKED, widths[0]), (ASKED, widths[1])):
            compare_searches(rows, fitted, asked[:count], width)


def compare_searches(rows: str, fitted: Generative, queries: list[str], width: int) -> None:
    """A search step by step and recorded, of the same retriever."""
    plain, recorded = (fitted.searching(width=width, record=record) for record in (False, True))
    for _ in range(3):
        found = recorded.search_many(queries, 10)
    pairs = zip(plain.search_many(queries, 10), found, strict=True)
    overlap = np.mean([len({hit.id for hit in one} & {hit.id for hit in other}) / 10 for one, other in pairs])
    times = {"plain_ms": seconds(lambda: plain.search_many(queries, 10), 5) * 1e3,
             "recorded_ms": seconds(lambda: recorded.search_many(queries, 10), 10) * 1e3}  # fmt: skip
    limit = limit_of_rows(fitted, queries) if rows == "nodes" else limit_of_symbols(fitted, queries, width)
    say(rows=rows, queries=len(queries), beams=width, overlap=float(overlap), **times, limit_ms=limit)


def limit_of_symbols(fitted: Generative, queries: list[str], width: int) -> float:
    docids = fitted.engine.docids
    return limit_ms(docids.model, docids.generator().tokenise(queries)[0], width, docids.walk.longest)


def limit_of_rows(fitted: Generative, queries: list[str]) -> float:
    """What it takes at least to read the weights and every row once, or to multiply them with tokens and queries."""
    engine = fitted.engine
    weights = {name: weight.numel() for name, weight in engine.reader.named_parameters() if weight.dim() == 2}
    reading = sum(size for name, size in weights.items() if "embed" not in name)
    tokens = len(queries) * max(map(len, engine.reader.tokenizer.ids(queries)))
    multiplied = 2 * (reading * tokens + engine.rows.row.size * len(queries)) / PRODUCTS
    return 1e3 * max(multiplied, 2 * (reading + engine.rows.row.size) / BANDWIDTH)


def profile() -> None:
    from torch.profiler import ProfilerActivity
    from torch.profiler import profile as profiled

    made = work()
    for normalisation in ("trie", "vocabulary"):
        for queries, width in ((128, 40), (1, 10)):
            for way in sys.argv[2:] or ("plain", "recorded"):
                run = made.searching(queries, BeamOptions(width, normalisation), "bfloat16", way)
                for _ in range(3):
                    run()
                took = seconds(run, 10)
                with profiled(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as watched:
                    run()
                    wait()
                print(f"\n== {way} {normalisation} {queries} x {width}: {took * 1000:.2f} ms", flush=True)
                rows = [row for row in watched.key_averages() if row.self_device_time_total > 0]
                rows.sort(key=lambda row: -row.self_device_time_total)
                total, count = sum(row.self_device_time_total for row in rows), sum(row.count for row in rows)
                print(f"device busy {total / 1000:.3f} ms in {count} kernels and copies")
                for row in rows[:32]:
                    print(f"{row.self_device_time_total:9.1f} us {row.count:5d} x  {row.key[:110]}")


def pieces() -> None:
    made = work()
    for normalisation in ("trie", "vocabulary"):
        for queries, width in SIZES:
            say(normalisation=normalisation, queries=queries, beams=width, **times(made, queries, width, normalisation))


@torch.inference_mode()
def times(made: Work, queries: int, width: int, normalisation: Normalisation) -> dict[str, object]:
    """Milliseconds of a recorded search and of its parts, each recorded by itself."""
    options = BeamOptions(width, normalisation)
    generator, walk = made.generator(normalisation, "bfloat16"), made.walk_for(normalisation)
    fused = FusedGenerator(generator.model, generator.tokenise)
    search, parts = SteadySearch(fused, walk), Recorded()
    ids = made.ids[:queries].to(DEVICE)
    texts = ids, torch.ones_like(ids)
    outcome, plan = measured_beam(fused, *fused.read(*texts), walk, options, width)
    runs = {
        "whole": lambda: search.search_tokens(*texts, options, 10),
        "encoder": lambda: parts("states", lambda ids, mask: (fused.states(ids, mask),), texts),
        "encoder_and_first_step": lambda: parts("read", lambda ids, mask: (fused.read(ids, mask)[1],), texts),
        "all_on_device": lambda: parts(
            "beam",
            lambda ids, mask: (
                steady_beam(fused, *fused.read(ids, mask, queries * symbols_of(plan)), walk, options, plan).needs,
            ),
            texts,
        ),
        "documents": lambda: documents(walk, outcome.frontier, 10),
    }
    for run in runs.values():
        for _ in range(3):
            run()
    measured = {f"{name}_ms": round(seconds(run) * 1e3, 3) for name, run in runs.items()}
    rooms = [(room.beams, room.lone, room.tail) for room in plan]
    return measured | {"plan": rooms, "again": search.again, "broken": search.recorded.broken + parts.broken}


def scale() -> None:
    """Of the numbers of docids and the normalisations that are named, or of all."""
    named = [word for word in sys.argv[2:] if not word.isdigit()]
    for count in [int(word) for word in sys.argv[2:] if word.isdigit()] or (100_000, 1_000_000, 10_000_000):
        made = work(count)
        for normalisation in named or ("trie", "vocabulary"):
            torch.cuda.reset_peak_memory_stats()
            run = made.searching(128, BeamOptions(40, normalisation), "bfloat16", "recorded")
            took = seconds(run)
            say(
                docids=count,
                normalisation=normalisation,
                ms=took * 1e3,
                queries_per_second=128 / took,
                peak_gib=torch.cuda.max_memory_allocated() / 2**30,
            )


PARTS = {
    "same": same,
    "trained": trained,
    "models": models,
    "kernels": kernel_times,
    "profile": profile,
    "pieces": pieces,
    "scale": scale,
    "valid": valid,
    "others": others,
    "wiki": wiki,
}

if __name__ == "__main__":
    PARTS[sys.argv[1]]()
