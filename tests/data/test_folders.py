"""Folders: what most of one is decides what is read, everything that is not read is counted, and a file has one id."""

from __future__ import annotations

import json
import os
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.data.test_datasets import CORPUS, QRELS, QUERIES, jsonl, write
from triever.data.datasets import Dataset, info, load_dataset
from triever.data.formats.problems import Problems
from triever.data.formats.text_ids import spelled
from triever.data.readers import read_documents
from triever.data.records import normalise
from triever.errors import DataError, UsageError


def pages(count: int, folder: str = "") -> dict[str, str]:
    return {f"{folder}{number:04}.txt": f"Page {number} is about things." for number in range(count)}


def records(count: int) -> str:
    return jsonl(*({"id": f"r{number}", "text": f"record {number}"} for number in range(count)))


def table(count: int) -> str:
    return "id,title\n" + "".join(f"r{number},Item {number}\n" for number in range(count))


def ids(data: Dataset) -> list[str]:
    return [document.id for document in data.documents()]


def is_text(data: Dataset) -> bool:
    return data.source.read_as == "text"


STRAYS = {
    "log.jsonl": records(2),
    "items.csv": table(2),
    "list.json": json.dumps([{"id": "1", "title": "One"}, {"id": "2", "title": "Two"}]),
    "long.jsonl": records(2000),
    "metadata.csv": table(60),  # a row for each file, and some for files that are gone
}


