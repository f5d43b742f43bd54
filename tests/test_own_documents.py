"""A folder of text files on the command line: what was read and what was not, and one id for every file."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from tests.cli_page import render
from tests.data.test_datasets import CORPUS, write
from tests.warm import run
from triever import BM25, edit, load, load_dataset

PAGES = {
    "man1/bash.1.txt": "# bash\nThe shell reads commands.",
    "man1/ls.1.txt": "# ls\nLists what is in a folder.",
    "man7/glob.7.txt": "# glob\nPatterns of names.",
    "intro.md": "# intro\nWhere to begin.",
}


def triever(folder: Path, *words: str | Path) -> CompletedProcess[str]:
    return run(words, folder, {**os.environ, "COLUMNS": "120"})


def said(folder: Path, *words: str | Path) -> list[str]:
    """The lines that a command says beside its result."""
    done = triever(folder, *words)
    assert done.returncode == 0, done.stderr
    return done.stderr.splitlines()


def ids(model: Path) -> list[str]:
    return sorted(load(model).documents.ids)


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A folder with text files in `docs` and a retriever `M` that was fitted on them."""
    write(tmp_path / "docs", PAGES)
    said(tmp_path, "fit", "bm25", "--data", "docs", "--out", "M")
    return tmp_path


def many(folder: Path, others: Mapping[str, str]) -> Path:
    pages = {f"{number // 100}/{number:03}.txt": f"Page {number} is about things." for number in range(520)}
    return write(folder, {**pages, **others})


def test_a_long_file_is_found_by_its_end_and_fit_says_that_it_is_cut(tmp_path: Path) -> None:
    days = "\n".join(f"On day {day} the lamp was cleaned." for day in range(200))
    write(
        tmp_path / "docs",
        {"long.md": f"# Log\n{days}\n\nThe spare key hangs behind the clock.", "short.md": "A clock."},
    )
    told = said(tmp_path, "fit", "bm25", "--data", "docs", "--out", "M")
    assert re.search(r"bm25 with 2 documents, 1 of them cut: it searches \d+ passages", told[0])
    hit = json.loads(triever(tmp_path, "search", "M", "where is the spare key", "--json").stdout)[0]
    start, end = hit["span"]
    assert hit["id"] == "long.md"
    text = load(tmp_path / "M").documents.document("long.md").text
    assert text[start:end].endswith("The spare key hangs behind the clock.")
    (tmp_path / "docs" / "new.md").write_text(f"{days}\n\nThe boat leaks.", encoding="utf-8")
    assert triever(tmp_path, "sync", "M", "docs").stdout == "added 1; 2 unchanged\n"
    assert "boat" in load(tmp_path / "M").search("does the boat leak", 1)[0].passage
    whole = said(tmp_path, "fit", "bm25", "--data", "docs", "--out", "W", "--set", "cut.which=none")
    assert whole[0] == "wrote W: bm25 with 3 documents"


# What was read.


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("log.jsonl", '{"id": "1", "text": "started"}\n{"id": "2", "text": "stopped"}\n'),
        ("items.csv", "id,title\n1,One\n2,Two\n"),
    ],
)
def test_fit_reads_the_texts_and_names_the_stray_file(name: str, content: str, tmp_path: Path) -> None:
    others = {"a.odt": "", "0/b.odt": "", "c.png": "", "1/c.png": "", "2/deep/er/c.png": "", ".hidden.html": ""}
    docs = many(tmp_path / "docs", {**others, name: content})
    (docs / "large.txt").write_bytes(b"x" * (16 * 2**20 + 1))
    lines = said(tmp_path, "fit", "bm25", "--data", "docs", "--out", "docs/M", "--skip-bad")
    assert f"triever: docs: 1 file looks like data and was not used: {name}" in lines
    ending = Path(name).suffix
    assert lines[-1] == f"520 documents from 520 files; not read: 6 ({ending} 1, .odt 2, .png 3); too large: 1"
    lines = said(tmp_path, "add", "docs/M", "docs", "--replace", "--skip-bad")  # M lies in there, and is passed over
    assert lines[-1] == f"520 documents from 520 files; not read: 6 ({ending} 1, .odt 2, .png 3); too large: 1"
    assert len(load(docs / "M")) == 520


