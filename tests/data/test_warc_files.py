"""Web archives: every page becomes a document, every other record is counted, and a broken archive says so."""

from __future__ import annotations

import contextlib
import io
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from warcio.archiveiterator import ArchiveIterator

import triever
from tests.data.test_datasets import CORPUS, jsonl, write
from tests.data.test_text_files import PAGE
from tests.warm import run
from tests.web_archives import DATE, Captured, archive, chunked, packed, parts
from triever.data.datasets import info, load_dataset
from triever.data.formats.html_pages import html_content
from triever.data.formats.problems import KINDS, Problems
from triever.data.formats.warc_files import read_pages
from triever.data.readers import read_documents
from triever.data.records import Document
from triever.errors import DataError, MissingExtra

SITE = "https://example.org"
PAGES = (
    Captured(f"{SITE}/leave", PAGE),
    Captured(f"{SITE}/travel.txt", "Trips above 5000 euro.", content_type="text/plain"),
    Captured(f"{SITE}/parking", "<title>Parking</title><p>Level two.", kind="resource", date="2025-06-01T00:00:00Z"),
)
OTHERS = (
    Captured("site.warc.gz", "software: a crawler", kind="warcinfo", content_type="application/warc-fields"),
    Captured(f"{SITE}/leave", kind="request"),
    Captured(f"{SITE}/leave", kind="revisit"),
    Captured(f"{SITE}/old", status="301 Moved Permanently", headers=[("Location", "/leave")]),
    Captured(f"{SITE}/gone", "<p>Not found", status="404 Not Found"),
    Captured(f"{SITE}/logo.png", b"\x89PNG\0", content_type="image/png"),
    Captured(f"{SITE}/logo.png", b"\x89PNG\0", content_type="image/png"),
    Captured("dns:example.org", "192.0.2.1", kind="resource", content_type="text/dns"),
    Captured("metadata://gnu.org/software/wget/warc/wget.log", "log", kind="resource", content_type="text/plain"),
)
COUNTS = {
    **dict.fromkeys(("metadata", "request", "revisit", "status 301", "status 404", "text/dns", "warcinfo"), 1),
    "image/png": 2,
}


def read(raw: bytes, skip_bad: bool = False) -> tuple[list[str], Problems]:
    """The addresses of the pages of an archive, and what was said about it."""
    problems = Problems(skip_bad)
    return [page.url for page in read_pages("x.warc", io.BufferedReader(io.BytesIO(raw)), problems)], problems


def written(folder: Path, name: str, *records: Captured) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_bytes(archive(*records, gzip=name.endswith(".gz")))
    return folder / name


# What becomes of an archive.


@pytest.mark.parametrize("name", ["site.warc", "site.warc.gz", "SITE.WARC.GZ"])
def test_an_archive_is_its_pages(name: str, tmp_path: Path) -> None:
    path = written(tmp_path / "docs", name, *PAGES[:2], *OTHERS, *PAGES[2:])
    leave = html_content(PAGE.encode())
    expected = [
        Document(
            f"{name}/{SITE}/leave",
            leave.text,
            leave.title,
            (),
            {**leave.metadata, "url": f"{SITE}/leave", "archived": DATE},
        ),
        Document(
            f"{name}/{SITE}/travel.txt",
            "Trips above 5000 euro.",
            "travel",
            (),
            {"url": f"{SITE}/travel.txt", "archived": DATE},
        ),
        Document(
            f"{name}/{SITE}/parking",
            "Level two.",
            "Parking",
            (),
            {"url": f"{SITE}/parking", "archived": "2025-06-01T00:00:00Z"},
        ),
    ]
    for place in (path, path.parent):
        for read_as in ("", "text"):
            assert list(load_dataset(place, read_as=read_as).documents()) == expected
        assert list(read_documents(place)) == expected
    assert Counter(COUNTS) == read(path.read_bytes() if name.endswith("warc") else archive(*OTHERS))[1].passed_over
    with pytest.raises(DataError, match="is plain text, not a file of records"):
        load_dataset(path, read_as="records")


