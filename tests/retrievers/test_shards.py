"""A retriever in shards finds what the whole one finds: every kind, in two and in four, with and without filters."""

from __future__ import annotations

import functools
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import triever
from tests.golden import make_artifacts as golden
from tests.marks import quick
from tests.retrievers.contract import ONE_FOR_ALL
from triever import BM25, ArtifactError, Document, TokenOptions, UsageError
from triever.artifact import digest_of
from triever.data.records import Result
from triever.shards import Bounds

KINDS = [name for name in sorted(golden.RETRIEVERS) if name != "dense_ivfpq"]
"""All but the one whose codes are learned from its vectors, so that those of shards are other codes."""
QUICK = ("bm25_passages", "dense", "multivector", "generative_semantic", "gdr", "fused", "given")
HALVES = {"half": 1}
SOME = {"third": [0, 2]}


def documents(count: int = 40) -> list[Document]:
    """Those of the golden artifacts, with metadata to filter by."""
    return [
        replace(document, metadata={"half": at % 2, "third": at % 3, "few": at < 3})
        for at, document in enumerate(golden.documents(count))
    ]


@functools.cache
def fitted(name: str) -> triever.Retriever:
    """One of every kind, from which a document was deleted, and to which one was added."""
    retriever = golden.RETRIEVERS[name]().fit(golden.dataset(name, documents()))
    retriever.delete(["d0"])
    retriever.add([Document("tea two", "It came later than the others.", "A late word7", metadata={"half": 1})])
    return retriever


def in_shards(retriever: triever.Retriever, folder: Path, into: int) -> triever.Retriever:
    retriever.save(folder, shards=into)
    return triever.load(folder)


def check_same(mine: Result, whole: Result, rel: float = 1e-5) -> None:
    """The same hits with the same scores; numbers are added in another order by a matrix of another shape."""
    assert [hit.id for hit in mine] == [hit.id for hit in whole]
    assert [hit.docid for hit in mine] == [hit.docid for hit in whole]
    assert [hit.span for hit in mine] == [hit.span for hit in whole]
    assert [hit.score for hit in mine] == pytest.approx([hit.score for hit in whole], rel=rel, abs=rel)
    assert [hit.text for hit in mine] == [hit.text for hit in whole]
    assert (mine.note, mine.certificate) == (whole.note, whole.certificate)


def check_all(mine: triever.Retriever, whole: triever.Retriever, **how: Any) -> None:
    results = (retriever.search_many(golden.QUERIES, **how) for retriever in (mine, whole))
    for own, expected in zip(*results, strict=True):
        check_same(own, expected)


