"""The query writer: what it writes, what it learns, what it keeps, and files that survive being interrupted."""

from __future__ import annotations

import gzip
import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import triever
from tests.marks import quick
from tests.models.causal import save_causal
from tests.models.test_backbones import save
from tests.retrievers.contract import DOCUMENTS, dataset
from tests.warm import Begun, run
from triever import BM25, Dataset, Document, Query, QueryWriter, Reranked, RerankTuning, UsageError, WriterTuning
from triever.commands.use import status
from triever.data.readers import read_expansions
from triever.data.writers import write_dataset
from triever.errors import ArtifactError, DataError
from triever.models import weights
from triever.models.backbones import load_backbone
from triever.models.sampling import continued
from triever.models.tokens import Tokens
from triever.queries import query_writer
from triever.queries.query_files import write_file
from triever.queries.question_sampler import Judge, QuestionSampler
from triever.work_folder import LOCK, MARKER

Make = Callable[..., QueryWriter]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(save_causal(tmp_path_factory.mktemp("causal") / "llama"))


@pytest.fixture(scope="module")
def make(folder: str) -> Make:
    """A writer with a tiny model of random weights."""
    return lambda **options: QueryWriter(**{"backbone": folder, "per_document": 3, "query_length": 8, **options})


# What it writes


def test_each_document_gets_its_questions_in_order(make: Make) -> None:
    found = list(make().write(DOCUMENTS))
    assert [key for key, _ in found] == [document.id for document in DOCUMENTS]
    assert all(len(questions) <= 3 for _, questions in found)
    assert sum(len(questions) for _, questions in found) > len(DOCUMENTS)
    assert list(make().write(iter(DOCUMENTS))) == found
    assert list(make(seed=1).write(DOCUMENTS)) != found


def test_a_document_gets_the_same_questions_wherever_it_stands(make: Make) -> None:
    found = dict(make().write(DOCUMENTS))
    assert dict(make().write(reversed(DOCUMENTS))) == found
    assert dict(make(batch=1).write(DOCUMENTS)) == found
    for document in DOCUMENTS[:3]:
        assert dict(make().write([document])) == {document.id: found[document.id]}


def test_more_questions_begin_with_those_of_fewer(make: Make) -> None:
    few, more = (dict(make(per_document=count, batch=7).write(DOCUMENTS)) for count in (2, 9))
    assert all(more[key][: len(questions)] == questions for key, questions in few.items())


def test_the_likeliest_token_alone_leaves_one_question(make: Make) -> None:
    assert all(len(questions) <= 1 for _, questions in make(top=1, per_document=4).write(DOCUMENTS))


def test_questions_are_distinct_clean_and_end_where_they_end(make: Make) -> None:
    for _, questions in make(per_document=60, query_length=12, top=40).write(DOCUMENTS):
        assert len({question.casefold() for question in questions}) == len(questions)
        for question in questions:
            assert question == " ".join(question.split()) != ""
            assert "?" not in question[:-1]


def scripted(monkeypatch: pytest.MonkeyPatch, folder: str, *texts: str) -> None:
    """The model writes these texts for every document."""
    tokenizer = load_backbone(folder).tokenizer

    def continued(_model: Any, prompts: Any, *_: Any) -> list[list[list[int]]]:
        return [tokenizer.ids(texts, special=False) for _ in range(len(prompts))]

    monkeypatch.setattr("triever.queries.question_sampler.continued", continued)


