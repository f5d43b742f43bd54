"""Memory of every system: computed against counted, counted against files, and growth against a third size.

That nothing which grows is left out is told by an oracle that walks everything a retriever holds.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from types import FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch

import triever
from tests.marks import quick
from triever import (
    BM25,
    GDR,
    Answerer,
    Cluster,
    Codebook,
    Contextual,
    Dataset,
    DecoderOptions,
    Dense,
    DocidTuning,
    Document,
    Fused,
    Generative,
    IndexOptions,
    MultiVector,
    Naive,
    ReaderTuning,
    ReAtt,
    ReAttTuning,
    Reranked,
    RerankTuning,
    Retriever,
    Semantic,
    Title,
    TokenOptions,
    VocabularyOptions,
)
from triever.data.store import EXPANSION_STARTS, LETTERS, STARTS
from triever.evaluation.memory_analysis import file_sizes
from triever.memory_parts import about, computed, fitted
from triever.models.tokens import TextTokenizer

SMALL = "scratch:hidden=32,layers=1,heads=2,vocabulary=500"
CAUSAL = "scratch:causal=true,hidden=32,layers=1,heads=2,vocabulary=500"
NOTHING = DocidTuning(steps=0)
NODES = DecoderOptions(rows="nodes")
SIZES = (300, 600, 1200)
LANGUAGE = [f"word{number}" for number in range(300)]


def dense(**options: Any) -> Dense:
    return Dense(backbone=SMALL, index=IndexOptions(**options))


def late(bits: int, centroids: int = 0) -> MultiVector:
    return MultiVector(backbone=SMALL, size=16, index=TokenOptions(bits=bits, centroids=centroids))


def generative(scheme: Any) -> Generative:
    return Generative(backbone=SMALL, training=NOTHING, docids=scheme)


SYSTEMS: dict[str, Callable[[], Retriever]] = {
    "bm25": BM25,
    "float32": dense,
    "float16": lambda: dense(dtype="float16"),
    "hnsw": lambda: dense(kind="hnsw"),
    "ivfpq": lambda: dense(kind="ivfpq", nbits=4, nlist=8),
    "16 bits": lambda: late(16),
    "4 bits": lambda: late(4, 32),
    "2 bits": lambda: late(2, 32),
    "reranked": lambda: Reranked(first=BM25(), backbone=SMALL, training=RerankTuning(steps=0)),
    "reatt": lambda: ReAtt(backbone=SMALL, training=ReAttTuning(answer_steps=0, steps=0)),
    "answerer": lambda: Answerer(backbone=SMALL, training=ReaderTuning(steps=0)),
    "causal answerer": lambda: Answerer(backbone=CAUSAL, training=ReaderTuning(steps=0)),
    "passages": lambda: BM25(cut=triever.Cut("all", words=6, overlap=1)),
    "fused": lambda: Fused(systems=(BM25(), dense())),
    "atomic": lambda: generative(triever.Atomic()),
    "naive": lambda: generative(Naive()),
    "semantic": lambda: generative(Semantic(branch=4, leaf=20)),
    "codebook": lambda: generative(Codebook(levels=4, bits=4)),
    "cluster": lambda: generative(Cluster(clusters=8, branch=8)),
    "title": lambda: generative(Title(vocabulary=200)),
    "title tokens": lambda: Generative(backbone=CAUSAL, training=NOTHING, docids=Title(tokenizer="backbone")),
    "contextual": lambda: Contextual(backbone=SMALL, training=NOTHING),
    "genre": lambda: Contextual(backbone=SMALL, training=NOTHING, vocabulary=VocabularyOptions(k=0)),
    "gdr": lambda: GDR(vectors=dense(), training=NOTHING, docids=Cluster(clusters=8, branch=8)),
    "gdr, several": lambda: GDR(backbone=SMALL, training=NOTHING, docids=Cluster(clusters=8, branch=8, margin=0.2)),
    "gdr, nodes": lambda: GDR(backbone=SMALL, training=NOTHING, docids=Cluster(clusters=8), decoder=NODES),
}
NEARLY = {"graph": 0.02, "vocabulary": 0.02, "placing": 0.02}
"""How far what is computed may be from what is counted: layers of a graph are drawn, and Python's lists have spare
room. All other parts are computed to the byte."""


def documents(count: int, seed: int = 0) -> list[Document]:
    chance = np.random.default_rng((count, seed))
    words = chance.choice(LANGUAGE, (count, 23))
    return [Document(f"d{at:05}", " ".join(row[:20]), " ".join(row[20:])) for at, row in enumerate(words)]


@cache
def fitted_on(system: str, count: int) -> Retriever:
    return SYSTEMS[system]().fit(Dataset.of("drawn", documents(count), [], {}))


def reopened(system: str, count: int, folder: Path) -> Retriever:
    """As a person has it: opened, and used in every way."""
    fitted_on(system, count).save(folder)
    again = triever.load(folder)
    again.explain(LANGUAGE[0], 3)
    assert again.documents.row("d00001") == 1
    return again


QUICK = ("bm25", "passages", "ivfpq", "4 bits", "reranked", "cluster", "contextual", "gdr")
every_system = pytest.mark.parametrize("system", quick(*QUICK, of=SYSTEMS))


@every_system
@pytest.mark.parametrize("count", SIZES)
def test_what_is_computed_is_what_is_counted(system: str, count: int) -> None:
    retriever = fitted_on(system, count)
    sums = {part: computed(products) for part, products in retriever.memory_for().items()}
    assert {part for part, size in sums.items() if size} == set(retriever.memory)
    for part, size in retriever.memory.items():
        share = NEARLY.get(part.rpartition(": ")[2], 0)
        assert sums[part] == pytest.approx(size, rel=share, abs=0), part


@every_system
def test_opened_again_it_takes_as_much_and_maps_what_may_stay_on_disk(system: str, tmp_path: Path) -> None:
    again = reopened(system, SIZES[1], tmp_path)
    before, now = dict(fitted_on(system, SIZES[1]).memory), dict(again.memory)
    for part in [part for part in before if part.endswith(("weights", "placer"))]:
        # An opened BERT has no lists of its 512 positions and token types, which transformers' holds; two may read.
        assert 0 <= before.pop(part) - now.pop(part) <= 2 * LISTS, part
    assert now == pytest.approx(before, rel=0.02)
    for part, size in again.sizes.items():
        assert (size.mapped == size.bytes) == about(part).mapped, part
        assert size.gpu == 0 or torch.cuda.is_available()


LISTS = 2 * 512 * 8
FILES = {
    "postings": ("scores_data", "scores_indices", "scores_indptr"),
    "terms": ("terms", "term_starts"),
    "vectors": ("vectors_main",),
    "stored vectors": ("vectors_main",),
    "token vectors": tuple(
        f"tokens_{role}"
        for role in ("starts", "numbers", "packed", "list_starts", "listed", "centroids", "cutoffs", "weights")
    ),
    "tokens": ("document_tokens", "document_starts"),
    "trie": tuple(f"trie_{role}" for role in ("token", "child", "first", "count", "tail", "tail_start", "document")),
    "cluster vectors": ("trie_vectors",),
    "numbers": ("docid_numbers",),
    "texts": (LETTERS, STARTS, EXPANSION_STARTS),
}
"""The files of the parts that an opened model maps."""
FILES_OF_NODES = {**FILES, "numbers": ("node_numbers", "node_owners", "node_mass")}
INSIDE = {"first": "first_", "bm25 1": "system0_", "dense 2": "system1_"}
HEADER = 128
"""Bytes before the numbers of an .npy file."""


@every_system
def test_what_is_mapped_is_as_large_as_its_files(system: str, tmp_path: Path) -> None:
    fitted_on(system, SIZES[0]).save(tmp_path)
    files, known = file_sizes(tmp_path), FILES_OF_NODES if system == "gdr, nodes" else FILES
    assert sum(files.values()) == sum(path.stat().st_size for path in tmp_path.iterdir() if "-" in path.name)
    for part, size in fitted_on(system, SIZES[0]).memory.items():
        if about(part).mapped:
            place, _, own = part.rpartition(": ")
            roles = [f"{INSIDE[place] if place else ''}{role}" for role in known[own]]
            assert sum(files[role] - HEADER for role in roles) == size, part


def test_weights_are_as_large_as_their_files(tmp_path: Path) -> None:
    generative(triever.Atomic()).fit(Dataset.of("drawn", documents(50), [], {})).save(tmp_path)
    memory, files = triever.load(tmp_path).memory, file_sizes(tmp_path)
    kept = files["reader_weights"] + files["decoder_weights"]
    positions = 512 * 8 * 2  # numbered anew when it is opened
    header = 20_000  # names and shapes
    assert kept - header < memory["weights"] + memory["docid rows"] - positions < kept


# --- growth -------------------------------------------------------------------------------------------------------


UNEVEN = {
    "codes": 0.05,
    "token vectors": 0.1,
    "placing": 0.3,
    "cluster vectors": 0.06,
    "places": 0.2,
}
UNEVEN |= dict.fromkeys(("trie", "walk", "docids"), 0.12)
"""What does not grow evenly: Python's tables double, and so do the numbers of lists and of centroids; and how docids
branch in small corpora, and who is at a boundary, is chance."""


def grows_evenly(system: str, part: str) -> bool:
    """Not where an index begins to be worth it, nor where ids end when all tokens have theirs."""
    begins = system == "ivfpq" and part in ("codes", "vectors", "stored vectors")
    return not begins and not (system == "contextual" and part in ("docid rows", "spellings"))


@every_system
def test_a_line_through_two_sizes_foretells_the_third(system: str) -> None:
    counted = {count: fitted_on(system, count).memory for count in SIZES}
    for part, size in counted[SIZES[2]].items():
        line = fitted({count: counted[count].get(part, 0) for count in SIZES[:2]})
        if grows_evenly(system, part):
            assert line.at(SIZES[2]) == pytest.approx(size, rel=UNEVEN.get(part.rpartition(": ")[2], 0.03)), part


@every_system
def test_a_corpus_foretells_what_one_of_twice_its_size_takes(system: str) -> None:
    foretold = {part: computed(sums) for part, sums in fitted_on(system, SIZES[1]).memory_for(SIZES[2]).items()}
    for part, size in fitted_on(system, SIZES[2]).memory.items():
        if grows_evenly(system, part):
            assert foretold[part] == pytest.approx(size, rel=UNEVEN.get(part, 0.03)), part
        elif system == "contextual":
            assert foretold[part] >= size, part


FIXED = ("weights", "placer")


@every_system
def test_models_stay_as_they_are_however_large_a_corpus_is(system: str) -> None:
    now, then = (fitted_on(system, SIZES[0]).memory_for(count) for count in (SIZES[0], 10**9))
    for part in now:
        if part.rpartition(": ")[2] in FIXED:
            assert computed(now[part]) == computed(then[part])


def each_document(system: str, part: str) -> float:
    """How many bytes a document more would take, by what is computed."""
    small, large = (computed(fitted_on(system, SIZES[1]).memory_for(count)[part]) for count in (10**6, 10**6 + 10**5))
    return (large - small) / 10**5


def test_what_each_document_takes_is_written_out() -> None:
    assert each_document("float32", "vectors") == 32 * 4
    assert each_document("float16", "vectors") == 32 * 2
    assert each_document("atomic", "docid rows") == 32 * 4
    assert each_document("atomic", "placing") == 32 * 4
    assert each_document("atomic", "trie") == (4 + 4 + 4 + 4) + (4 + 4), "a node and an entry"
    assert each_document("atomic", "numbers") == 8
    assert each_document("gdr", "docid rows") == 0
    assert each_document("gdr", "trie") == 4 + 4, "an entry"
    assert each_document("gdr", "cluster vectors") == 32 * 4
    assert each_document("cluster", "placing") == 0
    assert each_document("naive", "docid rows") == 0
    assert each_document("hnsw", "graph") == pytest.approx(32 * 4 + 64 * 4 + 12 + 32 * 4 / 31, abs=0.01)
    tokens = engine_of("16 bits").index.lengths.mean()
    assert each_document("16 bits", "token vectors") == pytest.approx(tokens * (16 * 2 + 2 + 4) + 8, rel=1e-3)
    assert each_document("4 bits", "token vectors") == pytest.approx(tokens * (16 / 2 + 2 + 4) + 8, rel=1e-3)


def engine_of(system: str) -> Any:
    return fitted_on(system, SIZES[1]).engine


def test_a_vocabulary_in_context_ends_where_all_tokens_have_all_ids() -> None:
    retriever = fitted_on("contextual", SIZES[0])
    assert isinstance(retriever, Contextual)
    tokens = len(retriever.engine.vocabulary.count) - 1
    most = (5 * tokens + 1 + 1) * 32 * 4  # five ids of each, the end, and what begins a title
    assert computed(retriever.memory_for(10**9)["docid rows"]) == most
    assert computed(retriever.memory_for(10**8)["docid rows"]) == most


def test_numbers_become_wider_where_there_are_too_many() -> None:
    """Two thousand million entries are the most that four bytes count."""
    atomic = fitted_on("atomic", SIZES[0])
    below, above = (computed(atomic.memory_for(count)["trie"]) / count for count in (10**9, 4 * 10**9))
    assert round(below) == 4 + 3 * 4 + 2 * 4
    assert round(above) == 4 + 3 * 8 + 4 + 8, "a place in tails, of which there are none, is still narrow"


# --- nothing is left out ------------------------------------------------------------------------------------------


LEAVES = (str, bytes, int, float, np.ndarray, torch.Tensor, pa.Table)
OTHERS = (type, ModuleType, FunctionType, MethodType, TextTokenizer, torch.device, torch.dtype)


def reachable(root: Any) -> Iterator[Any]:
    """All that can be reached from something by attributes, entries and items, each once."""
    seen, left = set(), [root]
    while left:
        one = left.pop()
        if id(one) in seen or isinstance(one, OTHERS) or one is None:
            continue
        seen.add(id(one))
        yield one
        if isinstance(one, LEAVES):
            continue
        if isinstance(one, dict):
            left += [*one, *one.values()]
        elif isinstance(one, list | tuple | set):
            left += one
        left += [*getattr(one, "__dict__", {}).values()]


def everything(retriever: Retriever) -> int:
    """The bytes of all that a retriever holds, by walking through it."""
    held = retriever._checked()
    total = 0
    regions: dict[int, int] = {}  # some begin at the same place, as one is a part of the other
    for one in reachable((held.engine, held.store, held.cut)):
        if isinstance(one, np.ndarray | torch.Tensor):
            place = one.ctypes.data if isinstance(one, np.ndarray) else one.data_ptr()
            regions[place] = max(one.nbytes, regions.get(place, 0))
        elif isinstance(one, pa.Table):
            for column in one.columns:
                for buffer in filter(None, (buffer for chunk in column.chunks for buffer in chunk.buffers())):
                    regions[buffer.address] = max(buffer.size, regions.get(buffer.address, 0))
        elif isinstance(one, str | dict | list | tuple) or (isinstance(one, int) and one > 256):
            total += sys.getsizeof(one)
    return total + sum(regions.values())


@every_system
def test_nothing_that_grows_with_the_corpus_is_left_out(system: str, tmp_path: Path) -> None:
    small, large = (reopened(system, count, tmp_path / str(count)) for count in SIZES[::2])
    finders = 0  # what faiss holds cannot be walked through
    if system in ("hnsw", "ivfpq"):
        finders = sum(large.memory.get(part, 0) - small.memory.get(part, 0) for part in ("graph", "codes"))
    walked = everything(large) - everything(small) + finders
    assert sum(large.memory.values()) - sum(small.memory.values()) == pytest.approx(walked, rel=0.02)


# --- what is made of it -------------------------------------------------------------------------------------------


READERS = ("reatt", "answerer", "causal answerer")
UNCHANGED = ("bm25", "passages", "reranked", *READERS, "16 bits", "4 bits", "2 bits", "fused")
"""Systems that keep no list of changes, or whose first stage keeps it."""


def index_bytes(system: str, engine: Any) -> int:
    """What a search looks into, by what the indexes themselves say."""
    if system in ("bm25", "passages"):
        return sum(array.nbytes for array in engine.postings.matrix.values())
    if system in READERS:
        tokens = engine.reader.documents
        first = engine.first.index.bytes if system == "reatt" else index_bytes("bm25", engine.first)
        return tokens.flat.nbytes + tokens.starts.nbytes + first
    if system == "reranked":
        tokens = engine.reranker.documents
        return tokens.flat.nbytes + tokens.starts.nbytes + index_bytes("bm25", engine.first)
    if system == "fused":
        return index_bytes("bm25", engine.engines[0]) + engine.engines[1].index.bytes
    if hasattr(engine, "index"):
        return engine.index.bytes
    if system == "gdr, nodes":
        return engine.trie.bytes
    return engine.docids.trie.bytes + (engine.below.bytes if system.startswith("gdr") else 0)


@every_system
def test_the_index_is_what_it_was_before_parts_were_told_apart_also_after_changes(system: str, tmp_path: Path) -> None:
    retriever = reopened(system, SIZES[1], tmp_path)
    assert retriever.index_bytes == index_bytes(system, retriever.engine)
    fresh = documents(40, seed=1)
    retriever.add([Document(f"d9{one.id[1:]}", one.text, one.title) for one in fresh])
    retriever.delete(["d00001", "d900002", "d00099"])
    assert retriever.index_bytes == index_bytes(system, retriever.engine)
    assert "changes" in retriever.memory or system in UNCHANGED
    assert all(size > 0 for size in retriever.memory.values())


def test_the_weights_of_a_model_are_written_out() -> None:
    """Every matrix of a small reader and of its decoder."""
    hidden, pieces = 32, fitted_on("naive", SIZES[0]).engine.docids.model.reader.tokenizer.size
    layer = 4 * (hidden * hidden + hidden) + (hidden * 128 + 128) + (128 * hidden + hidden) + 4 * hidden
    reader = pieces * hidden + 512 * hidden + hidden + 2 * hidden + layer
    attention = 4 * hidden * hidden
    decoder = 2 * (2 * attention + 3 * hidden * 64 + 3 * hidden) + 32 * 1 + hidden
    buffers = 512 * 8 * 2
    assert fitted_on("naive", SIZES[0]).memory["weights"] == 4 * (reader + decoder) + buffers
    letters = len({letter for one in documents(SIZES[0]) for letter in one.id})
    assert fitted_on("naive", SIZES[0]).memory["docid rows"] == 4 * hidden * ((letters + 1) + (letters + 2))