@pytest.mark.parametrize("name", quick(*QUICK, of=KINDS))
def test_every_kind_finds_the_same(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # where one of them writes its backbone
    whole = fitted(name)
    mine = in_shards(whole, tmp_path / "shards", 2)
    assert type(mine) is type(whole)
    assert mine.fingerprint == whole.fingerprint
    check_all(mine, whole, k=5)
    check_all(mine, whole, k=5, where=HALVES)


@pytest.mark.long
@pytest.mark.parametrize("into", [2, 4])
@pytest.mark.parametrize("name", KINDS)
def test_every_kind_finds_the_same_with_any_filter_and_number(
    name: str, into: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    whole = fitted(name)
    mine = in_shards(whole, tmp_path / "shards", into)
    for where in (None, HALVES, SOME, {"few": True}, {"half": 7}):
        for k in (1, 5, 60):
            check_all(mine, whole, k=k, where=where)


@pytest.mark.parametrize("name", ["bm25", "dense", "multivector", "gdr", "reatt", "fused", "bm25_passages"])
def test_scores_are_explained_the_same(name: str, tmp_path: Path) -> None:
    whole = fitted(name)
    mine = in_shards(whole, tmp_path / "shards", 3)
    for where in (None, HALVES):
        own, expected = (retriever.explain(golden.QUERIES[1], 5, where=where) for retriever in (mine, whole))
        assert len(own.parts) == len(own.result) == 5
        for parts, others in zip(own.parts, expected.parts, strict=True):
            assert dict(parts) == pytest.approx(dict(others), rel=1e-5, abs=1e-6)


WORDS = st.lists(st.sampled_from(["tea", "water", "leaf", "the", "boil", "cup", "日本", "of"]), max_size=12)


@settings(suppress_health_check=ONE_FOR_ALL)
@given(texts=st.lists(WORDS, min_size=1, max_size=12), query=WORDS, data=st.data())
def test_words_weigh_in_shards_what_they_weigh_in_all_documents(
    texts: list[list[str]], query: list[str], data: st.DataObject, tmp_path: Path
) -> None:
    """Scores are the same numbers, so that the largest id comes first wherever documents tie."""
    method = data.draw(st.sampled_from(["lucene", "robertson", "atire"]))
    kept = [Document(f"d{at}", " ".join(words), metadata={"at": at}) for at, words in enumerate(texts)]
    whole = BM25(method=method).fit(triever.Dataset.of("words", kept))
    mine = in_shards(whole, tmp_path / "shards", data.draw(st.integers(1, len(kept))))
    where = data.draw(st.none() | st.fixed_dictionaries({"at": st.lists(st.integers(0, 12), min_size=1)}))
    k = data.draw(st.integers(1, 15))
    check_same(mine.search(" ".join(query), k, where=where), whole.search(" ".join(query), k, where=where), rel=0)


SCHEMES = ["generative_atomic", "generative_codebook", "generative_title", "generative_cluster"]


@pytest.mark.long
@settings(suppress_health_check=ONE_FOR_ALL)
@given(name=st.sampled_from(SCHEMES), into=st.integers(1, 7), query=st.text(max_size=20), data=st.data())
def test_docids_are_as_probable_in_shards(
    name: str, into: int, query: str, data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """One beam goes over one trie, whatever the shards are: probabilities are over all documents by either rule."""
    how = {
        "normalisation": data.draw(st.sampled_from(["trie", "vocabulary"])),
        "method": data.draw(st.sampled_from(["beam", "exact"])),
        "width": data.draw(st.integers(1, 8)),
        "temperature": data.draw(st.sampled_from([0.5, 1.0, 3.0])),
    }
    both = docids_in_shards(name, into, tmp_path_factory), fitted(name)
    where, k = data.draw(st.sampled_from([None, HALVES, SOME, {"few": True}])), data.draw(st.integers(1, 60))
    mine, whole = (kept.searched_with({"search_options": how}).search(query, k, where=where) for kept in both)
    check_same(mine, whole)
    if how["normalisation"] == "trie" and how["method"] == "exact" and k >= 40 and "reached" not in mine.certificate:
        assert sum(np.exp(hit.logprob) for hit in mine) == pytest.approx(1, abs=1e-4)


SHARDED: dict[tuple[str, int], triever.Retriever] = {}


def docids_in_shards(name: str, into: int, folders: pytest.TempPathFactory) -> triever.Retriever:
    if (name, into) not in SHARDED:
        SHARDED[name, into] = in_shards(fitted(name), folders.mktemp("shards") / name, into)
    return SHARDED[name, into]


def test_a_search_that_leaves_documents_out_finds_no_less_in_shards(tmp_path: Path) -> None:
    """A candidate of the whole is one of its shard, since all have the centroids of the whole."""
    few = TokenOptions(candidates=3, probes=1, centroids=8)
    options = replace(golden.RETRIEVERS["multivector"](), index=few)
    whole = options.fit(triever.Dataset.of("golden", documents(200)))
    mine = in_shards(whole, tmp_path / "shards", 4)
    exact = whole.reindexed(candidates=0)
    for query in golden.QUERIES:
        scores = [[hit.score for hit in kept.search(query, 3)] for kept in (whole, mine, exact)]
        assert all(low <= own + 1e-5 for low, own in zip(*scores[:2], strict=True))
        assert all(own <= high + 1e-5 for own, high in zip(*scores[1:], strict=True))


def test_codes_of_shards_find_nearly_the_same(tmp_path: Path) -> None:
    whole = golden.RETRIEVERS["dense_ivfpq"]().fit(triever.Dataset.of("golden", documents(640)))
    mine = in_shards(whole, tmp_path / "shards", 2)
    shared = [
        {hit.id for hit in mine.search(query)} & {hit.id for hit in whole.search(query)} for query in golden.QUERIES
    ]
    assert sum(map(len, shared)) >= 0.5 * 10 * len(golden.QUERIES)


def test_shards_are_not_changed_and_not_saved(tmp_path: Path) -> None:
    mine = in_shards(fitted("bm25"), tmp_path / "shards", 2)
    for change in (
        lambda: mine.add([Document("new", "new")]),
        lambda: mine.delete(["tea"]),
        lambda: mine.save(tmp_path / "other"),
    ):
        with pytest.raises(
            UsageError, match="in shards can be searched, but not changed or saved; change the one that"
        ):
            change()
    with pytest.raises(UsageError, match="not changed"), triever.edit(tmp_path / "shards") as retriever:
        retriever.delete(["tea"])
    assert len(triever.load(tmp_path / "shards")) == len(mine) == 40


def test_there_are_no_more_shards_than_documents(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="40 documents cannot be put into 41 shards; use fewer shards"):
        fitted("bm25").save(tmp_path / "shards", shards=41)
    with pytest.raises(UsageError, match="shards = 0"):
        fitted("bm25").save(tmp_path / "shards", shards=0)
    check_all(in_shards(fitted("bm25"), tmp_path / "shards", 40), fitted("bm25"), k=7)


def test_memory_is_told_with_shards_and_without(tmp_path: Path) -> None:
    """Shards hold the same numbers; what only changes need is not there."""
    for name, part in [("bm25", "postings"), ("dense", "vectors"), ("multivector", "token vectors")]:
        whole, mine = fitted(name), in_shards(fitted(name), tmp_path / name, 2)
        assert mine.memory[part] >= whole.memory[part] * 0.9
        assert mine.memory_for(1000)[part]


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda shards: {**shards, "rows": [0, 20, 39]}, "the rows of its shards end at 39, not at 40"),
        (lambda shards: {**shards, "rows": [0, 30, 20, 40]}, "do not rise from 0"),
        (lambda shards: {**shards, "rows": [0, 40]}, "in different numbers of shards"),
        (lambda _: {"rows": [0, 19, 40], "documents": [0, 19, 40]}, "documents"),
        (lambda _: None, "shards"),
    ],
)
def test_bounds_that_do_not_fit_are_refused(change: Any, problem: str, tmp_path: Path) -> None:
    fitted("bm25").save(tmp_path / "shards", shards=2)
    file = tmp_path / "shards" / "manifest.json"
    manifest = json.loads(file.read_text(encoding="utf-8"))
    manifest["state"]["shards"] = change(manifest["state"]["shards"])
    file.write_text(json.dumps({**manifest, "digest": digest_of(manifest)}), encoding="utf-8")
    with pytest.raises(ArtifactError, match=problem):
        triever.load(tmp_path / "shards")


