"""The memory of every system as the corpus grows: counted in built engines, and computed for larger sizes.

    python benchmarks/memory.py [--sizes 10000 100000 1000000]

No model is trained and no text is read: the size of an index depends on how many words, vectors and docids there are,
not on what they say. Vectors and symbols are drawn, models have MiniLM's shape and random weights, and the engines of
the retrievers are put together from them. Systems that take long to build, or would not fit, are built in smaller
sizes. Each part is counted in the engine, and computed from settings and numbers alone; for 10 million documents and
more it is only computed. To check the growth, each size is also predicted from the engine of the size before, and by a
straight line through two sizes.

A document has 100 words (those that are left without stop words), 120 tokens, and a title of four pieces.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch

from triever.arrays import starts_of
from triever.data.store import SCHEMA, DocumentStore
from triever.docids.cluster_tree import Tree
from triever.docids.contextual_vocabulary import Vocabulary
from triever.docids.schemes import Atomic, Cluster, Codebook, Naive, Numbering, Scheme, Semantic, Title
from triever.docids.trie import Paths, Trie, TrieShape
from triever.engines.base import Engine
from triever.engines.clusters import ClusterEngine
from triever.engines.docid_search import SearchOptions
from triever.engines.docids import DocidEngine, Docids, Reading
from triever.engines.encoded import DenseEngine, LateEngine, TextReading
from triever.engines.lexical import LexicalEngine, Terms, Weighting
from triever.engines.match_scores import MatchOptions
from triever.engines.reranked import RerankedEngine, Reranker
from triever.engines.titles import SpellingOptions, TitleEngine, TitleReading
from triever.evaluation.memory_analysis import arithmetic
from triever.index.codec import BUCKETS, Codec, centroid_count
from triever.index.finders import Lists, _list_count, _piece_count
from triever.index.token_lists import TokenLists
from triever.index.token_vectors import TokenIndex, TokenOptions
from triever.index.trie_vectors import TrieVectors
from triever.index.vectors import IndexOptions, VectorIndex
from triever.lab import results
from triever.memory_parts import Products, Stored, computed, fitted, part_sizes
from triever.models.backbones import Backbone, learn_tokenizer
from triever.models.decoders import DecoderOptions, cross_decoder, docid_model
from triever.models.docid_model import DocidModel
from triever.models.encoder import Encoder, EncoderShape
from triever.models.tokens import Tokens
from triever.terminal import emit, note, table

HIDDEN, PIECES = 384, 30_522
MINILM = {
    "model_type": "bert",
    "vocab_size": PIECES,
    "hidden_size": HIDDEN,
    "num_hidden_layers": 6,
    "num_attention_heads": 12,
    "intermediate_size": 1536,
    "max_position_embeddings": 512,
    "type_vocab_size": 2,
    "layer_norm_eps": 1e-12,
    "hidden_dropout_prob": 0.1,
    "attention_probs_dropout_prob": 0.1,
    "pad_token_id": 0,
}
WORDS, COMMON, TOKENS, TITLE, KEPT = 100, 300, 120, 4, 5
"""Words of a document, frequent words (half of all), tokens of a document, pieces of a title, ids of a piece."""
TOKEN_WIDTH = 128
READING = TextReading(64, 256)
CLUSTERS, BRANCH, LEAF = 1000, 10, 100
LARGE = (10**7, 10**8, 10**9)
SMALL_SIZES = (1_000, 10_000, 100_000)
GRAPH_SIZES = (10_000, 30_000, 100_000)


@dataclass(frozen=True)
class Built:
    """The parts of a built system, and a function that computes them for other numbers of documents."""

    stored: Stored
    products: Callable[[int], Mapping[str, Products]]


def of(engine: Engine, documents: int) -> Built:
    """The parts of an engine, as it counts and computes them itself."""
    return Built(engine.stored(), partial(engine.products, documents))


def chance(documents: int) -> np.random.Generator:
    return np.random.default_rng(documents)


# --- models ---------------------------------------------------------------------------------------------------


@cache
def backbone() -> Backbone:
    return Backbone("minilm's shape", "nothing pretrained", "none", learn_tokenizer(["a"], 300), MINILM)


@cache
def encoder(size: int = 0) -> Encoder:
    return Encoder(backbone(), EncoderShape("mean", size, "linear" if size else "none"))


def writer(width: int, *, single: bool = False) -> DocidModel:
    return docid_model(encoder(), width, DecoderOptions(), None, 0, single=single)


# --- documents and words --------------------------------------------------------------------------------------


def documents(count: int) -> Built:
    """Texts of a hundred words, drawn from a pool of a thousand such texts."""
    draw = chance(0)
    pool = pa.array([" ".join(f"{word:06x}" for word in drawn(draw, WORDS)) for _ in range(1000)])
    texts = pool.take(pa.array(draw.integers(0, len(pool), count)))
    numbers = np.char.zfill(np.arange(count).astype(str), 9)
    columns = {
        "id": pa.array(numbers),
        "title": pa.array(np.char.add("title ", numbers)),
        "text": texts.cast(pa.large_string()),
        "metadata": pa.array([""]).take(pa.array(np.zeros(count, np.int64))),
        "expansions": pa.array([[]], pa.list_(pa.string())).take(pa.array(np.zeros(count, np.int64))),
    }
    store = DocumentStore(pa.table(columns).cast(SCHEMA))
    return Built(store.stored(), store.products)


def drawn(draw: np.random.Generator, count: int) -> np.ndarray:
    """Words by their ranks, by Zipf's law in Mandelbrot's form: a few are frequent, and new ones never end."""
    return (COMMON * draw.pareto(1, count)).astype(np.int64)


@cache
def word_index(count: int) -> LexicalEngine:
    ranks = drawn(chance(count), count * WORDS)
    _, first, word = np.unique(ranks, return_index=True, return_inverse=True)
    number = np.empty(len(first), np.int64)
    number[np.argsort(first)] = np.arange(len(first))  # words are numbered as they come
    names = [f"{rank:07x}" for rank in range(len(first))]
    terms = Terms("none", names, np.arange(count + 1) * WORDS, number[word].astype(np.int32))
    return LexicalEngine.of(terms, Weighting("lucene", 1.2, 0.75))


def bm25(count: int) -> Built:
    return of(word_index(count), count)


def reranked(count: int) -> Built:
    tokens = Tokens(np.zeros(count * TOKENS, np.uint16), np.arange(count + 1) * TOKENS)
    return of(RerankedEngine(word_index(count), Reranker(encoder(1), tokens, 64, 192), 50), count)


# --- vectors --------------------------------------------------------------------------------------------------


def dense(options: IndexOptions, count: int) -> Built:
    vectors = chance(count).random((count, HIDDEN), np.float32)
    return of(DenseEngine(encoder(), VectorIndex.of(vectors, options), READING), count)


def by_codes(count: int) -> Built:
    """Lists of codes, put together from their arrays, because learning them takes minutes."""
    options, plain = IndexOptions(kind="ivfpq"), np.zeros((count, HIDDEN), np.float32)
    lists, pieces = _list_count(count, 0), _piece_count(HIDDEN, 0)
    arrays = {
        "coarse": np.zeros((lists, HIDDEN), np.float32),
        "codebooks": np.zeros(HIDDEN << options.nbits, np.float32),
        "sizes": np.bincount(chance(count).integers(0, lists, count), minlength=lists),
        "members": np.arange(count),
        "codes": np.zeros((count, pieces), np.uint8),
    }
    flat = VectorIndex.of(plain)
    index = replace(flat, options=options, finder=Lists.of_arrays(arrays, plain, options))
    return of(DenseEngine(encoder(), index, READING), count)


def multivector(bits: int, count: int) -> Built:
    """Token vectors, put together from their arrays, because finding their nearest centroids would take hours."""
    options, tokens = TokenOptions(bits=bits), count * TOKENS
    centroids, buckets = centroid_count(tokens, 0), BUCKETS[bits]
    shapes = (centroids, TOKEN_WIDTH), (TOKEN_WIDTH, max(0, buckets - 1)), (TOKEN_WIDTH, buckets)
    codec = Codec(bits, *(np.zeros(shape, np.float32) for shape in shapes), True, 1.0, torch.device("cpu"))
    numbers = chance(count).integers(0, centroids, tokens, np.uint16)
    packed = np.zeros((tokens, codec.packed_width), np.float16 if bits == 16 else np.uint8)
    part = TokenLists.of(np.arange(count + 1) * TOKENS, numbers, packed, centroids)
    index = TokenIndex._whole(part, options, codec)
    return of(LateEngine(encoder(TOKEN_WIDTH), index, READING), count)


# --- docids ---------------------------------------------------------------------------------------------------


def written(scheme: Scheme, docids: np.ndarray, shape: Callable[[int], TrieShape], *, placed: bool = True) -> Built:
    """A generative retriever with these docids (documents, length); `shape` says how its trie grows."""
    count, length = docids.shape
    trie = Trie.of(Paths(docids.ravel().astype(np.int64), np.arange(count + 1) * length, np.arange(count)))
    model = writer(scheme.width, single=isinstance(scheme, Atomic))
    docids_of = docids_in(model, scheme, trie, count, encoder() if placed else None)
    return _of_written(DocidEngine(docids_of, SearchOptions()), count, shape)


def docids_in(model: Any, scheme: Scheme, trie: Trie, count: int, placer: Encoder | None) -> Docids:
    """The docids, the model and the trie of an engine that writes docids."""
    return Docids(model, scheme, trie, np.arange(count), placer, Reading(), 64, vector_rows=False)


def _of_written(
    engine: DocidEngine | ClusterEngine, count: int, shape: Callable[[int], TrieShape], *, ordered: bool = True
) -> Built:
    def products(then: int) -> dict[str, Products]:
        grown = shape(then)
        docids = grown.path_products(ordered=ordered)
        tries = {"trie": grown.products(), "walk": grown.walk_products(), "docids": docids}
        return {**engine.products(count, then), **tries}

    return Built(engine.stored(), products)


def atomic(count: int) -> Built:
    scheme = Atomic()
    scheme._count, scheme._known = count, torch.zeros(count, HIDDEN)
    return written(scheme, np.arange(count)[:, None], lambda then: TrieShape(then, then + 1, 0, then, then))


def naive(count: int) -> Built:
    """The digits of numbers, equally many for each, and a stop symbol, which is the tail of each docid."""
    scheme, depth = Naive(), len(str(count - 1))
    scheme._letters = list("0123456789")
    symbols = np.concatenate([_digits(np.arange(count), depth), np.full((count, 1), scheme.stop)], 1)
    return written(scheme, symbols, _naive_shape, placed=False)


def _naive_shape(then: int) -> TrieShape:
    depth = len(str(then - 1))
    nodes = sum(-(-then // 10**above) for above in range(depth)) + 1
    return TrieShape(then, nodes, then, 11, then * (depth + 1))


def _digits(numbers: np.ndarray, depth: int) -> np.ndarray:
    return numbers[:, None] // 10 ** np.arange(depth - 1, -1, -1) % 10


def semantic(count: int) -> Built:
    """Clusters of the maximum size: ten clusters in each, and a hundred documents in the last ones."""
    scheme, depth = Semantic(BRANCH, LEAF), _semantic_depth(count)
    paths = _digits(np.arange(count) // LEAF, depth)
    scheme._tree, scheme._mean, scheme._depth = _balanced(depth), torch.zeros(HIDDEN), depth + 1
    scheme._held = Numbering({tuple(path): LEAF for path in paths[::LEAF].tolist()})
    return written(scheme, np.concatenate([paths, np.arange(count)[:, None] % LEAF], 1), _semantic_shape)


def _semantic_depth(documents: int) -> int:
    return len(str((documents - 1) // LEAF))


def _semantic_shape(then: int) -> TrieShape:
    depth = _semantic_depth(then)
    clusters = sum(-(-then // (LEAF * 10**above)) for above in range(depth))
    return TrieShape(then, 1 + clusters + then, 0, LEAF, then * (depth + 1))


def _balanced(depth: int) -> Tree:
    children = {branch: _balanced(depth - 1) for branch in range(BRANCH)} if depth > 1 else {}
    return Tree(torch.zeros(BRANCH, HIDDEN), children)


def codebook(count: int) -> Built:
    """Six random symbols of 256, and one that tells equal codes apart."""
    scheme = Codebook()
    scheme._books = torch.zeros(scheme.levels, 2**scheme.bits, HIDDEN)
    codes = chance(count).integers(0, 2**scheme.bits, (count, scheme.levels))
    docids = scheme._numbered(codes.tolist())
    return written(scheme, np.array(docids), partial(TrieShape.of_random, width=2**scheme.bits, length=7))


def gdr(count: int) -> Built:
    """A thousand clusters of one symbol, however many documents there are."""
    scheme = Cluster(CLUSTERS)
    scheme._centroids = torch.zeros(CLUSTERS, HIDDEN)
    scheme._codes = [(number,) for number in range(CLUSTERS)]
    cluster = chance(count).integers(0, CLUSTERS, count)
    trie = Trie.of(Paths(cluster, np.arange(count + 1), np.arange(count)))
    below = TrieVectors.of(trie, np.arange(count), chance(count).random((count, HIDDEN), np.float32))
    written_in = docids_in(writer(CLUSTERS, single=True), scheme, trie, count, encoder())
    engine = ClusterEngine(written_in, below, SearchOptions(), MatchOptions())
    return _of_written(engine, count, lambda then: TrieShape(then, 1 + CLUSTERS, 0, CLUSTERS, then), ordered=False)


def contextual(count: int) -> Built:
    """Titles of pieces by Zipf's law; a piece that occurs often has five ids."""
    pieces = np.exp(chance(count).random((count, TITLE)) * np.log(PIECES)).astype(np.int64)
    scheme = Title()
    scheme._pieces = (None, PIECES)
    titles = np.concatenate([pieces, np.full((count, 1), PIECES)], 1)
    trie = Trie.of(Paths(titles.ravel(), np.arange(count + 1) * (TITLE + 1), np.arange(count)))
    counts = np.minimum(np.bincount(pieces.ravel(), minlength=PIECES + 1), KEPT)
    counts[PIECES] = 1
    model = cross_decoder(encoder(), PIECES + 1, DecoderOptions(copy=True), None, 0, table="fixed")
    model = model.with_symbols(torch.ones(int(counts.sum()), HIDDEN), torch.zeros(HIDDEN))
    known = Vocabulary(starts_of(counts)[:-1], counts, model.rows)
    titles_in = docids_in(model, scheme, trie, count, encoder())
    reading = TitleReading("document", 256)
    return of(TitleEngine(titles_in, SearchOptions(), SpellingOptions(), reading, known, KEPT), count)


