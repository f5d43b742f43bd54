"""The suggestions: each rule, the costs, and commands that can be run."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import typer
from hypothesis import given, settings
from hypothesis import strategies as st

import triever
from tests.retrievers.contract import dataset
from tests.test_shown import parse
from triever import BM25, Dataset, Document, MultiVector, UsageError, artifact, cli, load_dataset
from triever.data.store import DocumentStore
from triever.lab import measured
from triever.lab.costs import bm25_cost, dense_cost, generative_cost, late_cost, query_ms, tokens_per_second
from triever.lab.measured import PYTHON, SPEEDS, WIKI
from triever.lab.situation import CHANGES, Corpus, Machine, Situation, described, split_roles, this_machine
from triever.lab.suggest import FEW, LARGE, MANY, NIGHT, SHORT, Advice, Suggestion, Words, lines, suggest
from triever.lab.systems import new_system
from triever.memory_parts import counted

CORPUS = Corpus("mine", 20_000, 100.0, 135.0, 12_000_000, test="test")
ASKED = replace(CORPUS, questions=5_000, covered=0.2, train="train")
PROCESSOR = Machine(4, 16 * 10**9)
GPU = Machine(16, 100 * 10**9, measured.GPU)


def advice(corpus: Corpus, machine: Machine = PROCESSOR, changes: str = "rarely", **more: str) -> Advice:
    return suggest(Situation(corpus, machine, changes), **more)


def systems(*words: Any, **more: Any) -> list[str]:
    return [suggestion.system for suggestion in advice(*words, **more).suggestions]


def settings_of(suggestion: Suggestion) -> list[str]:
    """What the last fit sets."""
    words = suggestion.fit[-1]
    return [words[at + 1] for at, word in enumerate(words) if word == "--set"]


def commands(given: Advice) -> Iterator[Words]:
    for suggestion in given.suggestions:
        yield from (*suggestion.fit, *suggestion.use)
    if given.compare:
        yield given.compare


# The rules


def test_without_questions_and_gpu_nothing_is_trained() -> None:
    assert systems(CORPUS) == ["dense", "bm25"]
    assert settings_of(advice(CORPUS).suggestions[0]) == []


def test_without_questions_a_gpu_and_memory_allow_late_interaction() -> None:
    assert systems(CORPUS, GPU) == ["multivector", "dense", "bm25"]
    assert settings_of(advice(CORPUS, GPU).suggestions[0]) == []


@pytest.mark.parametrize(("language", "settings"), [("german", ["language=german"]), ("", [])])
def test_texts_that_are_not_english_begin_with_bm25(language: str, settings: list[str]) -> None:
    given = advice(replace(ASKED, language=language), GPU)
    assert [suggestion.system for suggestion in given.suggestions] == ["bm25", "generative", "multivector"]
    assert settings_of(given.suggestions[0]) == settings
    assert "MiniLM" in given.notes[0]


def test_questions_are_learned_from() -> None:
    first = advice(ASKED).suggestions[0]
    assert (first.system, settings_of(first)) == ("generative", ["training.encoder_steps=0"])
    assert settings_of(advice(ASKED, GPU).suggestions[0]) == []
    assert systems(ASKED, GPU) == ["generative", "multivector", "dense"]


def test_too_few_questions_are_kept_for_comparing() -> None:
    assert systems(replace(ASKED, questions=FEW)) == ["generative", "dense", "bm25"]
    few = advice(replace(ASKED, questions=FEW - 1))
    assert [suggestion.system for suggestion in few.suggestions] == ["dense", "bm25"]
    assert any("too few to learn from" in note for note in few.notes)


def test_many_questions_and_a_gpu_bring_a_teacher() -> None:
    many = replace(ASKED, questions=MANY)
    first = advice(many, GPU).suggestions[0]
    assert "teacher=models/multivector" in settings_of(first)
    assert [words[2] for words in first.fit] == ["multivector", "generative"]
    assert first.fit[0][5:7] == ("--out", "models/multivector")
    fewer = advice(replace(many, questions=MANY - 1), GPU).suggestions[0]
    assert "teacher=models/multivector" not in settings_of(fewer)
    assert "teacher=models/multivector" not in settings_of(advice(many).suggestions[0])
    assert first.cost.fit_seconds > fewer.cost.fit_seconds + measured.LATE_TUNED.value


def test_many_documents_have_docids_of_several_symbols() -> None:
    assert "docids=semantic" in settings_of(advice(replace(ASKED, documents=LARGE + 1), GPU).suggestions[0])
    assert "docids=semantic" not in settings_of(advice(replace(ASKED, documents=LARGE), GPU).suggestions[0])


def test_short_texts_have_no_passages() -> None:
    assert "passages=0" in settings_of(advice(replace(ASKED, words=SHORT - 1)).suggestions[0])
    assert "passages=0" not in settings_of(advice(replace(ASKED, words=SHORT)).suggestions[0])


def test_little_memory_has_no_passages_and_then_no_generative_model() -> None:
    with_passages = generative_cost(Situation(ASKED, GPU), "atomic", passages=True).memory_bytes
    little = replace(GPU, memory=with_passages - 1)
    assert "passages=0" in settings_of(advice(ASKED, little).suggestions[0])
    without = generative_cost(Situation(ASKED, GPU), "atomic", passages=False).memory_bytes
    assert systems(ASKED, replace(GPU, memory=without - 1)) == ["dense", "bm25"]


def test_late_interaction_needs_room_for_all_tokens() -> None:
    needed = late_cost(Situation(CORPUS, GPU), tuned=False).memory_bytes
    assert systems(CORPUS, replace(GPU, memory=needed))[0] == "multivector"
    short = advice(CORPUS, replace(GPU, memory=needed - 1))
    assert "multivector" not in [suggestion.system for suggestion in short.suggestions]
    assert any(note.startswith("multivector is left out") for note in short.notes)
    many = replace(ASKED, questions=MANY)
    small = replace(GPU, memory=late_cost(Situation(many, GPU), tuned=True).memory_bytes - 1)
    assert "teacher=models/multivector" not in settings_of(advice(many, small).suggestions[0])


def test_hourly_changes_leave_what_needs_no_training() -> None:
    assert systems(ASKED, GPU, "hourly") == ["dense", "bm25"]
    assert systems(ASKED, GPU, "daily")[0] == "generative"


@pytest.mark.parametrize("changes", CHANGES)
def test_changes_bring_the_command_that_adds_documents(changes: str) -> None:
    added = [words[1] for words in advice(ASKED, changes=changes).suggestions[0].use]
    assert added == (["search"] if changes == "rarely" else ["search", "add"])


def test_written_questions_go_into_bm25_first() -> None:
    written = replace(CORPUS, written=1.0)
    assert systems(written, expansions="written.jsonl") == ["bm25", "generative", "dense"]
    first = advice(written, expansions="written.jsonl").suggestions[0]
    assert first.fit[0][-2:] == ("--expansions", "written.jsonl")
    assert first.named == "models/bm25", "a comparison would fit it without the written questions"


def test_what_takes_longer_than_a_night_comes_last() -> None:
    slow = replace(ASKED, documents=3_000_000)
    assert dense_cost(Situation(slow, PROCESSOR)).fit_seconds > NIGHT
    told = advice(slow, replace(PROCESSOR, memory=10**12))
    assert told.suggestions[0].system == "bm25"
    assert any(note.startswith("generative comes last") for note in told.notes)
    assert systems(slow, replace(GPU, memory=10**12))[0] == "generative"


def test_other_splits_are_named() -> None:
    first = advice(replace(ASKED, train="train.nq+train.web", test="dev.nq"), GPU)
    assert settings_of(first.suggestions[0]) == ["training.split=train.nq+train.web"]
    assert first.compare[-2:] == ("--split", "dev.nq")


def test_without_test_questions_there_is_no_comparison() -> None:
    told = advice(replace(ASKED, test=""))
    assert told.compare == ()
    assert any("no judged questions to compare" in note for note in told.notes)


def test_weights_that_are_missing_are_installed_first() -> None:
    told = advice(ASKED, replace(PROCESSOR, has_weights=False))
    assert [suggestion.fit[0][1] for suggestion in told.suggestions] == ["weights", "weights", "fit"]


def test_notes_say_what_was_not_measured() -> None:
    assert any("more than 60,000 documents" in note for note in advice(replace(ASKED, documents=60_001), GPU).notes)
    assert any("a Small may take longer" in note for note in advice(ASKED, replace(GPU, gpu="Small")).notes)
    assert any("fewer than 775" in note for note in advice(replace(ASKED, questions=500)).notes)
    assert any("documents alone" in note for note in advice(ASKED, replace(PROCESSOR, memory=10**6)).notes)
    assert advice(ASKED, GPU).notes == ()


# Costs


def test_costs_are_those_that_were_measured_where_they_were_measured() -> None:
    machine = Machine(measured.CORES, 10**10)
    read = Corpus("python", PYTHON.documents, 35.2, PYTHON.tokens_of_64 / PYTHON.documents, 6_013_073)
    assert dense_cost(Situation(read, machine)).fit_seconds == pytest.approx(measured.READ_CPU.value)
    wiki = Corpus("wiki", WIKI.documents, WIKI.words / WIKI.documents, WIKI.tokens_of_256 / WIKI.documents, 0)
    assert bm25_cost(Situation(wiki, machine)).fit_seconds == pytest.approx(measured.BM25_FIT.value)
    assert dense_cost(Situation(wiki, GPU)).fit_seconds == pytest.approx(146.27 - 105.1)
    assert dense_cost(Situation(wiki, GPU)).query_ms == pytest.approx(1000 / 880)


def test_memory_is_estimated_from_what_an_artifact_holds(tmp_path: Path) -> None:
    """The oracle: the files of a real model that a search reads, and what documents are looked up by in memory."""
    data = Dataset.of("some", islice(load_dataset("python").documents(), 1500))
    corpus = described("some", data)
    BM25().fit(data).save(tmp_path / "model")
    with artifact.read(tmp_path / "model") as snapshot:
        files = {role: entry.bytes for role, entry in snapshot.manifest.files.items()}
        lookup = DocumentStore.read(snapshot, corpus.documents).stored()["rows by id"]
    documents = sum(size for role, size in files.items() if role.startswith("documents_"))
    assert corpus.text_bytes == pytest.approx(documents, rel=0.001)
    postings = sum(size for role, size in files.items() if role.startswith("scores_"))
    searched = documents + postings + counted(lookup).bytes
    assert bm25_cost(Situation(corpus, PROCESSOR)).memory_bytes == pytest.approx(searched, rel=0.1)


def test_twice_the_cores_read_twice_as_fast_and_twice_the_documents_take_twice_as_long() -> None:
    four, eight = Situation(CORPUS, PROCESSOR), Situation(CORPUS, replace(PROCESSOR, cores=8))
    assert tokens_per_second(eight) == 2 * tokens_per_second(four)
    twice = Situation(replace(CORPUS, documents=40_000), PROCESSOR)
    assert dense_cost(twice).fit_seconds == pytest.approx(2 * dense_cost(four).fit_seconds)


@pytest.mark.parametrize("key", SPEEDS, ids=str)
def test_a_query_never_takes_less_among_more_documents(key: tuple[str, bool]) -> None:
    times = [query_ms(SPEEDS[key], documents) for documents in (1, 4_496, 10_000, 60_000, 10**6)]
    assert times == sorted(times)
    for speed in SPEEDS[key]:
        assert query_ms(SPEEDS[key], speed.documents) == pytest.approx(1000 / speed.per_second.value)


def test_a_limit_is_called_one() -> None:
    assert not generative_cost(Situation(replace(ASKED, documents=7_220), PROCESSOR), "atomic", passages=False).is_limit
    assert generative_cost(Situation(ASKED, PROCESSOR), "atomic", passages=False).is_limit
    assert "a query at most" in "\n".join(lines(advice(ASKED)))


# Commands

SITUATIONS = st.builds(
    Situation,
    st.builds(
        Corpus,
        name=st.sampled_from(["python", "my folder", "-x", "wiki60k"]),
        documents=st.integers(1, 10**9),
        words=st.floats(0, 10**5),
        tokens=st.floats(0, 256),
        text_bytes=st.integers(0, 10**13),
        questions=st.integers(0, 10**6),
        covered=st.floats(0, 1),
        written=st.sampled_from([0.0, 0.5, 1.0]),
        train=st.sampled_from(["train", "train.a+train.b"]),
        test=st.sampled_from(["", "test", "dev.nq"]),
    ),
    st.builds(
        Machine,
        cores=st.integers(1, 256),
        memory=st.integers(0, 2**63 - 1),
        gpu=st.sampled_from(["", measured.GPU, "Small"]),
        has_weights=st.booleans(),
    ),
    st.sampled_from(CHANGES),
)


@pytest.mark.long
@settings(deadline=None, max_examples=60)
@given(SITUATIONS, st.sampled_from(["", "written.jsonl"]), st.sampled_from(["", "text"]), st.booleans())
def test_any_situation_has_a_suggestion_whose_commands_can_be_read(
    situation: Situation, expansions: str, read_as: str, skip_bad: bool
) -> None:
    told = suggest(situation, expansions=expansions, read_as=read_as, skip_bad=skip_bad)
    reading = [words for words in commands(told) if "--data" in words]
    assert all(("--skip-bad" in words) == skip_bad and ("--as" in words) == bool(read_as) for words in reading)
    assert 1 <= len(told.suggestions) <= 3
    command = typer.main.get_command(cli.app())
    for words in commands(told):
        assert words[0] == "triever"
        parse(command, list(words[1:]))
    for suggestion in told.suggestions:
        assert suggestion.cost.fit_seconds >= 0
        assert suggestion.cost.sources
        assert suggestion.why
    assert told.suggestions[0].system in lines(told)[2]
    json.dumps(told.to_dict(), allow_nan=False)


@pytest.mark.parametrize("machine", [PROCESSOR, GPU], ids=["processor", "gpu"])
@pytest.mark.parametrize("questions", [0, FEW, MANY])
@pytest.mark.parametrize("documents", [1000, LARGE + 1])
def test_every_fit_that_is_shown_builds_a_retriever(
    teacher: Path, machine: Machine, questions: int, documents: int
) -> None:
    corpus = replace(ASKED, questions=questions, documents=documents, train="train.nq")
    for suggestion in advice(corpus, machine).suggestions:
        for words in suggestion.fit:
            sets = [words[at + 1] for at, word in enumerate(words) if word == "--set"]
            retriever = new_system(words[2], sets)
            assert retriever.kind == words[2]
        assert retriever.kind == suggestion.system


@pytest.fixture
def teacher(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder to work in, with the teacher that commands fit first."""
    monkeypatch.chdir(tmp_path)
    MultiVector(backbone="scratch:hidden=16,layers=1,heads=2,vocabulary=300").fit(dataset()).save("models/multivector")
    return tmp_path