def test_every_file_and_every_record_is_accounted_for(tmp_path: Path) -> None:
    docs = write(tmp_path / "docs", {"a.md": "A cat.", "b.png": ""})
    written(docs / "deep", "site.warc.gz", *PAGES, *OTHERS)
    written(docs, "other.warc", *PAGES[:1], *OTHERS[1:2])
    data = load_dataset(docs)
    ids = [document.id for document in data.documents()]
    assert ids == ["a.md", f"other.warc/{SITE}/leave", *(f"deep/site.warc.gz/{page.url}" for page in PAGES)]
    counts = "others 3, metadata 1, revisit 1, status 301 1, image/png 2, request 2"
    said = f"5 documents from 3 files; not read: 1 (.png 1); records of archives not read: 10 ({counts})"
    assert str(data.reading) == said
    found = info(data)
    assert (found["files"], found["documents"], found["bad records"]) == (3, 5, 0)
    assert sum(found["records of archives not read"].values()) == 10
    assert "records of archives not read" not in info(load_dataset(write(tmp_path / "plain", {"a.md": "A cat."})))


def test_an_archive_without_pages_is_counted_and_no_error(tmp_path: Path) -> None:
    docs = write(tmp_path, {"a.md": "A cat."})
    written(docs, "meta.warc.gz", *OTHERS[:2])
    said = "1 document from 2 files; records of archives not read: 2 (request 1, warcinfo 1)"
    assert str(load_dataset(docs).reading) == said


def test_an_address_that_is_captured_again_is_read_once(tmp_path: Path) -> None:
    pages = [Captured(f"{SITE}/caf\u00e9", "One."), Captured(f"{SITE}/cafe\u0301", "Two."), Captured(SITE, "Three.")]
    path = written(tmp_path, "a.warc", *pages)
    data = load_dataset(path)
    assert [document.text for document in data.documents()] == ["One.", "Three."]
    assert str(data.reading) == "2 documents from 1 file; records of archives not read: 1 (captured again 1)"
    written(tmp_path, "b.warc", *pages)
    assert len(list(load_dataset(tmp_path).documents())) == 4, "another archive has ids of its own"


def test_two_archives_that_would_have_one_id_are_refused(tmp_path: Path) -> None:
    for name in ("caf\u00e9.warc", "cafe\u0301.warc"):
        written(tmp_path, name, *PAGES)
    if len(list(tmp_path.iterdir())) == 1:
        pytest.skip("this file system takes the two names for one")
    with pytest.raises(DataError, match=r"\.warc has the id café\.warc/https://example\.org/leave too; rename one"):
        list(load_dataset(tmp_path).documents())
    assert str(load_dataset(tmp_path, skip_bad=True).reading) == "3 documents from 2 files; of one id: 3"


@pytest.mark.parametrize(
    ("url", "title"),
    [
        (f"{SITE}/docs/travel-rules.html?page=2", "travel-rules"),
        (f"{SITE}/gr%C3%BC%C3%9Fe/", "grüße"),
        (f"{SITE}/", "example.org"),
        (SITE, "example.org"),
        (f"{SITE}/a%00%0Ab", "a b"),
        ("file:///notes/one.html", "one"),
        ("urn:uuid:1", "uuid:1"),
        ("http://[broken", "[broken"),
        ("nothing", "nothing"),
    ],
)
def test_a_page_without_a_title_is_called_by_its_address(url: str, title: str, tmp_path: Path) -> None:
    path = written(tmp_path, "a.warc", Captured(url, "<p>A cat.", kind="resource"))
    assert [document.title for document in read_documents(path)] == [title]
    path = written(tmp_path, "b.warc", Captured(url, " ", kind="resource"))
    assert [document.title for document in read_documents(path)] == [""], "a blank page is an empty document"


# Content types, encodings, chunks and compression.


