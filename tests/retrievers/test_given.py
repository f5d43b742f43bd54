"""Vectors, docids and runs of one's own: as good as those of Triever, or refused in one sentence."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import triever
from tests.retrievers.contract import DOCUMENTS, QRELS, QUERIES, Contract, dataset
from triever import (
    BM25,
    GDR,
    Cluster,
    Codebook,
    Cut,
    Dense,
    DocidTuning,
    Document,
    Fused,
    Generative,
    GivenDocids,
    GivenRun,
    GivenVectors,
    Retriever,
    Semantic,
    TrieverError,
    UsageError,
    VectorFile,
)
from triever.artifact import digest_of
from triever.cli import main
from triever.data.readers import read_run
from triever.data.writers import write_dataset, write_run
from triever.evaluation.compare import search_all
from triever.memory_parts import computed

IDS = [document.id for document in DOCUMENTS]
TINY = "scratch:hidden=16,layers=1,heads=2,vocabulary=300"
NOTHING = DocidTuning(steps=0)
WIDTH = 64


class Words:
    """A model with the interface of sentence-transformers: a vector counts the words of a text."""

    def encode(self, texts: Sequence[str]) -> np.ndarray:
        vectors = np.zeros((len(texts), WIDTH), np.float32)
        for row, text in enumerate(texts):
            for word in text.casefold().split():
                vectors[row, crc32(word.strip(".,;:").encode()) % WIDTH] += 1
        return vectors


words = Words()
NAME = f"{__name__}:words"


def encode(texts: list[str]) -> list[list[float]]:
    """A function, which gives lists."""
    return words.encode(texts).tolist()


def saved(folder: Path, ids: Sequence[str] = IDS, vectors: np.ndarray | None = None, name: str = "v") -> dict[str, str]:
    """Options that name a file with the vectors of the documents, in another order than theirs."""
    array = words.encode([document.full_text for document in DOCUMENTS]) if vectors is None else vectors
    order = np.random.default_rng(0).permutation(len(ids))
    np.save(folder / f"{name}.npy", array[order])
    (folder / f"{name}.txt").write_text("".join(f"{ids[row]}\n" for row in order), encoding="utf-8")
    return {"file": str(folder / f"{name}.npy"), "ids": str(folder / f"{name}.txt")}


@pytest.fixture
def own(tmp_path: Path) -> dict[str, str]:
    return saved(tmp_path)


def brute_force(query: str, k: int, *, unit: bool = False) -> list[tuple[str, float]]:
    """What dense retrieval is: every inner product, greatest first, and of equal ones the greater id."""
    documents, asked = words.encode([document.full_text for document in DOCUMENTS]), words.encode([query])[0]
    if unit:
        documents = documents / np.maximum(np.linalg.norm(documents, axis=1, keepdims=True), 1e-12)
        asked = asked / max(float(np.linalg.norm(asked)), 1e-12)
    return sorted(zip(IDS, (documents @ asked).tolist(), strict=True), key=lambda pair: (pair[1], pair[0]))[::-1][:k]


# --- vectors ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("unit", [False, True])
@pytest.mark.parametrize("query", [*(query.text for query in QUERIES), "water", "nothing of this"])
def test_dense_over_given_vectors_is_brute_force(own: dict[str, str], query: str, unit: bool) -> None:
    retriever = GivenVectors(**own, encoder=NAME, unit=unit).fit(dataset())
    hits = [(hit.id, hit.score) for hit in retriever.search(query, len(IDS))]
    expected = brute_force(query, len(IDS), unit=unit)
    assert [score for _, score in hits] == pytest.approx([score for _, score in expected], abs=1e-6)
    assert dict(hits) == pytest.approx(dict(expected), abs=1e-6)


class TestGivenVectors(Contract):
    """The contract; an artifact runs no program, so whoever opens it says again what encodes queries."""

    folder: Path

    @pytest.fixture(autouse=True)
    def _files(self, tmp_path_factory: pytest.TempPathFactory) -> None:
        if "folder" not in vars(type(self)):
            type(self).folder = tmp_path_factory.mktemp("own")

    def make(self) -> Retriever:
        return GivenVectors(**saved(self.folder), encoder=NAME, unit=True)

    def test_nothing_is_left_after_everything_is_deleted(self, fitted: Retriever, tmp_path: Path) -> None:
        fitted.delete(IDS)
        assert list(fitted.search("tea")) == []
        fitted.save(tmp_path / "m")
        again = triever.load(tmp_path / "m")
        assert isinstance(again, GivenVectors)
        again = again.asked_by(words)
        again.add(DOCUMENTS[:3])
        assert again.search("boiling water leaves", 1)[0].id == "tea"

    def test_saved_and_loaded_it_is_the_same(self, fitted: Retriever, tmp_path: Path) -> None:
        fitted.save(tmp_path / "model")
        again = triever.load(tmp_path / "model")
        assert repr(again) == repr(fitted)
        with pytest.raises(UsageError, match=f"{NAME} encodes queries, and an artifact does not hold it; give"):
            again.search(QUERIES[0])
        assert isinstance(again, GivenVectors)
        for asking in (again.searched_with({"encoder": NAME}), again.asked_by(encode)):
            assert asking.search_many(QUERIES, 5) == fitted.search_many(QUERIES, 5)
        again.delete(["bread"])
        again.save(tmp_path / "model")
        assert len(triever.load(tmp_path / "model")) == len(DOCUMENTS) - 1


def test_opening_an_artifact_imports_nothing_that_it_names(tmp_path: Path, own: dict[str, str]) -> None:
    GivenVectors(**own, encoder=NAME).fit(dataset()).save(tmp_path / "m")
    manifest = tmp_path / "m" / "manifest.json"
    stranger = tmp_path / "stranger_encoder.py"
    stranger.write_text("raise AssertionError('this ran')")
    changed = json.loads(manifest.read_text().replace(NAME, "stranger_encoder:encode"))
    manifest.write_text(json.dumps({**changed, "digest": digest_of(changed)}))
    sys.path.insert(0, str(tmp_path))
    try:
        opened = triever.load(tmp_path / "m")
    finally:
        sys.path.remove(str(tmp_path))
    assert "stranger_encoder" not in sys.modules
    assert opened.documents.ids == IDS


def test_a_card_says_what_encodes_queries(own: dict[str, str]) -> None:
    assert f"| queries are encoded by | {NAME} |" in GivenVectors(**own, encoder=NAME).fit(dataset()).card
    plain = GivenVectors(**own).fit(dataset())
    assert "| queries are encoded by | nothing that is named |" in plain.card
    assert "| queries are encoded by | my model |" in plain.asked_by(encode, name="my model").card
    assert f"| queries are encoded by | {__name__}:encode |" in plain.asked_by(encode).card


def test_vectors_of_questions_are_enough_for_a_run(tmp_path: Path, own: dict[str, str]) -> None:
    asked = words.encode([query.text for query in QUERIES])
    files = saved(tmp_path, [query.id for query in QUERIES], asked, "q")
    by_file = GivenVectors(**own, queries=VectorFile(**files)).fit(dataset())
    by_model = GivenVectors(**own, encoder=NAME).fit(dataset())
    assert by_file.search_many(QUERIES, 5) == by_model.search_many(QUERIES, 5)
    by_file.save(tmp_path / "m")
    opened = triever.load(tmp_path / "m")
    assert opened.search_many(QUERIES, 5) == by_model.search_many(QUERIES, 5)
    with pytest.raises(UsageError, match="no vector of the question 'something else', but of 4 others; ask one of"):
        opened.search("something else")
    with pytest.raises(UsageError, match="'crater' has no vector, and nothing here encodes documents; fit again"):
        opened.add([Document("crater", "Molten rock.")])
    assert len(opened) == len(DOCUMENTS)


def test_vectors_of_other_questions_are_no_vectors_of_these(tmp_path: Path, own: dict[str, str]) -> None:
    files = saved(tmp_path, ["x1", "x2"], np.ones((2, WIDTH), np.float32), "q")
    with pytest.raises(TrieverError, match=r"has vectors of no question of contract, only of others, such as 'x\d'"):
        GivenVectors(**own, queries=VectorFile(**files)).fit(dataset())


def wrong(texts: list[str]) -> Any:
    return np.full((len(texts), WIDTH), np.nan)


def narrow(texts: list[str]) -> Any:
    return np.ones((len(texts), 3))


@pytest.mark.parametrize(
    ("program", "problem"),
    [
        (wrong, "wrong made vectors that cannot be used: some vectors are not finite"),
        (narrow, r"narrow made an array \(1, 3\) of 1 texts, and not \(1, 64\); use the model that"),
        (lambda texts: ["x" for _ in texts], r"made an array \(1,\) of 1 texts"),
        (5, "5 encodes nothing; give a function from a list of texts to an array"),
        (Words, "encodes nothing"),
    ],
)
def test_programs_that_encode_nothing_of_use_are_refused(own: dict[str, str], program: Any, problem: str) -> None:
    retriever = GivenVectors(**own).fit(dataset())
    with pytest.raises(UsageError, match=problem):
        retriever.asked_by(program).search("tea")


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("minilm", r"encoder = 'minilm' names no program; write module:function.*for a backbone use the system dense"),
        ("no_such_module:encode", "cannot be imported: No module named 'no_such_module'; check the name"),
        (f"{__name__}:nothing", "cannot be imported"),
        (":x", "names no program"),
    ],
)
def test_names_of_encoders_that_are_not_there_are_refused(own: dict[str, str], name: str, problem: str) -> None:
    with pytest.raises(UsageError, match=problem):
        GivenVectors(**own, encoder=name).fit(dataset())


def test_a_missing_package_says_how_to_install_it(own: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sentence_transformers", None)
    with pytest.raises(triever.MissingExtra, match="run: pip install sentence-transformers"):
        GivenVectors(**own, encoder="sentence-transformers:all-MiniLM-L6-v2").fit(dataset())


def test_vectors_are_those_of_documents_and_not_of_passages(own: dict[str, str]) -> None:
    with pytest.raises(TrieverError, match=r"has no vector of document 'tea#0' and of .* more; set cut\.which=none"):
        GivenVectors(**own, encoder=NAME, cut=Cut("all", words=5, overlap=0)).fit(dataset())
    with pytest.raises(UsageError, match=r"there are no vectors; name them: file=vectors\.npy"):
        GivenVectors().fit(dataset())


def test_dense_takes_vectors_that_exist_already(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    made = Dense(backbone=TINY).fit(dataset())
    files = VectorFile(**saved(tmp_path, made.documents.ids, made.engine.index.vectors()))
    taken = Dense(backbone=TINY, given=files).fit(dataset())
    assert taken.search_many(QUERIES, 5) == made.search_many(QUERIES, 5)
    assert "| vectors from | v.npy |" in taken.card
    assert not caplog.records
    taken.save(tmp_path / "m")
    assert triever.load(tmp_path / "m").search_many(QUERIES, 5) == made.search_many(QUERIES, 5)
    noise = np.random.default_rng(1).normal(size=(len(IDS), 16)).astype(np.float32)
    Dense(backbone=TINY, given=VectorFile(**saved(tmp_path, IDS, noise))).fit(dataset())
    assert "are not those that" in caplog.text
    with pytest.raises(UsageError, match=r"has vectors of 64 numbers, and .* makes 16; name the backbone that"):
        Dense(backbone=TINY, given=VectorFile(**saved(tmp_path))).fit(dataset())
    with pytest.raises(UsageError, match=r"training.steps = 5 would change the encoder, and the given vectors with it"):
        Dense(given=files, training=triever.Tuning(steps=5))


def trie_of(retriever: Retriever) -> list[tuple[tuple[int, ...], int]]:
    docids = retriever.engine.docids
    return [(docids.docid(number), number) for number in docids.numbers.tolist()]


SCHEMES = [Semantic(branch=2, leaf=2), Codebook(levels=2, bits=2), Cluster(clusters=3, branch=2)]


@pytest.mark.parametrize("scheme", SCHEMES, ids=lambda scheme: scheme.kind)
def test_docids_of_given_vectors_are_those_of_the_encoder_that_made_them(tmp_path: Path, scheme: Any) -> None:
    made = Dense(backbone=TINY).fit(dataset())
    files = saved(tmp_path, made.documents.ids, made.engine.index.vectors())
    options = {
        "docids": scheme,
        "backbone": TINY,
        "training": NOTHING,
        "decoder": triever.DecoderOptions(rows="symbols"),
    }
    by_encoder = Generative(vectors=made, **options).fit(dataset())
    by_file = Generative(vectors=GivenVectors(**files), **options).fit(dataset())
    by_dense = Generative(vectors=Dense(backbone=TINY, given=VectorFile(**files)), **options).fit(dataset())
    assert trie_of(by_file) == trie_of(by_encoder) == trie_of(by_dense)
    assert by_dense.search_many(QUERIES, 5) == by_encoder.search_many(QUERIES, 5)
    by_file.save(tmp_path / "m")
    opened = triever.load(tmp_path / "m")
    assert opened.search_many(QUERIES, 5) == by_file.search_many(QUERIES, 5)
    with pytest.raises(UsageError, match="docids were made from given vectors, and there is nothing that makes such"):
        opened.add([Document("crater", "Molten rock.")])


def test_gdr_over_given_vectors_is_gdr_over_the_encoder_that_made_them(tmp_path: Path) -> None:
    made = Dense(backbone=TINY).fit(dataset())
    files = saved(tmp_path, made.documents.ids, made.engine.index.vectors())
    options: Any = {"docids": Cluster(clusters=3), "backbone": TINY, "training": NOTHING}
    by_encoder = GDR(vectors=made, **options).fit(dataset())
    by_file = GDR(vectors=GivenVectors(**files), **options).fit(dataset())
    assert trie_of(by_file) == trie_of(by_encoder)
    dial = {"matching": {"depth": 0}}  # nothing is written: what is matched is all
    assert by_file.searched_with(dial).search_many(QUERIES, 5) == by_encoder.searched_with(dial).search_many(QUERIES, 5)
    with pytest.raises(UsageError, match="given vectors, and there is nothing that makes such of a new document"):
        by_file.add([Document("crater", "Molten rock.")])
    with pytest.raises(UsageError, match=r"given vectors have 64 numbers, and .* makes 16; train it to make such"):
        GDR(vectors=GivenVectors(**saved(tmp_path, name="w")), **options).fit(dataset())


@pytest.mark.long
def test_gdr_learns_to_make_queries_as_wide_as_given_vectors(own: dict[str, str]) -> None:
    training = DocidTuning(steps=60, batch=4, rounds=1, holdout=0.0, learning_rate=3e-3, reader=1.0)
    learned = GDR(
        vectors=GivenVectors(**own, unit=True),
        docids=Cluster(clusters=3),
        backbone=TINY,
        training=training,
        views=triever.ViewOptions(names=("labelled",)),
    ).fit(dataset())
    first = [result[0].id for result in learned.search_many(QUERIES, 1)]
    assert first == [next(iter(QRELS[query.id])) for query in QUERIES]


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"docids": triever.Naive()}, "naive docids are not made from vectors, so that given ones have no effect"),
        ({"docids": Semantic(), "decoder": triever.DecoderOptions(rows="nodes")}, "given vectors are of another model"),
        (
            {"docids": Codebook(), "decoder": triever.DecoderOptions(rows="vectors")},
            "given vectors are not of the space of the states that are read",
        ),
    ],
)
def test_what_given_vectors_cannot_do_is_refused(own: dict[str, str], options: Any, problem: str) -> None:
    with pytest.raises(UsageError, match=problem):
        Generative(vectors=GivenVectors(**own), backbone=TINY, training=NOTHING, **options).fit(dataset())


def test_a_module_is_found_where_the_command_is_run(
    tmp_path: Path, own: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "encoder_of_this_folder.py").write_text(f"from {__name__} import encode\n")
    monkeypatch.chdir(tmp_path)
    path = [*sys.path]
    found = GivenVectors(**own, encoder="encoder_of_this_folder:encode").fit(dataset())
    assert sys.path == path
    assert found.search_many(QUERIES) == GivenVectors(**own, encoder=NAME).fit(dataset()).search_many(QUERIES)


def test_memory_is_computed_as_it_is_counted(tmp_path: Path, own: dict[str, str]) -> None:
    asked = saved(tmp_path, [query.id for query in QUERIES], words.encode([query.text for query in QUERIES]), "q")
    (tmp_path / "x.run").write_text("q1 Q0 tea 1 2.0 x\nq2 Q0 bike 1 2.0 x\nq2 Q0 tea 2 1.0 x\n")
    docids = written(tmp_path / "d.tsv", {key: (at % 3, at) for at, key in enumerate(IDS)})
    made = [GivenVectors(**own, queries=VectorFile(**asked)), GivenRun(str(tmp_path / "x.run"))]
    for retriever in (*made, generative(GivenDocids(docids))):
        fitted = retriever.fit(dataset())
        counted = fitted.memory
        told = {part: computed(products) for part, products in fitted.memory_for().items()}
        for part in ("questions", "placing"):
            assert told.get(part) == counted.get(part)


# --- docids -------------------------------------------------------------------------------------------------------


def written(path: Path, docids: dict[str, Sequence[int | str]], *, as_json: bool = False) -> str:
    """A file of docids."""
    lines = [
        json.dumps({"id": key, "symbols": [*symbols]}) if as_json else f"{key}\t{' '.join(map(str, symbols))}"
        for key, symbols in docids.items()
    ]
    path.write_text("\n".join(lines), encoding="utf-8")
    return str(path)


def generative(scheme: Any) -> Generative:
    return Generative(docids=scheme, backbone=TINY, training=NOTHING)


@pytest.mark.parametrize("as_json", [False, True])
@settings(max_examples=5, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    codes=st.lists(
        st.lists(st.integers(0, 20), min_size=3, max_size=3).map(tuple),
        min_size=len(IDS),
        max_size=len(IDS),
        unique=True,
    )
)
def test_docids_of_a_file_are_the_docids(tmp_path: Path, as_json: bool, codes: list[tuple[int, ...]]) -> None:
    file = written(tmp_path / "docids", dict(zip(IDS, codes, strict=True)), as_json=as_json)
    scheme = GivenDocids(file)
    fitted = scheme.fit(DOCUMENTS)
    assert [scheme.readable(docid) for docid in fitted] == [" ".join(map(str, code)) for code in codes]
    assert [scheme.parse(scheme.readable(docid)) for docid in fitted] == fitted
    assert scheme.width == len({symbol for code in codes for symbol in code})


@pytest.mark.long
class TestGivenDocids(Contract):
    """A generative retriever whose docids are given; the file has one for the document that comes later."""

    understands = False
    folder: Path

    @pytest.fixture(autouse=True)
    def _files(self, tmp_path_factory: pytest.TempPathFactory) -> None:
        if "folder" not in vars(type(self)):
            type(self).folder = tmp_path_factory.mktemp("own")

    def make(self) -> Retriever:
        docids = {key: (at % 3, f"leaf{at}") for at, key in enumerate([*IDS, "crater"])}
        return generative(GivenDocids(written(self.folder / "docids.tsv", docids)))


def test_a_hit_has_the_docid_of_the_file(tmp_path: Path) -> None:
    file = written(
        tmp_path / "d.tsv",
        {key: ("drinks" if key in ("tea", "coffee") else "other", key.replace(" ", "_")) for key in IDS},
    )
    retriever = generative(GivenDocids(file)).fit(dataset())
    assert {hit.id: hit.docid for hit in retriever.search("x", 10)}["coffee"] == "drinks coffee"
    assert {branch.text: branch.documents for branch in retriever.browse().branches} == {"drinks": 2, "other": 8}
    with pytest.raises(UsageError, match="had none for the new document 'crater'; give it one there, and fit again"):
        retriever.add([Document("crater", "Molten rock.")])


def test_documents_may_share_docids_where_that_is_meant(tmp_path: Path) -> None:
    file = written(tmp_path / "d.tsv", {key: (at % 2,) for at, key in enumerate(IDS)})
    with pytest.raises(TrieverError, match=r"have one docid, '0'; give each its own, or set docids\.ties=true"):
        generative(GivenDocids(file)).fit(dataset())
    clusters = GDR(docids=GivenDocids(file, ties=True), backbone=TINY, training=NOTHING).fit(dataset())
    assert {hit.id for hit in clusters.search("x", 10)} == {*IDS}


def test_a_docid_may_begin_another_where_each_has_an_end(tmp_path: Path) -> None:
    file = written(tmp_path / "d.tsv", {key: ["a"] * (at + 1) for at, key in enumerate(IDS)})
    with pytest.raises(TrieverError, match=r"the docid of 'coffee', 'a a', begins with that of 'tea', 'a'; set doc"):
        generative(GivenDocids(file)).fit(dataset())
    retriever = generative(GivenDocids(file, ending=True)).fit(dataset())
    assert {hit.docid for hit in retriever.search("x", 10)} == {" ".join("a" * (at + 1)) for at in range(len(IDS))}
    retriever.save(tmp_path / "m")
    assert triever.load(tmp_path / "m").search("x", 10) == retriever.search("x", 10)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("tea 1 2", "d:1: the line has no tab between an id and symbols; write"),
        ("tea\t", "d:1: there are no symbols"),
        ("tea\t1\ntea\t2", "d:2: 'tea' has a docid already; keep one of the two lines"),
        ('{"id": "tea", "symbols": [1.5]}', "d:1: a symbol is neither text nor a whole number"),
        ('{"id": "tea", "symbols": ["a b"]}', "d:1: a symbol has a space inside"),
        ('{"symbols": ["a"]}', "d:1: the id is missing"),
        ('{"id": "tea"}', "d:1: there are no symbols"),
        ('{"id": "tea", ', "d:1: "),
        ("tea\t1", "has no docid of 'coffee' and 8 more documents; give every document a docid"),
    ],
)
def test_files_that_hold_no_docids_are_refused(tmp_path: Path, text: str, problem: str) -> None:
    (tmp_path / "d").write_text(text)
    with pytest.raises(TrieverError) as error:
        GivenDocids(str(tmp_path / "d")).fit(DOCUMENTS)
    assert problem in str(error.value)
    with pytest.raises(UsageError, match="none is named; name it"):
        GivenDocids().fit(DOCUMENTS)


# --- runs ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def run(tmp_path: Path) -> str:
    """What a dense retriever finds, all of it."""
    dense = Dense(backbone=TINY).fit(dataset())
    write_run(tmp_path / "dense.run", search_all(dense, QUERIES, 100))
    return str(tmp_path / "dense.run")


@pytest.mark.parametrize("method", ["scores", "rrf"])
@pytest.mark.parametrize("options", [{}, {"weights": (1.0, 0.3)}, {"tune": "train", "holdout": 1.0}], ids=str)
def test_a_fusion_with_a_run_is_the_fusion_with_what_wrote_it(run: str, method: Any, options: Any) -> None:
    dense = Dense(backbone=TINY).fit(dataset())
    with_dense = Fused(systems=(BM25(), dense), method=method, **options).fit(dataset())
    with_run = Fused(systems=(BM25(), GivenRun(run)), method=method, **options).fit(dataset())
    assert with_run.search_many(QUERIES, 10) == with_dense.search_many(QUERIES, 10)
    assert with_run.engine.weights == with_dense.engine.weights


def test_a_run_is_a_retriever_for_its_own_questions(run: str, tmp_path: Path) -> None:
    dense, retriever = Dense(backbone=TINY).fit(dataset()), GivenRun(run).fit(dataset())
    retriever.save(tmp_path / "m")
    opened = triever.load(tmp_path / "m")
    for each in (retriever, opened):
        assert each.search_many(QUERIES, 4) == dense.search_many(QUERIES, 4)
    for each in (dense, opened):
        each.delete(["tea", "東京"])
        each.add([Document("new", "x")])
        each.delete(["new", "bread"])
    opened.save(tmp_path / "m")
    for each in (opened, triever.load(tmp_path / "m")):
        assert each.search_many(QUERIES, 9) == dense.search_many(QUERIES, 9)
    where = {"name": ["bike", "chess"]}
    both = zip(opened.search_many(QUERIES, 9, where=where), dense.search_many(QUERIES, 9, where=where), strict=True)
    assert all([hit.id for hit in one] == [hit.id for hit in other] for one, other in both)
    parts = opened.explain(QUERIES[0], 2)
    assert [dict(part) for part in parts.parts] == [{"dense": hit.score} for hit in parts.result]


def test_a_question_that_a_run_lacks_gets_one_sentence(run: str) -> None:
    retriever = GivenRun(run).fit(dataset())
    with pytest.raises(UsageError, match="the run dense has no hits for the question 'else'; ask one of its 4 quest"):
        retriever.search("else")
    with pytest.raises(UsageError, match="the run dense has no hits"):
        Fused(systems=(BM25(), GivenRun(run))).fit(dataset()).search("else")
    patient = retriever.searched_with({"lacking": "nothing"})
    assert list(patient.search("else")) == []
    assert patient.search("else").note == "the run dense lacks this question"
    alone = Fused(systems=(BM25(), GivenRun(run, lacking="nothing"))).fit(dataset())
    assert [hit.id for hit in alone.search("boiling")] == [hit.id for hit in BM25().fit(dataset()).search("boiling")]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("q1 Q0 milk 1 2.0 x", "has hits that are no documents here: 'milk'; give the run over these documents"),
        ("z1 Q0 tea 1 2.0 x", "has no question of contract, but others, such as 'z1'; give the run of questions"),
        ("q1 Q0 tea", "the line has 3 columns instead of 6"),
    ],
)
def test_runs_that_are_about_something_else_are_refused(tmp_path: Path, text: str, problem: str) -> None:
    (tmp_path / "x.run").write_text(text)
    with pytest.raises(TrieverError) as error:
        GivenRun(str(tmp_path / "x.run")).fit(dataset())
    assert problem in str(error.value)
    with pytest.raises(UsageError, match=r"there is no run; name it: file=other.run"):
        GivenRun().fit(dataset())


def test_one_question_cannot_have_two_answers(tmp_path: Path) -> None:
    twice = [*QUERIES, replace(QUERIES[0], id="q1 again".replace(" ", "-"))]
    data = triever.Dataset.of("contract", DOCUMENTS, twice, {"test": {**QRELS, "q1-again": {"tea": 1}}})
    (tmp_path / "x.run").write_text("q1 Q0 tea 1 2.0 x\nq1-again Q0 bread 1 2.0 x\n")
    with pytest.raises(TrieverError, match="has different hits for 'q1' and 'q1-again', which are the same question"):
        GivenRun(str(tmp_path / "x.run")).fit(data)
    (tmp_path / "x.run").write_text("q1 Q0 tea 1 2.0 x\nq1-again Q0 tea 1 2.0 x\n")
    assert GivenRun(str(tmp_path / "x.run")).fit(data).search(QUERIES[0])[0].id == "tea"


def test_a_run_has_documents_and_no_passages(run: str) -> None:
    with pytest.raises(TrieverError, match=r"set cut.which=none: a run has whole documents"):
        GivenRun(run, cut=Cut("all", words=5, overlap=0)).fit(dataset())


# --- the command line -----------------------------------------------------------------------------------------------


def triever_does(*arguments: str) -> int:
    with pytest.raises(SystemExit) as end:
        main(arguments)
    return int(end.value.code or 0)


def test_commands_take_vectors_of_documents_and_questions_and_write_them(
    tmp_path: Path, own: dict[str, str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write_dataset(tmp_path / "data", dataset())
    asked = saved(tmp_path, [query.id for query in QUERIES], words.encode([query.text for query in QUERIES]), "q")
    monkeypatch.chdir(tmp_path)
    file = ("--set", f"file={own['file']}", "--set", f"ids={own['ids']}")
    assert triever_does("fit", "given", "--data", "data", "--out", "m", *file) == 0
    given_vectors = ("--query-vectors", asked["file"], "--query-ids", asked["ids"])
    assert triever_does("run", "m", "data", "--out", "x.run", *given_vectors) == 0
    expected = GivenVectors(**own, encoder=NAME).fit(dataset())
    for query, result in read_run("x.run").items():
        text = next(each.text for each in QUERIES if each.id == query)
        assert [hit.id for hit in result] == [hit.id for hit in expected.search(text, 100)]
    assert triever_does("search", "m", QUERIES[0].text, "--set", f"encoder={NAME}") == 0
    for ending in (".npy", ".parquet", ".faiss"):
        assert triever_does("vectors", "m", "--out", f"again{ending}") == 0
        assert (
            triever_does("fit", "given", "--data", "data", "--out", f"m{ending}", "--set", f"file=again{ending}") == 0
        )
        again = triever.load(f"m{ending}")
        assert isinstance(again, GivenVectors)
        assert again.asked_by(words).search_many(QUERIES) == expected.search_many(QUERIES)
    capsys.readouterr()
    assert triever_does("run", "m", "data", "--out", "y.run") == 2
    assert "there is no vector of the question" in capsys.readouterr().err
    assert triever_does("fit", "bm25", "--data", "data", "--out", "b") == 0
    assert triever_does("vectors", "b", "--out", "b.npy") == 2
    assert "b is a bm25 retriever, which has no vector for each document" in capsys.readouterr().err
    assert triever_does("run", "b", "data", "--out", "y.run", *given_vectors) == 2
    assert "a bm25 retriever encodes questions itself" in capsys.readouterr().err


def test_a_fusion_with_a_run_is_fitted_by_a_command(tmp_path: Path, run: str, monkeypatch: pytest.MonkeyPatch) -> None:
    write_dataset(tmp_path / "data", dataset())
    monkeypatch.chdir(tmp_path)
    systems = f'systems=[{{kind="bm25"}}, {{kind="run", file="{run}"}}]'
    assert triever_does("fit", "fused", "--data", "data", "--out", "f", "--set", systems) == 0
    assert triever_does("run", "f", "data", "--out", "f.run") == 0
    fused = Fused(systems=(BM25(), Dense(backbone=TINY))).fit(dataset())
    for query, result in read_run("f.run").items():
        text = next(each.text for each in QUERIES if each.id == query)
        assert [hit.id for hit in result] == [hit.id for hit in fused.search(text, 100)]
    assert triever_does("search", "f", "something else") == 2