def test_json_has_lines_for_a_shell() -> None:
    told = json.loads(json.dumps(advice(replace(ASKED, name="my folder")).to_dict()))
    assert shlex.split(told["suggestions"][0]["fit"][0])[:5] == ["triever", "fit", "generative", "--data", "my folder"]
    assert told["compare"].startswith("triever compare models/generative models/dense bm25 --data 'my folder'")
    assert told["situation"]["corpus"]["questions"] == 5_000


# What is looked at


def test_a_dataset_is_counted() -> None:
    corpus = described("toy", dataset())
    documents = list(dataset().documents())
    words = [len(document.title.split()) + len(document.text.split()) for document in documents]
    assert corpus.documents == len(documents)
    assert corpus.words == pytest.approx(sum(words) / len(words))
    assert corpus.tokens == pytest.approx(min(256, corpus.words * 1.349), rel=1e-3)
    assert corpus.written == 0
    assert described("toy", dataset().with_expansions({documents[0].id: ["what"]})).written == 1 / len(documents)


def test_files_of_text_cost_what_their_passages_do(tmp_path: Path) -> None:
    for number in range(3):
        (tmp_path / f"{number}.txt").write_text("word " * 1200)
    corpus = described("files", load_dataset(tmp_path))
    fitted = triever.BM25().fit(load_dataset(tmp_path))
    assert corpus.rows == pytest.approx(len(fitted.searched), rel=0.1)
    assert corpus.tokens > 1200 * WIKI.tokens / WIKI.words, "all of a file is read, and not its beginning alone"