def test_info_tells_the_same_as_fit(tmp_path: Path) -> None:
    docs = write(tmp_path / "docs", {**PAGES, "a.odt": "", "items.csv": "id,title\n1,One\n"})
    (docs / "cyrillic.txt").write_bytes("Привет".encode("cp1251"))
    found = json.loads(triever(tmp_path, "data", "info", "docs", "--json", "--skip-bad").stdout)
    assert (found["read as"], found["documents"], found["files"], found["root"]) == ("text", 4, 4, str(docs))
    assert (found["not read"], found["left out"]) == ({".csv": 1, ".odt": 1}, {"unknown encoding": 1})
    assert (found["ignored files"], found["unread files"]) == (["items.csv"], ["a.odt"])
    shown = triever(tmp_path, "data", "info", "docs", "--skip-bad").stdout
    assert re.search(r"^not read +2 \(\.csv 1, \.odt 1\) *$", shown, re.MULTILINE)
    assert re.search(r"^left out +1 \(unknown encoding 1\) *$", shown, re.MULTILINE)


def test_as_says_it_outright(tmp_path: Path) -> None:
    write(tmp_path / "docs", {**PAGES, "corpus.jsonl": CORPUS})
    lines = said(tmp_path, "fit", "bm25", "--data", "docs", "--out", "R")
    assert lines[-1] == "4 documents from 1 file; not read: 4 (.md 1, .txt 3)"
    lines = said(tmp_path, "fit", "bm25", "--data", "docs", "--out", "T", "--as", "text")
    assert lines[-1] == "4 documents from 4 files; not read: 1 (.jsonl 1)"
    assert (ids(tmp_path / "R"), ids(tmp_path / "T")) == (["d0", "d1", "d2", "d3"], sorted(PAGES))
    said(tmp_path, "data", "convert", "docs", "beir", "--as", "text")
    assert sorted(document.id for document in load_dataset(tmp_path / "beir").documents()) == sorted(PAGES)
    said(tmp_path, "add", "T", "docs", "--as", "records")
    assert len(load(tmp_path / "T")) == 8
    refused = triever(tmp_path, "data", "info", "docs", "--as", "txt")
    assert (refused.returncode, refused.stderr) == (2, "triever: --as txt is unknown; did you mean text?\n")


def test_every_command_that_takes_data_takes_as() -> None:
    sections = render().split("\n## ")[1:]
    taking = {part for part in sections if re.search(r"\| `(--data|DATA|DOCUMENTS)", part)}
    assert {part.splitlines()[0] for part in taking if "--as" not in part} == set()
    assert len(taking) > 10


# One id for every file.


@pytest.mark.parametrize(
    "named",
    [
        *("docs/man1/bash.1.txt", "./docs/man1/../man1/bash.1.txt", "link/bash.1.txt", "there/man1/bash.1.txt"),
        *("docs/man1", "link", "docs", "docs/", ".", "there"),
    ],
)
def test_a_file_has_one_id_however_it_is_named(named: str, place: Path) -> None:
    (place / "link").symlink_to("docs/man1")
    (place / "there").symlink_to(place / "docs")
    (place / "docs" / "man1" / "bash.1.txt").write_text("# bash\nAnother shell.")
    for path in (named, place / named):
        lines = said(place, "add", "M", path, "--replace")
        assert ids(place / "M") == sorted(PAGES)
        assert load(place / "M").documents.document("man1/bash.1.txt").text == "# bash\nAnother shell."
        assert not [line for line in lines if line.startswith("triever: ")], lines


def test_a_name_relative_to_another_folder(place: Path) -> None:
    said(place / "docs" / "man1", "add", "../../M", "bash.1.txt", "--replace")
    assert ids(place / "M") == sorted(PAGES)


def test_a_new_file_gets_the_id_that_a_fit_would_give(place: Path) -> None:
    write(place / "docs", {"man1/cat.1.txt": "# cat\nPrints a file.", "man1/tabs.txt": "1\tone\n2\ttwo\n"})
    for name in ("cat.1.txt", "tabs.txt"):
        said(place, "add", "M", f"docs/man1/{name}")
    said(place, "fit", "bm25", "--data", "docs", "--out", "anew")
    assert ids(place / "M") == ids(place / "anew")
    refused = triever(place, "add", "M", "docs/man1/cat.1.txt")
    assert refused.returncode == 2
    assert "man1/cat.1.txt is in M already" in refused.stderr


def test_a_file_outside_the_root_is_told(place: Path) -> None:
    write(place, {"other/new.txt": "# new\nSomething else."})
    lines = said(place, "add", "M", "other/new.txt")
    docs, other = place / "docs", place / "other"
    begins = f"triever: new: 1 text file lies outside the root {docs}: its id begins at {other}, such as new.txt"
    assert begins in lines
    assert ids(place / "M") == sorted([*PAGES, "new.txt"])
    assert lines[-1] == "1 document from 1 file"