@given(st.integers(1, 50), st.data())
def test_bounds_part_documents_and_their_passages(count: int, data: st.DataObject) -> None:
    owners = np.repeat(np.arange(count), data.draw(st.lists(st.integers(1, 4), min_size=count, max_size=count)))
    into = data.draw(st.integers(1, count))
    bounds = Bounds.of(count, into, owners)
    assert len(bounds) == into
    sizes = np.diff(bounds.documents)
    assert sizes.min() >= 1 >= sizes.max() - sizes.min()
    for rows, inside in zip(bounds.row_slices(), bounds.document_slices(), strict=True):
        assert {*owners[rows].tolist()} == {*range(inside.start, inside.stop)}
    assert Bounds.read(bounds.to_dict(), len(owners), count) == bounds


def test_shards_from_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from triever.cli import main

    def run(*words: str) -> tuple[object, str]:
        with pytest.raises(SystemExit) as ended:
            main([*words])
        told = capsys.readouterr()
        return ended.value.code, told.out + told.err

    fitted("bm25").save(tmp_path / "whole")
    whole, shards = str(tmp_path / "whole"), str(tmp_path / "shards")
    assert run("shard", whole, "--into", "3", "--out", shards)[0] == 0
    assert run("search", shards, "boiling water", "--json") == run("search", whole, "boiling water", "--json")
    code, told = run("shard", whole, "--into", "2", "--out", shards)
    assert (code, "replace it with --replace" in told) == (2, True)
    assert run("shard", whole, "--into", "2", "--out", shards, "--replace")[0] == 0
    code, told = run("delete", shards, "tea")
    assert (code, "can be searched, but not changed" in told) == (2, True)
    code, told = run("fit", "bm25", "--data", "python", "--out", str(tmp_path / "m"), "--workers", "2")
    assert (code, "--workers has no effect without --on" in told) == (2, True)


def test_what_ray_cannot_do_is_refused_before_it_starts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from triever.cli import main

    def refused(*words: str) -> str:
        with pytest.raises(SystemExit) as ended:
            main(["fit", *words, "--data", "python", "--out", str(tmp_path / "m")])
        assert ended.value.code == 2
        return capsys.readouterr().err

    trained = ["dense", "--set", "training.steps=4", "--processes", "2"]
    assert "--processes has no effect without --on ray; say --on ray" in refused(*trained)
    assert "the only other place to work is: --on ray" in refused(*trained, "--on", "rya")
    assert "--workers and --processes exclude each other" in refused(*trained, "--on", "ray", "--workers", "2")
    assert "this bm25 is not trained" in refused("bm25", "--on", "ray", "--processes", "2")
    for name, value in {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "localhost"}.items():
        monkeypatch.setenv(name, value)
    assert "--on ray is for one process, and several were started together" in refused(*trained, "--on", "ray")