# --- all of them ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class System:
    """How a system is built, and in which sizes."""

    make: Callable[[int], Built]
    sizes: tuple[int, ...] | None = None  # None: those of the command line
    built: str = "all"


QUICK = {"ef_construction": 16}
"""Looks at fewer vectors to place one, which is faster: the links are worse, but take the same memory."""
SYSTEMS = {
    "documents": System(documents, built="texts from a pool of a thousand"),
    "bm25": System(bm25, SMALL_SIZES, "words drawn as numbers, without texts"),
    "dense, float32": System(partial(dense, IndexOptions())),
    "dense, float16": System(partial(dense, IndexOptions(dtype="float16"))),
    "dense, hnsw": System(partial(dense, IndexOptions(kind="hnsw", **QUICK)), GRAPH_SIZES),
    "dense, ivfpq": System(by_codes, built="from its arrays, without clustering"),
    "multivector, 16 bits": System(partial(multivector, 16), SMALL_SIZES, "from its arrays, without clustering"),
    "multivector, 4 bits": System(partial(multivector, 4), SMALL_SIZES, "from its arrays, without clustering"),
    "multivector, 2 bits": System(partial(multivector, 2), SMALL_SIZES, "from its arrays, without clustering"),
    "reranked bm25": System(reranked, SMALL_SIZES, "tokens and words as numbers, without texts"),
    "generative, atomic": System(atomic),
    "generative, naive": System(naive),
    "generative, semantic": System(semantic, built="clusters that are all equally large, without clustering"),
    "generative, codebook": System(codebook, built="codes drawn by chance, without clustering"),
    "contextual": System(contextual, built="titles drawn, rows without reading them"),
    "gdr": System(gdr, built="clusters drawn, without clustering"),
}