@pytest.mark.parametrize("stray", STRAYS)
def test_a_stray_file_does_not_replace_the_corpus(stray: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    data = load_dataset(write(tmp_path / "docs", {**pages(52), stray: STRAYS[stray]}))
    assert ids(data) == sorted(pages(52))
    assert data.ignored == (stray,)
    assert f"docs: 1 file looks like data and was not used: {stray}" in caplog.text


def test_deep_files_count_as_well(tmp_path: Path) -> None:
    deep = pages(12, "a/b/c/d/e/f/g/h/")
    data = load_dataset(write(tmp_path, {**deep, "items.csv": table(2)}))
    assert ids(data) == sorted(deep)


def test_a_folder_of_nothing_but_readmes_is_one_of_texts(tmp_path: Path) -> None:
    files = {f"project-{number}/README.md": f"# Project {number}" for number in range(12)}
    data = load_dataset(write(tmp_path, {**files, "README.md": "# All", "items.csv": table(2)}))
    assert (is_text(data), len(ids(data))) == (True, 13)


def test_a_stray_file_that_is_broken_stops_nothing_but_a_corpus_does(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    wide = "id,text\n1,x\n".encode("utf-16")
    for folder, name in (("a", "items.csv"), ("b", "corpus.csv")):
        (write(tmp_path / folder, pages(12)) / name).write_bytes(wide)
    assert ids(load_dataset(tmp_path / "a")) == sorted(pages(12))
    assert "a: 1 file looks like data and was not used: items.csv" in caplog.text
    with pytest.raises(DataError, match=r"corpus\.csv is UTF-16, not UTF-8"):
        load_dataset(tmp_path / "b")
    assert ids(load_dataset(tmp_path / "b", read_as="text")) == sorted(pages(12))


def test_a_broken_file_of_a_folder_of_records_is_left_out_on_request(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (write(tmp_path, {"a.jsonl": records(3)}) / "b.jsonl").write_bytes('{"id": "x", "text": "y"}\n'.encode("utf-16"))
    with pytest.raises(
        DataError, match=r"b\.jsonl is UTF-16, not UTF-8; convert it: .*, or leave it out with --skip-bad"
    ):
        load_dataset(tmp_path)
    assert len(ids(load_dataset(tmp_path, skip_bad=True))) == 3
    assert "1 file looks like data and was not used: b.jsonl" in caplog.text
    assert len(list(read_documents(tmp_path, Problems(skip_bad=True)))) == 3
    (tmp_path / "a.jsonl").unlink()
    with pytest.raises(DataError, match=r"b\.jsonl is UTF-16, not UTF-8; convert it: [^,]*$"):
        load_dataset(tmp_path, skip_bad=True)


NOTES = {"README.md": "# About", "notes/one.md": "one", "notes/two.md": "two", "three.txt": "three"}
SHARDS = {f"part-{number:02}.jsonl": jsonl({"id": number, "text": "x"}) for number in range(20)}
LAYOUTS: dict[str, tuple[dict[str, str], int]] = {
    "a corpus by its name, with notes": ({"corpus.jsonl": CORPUS, **NOTES}, 4),
    "documents by their name, with notes": ({"documents.csv": table(4), **NOTES}, 4),
    "a collection of one document": ({"collection.tsv": "1\tcats\n", **NOTES}, 1),
    "a corpus of shards": ({"README.md": "x", **SHARDS}, 20),
    "a corpus of shards with notes": ({**NOTES, **SHARDS}, 20),
    "a file of many records with notes": ({"articles.jsonl": records(400), **pages(12)}, 400),
    "BEIR": ({"corpus.jsonl": CORPUS, "queries.jsonl": QUERIES, "qrels/test.tsv": QRELS + "q1\td1\t1\n", **NOTES}, 4),
    "a README beside records": ({"pages.jsonl": records(2), "README.md": "x", "LICENSE.txt": "x"}, 2),
    "a note beside two records": ({"pages.jsonl": records(2), "note.md": "x"}, 2),
    "topics in text files": (
        {"docs.jsonl": CORPUS, "topics.txt": "<top>\n<num> 1\n<title> x\n</top>\n", "qrels.txt": "1 0 d1 1\n"},
        4,
    ),
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_ordinary_layouts_of_records_stay_records(layout: str, tmp_path: Path) -> None:
    files, count = LAYOUTS[layout]
    data = load_dataset(write(tmp_path, files))
    assert (data.source.read_as, len(list(data.documents()))) == ("records", count)


def test_where_it_is_close_a_warning_says_which_and_how_to_say_otherwise(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    assert not is_text(load_dataset(write(tmp_path / "a", {"articles.jsonl": records(400), **pages(12)})))
    assert (
        "a: the records of articles.jsonl were read, but not 12 text files; to read those, use --as text" in caplog.text
    )
    caplog.clear()
    assert is_text(load_dataset(write(tmp_path / "b", {"articles.jsonl": records(100), **pages(12)})))
    assert (
        "b: 12 text files were read, but not the records of articles.jsonl; to read those, use --as records"
        in caplog.text
    )
    caplog.clear()
    assert not is_text(load_dataset(write(tmp_path / "c", {"documents.csv": table(2), **pages(52)})))
    assert (
        "c: the records of documents.csv were read, but not 52 text files; to read those, use --as text" in caplog.text
    )
    caplog.clear()
    assert not is_text(load_dataset(write(tmp_path / "d", {"articles.jsonl": records(2000), **pages(12)})))
    assert not is_text(load_dataset(write(tmp_path / "e", {"corpus.jsonl": CORPUS, **NOTES})))
    assert not caplog.records, "these are not close"


def test_what_is_said_outright_decides(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    files = {
        **pages(3),
        "corpus.jsonl": CORPUS,
        "queries.jsonl": QUERIES,
        "qrels/test.tsv": QRELS + "q1\t0001.txt\t1\n",
    }
    path = write(tmp_path / "x", files)
    assert ids(load_dataset(path, read_as="records")) == ["d0", "d1", "d2", "d3"]
    assert not caplog.records
    text = load_dataset(path, read_as="text")
    assert (ids(text), text.splits, text.ignored) == (sorted(pages(3)), ("test",), ("corpus.jsonl",))
    (tmp_path / "x" / "corpus.jsonl").unlink()
    with pytest.raises(DataError, match=r"x holds no documents, only qrels/test\.tsv .*; expected corpus\.jsonl"):
        load_dataset(path, read_as="records")
    with pytest.raises(DataError, match=r"y holds no text files; text files end in \.txt, .* or \.pdf"):
        load_dataset(write(tmp_path / "y", {"corpus.jsonl": CORPUS}), read_as="text")
    with pytest.raises(UsageError, match=r"read_as = 'txet' is unknown; did you mean text\?"):
        load_dataset(path, read_as="txet")


def test_one_file_is_read_as_it_is_said(tmp_path: Path) -> None:
    write(tmp_path, {"pairs.txt": "1\tcats\n2\tdogs\n", "note.txt": "A cat.", "x.jsonl": records(1)})
    assert ids(load_dataset(tmp_path / "pairs.txt")) == ["1", "2"]
    assert ids(load_dataset(tmp_path / "pairs.txt", read_as="text")) == ["pairs.txt"]
    assert ids(load_dataset(tmp_path / "note.txt")) == ["note.txt"]
    with pytest.raises(DataError, match=r"note\.txt is plain text, not a file of records; use --as text"):
        load_dataset(tmp_path / "note.txt", read_as="records")
    with pytest.raises(DataError, match=r"x\.jsonl is not a text file; text files end in \.txt, .* or \.pdf"):
        load_dataset(tmp_path / "x.jsonl", read_as="text")


# What was read, and what was not.


def test_everything_that_is_not_read_is_counted(tmp_path: Path) -> None:
    others = {"a.odt": "x", "b/b.ODT": "x", "b/c/c.png": "x", "d.png": "x", "e.png": "x"}
    hidden = {".hidden.pdf": "x", ".git/config.html": "x", "b/.cache/x.png": "x"}
    saved = {"model/manifest.json": '{"format": "triever"}', "model/notes.txt": "x", "model/a.pdf": "x"}
    files = {**pages(8), **pages(8, "a/b/c/d/e/f/g/h/"), **others, **hidden, **saved}
    data = load_dataset(write(tmp_path, files))
    assert str(data.reading) == "16 documents from 16 files; not read: 5 (.odt 2, .png 3)"
    assert (data.reading.documents, data.reading.files) == (16, 16)
    assert data.reading.unread == {".odt": 2, ".png": 3}


def test_deep_files_that_are_not_read_are_counted(tmp_path: Path) -> None:
    data = load_dataset(write(tmp_path, {**pages(1), **{f"{'x/' * 12}{n}.png": "" for n in range(3)}}))
    assert str(data.reading) == "1 document from 1 file; not read: 3 (.png 3)"


def test_of_links_files_are_read_and_folders_counted(tmp_path: Path) -> None:
    write(tmp_path / "elsewhere", {"z.txt": "z", "z.pdf": "z"})
    write(tmp_path / "docs", pages(2))
    (tmp_path / "docs" / "linked.txt").symlink_to(tmp_path / "elsewhere" / "z.txt")
    (tmp_path / "docs" / "more").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "docs" / "around").symlink_to(tmp_path / "docs")
    data = load_dataset(tmp_path / "docs")
    assert ids(data) == ["0000.txt", "0001.txt", "linked.txt"]
    assert str(data.reading) == "3 documents from 3 files; not read: 2 (folders 2)"
    assert data.unread == ("around/", "more/")


def test_a_linked_folder_of_judgements_is_read(tmp_path: Path) -> None:
    write(tmp_path / "elsewhere", {"test.tsv": QRELS + "q1\td1\t1\n"})
    write(tmp_path / "data", {"corpus.jsonl": CORPUS, "queries.jsonl": QUERIES})
    (tmp_path / "data" / "qrels").symlink_to(tmp_path / "elsewhere")
    data = load_dataset(tmp_path / "data")
    assert (data.splits, data.unread, str(data.reading)) == (("test",), (), "4 documents from 1 file")


def test_files_that_are_left_out_are_counted_by_reason(tmp_path: Path) -> None:
    write(tmp_path, {**pages(5), "Makefile": "all:"})
    (tmp_path / "large.txt").write_bytes(b"x" * (16 * 2**20 + 1))
    (tmp_path / "cyrillic.txt").write_bytes("Привет, мир".encode("cp1251"))
    (tmp_path / "zero.md").write_bytes(b"a\0b")
    (tmp_path / "broken.pdf").write_bytes(b"%PDF-1.4 and no more")
    (tmp_path / "gone.txt").symlink_to(tmp_path / "nowhere.txt")
    data = load_dataset(tmp_path, skip_bad=True)
    assert str(data.reading) == (
        "5 documents from 5 files; not read: 1 (no ending 1); unreadable: 2; unknown encoding: 2; too large: 1"
    )
    found = info(data)
    assert (found["files"], found["read as"]) == (5, "text")
    assert (found["not read"], found["bad records"]) == ({"no ending": 1}, 5)
    assert found["left out"] == {"too large": 1, "unknown encoding": 2, "unreadable": 2}
    (tmp_path / "broken.pdf").unlink()
    (tmp_path / "cyrillic.txt").unlink()
    with pytest.raises(DataError, match=r"gone\.txt does not exist; .*, or leave it out with --skip-bad$"):
        ids(load_dataset(tmp_path))


def test_a_packed_text_may_be_too_large_as_well(tmp_path: Path) -> None:
    write(tmp_path, {"bomb.gz": "x" * (17 * 2**20), "a.txt": "a"})
    (tmp_path / "bomb.gz").rename(tmp_path / "bomb.txt")
    data = load_dataset(tmp_path, skip_bad=True)
    assert str(data.reading) == "1 document from 1 file; too large: 1"
    with pytest.raises(DataError, match=r"bomb\.txt:1: the file is larger than 16 MiB; split"):
        ids(load_dataset(tmp_path))


def test_records_are_counted_with_their_files(tmp_path: Path) -> None:
    files = {"corpus-1.jsonl": CORPUS + "nonsense\n", "corpus-2.jsonl": records(3), **NOTES, "queries.jsonl": QUERIES}
    data = load_dataset(write(tmp_path, files), skip_bad=True)
    assert str(data.reading) == "7 documents from 2 files; not read: 4 (.txt 1, .md 3); bad records: 1"
    assert info(data)["left out"] == {"bad records": 1}
    assert data.with_expansions({}).reading == data.reading


def test_what_is_in_memory_comes_from_no_files() -> None:
    assert str(Dataset.of("x", load_dataset("python:json").documents()).reading).endswith(" documents")


# A file has one id.

FOLDERS = st.lists(st.sampled_from(["a", "b", "man1", "deep er", "é", "e\u0301"]), max_size=4)
NAMES = st.sampled_from(["x.txt", "y.md", "bash.1.txt", "ü.txt"])


@st.composite
def trees(draw: st.DrawFn) -> dict[str, str]:
    files = draw(st.lists(st.tuples(FOLDERS, NAMES), min_size=1, max_size=8))
    return {"/".join([*folders, name]): "/".join([*folders, name]) for folders, name in files}


def ways(root: Path, key: str, draw: Any) -> list[Path]:
    """Ways to name a file of a folder, or a folder above it."""
    whole = root / key
    roundabout = root.parent / "link" / ".." / root.name / key
    named = [whole, root.parent / "link" / key, roundabout, Path(os.path.relpath(whole)), root / "inner" / key]
    return [*named, *whole.parents[: draw(st.integers(1, len(Path(key).parts) + 1))]]


@given(trees(), st.data())
def test_a_file_has_one_id_however_it_is_named(tree: dict[str, str], draw: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as place:
        root = write(Path(place) / "docs", tree)
        (Path(place) / "link").symlink_to(root)
        (root / "inner").symlink_to(root)
        said = draw.draw(st.sampled_from([root, Path(place) / "link", Path(os.path.relpath(root))]))
        key = draw.draw(st.sampled_from(sorted(tree)))
        for path in ways(root, key, draw.draw):
            found = list(read_documents(path, Problems(skip_bad=True), root=said))  # é may be written in two ways
            assert all(document.id == normalise(document.text) for document in found), path
            assert normalise(key) in {document.id for document in found}, path


def test_a_subfolder_a_folder_above_and_a_file_give_the_same_ids(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = write(tmp_path / "docs", {"man1/bash.1.txt": "bash", "man1/sub/ls.txt": "ls", "intro.md": "intro"})
    write(tmp_path, {"other/x.txt": "x"})

    def found(path: str | Path) -> list[str]:
        return ids(load_dataset(path, root=root))

    assert found(root / "man1") == ["man1/bash.1.txt", "man1/sub/ls.txt"]
    assert found(root / "man1" / "bash.1.txt") == ["man1/bash.1.txt"]
    assert found(tmp_path) == ["intro.md", "man1/bash.1.txt", "man1/sub/ls.txt", "other/x.txt"]
    monkeypatch.chdir(root / "man1")
    assert found(Path("../man1/./bash.1.txt")) == found("bash.1.txt") == ["man1/bash.1.txt"]
    (tmp_path / "latest.txt").symlink_to(root / "man1" / "bash.1.txt")
    assert found(tmp_path / "latest.txt") == ["man1/bash.1.txt"], "a link to a file of the root"


def test_below_the_root_a_text_file_is_text_whatever_it_looks_like(tmp_path: Path) -> None:
    root = write(tmp_path, {**pages(9), "sub/pairs.txt": "1\tcats\n2\tdogs\n", "sub/items.csv": table(9)})
    for path in (root / "sub", root / "sub" / "pairs.txt"):
        assert ids(load_dataset(path, root=root)) == ["sub/pairs.txt"]
    assert len(ids(load_dataset(root / "sub", root=root, read_as="records"))) == 11
    assert len(ids(load_dataset(root / "sub" / "items.csv", root=root))) == 9


def test_outside_the_root_ids_are_as_without_one(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    write(tmp_path, {"docs/a.txt": "a", "docs-2/b.txt": "b"})
    data = load_dataset(tmp_path / "docs-2" / "b.txt", root=tmp_path / "docs")
    assert (ids(data), data.root) == (["b.txt"], str(tmp_path / "docs-2"))
    assert (
        f"1 text file lies outside the root {tmp_path / 'docs'}: its id begins at {tmp_path / 'docs-2'}" in caplog.text
    )


def test_a_dataset_knows_its_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    docs = write(tmp_path / "docs", {"a.txt": "a", "man1/b.txt": "b"})
    monkeypatch.chdir(docs)
    for path in (docs, str(docs), Path(), "../docs", "man1/.."):
        assert load_dataset(path).root == str(docs)
    assert load_dataset("a.txt").root == str(docs)
    assert load_dataset("man1", root="..").root == str(tmp_path)
    assert load_dataset(docs).with_expansions({}).root == str(docs)
    assert load_dataset(write(tmp_path / "beir", {"corpus.jsonl": CORPUS})).root == ""
    assert Dataset.of("x", []).root == ""


def test_a_root_that_is_a_link_may_point_elsewhere_later(tmp_path: Path) -> None:
    for release in ("one", "two"):
        write(tmp_path / release, {"man1/b.txt": release})
    link = tmp_path / "current"
    link.symlink_to(tmp_path / "one")
    root = load_dataset(link).root
    link.unlink()
    link.symlink_to(tmp_path / "two")
    assert ids(load_dataset(link / "man1" / "b.txt", root=root)) == ["man1/b.txt"]


def test_a_root_has_to_be_a_name_that_can_be_written_down(tmp_path: Path) -> None:
    place = Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff"))
    try:
        data = load_dataset(write(place / "docs", {"a.txt": "a"}))
    except OSError:
        pytest.skip("this file system takes no such names")
    assert (data.root, ids(data), str(data.reading)) == ("", ["a.txt"], "1 document from 1 file")


def test_two_files_that_would_have_one_id_are_refused(tmp_path: Path) -> None:
    write(tmp_path, {"docs/man1/a.txt": "one", "man1/a.txt": "two"})
    with pytest.raises(
        DataError, match=r"man1/a\.txt:1: .*docs/man1/a\.txt has the id man1/a\.txt too; rename one, or say --root"
    ):
        ids(load_dataset(tmp_path, root=tmp_path / "docs"))
    data = load_dataset(tmp_path, root=tmp_path / "docs", skip_bad=True)
    assert str(data.reading) == "1 document from 1 file; of one id: 1"
    folder = write(tmp_path / "forms", {"caf\u00e9.txt": "one", "cafe\u0301.txt": "two"})
    if len(Counter(path.name for path in folder.iterdir())) == 2:
        with pytest.raises(DataError, match=r"has the id café\.txt too"):
            ids(load_dataset(folder))


def test_a_name_is_spelled_as_its_folder_spells_it(tmp_path: Path) -> None:
    write(tmp_path, {"Docs/a.txt": "a", "both/x": "", "BOTH/x": ""})
    assert spelled(str(tmp_path), "dOCS") == "Docs", "where the file system takes these for one"
    assert spelled(str(tmp_path), "Docs") == "Docs"
    assert spelled(str(tmp_path), "both") == "both"
    assert spelled(str(tmp_path), "nowhere") == "nowhere"
