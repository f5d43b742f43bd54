"""One small artifact of every kind, as this version writes it: `python -m tests.golden.make_artifacts`.

Each is a zip file named after its kind and the version of the format, with what it answers in expected.json. Later
versions have to open them, so those that are there are never written again: a new format adds new files.
"""

from __future__ import annotations

import contextlib
import json
import tempfile
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from tests.models.causal import save_causal

import triever
from triever import (
    BM25,
    GDR,
    AdapterOptions,
    Answerer,
    Atomic,
    Cluster,
    Codebook,
    Contextual,
    Cut,
    Dataset,
    Dense,
    DocidTuning,
    Document,
    Fused,
    Generative,
    GivenDocids,
    GivenRun,
    GivenVectors,
    IndexOptions,
    MultiVector,
    Naive,
    Query,
    QueryWriter,
    ReaderTuning,
    ReAtt,
    ReAttShape,
    ReAttTuning,
    Reranked,
    RerankTuning,
    Retriever,
    Semantic,
    Title,
    TokenOptions,
    VectorFile,
    VocabularyOptions,
    WriterTuning,
)
from triever.artifact import VERSION

FOLDER = Path(__file__).parent / "artifacts"
EXPECTED = FOLDER / "expected.json"
TINY = "scratch:hidden=8,layers=1,heads=2,vocabulary=270,positions=64"
CAUSAL = "scratch:causal=true,hidden=8,layers=1,heads=2,vocabulary=270,positions=128"
NOTHING = DocidTuning(steps=0)
SHORT = ReAttShape(query_length=16)
QUERIES = ["boiling water for tea", "word3 word5", "日本の首都"]
LANGUAGE = [f"word{number}" for number in range(60)]


def documents(count: int = 40) -> list[Document]:
    """Some that people could have written, and drawn ones behind them."""
    written = [
        Document("tea", "Pour boiling water over the leaves.", "How to brew tea", ("tea leaves?",), {"cups": 2}),
        Document("東京", "東京は日本の首都である。", "東京都"),
        Document("two words", "An id may hold a space.", "Ids with spaces"),
        Document("empty", ""),
    ]
    chance = np.random.default_rng(count)
    words = chance.choice(LANGUAGE, (count - len(written), 9))
    return written + [Document(f"d{at}", " ".join(row[:7]), " ".join(row[7:])) for at, row in enumerate(words)]


def dense(**options: Any) -> Dense:
    """Vectors of a model that has learned nothing."""
    return Dense(backbone=TINY, index=IndexOptions(**options))


def generative(scheme: Any) -> Generative:
    """The same, which writes docids."""
    return Generative(backbone=TINY, training=NOTHING, docids=scheme)


class Letters:
    """A model of one's own: a vector counts letters."""

    def encode(self, texts: Sequence[str]) -> np.ndarray:
        """(texts, 8)"""
        return np.array([[sum(ord(sign) % 8 == at for sign in text) for at in range(8)] for text in texts], np.float32)


letters = Letters()


def given() -> GivenVectors:
    """Vectors of one's own, of documents and of questions."""
    for name, ids, texts in (
        ("vectors", [document.id for document in documents()], [document.full_text for document in documents()]),
        ("queries", [query.id for query in questions()], QUERIES),
    ):
        np.save(f"{name}.npy", letters.encode(texts))
        Path(f"{name}.ids.txt").write_text("\n".join(ids), encoding="utf-8")
    encoder = "tests.golden.make_artifacts:letters"
    return GivenVectors("vectors.npy", queries=VectorFile("queries.npy"), encoder=encoder, unit=True)


def recorded() -> GivenRun:
    """A run of two questions."""
    hits = ["q0 Q0 tea 1 2.5 x", "q0 Q0 d1 2 1.5 x", "q0 Q0 d0 3 1.25 x", "q1 Q0 d3 1 0.5 x"]
    Path("other.run").write_text("\n".join(hits))
    return GivenRun("other.run", lacking="nothing")


def listed_docids() -> GivenDocids:
    """Docids of a file, some of them for documents that come later."""
    ids = [*(document.id for document in documents()), "tea two", "tea 2"]
    Path("docids.tsv").write_text("\n".join(f"{key}\t{at % 3} {at}" for at, key in enumerate(ids)), encoding="utf-8")
    return GivenDocids("docids.tsv")


def questions() -> list[Query]:
    """What is asked, with ids."""
    return [Query(f"q{at}", text) for at, text in enumerate(QUERIES)]