def measured(name: str, system: System, asked: tuple[int, ...]) -> list[dict[str, Any]]:
    """A row of counted bytes for every size that is built, and a row of computed bytes for each of LARGE."""
    rows: list[dict[str, Any]] = []
    built = None
    for count in system.sizes or asked:
        started = time.perf_counter()
        foreseen = built.products(count) if built else None
        built = None  # frees its memory for the next
        built = system.make(count)
        rows.append(_counted(name, count, built, system.built))
        if foreseen:
            rows[-1]["by_the_smaller_one"] = sum(map(computed, foreseen.values()))
        note(f"{name}, {count:,} documents: {time.perf_counter() - started:.1f} s")
    assert built is not None
    if len(rows) > 2:
        rows[-1]["by_a_line"] = _by_a_line(rows)
    return rows + [_computed(name, count, built) for count in LARGE]


def _counted(name: str, count: int, built: Built, how: str) -> dict[str, Any]:
    sizes, products = part_sizes(built.stored), built.products(count)
    parts = {part: {"counted": size.bytes, "computed": computed(products[part])} for part, size in sizes.items()}
    return {"system": name, "documents": count, "built": how, "bytes": _total(parts, "counted"), "parts": parts}


def _computed(name: str, count: int, built: Built) -> dict[str, Any]:
    kept = {part: products for part, products in built.products(count).items() if computed(products)}
    parts = {
        part: {"computed": computed(products), "arithmetic": arithmetic(products)} for part, products in kept.items()
    }
    return {"system": name, "documents": count, "bytes": _total(parts, "computed"), "parts": parts}