def test_the_language_of_a_dataset_is_told() -> None:
    texts = ["Der Hund und die Katze", "Das ist nicht der Weg"]
    german = Dataset.of("x", [Document(str(number), text) for number, text in enumerate(texts)])
    assert described("x", german).language == "german"


def test_questions_count_where_their_documents_are_there(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    (folder / "qrels").mkdir(parents=True)
    (folder / "corpus.jsonl").write_text("".join(f'{{"_id": "d{n}", "text": "some text"}}\n' for n in range(4)))
    (folder / "queries.jsonl").write_text("".join(f'{{"_id": "q{n}", "text": "what"}}\n' for n in range(4)))
    header = "query-id\tcorpus-id\tscore\n"
    (folder / "qrels" / "train.tsv").write_text(f"{header}q0\td0\t1\nq1\td0\t1\nq2\tgone\t1\nq3\td1\t0\n")
    corpus = described("data", load_dataset(folder))
    assert (corpus.questions, corpus.covered, corpus.train, corpus.test) == (2, 0.25, "train", "")


def test_splits_have_roles() -> None:
    assert split_roles([]) == ("", "")
    assert split_roles(["test"]) == ("", "test")
    assert split_roles(["a", "dev"]) == ("", "dev")


def test_this_machine_is_looked_at() -> None:
    machine = this_machine()
    assert machine.cores >= 1
    assert machine.memory > 10**6


def test_mistakes_are_named() -> None:
    with pytest.raises(UsageError, match="changes = 'dayly' is unknown; did you mean daily"):
        Situation(CORPUS, PROCESSOR, "dayly")
    with pytest.raises(UsageError, match="has no documents"):
        replace(CORPUS, documents=0)