RETRIEVERS: dict[str, Callable[[], Retriever]] = {
    "bm25": BM25,
    "dense": dense,
    "dense_half": lambda: dense(dtype="float16"),
    "dense_hnsw": lambda: dense(kind="hnsw", hnsw_m=4),
    "dense_ivfpq": lambda: dense(kind="ivfpq", nbits=4, nlist=2),
    "dense_lora": lambda: replace(dense(), adapter=AdapterOptions("lora", rank=2)),
    "multivector": lambda: MultiVector(backbone=TINY, size=4),
    "multivector_2_bits": lambda: MultiVector(backbone=TINY, size=4, index=TokenOptions(bits=2, centroids=4)),
    "reranked": lambda: Reranked(first=BM25(), backbone=TINY, training=RerankTuning(steps=0)),
    "fused": lambda: Fused(systems=(BM25(), dense())),
    "generative_atomic": lambda: generative(Atomic()),
    "generative_naive": lambda: generative(Naive()),
    "generative_title": lambda: generative(Title(vocabulary=100)),
    "generative_semantic": lambda: generative(Semantic(branch=3, leaf=5)),
    "generative_codebook": lambda: generative(Codebook(levels=2, bits=3)),
    "generative_cluster": lambda: generative(Cluster(clusters=5, branch=3)),
    "generative_bottleneck": lambda: replace(generative(Naive()), adapter=AdapterOptions("bottleneck", budget=0.2)),
    "generative_causal": lambda: replace(generative(Naive()), backbone=str(save_causal(Path("causal")))),
    "contextual": lambda: Contextual(backbone=TINY, training=NOTHING),
    "contextual_plain": lambda: Contextual(backbone=TINY, training=NOTHING, vocabulary=VocabularyOptions(k=0)),
    "bm25_passages": lambda: BM25(cut=Cut("all", words=5, overlap=1)),
    "reatt": lambda: ReAtt(
        backbone=TINY, shape=SHORT, document_length=32, training=ReAttTuning(answer_steps=0, steps=0)
    ),
    "answerer": lambda: Answerer(backbone=TINY, shape=SHORT, document_length=32, training=ReaderTuning(steps=0)),
    "answerer_causal": lambda: Answerer(
        backbone=CAUSAL, shape=SHORT, document_length=32, training=ReaderTuning(steps=0)
    ),
    "given": given,
    "run": recorded,
    "generative_given": lambda: generative(listed_docids()),
    "gdr": lambda: GDR(vectors=dense(), training=NOTHING, docids=Cluster(clusters=5)),
}
WRITER = "query_writer"
"""The one that is no retriever."""
ASKED = {"given", "run"}
"""Those whose dataset has questions, by whose ids they find something."""
COUNTS = {"dense_ivfpq": 640}
"""Documents, where the usual number is too small for the kind."""


def dataset(name: str, kept: list[Document]) -> Dataset:
    """What a retriever is fitted on."""
    asked = (questions(), {"test": {"q0": {"tea": 1}, "q1": {"d3": 1}, "q2": {"東京": 1}}}) if name in ASKED else ()
    return Dataset.of("golden", kept, *asked)


def answers(retriever: Retriever) -> list[list[list[Any]]]:
    """The hits of every query."""
    return [[[hit.id, round(hit.score, 4)] for hit in result] for result in retriever.search_many(QUERIES, 5)]


def save(name: str, folder: Path) -> list[list[list[Any]]]:
    """Make an artifact, and say what it answers."""
    kept = documents(COUNTS.get(name, 40))
    if name == WRITER:
        writer = QueryWriter(backbone=TINY, training=WriterTuning(steps=1, batch=2))
        data = Dataset.of(
            "golden",
            kept,
            [Query(f"q{at}", f"tea {at}?") for at in range(40)],
            {"train": {f"q{at}": {"tea": 1} for at in range(40)}},
        )
        writer.fit(data).save(folder)
        return []
    retriever = RETRIEVERS[name]().fit(dataset(name, kept))
    retriever.delete([kept[4].id])  # so that rows and numbers differ where they can
    retriever.add([Document("tea two", "It came later than the others.", "A late word7")])
    retriever.save(folder)
    return answers(triever.load(folder))


def main() -> None:
    """Write those that are missing."""
    FOLDER.mkdir(exist_ok=True)
    expected = json.loads(EXPECTED.read_text()) if EXPECTED.exists() else {}
    for name in (*RETRIEVERS, WRITER):
        file = FOLDER / f"{name}-{VERSION}.zip"
        if file.exists():
            continue
        with tempfile.TemporaryDirectory() as place, contextlib.chdir(place):  # no artifact names a folder of ours
            expected[file.stem] = save(name, Path(place) / "model")
            with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
                for path in sorted((Path(place) / "model").iterdir()):
                    archive.writestr(zipfile.ZipInfo(path.name), path.read_bytes(), zipfile.ZIP_DEFLATED)
    EXPECTED.write_text(json.dumps(dict(sorted(expected.items())), ensure_ascii=False, indent=1) + "\n")


if __name__ == "__main__":
    main()