def _total(parts: Mapping[str, Mapping[str, Any]], key: str) -> int:
    return sum(part[key] for part in parts.values())


def _by_a_line(rows: list[dict[str, Any]]) -> int:
    """The bytes of the largest size, by a straight line through the two sizes before it."""
    return round(fitted({row["documents"]: row["bytes"] for row in rows[-3:-1]}).at(rows[-1]["documents"]))


def shown(row: Mapping[str, Any]) -> dict[str, Any]:
    sure = {"computed": _total(row["parts"], "computed")}
    sure |= {key: row.get(key, "") for key in ("by_the_smaller_one", "by_a_line")}
    return {"system": row["system"], **{key: row[key] for key in ("documents", "bytes")}, **sure}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sizes", type=int, nargs="+", default=[10_000, 100_000, 1_000_000])
    parser.add_argument("--only", default="", help="only systems with this text in their name; the rows of others stay")
    words = parser.parse_args()
    chosen = {name: system for name, system in SYSTEMS.items() if words.only in name}
    rows = [row for name, system in chosen.items() for row in measured(name, system, tuple(words.sizes))]
    emit(table([shown(row) for row in rows]))
    path = Path(__file__).with_suffix(".json")
    if words.only:
        results.write(path, renewed(json.loads(path.read_text(encoding="utf-8")), rows))
        return
    record = results.benchmark(["python", "benchmarks/memory.py"], rows)
    results.write(path, {**record, "peak_memory_mb": results.peak_memory_mb()})


def renewed(before: Mapping[str, Any], rows: list[dict[str, Any]]) -> dict[str, Any]:
    """The record with these rows in place of earlier ones of the same systems; each says what it was made with."""
    names = {row["system"] for row in rows}
    marked = [{**row, "renewed_with": results.surroundings()} for row in rows]
    both = [*(row for row in before["rows"] if row["system"] not in names), *marked]
    order = [*SYSTEMS]
    return {**before, "rows": sorted(both, key=lambda row: order.index(row["system"]))}


if __name__ == "__main__":
    main()