def test_replace_that_replaces_nothing_is_told_and_a_moved_corpus_is_found_again(place: Path) -> None:
    (place / "docs").rename(place / "moved")
    shutil.copytree(place / "M", place / "N")
    lines = said(place, "add", "M", "moved/man1/bash.1.txt", "--replace")
    assert (
        "triever: --replace replaced nothing: M has no document with an id such as bash.1.txt; "
        f"if it is the same document as man1/bash.1.txt, use --root {place / 'moved'}"
    ) in lines
    assert len(load(place / "M")) == 5
    lines = said(place, "add", "N", "moved/man1/bash.1.txt", "--replace", "--root", "moved")
    assert not [line for line in lines if line.startswith("triever: ")]
    assert ids(place / "N") == sorted(PAGES)
    assert load(place / "N").root == str(place / "docs"), "a root that is there stays"


def test_a_retriever_without_a_root_adds_as_before_and_says_so(place: Path) -> None:
    with edit(place / "M") as retriever:  # as the last version saved it
        held = retriever._checked()
        retriever._held = type(held)(
            held.store, held.engine, {key: held.origin[key] for key in ("data", "fitted on")}, held.made
        )
    assert load(place / "M").root == ""
    lines = said(place, "add", "M", "docs/man1/bash.1.txt")
    root = place / "docs" / "man1"
    assert f"M has no root: ids begin at {root}; --root sets another folder, and is saved" in lines
    hint = f"if it is the same document as man1/bash.1.txt, use --root {place / 'docs'}"
    assert f"triever: bash.1.txt is added as a new document; {hint}" in lines
    assert "bash.1.txt" in ids(place / "M")
    said(place, "delete", "M", "bash.1.txt")
    said(place, "add", "M", "docs/man1/bash.1.txt", "--replace", "--root", "docs")
    assert (ids(place / "M"), load(place / "M").root) == (sorted(PAGES), str(place / "docs"))
    said(place, "add", "M", "docs/man1", "--replace")
    assert ids(place / "M") == sorted(PAGES)


def test_records_have_no_root(tmp_path: Path) -> None:
    write(tmp_path, {"corpus.jsonl": CORPUS})
    lines = said(tmp_path, "fit", "bm25", "--data", "corpus.jsonl", "--out", "R", "--root", ".")
    assert "triever: corpus: --root is not used, because records have their own ids" in lines
    assert lines[-1] == "4 documents from 1 file"
    origin = json.loads(triever(tmp_path, "status", "R", "--json").stdout)
    assert "root" not in origin
    refused = triever(tmp_path, "add", "R", "corpus.jsonl", "--root", "nowhere")
    assert refused.stderr.startswith("triever: --root nowhere is not a folder; name the folder")


def test_a_part_of_a_corpus_may_be_fitted_with_the_ids_of_the_whole(place: Path) -> None:
    said(place, "fit", "bm25", "--data", "docs/man1", "--root", "docs", "--out", "P")
    assert ids(place / "P") == ["man1/bash.1.txt", "man1/ls.1.txt"]
    said(place, "add", "P", "docs/man7")
    assert ids(place / "P") == ["man1/bash.1.txt", "man1/ls.1.txt", "man7/glob.7.txt"]


def test_two_files_that_would_have_one_id_are_refused(place: Path) -> None:
    write(place, {"man1/bash.1.txt": "another"})
    refused = triever(place, "add", "M", ".", "--replace")
    assert refused.returncode == 2
    assert refused.stderr.endswith(
        "man1/bash.1.txt:1: docs/man1/bash.1.txt has the id man1/bash.1.txt too; "
        "rename one, or say --root, the folder at which ids begin\n"
    )
    assert ids(place / "M") == sorted(PAGES)


def test_the_root_is_only_a_note(place: Path) -> None:
    """A retriever is opened wherever it is, and its root may be anything."""
    shutil.rmtree(place / "docs")
    retriever = load(place / "M")
    assert retriever.root == str(place / "docs")
    for root in (7, None, "docs", "../docs"):
        retriever.keep_root(root)  # ty: ignore[invalid-argument-type]
        assert retriever.root == ""
        retriever.save(place / "M")
        assert load(place / "M").search("shell", k=1)[0].id == "man1/bash.1.txt"
        write(place, {"x.txt": "x"})
        said(place, "add", "M", "x.txt", "--replace")


def test_the_same_from_python(place: Path) -> None:
    retriever = BM25().fit(load_dataset(place / "docs"))
    write(place / "docs", {"man1/new.txt": "new"})
    retriever.add(load_dataset(place / "docs" / "man1" / "new.txt", root=retriever.root).documents())
    assert "man1/new.txt" in retriever.documents