def test_what_is_said_twice_or_not_at_all_is_dropped(make: Make, folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    scripted(monkeypatch, folder, " Who  is it?", "who is It? She is", "", "\nWhat?", "What?", "who is it")
    questions, counts = make(per_document=6).sampler().write(DOCUMENTS[:2])
    assert questions == [(one.id, ("Who is it?", "What?", "who is it")) for one in DOCUMENTS[:2]]
    assert counts == {"drawn": 12, "empty": 4, "duplicates": 2}


# What it learns

PURRS = "does it purr at night"
BARKS = "will it bark"


def animals(count: int = 12) -> Dataset:
    """A document with a cat in it is asked whether it purrs, one with a dog whether it barks."""
    kinds = ["cat", "dog"] * (count // 2)
    documents = [Document(f"d{number}", f"about the {kind}, number {number}") for number, kind in enumerate(kinds)]
    queries = [Query(f"q{number}", PURRS if kind == "cat" else BARKS) for number, kind in enumerate(kinds)]
    qrels = {f"q{number}": {f"d{number}": 1} for number in range(count)}
    return Dataset.of("animals", documents, queries, {"train": qrels})


TUNING = WriterTuning(steps=150, batch=6, rounds=1, learning_rate=1e-2, holdout=0.0)
SMALL = "scratch:hidden=32,layers=2,heads=2,vocabulary=300"


@pytest.fixture(scope="module")
def tuned() -> QueryWriter:
    return QueryWriter(backbone=SMALL, training=TUNING, per_document=5, temperature=0.5, query_length=40).fit(animals())


def test_a_writer_learns_what_is_asked_and_where_a_question_ends(tuned: QueryWriter) -> None:
    data = animals()
    for document, (key, questions) in zip(data.documents(), tuned.write(data.documents()), strict=True):
        assert key == document.id
        assert questions == ((PURRS if "cat" in document.text else BARKS),)


def test_it_stops_at_the_token_that_it_was_tuned_with(tuned: QueryWriter, make: Make) -> None:
    backbone = tuned._ready().backbone
    taught = query_writer.questions_of(backbone).after
    sampler = tuned.sampler()
    assert sampler.how.ends == set(taught)
    prompts = Tokens.of((document.full_text for document in animals().documents()), sampler.frame, sampler.longest)
    chance = np.random.default_rng(0).random((len(prompts), 4, sampler.how.limit), np.float32)
    for some in continued(sampler.module, prompts, chance, sampler.how, sampler.frame.pad):
        assert all(tokens.index(taught[0]) == len(tokens) - 1 for tokens in some)
    untuned = make().sampler().how.ends
    assert untuned > {make()._ready().backbone.tokenizer.number("<|end|>")}


def test_a_pretrained_backbone_is_tuned_from_where_it_is(make: Make, tmp_path: Path) -> None:
    writer = make(training=WriterTuning(steps=2, batch=4, learning_rate=1e-9, holdout=0.0))
    before = load_backbone(writer.backbone).causal_module().state_dict()
    writer.fit(animals(), work=tmp_path / "work")
    after = writer._ready().module.state_dict()
    assert all(torch.allclose(before[name], after[name], atol=1e-6) for name in before)
    assert (tmp_path / "work" / "training.json").exists()
    assert writer._ready().trained["trained steps"] == 2


def test_held_out_questions_choose_the_round(make: Make) -> None:
    writer = make(training=WriterTuning(steps=6, batch=4, rounds=3, holdout=0.3)).fit(animals(30))
    assert {"best step", "held-out log-likelihood"} <= set(writer._ready().trained)


# What it keeps


def test_a_saved_writer_writes_the_same(tuned: QueryWriter, tmp_path: Path) -> None:
    tuned.save(tmp_path / "writer")
    again = QueryWriter.load(tmp_path / "writer")
    assert list(again.write(animals().documents())) == list(tuned.write(animals().documents()))
    assert again.made_from == tuned.made_from != ""
    more = QueryWriter.load(tmp_path / "writer", {"per_document": "7", "top": 20})
    assert (more.per_document, more.top, more.training) == (7, 20, tuned.training)
    with pytest.raises(UsageError, match="backbone is a part of the saved writer"):
        QueryWriter.load(tmp_path / "writer", {"backbone": "smollm2"})
    assert "nothing pretrained" in tuned.card
    assert "held-out" not in tuned.card


def test_a_writer_as_it_comes_can_be_saved_too(make: Make, tmp_path: Path, capsys: Any) -> None:
    writer = make()
    writer.save(tmp_path / "writer")
    status(tmp_path / "writer", json_=True)
    assert json.loads(capsys.readouterr().out)["kind"] == "query-writer"
    again = QueryWriter.load(tmp_path / "writer")
    assert list(again.write(DOCUMENTS)) == list(writer.write(DOCUMENTS))


def test_another_artifact_is_no_writer(tmp_path: Path) -> None:
    BM25().fit(dataset()).save(tmp_path / "bm25")
    with pytest.raises(ArtifactError, match="'bm25', not a query writer"):
        QueryWriter.load(tmp_path / "bm25")


def test_a_writer_is_no_retriever(make: Make, tmp_path: Path) -> None:
    make().save(tmp_path / "writer")
    with pytest.raises(ArtifactError, match=r"holds a query writer, .*; use it with: triever write-queries DATA"):
        triever.load(tmp_path / "writer")


# The filter


@pytest.fixture(scope="module")
def judge(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A cross-encoder that was saved with other documents."""
    place = tmp_path_factory.mktemp("judge") / "model"
    small = "scratch:hidden=32,layers=1,heads=2,vocabulary=500"
    Reranked(backbone=small, training=RerankTuning(steps=0)).fit(dataset()).save(place)
    return str(place)


def test_the_filter_keeps_the_best_by_score(make: Make, judge: str) -> None:
    documents = list(animals(6).documents())
    every = dict(make(per_document=9).write(documents))
    kept = dict(make(per_document=9, filter=judge, keep=0.4).write(documents))
    reranked = triever.load(judge)
    assert isinstance(reranked, Reranked)
    encoder = reranked.engine.reranker.encoder
    for document in documents:
        scores = []
        for question in every[document.id]:
            left, right = encoder.tokenizer.ids([question, document.full_text])
            ids = torch.tensor([left + right[len(encoder.tokenizer.before) :]])
            with torch.inference_mode():
                scores.append(float(encoder(ids, torch.ones_like(ids))))
        count = int(np.ceil(0.4 * len(scores)))
        best = set(np.argsort(scores)[-count:])
        assert kept[document.id] == tuple(one for place, one in enumerate(every[document.id]) if place in best)


def test_a_document_without_questions_has_none_to_judge(judge: str) -> None:
    reranked = triever.load(judge)
    assert isinstance(reranked, Reranked)
    found = Judge(reranked, 0.5).best(DOCUMENTS[:3], [["a", "b", "c"], [], ["d"]])
    assert [len(some) for some in found] == [2, 0, 1]


def test_a_filter_without_a_cross_encoder_is_refused(make: Make, tmp_path: Path) -> None:
    BM25().fit(dataset()).save(tmp_path / "bm25")
    with pytest.raises(UsageError, match="bm25 retriever, which has no cross-encoder"):
        next(make(filter=str(tmp_path / "bm25")).write(DOCUMENTS))


def test_a_filter_that_cannot_be_used_is_refused_before_anything_is_tuned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    BM25().fit(dataset()).save(tmp_path / "bm25")
    monkeypatch.setattr(query_writer, "tune", lambda *_: pytest.fail("it was tuned"))
    with pytest.raises(UsageError, match="which has no cross-encoder"):
        QueryWriter(backbone=SMALL, training=TUNING, filter=str(tmp_path / "bm25")).fit(animals())


# Files


@pytest.fixture
def small_shards(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(QueryWriter, "shard", 3)


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


@pytest.mark.usefixtures("small_shards")
def test_a_file_holds_what_is_written_and_can_be_read(make: Make, tmp_path: Path) -> None:
    out = tmp_path / "q.jsonl"
    found = write_file(make(), dataset(), out)
    assert dict(read_expansions(out)) == dict(make().write(DOCUMENTS))
    assert [line["_id"] for line in lines(out)] == [document.id for document in DOCUMENTS]
    texts = [text for line in lines(out) for text in line["texts"]]
    assert (found["documents"], found["questions"]) == (len(DOCUMENTS), len(texts))
    assert found["words in a question"] == pytest.approx(np.mean([len(text.split()) for text in texts]))
    assert found["questions per second"] > 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["q.jsonl"]
    write_file(make(), dataset(), tmp_path / "q.jsonl.gz")
    assert gzip.decompress((tmp_path / "q.jsonl.gz").read_bytes()) == out.read_bytes()


@pytest.mark.usefixtures("small_shards")
def test_parts_make_the_whole(make: Make, tmp_path: Path) -> None:
    write_file(make(), dataset(), tmp_path / "whole")
    parts = []
    for number in (1, 2, 3):
        write_file(make(), dataset(), tmp_path / f"part{number}", part=f"{number}/3")
        parts.append((tmp_path / f"part{number}").read_bytes())
    assert b"".join(parts) == (tmp_path / "whole").read_bytes()
    assert [part.count(b"\n") for part in parts] == [3, 3, 4]


def test_bm25_finds_documents_by_their_questions(make: Make, folder: str, tmp_path: Path, monkeypatch: Any) -> None:
    scripted(monkeypatch, folder, "what is a zyzzyva?")
    write_file(make(), dataset(DOCUMENTS[:1]), tmp_path / "q.jsonl")
    expanded = BM25().fit(dataset().with_expansions(tmp_path / "q.jsonl"))
    assert [hit.id for hit in expanded.search("zyzzyva")] == [DOCUMENTS[0].id]


@pytest.fixture
def interrupted(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[int], list[int]]]:
    """Interrupt the writing after so many shards; gives a list of the sizes of those that are written."""
    undisturbed = QuestionSampler.write

    def after(count: int) -> list[int]:
        sizes: list[int] = []

        def write(self: QuestionSampler, documents: Any, tell: Any) -> Any:
            if len(sizes) == count:
                raise KeyboardInterrupt
            sizes.append(len(documents))
            return undisturbed(self, documents, tell)

        monkeypatch.setattr(QuestionSampler, "write", write)
        return sizes

    return after


@pytest.mark.usefixtures("small_shards")
def test_an_interrupted_work_goes_on_where_it_was(make: Make, tmp_path: Path, interrupted: Any) -> None:
    out, work = tmp_path / "q.jsonl", tmp_path / "q.jsonl.work"
    write_file(make(), dataset(), tmp_path / "whole")
    interrupted(2)
    with pytest.raises(KeyboardInterrupt):
        write_file(make(), dataset(), out)
    assert not out.exists()
    assert len(list(work.glob("*.jsonl"))) == 2
    sizes = interrupted(100)
    write_file(make(), dataset(), out)
    assert sizes == [3, 1], "the shards that were there are not written again"
    assert out.read_bytes() == (tmp_path / "whole").read_bytes()
    assert not work.exists()


def flip(work: Path) -> None:
    content = bytearray((work / "000000.jsonl").read_bytes())
    content[-5] ^= 1
    (work / "000000.jsonl").write_bytes(content)


def cut(work: Path) -> None:
    os.truncate(work / "000001.jsonl", 30)


def swap(work: Path) -> None:
    (work / "000000.jsonl").rename(work / "other")
    (work / "000001.jsonl").rename(work / "000000.jsonl")
    (work / "other").rename(work / "000001.jsonl")


def deep(work: Path) -> None:
    (work / "000001.jsonl").write_bytes(b"[" * 100_000 + b"\n")


def count(work: Path) -> None:
    content = (work / "000000.jsonl").read_bytes()
    assert b'"drawn": 9' in content
    (work / "000000.jsonl").write_bytes(content.replace(b'"drawn": 9', b'"drawn": 8'))


@pytest.mark.usefixtures("small_shards")
@pytest.mark.parametrize("damage", quick(flip, swap, of=[flip, cut, swap, deep, count]))
def test_a_damaged_shard_is_written_again(
    damage: Callable[[Path], None],
    make: Make,
    tmp_path: Path,
    interrupted: Any,
    caplog: pytest.LogCaptureFixture,
) -> None:
    out, work = tmp_path / "q.jsonl", tmp_path / "q.jsonl.work"
    whole = write_file(make(), dataset(), tmp_path / "whole")
    interrupted(2)
    with pytest.raises(KeyboardInterrupt):
        write_file(make(), dataset(), out)
    damage(work)
    sizes = interrupted(100)
    found = write_file(make(), dataset(), out)
    assert sizes == ([3, 3, 3, 1] if damage is swap else [3, 3, 1])
    assert "so its questions are written again" in caplog.text
    assert out.read_bytes() == (tmp_path / "whole").read_bytes()
    assert {**found, "questions per second": 0} == {**whole, "questions per second": 0}


@pytest.mark.usefixtures("small_shards")
def test_a_shard_that_is_no_file_is_refused(make: Make, tmp_path: Path, interrupted: Any) -> None:
    interrupted(2)
    with pytest.raises(KeyboardInterrupt):
        write_file(make(), dataset(), tmp_path / "q")
    (tmp_path / "q.work" / "000000.jsonl").unlink()
    os.mkfifo(tmp_path / "q.work" / "000000.jsonl")
    with pytest.raises(UsageError, match=r"holds 000000\.jsonl, which Triever does not write there"):
        write_file(make(), dataset(), tmp_path / "q")


@pytest.mark.usefixtures("small_shards")
def test_a_tuning_goes_on_too_and_is_saved_once_more(make: Make, tmp_path: Path, interrupted: Any) -> None:
    def writer() -> QueryWriter:
        return make(training=WriterTuning(steps=2, batch=4, holdout=0.0))

    write_file(writer(), animals(), tmp_path / "whole", save=tmp_path / "one")
    interrupted(1)
    with pytest.raises(KeyboardInterrupt):
        write_file(writer(), animals(), tmp_path / "q", save=tmp_path / "two")
    interrupted(100)
    write_file(writer(), animals(), tmp_path / "q", save=tmp_path / "two")
    assert (tmp_path / "q").read_bytes() == (tmp_path / "whole").read_bytes()
    assert QueryWriter.load(tmp_path / "two").made_from == QueryWriter.load(tmp_path / "one").made_from
    write_file(QueryWriter.load(tmp_path / "two"), animals(), tmp_path / "loaded")
    assert (tmp_path / "loaded").read_bytes() == (tmp_path / "whole").read_bytes()


@pytest.mark.usefixtures("small_shards")
def test_the_unfinished_work_of_something_else_is_refused(make: Make, tmp_path: Path, interrupted: Any) -> None:
    out, work = tmp_path / "q.jsonl", tmp_path / "work"
    interrupted(1)
    with pytest.raises(KeyboardInterrupt):
        write_file(make(), dataset(), out, work=work)
    for other, data, part, said in (
        (make(seed=5), dataset(), "1/1", r"unfinished work with other options \(seed = 0, not 5\); remove"),
        (make(), dataset(DOCUMENTS[:5]), "1/1", "unfinished work with other documents"),
        (make(), dataset(), "1/2", r"unfinished work with other part \('1/1', not '1/2'\)"),
    ):
        with pytest.raises(UsageError, match=said):
            write_file(other, data, out, part=part, work=work)
    interrupted(100)
    write_file(make(), dataset(), out, work=work)
    assert sorted(path.name for path in work.iterdir()) == [LOCK, MARKER], "a folder that was named stays"
    write_file(make(seed=5), dataset(), out, work=work)


def test_a_folder_of_other_files_is_left_alone(make: Make, tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("years of work")
    with pytest.raises(UsageError, match=r"holds thesis\.txt, which Triever does not write there"):
        write_file(make(), dataset(), tmp_path.parent / "q.jsonl", work=tmp_path)
    assert (tmp_path / "thesis.txt").exists()


def test_a_work_that_never_began_leaves_nothing(make: Make, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="did you mean train"):
        write_file(make(training=WriterTuning(steps=1, split="trian")), dataset(), tmp_path / "q.jsonl")
    assert list(tmp_path.iterdir()) == []


def test_a_writer_does_not_replace_what_is_there(make: Make, tmp_path: Path) -> None:
    BM25().fit(dataset()).save(tmp_path / "model")
    with pytest.raises(ArtifactError, match="already exists"):
        write_file(make(), dataset(), tmp_path / "q.jsonl", save=tmp_path / "model")
    assert triever.load(tmp_path / "model").kind == "bm25"


# Mistakes


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"per_document": 0}, "per_document = 0 should be from 1 to 1000"),
        ({"per_document": 1001}, "per_document = 1001"),
        ({"temperature": 0.0}, "set temperature above 0"),
        ({"top": 0}, "set temperature above 0, and top to 1"),
        ({"query_length": 1}, "query_length = 1"),
        ({"document_length": 0}, "document_length = 0"),
        ({"batch": -1}, "batch = -1"),
        ({"keep": 0.0}, "keep = 0.0"),
        ({"prompt": "Question:"}, r"\{document\} once"),
        ({"prompt": "Ask about {document}"}, "and text after it"),
    ],
)
def test_options_that_cannot_be(make: Make, options: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        make(**options)


def test_mistakes_are_said_in_a_sentence(make: Make, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no documents to write questions for"):
        list(make().write([]))
    with pytest.raises(UsageError, match="no documents to write questions for"):
        write_file(make(), Dataset.of("nothing", []), tmp_path / "q.jsonl")
    with pytest.raises(UsageError, match="has not been tuned yet"):
        list(make(training=WriterTuning(steps=1)).write(DOCUMENTS))
    with pytest.raises(UsageError, match="scratch has not learned any words"):
        list(QueryWriter(backbone="scratch").write(DOCUMENTS))
    with pytest.raises(UsageError, match="fit takes a Dataset"):
        make().fit(DOCUMENTS)  # ty: ignore[invalid-argument-type]
    with pytest.raises(UsageError, match="alone need more"):
        list(make(query_length=1100).write(DOCUMENTS))
    for part in ("0/2", "3/2", "2", "a/b", "1/0"):
        with pytest.raises(UsageError, match="should be of the form NUMBER/COUNT"):
            write_file(make(), dataset(), tmp_path / "q.jsonl", part=part)
    with pytest.raises(UsageError, match="part 1/11 of 10 documents is empty"):
        write_file(make(), dataset(), tmp_path / "q.jsonl", part="1/11")


@pytest.mark.parametrize("kind", ["bert", "t5"])
def test_a_backbone_that_cannot_write_is_refused(kind: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="not a causal language model, so it cannot write"):
        list(QueryWriter(backbone=str(save(kind, tmp_path / kind))).write(DOCUMENTS))


def test_too_little_memory_is_said_in_a_sentence(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    def continued(*_: Any) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr("triever.queries.question_sampler.continued", continued)
    with pytest.raises(UsageError, match="too little memory for 40 questions at once; set batch to 20 or less"):
        next(make(batch=40).write(DOCUMENTS))


def test_a_long_document_is_cut_and_the_prompt_is_not(make: Make) -> None:
    writer = make(document_length=20)
    backbone = writer._ready().backbone
    frame = writer.sampler().frame
    ids = frame.ids(["word " * 500], writer.sampler().longest)[0]
    assert len(ids) == len(frame.before) + 20 + len(frame.after)
    assert backbone.tokenizer.text(ids).endswith("Question:")


# The command line


def command(data: Path, out: Path, folder: str, *more: str) -> list[str]:
    settings = {"backbone": folder, "per_document": 2, "query_length": 6, "batch": 16}
    words = [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
    return ["write-queries", str(data), "--out", str(out), *words, *more]


@pytest.mark.long
def test_a_command_that_is_killed_goes_on_where_it_was(folder: str, tmp_path: Path) -> None:
    documents = [Document(f"d{number}", f"text number {number}") for number in range(256)]
    write_dataset(tmp_path / "data", Dataset.of("many", documents))
    options = {"per_document": 2, "query_length": 6, "batch": 16}
    write_file(QueryWriter(backbone=folder, **options), triever.load_dataset(tmp_path / "data"), tmp_path / "whole")
    out, work = tmp_path / "q.jsonl", tmp_path / "q.jsonl.work"
    process = Begun(command(tmp_path / "data", out, folder))
    while process.running() and not any(work.glob("*.jsonl")):
        time.sleep(0.01)
    process.kill()
    assert process.wait() == 128 + signal.SIGKILL
    assert not out.exists()
    begun = {path.name: path.stat().st_mtime_ns for path in work.glob("*.jsonl")}
    assert begun
    words = command(tmp_path / "data", out, folder, "--json")
    done = run(words)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["documents"] == 256
    assert out.read_bytes() == (tmp_path / "whole").read_bytes()
    assert not work.exists()


# The real thing


def has_smollm2() -> bool:
    try:
        weights.find("smollm2")
    except (UsageError, DataError):
        return False
    return True


@pytest.mark.long
@pytest.mark.skipif(not has_smollm2(), reason="run: triever weights install smollm2")
def test_smollm2_writes_questions_as_it_comes() -> None:
    documents = list(triever.load_dataset("python:json").documents())[:8]
    found = [text for _, texts in QueryWriter(per_document=4).write(documents) for text in texts]
    assert len(found) > 24
    assert np.mean([text.endswith("?") for text in found]) > 0.8
    assert np.mean(["json" in text.lower() for text in found]) > 0.3