@pytest.mark.parametrize(
    ("content_type", "kind"),
    [
        ("text/html", ""),
        ("TEXT/HTML ; charset=utf-8", ""),
        ("text/plain;charset=us-ascii", ""),
        ("application/pdf", "application/pdf"),
        ("text/htm", "text/htm"),
        ("", "no content type"),
        ("text", "unknown content types"),
        ("\x1b[31m/html", "unknown content types"),
        (f"text/{'x' * 100}", "unknown content types"),
    ],
)
def test_the_content_type_says_what_a_page_is(content_type: str, kind: str) -> None:
    urls, problems = read(archive(Captured(SITE, PAGE, content_type=content_type)))
    assert (urls, dict(problems.passed_over)) == (([], {kind: 1}) if kind else ([SITE], {}))


def test_a_picture_that_is_sent_as_a_page_is_a_bad_record(tmp_path: Path) -> None:
    picture = Captured(f"{SITE}/logo", b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\xff\xfe\xfd")
    path = written(tmp_path, "site.warc", PAGES[0], picture, PAGES[1])
    wrong = (
        r"site\.warc:2: https://example\.org/logo: .*; take the page out of the archive, or leave it out with --skip"
    )
    with pytest.raises(DataError, match=wrong):
        list(load_dataset(path).documents())
    data = load_dataset(path, skip_bad=True)
    assert [document.title for document in data.documents()] == ["Leave & holidays", "travel"]
    assert str(data.reading) == "2 documents from 1 file; unknown encoding: 1"


@pytest.mark.parametrize(
    ("header", "meta", "encoding"),
    [
        ("windows-1251", "", "cp1251"),
        ('"windows-1251"', "<meta charset=koi8-r>", "cp1251"),
        ("", "<meta charset=koi8-r>", "koi8-r"),
        ("windows-1251", "", "utf-8"),
        ("", "", "utf-16"),
    ],
)
def test_the_header_names_the_encoding_or_else_the_page_does(header: str, meta: str, encoding: str) -> None:
    page = f"{meta}<p>Привет, мир".encode(encoding)
    sent = Captured(SITE, page, content_type=f"text/html; charset={header}" if header else "text/html")
    stream = io.BufferedReader(io.BytesIO(archive(sent)))
    assert [page.content().text for page in read_pages("x", stream, Problems())] == ["Привет, мир"]


ENCODINGS = ("", "identity", "gzip", "deflate", "raw deflate", "br")


@pytest.mark.parametrize("is_chunked", [False, True])
@pytest.mark.parametrize("encoding", ENCODINGS)
@pytest.mark.parametrize("is_said", [False, True], ids=["already unpacked", "packed"])
def test_chunks_and_compression_are_taken_away(encoding: str, is_chunked: bool, is_said: bool) -> None:
    """Some tools unpack what they archive and leave the headers as they were."""
    headers = [("Content-Encoding", encoding.removeprefix("raw "))] if encoding else []
    headers += [("Transfer-Encoding", "chunked")] if is_chunked else []
    raw = packed(PAGE.encode(), encoding) if is_said else PAGE.encode()
    sent = Captured(SITE, chunked(raw) if is_chunked and is_said else raw, headers=headers)
    problems = Problems()
    pages = [page.content() for page in read_pages("x", io.BufferedReader(io.BytesIO(archive(sent))), problems)]
    if encoding == "br":
        assert (pages, dict(problems.passed_over)) == ([], {"compressed by br": 1})
    else:
        assert [page.text for page in pages] == [html_content(PAGE.encode()).text]


def test_text_that_begins_like_compressed_data_is_read_as_it_is() -> None:
    body = "SYrg. is six bytes of deflated data, and here is more."
    sent = Captured(SITE, body, content_type="text/plain", headers=[("Content-Encoding", "deflate")])
    stream = io.BufferedReader(io.BytesIO(archive(sent)))
    assert [page.content().text for page in read_pages("x", stream, Problems())] == [body]


@pytest.mark.parametrize(
    ("body", "headers", "problem", "reason"),
    [
        (packed(PAGE.encode(), "gzip")[:-20], [("Content-Encoding", "gzip")], "the compressed page is damaged", "un"),
        (packed(b" " * 2**25, "gzip"), [("Content-Encoding", "gzip")], "the page is larger than 16 MiB", "too large"),
        (b"x" * (2**24 + 1), [], "the page is larger than 16 MiB", "too large"),
        (b"x" * (2**25 + 9), [], "the page is larger than 16 MiB", "too large"),
        (b"a\0b", [], "the text holds a NUL byte", "unknown encoding"),
    ],
    ids=["damaged", "bomb", "large", "larger", "nul"],
)
def test_a_bad_page_is_left_out_and_the_others_are_read(
    body: bytes, headers: Any, problem: str, reason: str, tmp_path: Path
) -> None:
    path = written(tmp_path, "site.warc.gz", Captured(f"{SITE}/bad", body, headers=headers), *PAGES)
    with pytest.raises(DataError, match=rf"site\.warc\.gz:1: https://example\.org/bad: {problem}; .*--skip-bad$"):
        list(load_dataset(path).documents())
    said = str(load_dataset(path, skip_bad=True).reading)
    assert said.startswith(f"3 documents from 1 file; {reason}")


# The obvious version, and another library, are the judges.

URLS = st.sampled_from([f"{SITE}/{name}" for name in ("a", "b", "c.txt", "grüße")])
RECORDS = st.builds(
    Captured,
    url=URLS,
    body=st.sampled_from(["<title>Cats</title><p>A cat.", "A dog.", "Grüße", "", PAGE]),
    kind=st.sampled_from(["response", "response", "resource", "request", "revisit", "metadata", "warcinfo"]),
    status=st.sampled_from(["200 OK", "200", "206 Partial Content", "302 Found", "500 Error", ""]),
    content_type=st.sampled_from(["text/html", "text/html; charset=utf-8", "text/plain", "image/gif", ""]),
    headers=st.sampled_from([(), (("Content-Encoding", "br"),)]),
    date=st.sampled_from([DATE, "2025-06-01T10:11:12.123456Z"]),
)


def obvious(records: list[Captured]) -> tuple[list[tuple[str, str]], Counter[str]]:
    """The addresses and dates of the pages, and the counts of other records, by the words of the documentation."""
    pages: dict[str, str] = {}
    counts: Counter[str] = Counter()
    for record in records:
        media_type, is_http = record.content_type.partition(";")[0], record.kind == "response"
        if record.kind not in ("response", "resource"):
            counts[record.kind] += 1
        elif is_http and not record.status.startswith("200"):
            counts[f"status {record.status[:3]}" if record.status else "no status"] += 1
        elif media_type not in ("text/html", "text/plain"):
            counts[media_type or "no content type"] += 1
        elif is_http and record.headers:
            counts["compressed by br"] += 1
        elif record.url in pages:
            counts["captured again"] += 1
        else:
            pages[record.url] = record.date
    return list(pages.items()), counts


def by_warcio(raw: bytes) -> dict[str, str]:
    """The text of each page, as warcio's own iterator sees it."""
    texts: dict[str, str] = {}
    for record in ArchiveIterator(io.BytesIO(raw)):
        headers = record.http_headers or record.rec_headers
        is_page = headers.get_header("Content-Type", "").startswith("text/html")
        if record.rec_type == "resource" or (record.rec_type == "response" and headers.get_statuscode() == "200"):
            url = record.rec_headers.get_header("WARC-Target-URI")
            if is_page and url not in texts and not headers.get_header("Content-Encoding"):
                texts[url] = html_content(record.content_stream().read()).text
    return texts


def can_be_written(record: Captured) -> bool:
    """warcio takes the body of an answer without status and headers for its headers."""
    if record.kind == "resource":
        return bool(record.content_type)
    return bool(record.status or record.content_type or record.headers or not record.body)


@given(st.lists(RECORDS.filter(can_be_written), min_size=1), st.booleans())
def test_pages_and_counts_are_those_of_the_obvious_version(records: list[Captured], gzip: bool) -> None:
    raw = archive(*records, gzip=gzip)
    problems = Problems()
    stream: Any = io.BytesIO(raw)
    with contextlib.ExitStack() as stack:
        if gzip:
            import gzip as unpacker

            stream = stack.enter_context(unpacker.GzipFile(fileobj=stream))
        pages = list(read_pages("x", io.BufferedReader(stream), problems))
    assert ([(page.url, page.date) for page in pages], problems.passed_over) == obvious(records)
    texts = {page.url: page.content().text for page in pages if page.sent.media_type == "text/html"}
    assert texts.items() <= by_warcio(raw).items()


# Archives that are cut short or broken.


@pytest.mark.long
def test_wherever_an_archive_is_cut_what_stands_before_is_read() -> None:
    records = [*PAGES[1:], *OTHERS[:5], PAGES[0]]
    whole, ends = archive(*records), [len(part) - len(b"\r\n\r\n") for part in parts(*records)[1:]]
    for cut in range(len(whole)):
        complete = [record for record, end in zip(records, ends, strict=True) if end <= cut]
        is_between = any(end <= cut <= end + 4 for end in ends)
        urls, problems = read(whole[:cut], skip_bad=True)
        assert urls == [record.url for record in complete if record in PAGES], cut
        assert problems.files == bool(complete), cut
        assert problems.passed_over.total() == len(complete) - len(urls), cut
        assert problems.count == (not is_between), cut
        if not is_between:
            with pytest.raises(
                DataError, match=r"x\.warc:\d+: .*; .*download or copy .*, or (keep|leave) .*--skip-bad"
            ):
                read(whole[:cut])


@pytest.mark.parametrize("cut", [1, 300, 1200, -40, -10])
def test_a_compressed_archive_that_is_cut_says_so(cut: int, tmp_path: Path) -> None:
    path = written(tmp_path, "site.warc.gz", *PAGES, *OTHERS)
    whole = [document.id for document in load_dataset(path).documents()]
    path.write_bytes(path.read_bytes()[:cut])
    write(tmp_path, {"a.md": "A cat."})
    data = load_dataset(tmp_path, skip_bad=True)
    ids = [document.id for document in data.documents()]
    assert ids == ["a.md", *whole[: len(ids) - 1]]
    assert str(data.reading).endswith("damaged archives: 1" if cut not in (1, 300) else "unreadable: 1")
    with pytest.raises(DataError, match=r"site\.warc\.gz:\d+: .*; .*, or (keep what comes before|leave it out) with"):
        list(load_dataset(tmp_path).documents())


def test_the_sentence_about_an_archive_that_was_cut(tmp_path: Path) -> None:
    path = written(tmp_path, "site.warc", *PAGES)
    path.write_bytes(path.read_bytes()[:-30])
    with pytest.raises(DataError) as caught:
        list(load_dataset(path).documents())
    assert str(caught.value) == (
        f"{path}:3: the archive ends in the middle of a record; the file was cut short: download or copy it again, "
        "or keep what comes before with --skip-bad"
    )
    data = load_dataset(path, skip_bad=True)
    assert str(data.reading) == "2 documents from 1 file; damaged archives: 1"
    (example,) = info(data)["examples"]
    assert example.endswith(
        "in the middle of a record, and the rest of the file is missing; "
        "the file was cut short: download or copy it again"
    )


@pytest.mark.parametrize(
    ("raw", "problem"),
    [
        (b"", "the web archive is empty"),
        (b"\r\n\r\n", "the web archive is empty"),
        (b"A cat.", "no record begins here"),
        (b"WARC/9.9\r\nContent-Length: 0\r\n\r\n", "the record is damaged"),
        (b"WARC/1.0\r\nWARC-Type: response\r\n\r\n", "the record has no Content-Length"),
        (b"WARC/1.0\r\n" + b"X: y\r\n" * 200_000, "the headers are longer than 1 MiB"),
        (b"WARC/1.0\r\nX: " + b"y" * 2_000_000, "the headers are longer than 1 MiB"),
        (archive(*PAGES).replace(b"Content-Length: ", b"Content-Length: 9", 1), "ends in the middle of a record"),
        (archive(*PAGES).replace(b"Content-Length: ", b"Content-Length: -", 1), "no record begins here"),
    ],
)
def test_what_is_no_archive_says_why(raw: bytes, problem: str, tmp_path: Path, capsys: Any, caplog: Any) -> None:
    path = write(tmp_path, {"a.md": "A cat."}) / "b.warc"
    path.write_bytes(raw)
    with pytest.raises(DataError, match=rf"b\.warc:\d: .*{problem}.*; .*--skip-bad"):
        list(load_dataset(tmp_path).documents())
    assert (capsys.readouterr().err, caplog.text) == ("", ""), "warcio says nothing by itself"
    assert load_dataset(tmp_path, skip_bad=True).reading.documents == 1


def test_a_record_without_an_address_is_counted() -> None:
    raw = archive(Captured(SITE, PAGE)).replace(b"WARC-Target-URI", b"WARC-Target-XYZ")
    assert read(raw)[1].passed_over == {"no address": 1}


def test_an_address_with_blanks_is_read_without_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    raw = archive(Captured(f"{SITE}/a_b", PAGE)).replace(b"/a_b", b"/a b")
    assert read(raw)[0] == [f"{SITE}/a%20b"]
    assert not caplog.records


def test_an_address_that_cannot_be_an_id_is_a_bad_record(tmp_path: Path) -> None:
    path = tmp_path / "a.warc"
    path.write_bytes(archive(Captured(f"{SITE}/a_b", PAGE)).replace(b"/a_b", b"/a\tb"))
    with pytest.raises(DataError, match=r"a\.warc:1: .* holds a tab or line break"):
        list(load_dataset(path).documents())
    assert str(load_dataset(path, skip_bad=True).reading) == "0 documents from 1 file; bad names: 1"


def test_kinds_without_end_are_counted_together() -> None:
    records = [Captured(SITE, content_type=f"x/{number}") for number in range(KINDS + 5)]
    passed_over = read(archive(*records))[1].passed_over
    assert (len(passed_over), passed_over["others"], passed_over.total()) == (KINDS + 1, 5, KINDS + 5)


@given(st.integers(0, 10**6), st.binary(max_size=8))
def test_an_archive_with_changed_bytes_is_read_or_refused(at: int, content: bytes) -> None:
    raw = archive(
        *PAGES, *OTHERS, Captured(f"{SITE}/z", chunked(PAGE.encode()), headers=[("Transfer-Encoding", "chunked")])
    )
    at %= len(raw)
    problems = Problems()
    with contextlib.suppress(DataError):
        for page in read_pages(
            "x", io.BufferedReader(io.BytesIO(raw[:at] + content + raw[at + len(content) :])), problems
        ):
            with contextlib.suppress(triever.errors.Flaw):
                assert "\0" not in page.name + page.content().text


# Without warcio.


def without_warcio(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == "warcio"]:
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.setitem(sys.modules, "warcio", None)
    monkeypatch.setitem(sys.modules, "warcio.recordloader", None)


def test_without_warcio_a_folder_is_read_without_its_archives(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    docs = write(tmp_path / "docs", {"a.txt": "A cat.", "b.md": "A bird."})
    for name in ("c.warc", "d.warc.gz", "e.warc.gz"):
        written(docs, name, *PAGES)
    without_warcio(monkeypatch)
    data = load_dataset(docs)
    said = "2 documents from 2 files; not read: 3 (.warc without warcio 1, .warc.gz without warcio 2)"
    assert (str(data.reading), data.ignored) == (said, ())
    warning = "docs: 3 web archive files were not read, as warcio is not installed; run: pip install 'triever[files]'"
    assert caplog.messages == [warning]
    caplog.clear()
    write(docs, {"corpus.jsonl": CORPUS})
    assert load_dataset(docs, read_as="records").source.read_as == "records"
    assert "warcio" not in caplog.text, "beside records an archive is no document"


def test_without_warcio_an_archive_alone_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = written(tmp_path / "docs", "a.warc.gz", *PAGES)
    without_warcio(monkeypatch)
    wrong = r"reading a web archive needs a package that is not installed; run: pip install 'triever\[files\]'"
    for named, read_as in ((path, ""), (path, "text"), (path.parent, ""), (path.parent, "text")):
        with pytest.raises(MissingExtra, match=wrong):
            load_dataset(named, read_as=read_as)
    with pytest.raises(MissingExtra):
        list(read_documents(path))


# Archives among other files.


def test_the_pages_of_an_archive_count_where_records_lie_beside_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    pages = [Captured(f"{SITE}/{number}", "A page.") for number in range(300)]
    written(tmp_path, "site.warc.gz", *pages)
    log = jsonl(*({"id": f"r{number}", "text": "x"} for number in range(20)))
    data = load_dataset(write(tmp_path, {"log.jsonl": log}))
    assert (data.source.read_as, data.reading.documents, data.ignored) == ("text", 300, ("log.jsonl",))
    assert caplog.messages == [f"{data.name}: 1 file looks like data and was not used: log.jsonl"]
    caplog.clear()
    many = jsonl(*({"id": f"r{number}", "text": "x"} for number in range(1000)))
    data = load_dataset(write(tmp_path, {"log.jsonl": many}))
    assert (data.source.read_as, data.ignored) == ("records", ("site.warc.gz",))
    assert "the records of log.jsonl were read, but not 1 text file; to read it, use --as text" in caplog.text
    (tmp_path / "gone.warc").symlink_to(tmp_path / "nowhere")
    assert load_dataset(write(tmp_path, {"log.jsonl": log})).source.read_as == "text"


def test_an_archive_by_another_name_says_how_to_call_it(tmp_path: Path) -> None:
    (tmp_path / "site").write_bytes(archive(*PAGES))
    with pytest.raises(DataError, match=r"site is a web archive; end its name in \.warc or \.warc\.gz"):
        load_dataset(tmp_path / "site")


# Commands.


@pytest.mark.long
def test_pages_are_shown_found_filtered_and_kept_current(tmp_path: Path) -> None:
    docs = write(tmp_path / "docs", {"a.md": "# Cats\nA cat."})
    written(docs, "site.warc.gz", *PAGES, *OTHERS)
    shown = run(["data", "show", "docs", f"site.warc.gz/{SITE}/parking"], tmp_path)
    assert shown.returncode == 0, shown.stderr
    lines = [line.split() for line in shown.stdout.splitlines()]
    assert ["url", f"{SITE}/parking"] in lines
    assert ["archived", "2025-06-01T00:00:00Z"] in lines
    fitted = run(["fit", "bm25", "--data", "docs", "--out", "M"], tmp_path)
    assert "4 documents from 2 files; records of archives not read: 9 (" in fitted.stderr
    model = triever.load(tmp_path / "M")
    assert model.search("who parks on level two", 1)[0].id == f"site.warc.gz/{SITE}/parking"
    recent = {hit.id for hit in model.search("days euro level", 9, where={"archived": ">=2025"})}
    assert recent == {f"site.warc.gz/{SITE}/parking"}
    changed = Captured(f"{SITE}/travel.txt", "Trips above 4000 euro.", content_type="text/plain")
    written(docs, "site.warc.gz", PAGES[0], changed, Captured(f"{SITE}/new", "<p>A new page."), *OTHERS)
    done = run(["sync", "M", "docs"], tmp_path)
    assert done.stdout == "added 1, replaced 1, deleted 1; 2 unchanged\n", done.stderr
    again = run(["sync", "M", "docs"], tmp_path)
    assert again.stdout == "nothing to do; 4 unchanged\n"
    (docs / "site.warc.gz").write_bytes((docs / "site.warc.gz").read_bytes()[:-30])
    broken = run(["sync", "M", "docs"], tmp_path)
    assert broken.returncode == 2
    assert "or keep what comes before with --skip-bad" in broken.stderr
    added = run(["add", "M", "docs/site.warc.gz", "--replace", "--skip-bad"], tmp_path)
    assert "added 0 documents, replaced 0, 3 as they were; 4 in all" in added.stderr
