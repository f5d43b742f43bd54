"""What a file of a folder becomes: front matter, titles, web pages, Word documents and PDF, good and bad."""

from __future__ import annotations

import contextlib
import io
import json
import sys
import time
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.data.test_datasets import CORPUS, write
from tests.warm import run
from triever.data.datasets import info, load_dataset
from triever.data.formats.content import BadFile, TooLarge
from triever.data.formats.docx_files import docx_content
from triever.data.formats.front_matter import split_front_matter
from triever.data.formats.headings import first_heading
from triever.data.formats.html_pages import html_content
from triever.data.formats.pdf_files import pdf_content
from triever.data.readers import read_documents
from triever.data.records import Document
from triever.errors import DataError, Flaw, MissingExtra

# Front matter.


@pytest.mark.parametrize(
    ("block", "fields"),
    [
        ("title: Leave\nyear: 2024\ndraft: false", {"title": "Leave", "year": 2024, "draft": False}),
        ("tags: [a, 'b, c', \"d\"]", {"tags": ["a", "b, c", "d"]}),
        ("tags:\n  - a\n  - 2\nauthor: Ann", {"tags": ["a", 2], "author": "Ann"}),
        ("tags:\n- a\n- b", {"tags": ["a", "b"]}),
        ("date: 2024-01-31\nversion: '1.10'\nratio: 0.5", {"date": "2024-01-31", "version": "1.10", "ratio": 0.5}),
        ("summary: >\n  two\n  lines\nnote: |\n  a\n  b", {"summary": "two lines", "note": "a\nb"}),
        ("# a comment\ntitle: C# # another", {"title": "C#"}),
        ("nested:\n  key: value\ntitle: x", {"title": "x"}),
        ("nothing:\nempty: ~\ntitle: x", {"title": "x"}),
        ('quoted: "a \\"b\\" \\u00e9"\nhalf: "\\ud800"', {"quoted": 'a "b" é', "half": "\\ud800"}),
        ("time: 10:30\nlink: https://example.org/a#b", {"time": "10:30", "link": "https://example.org/a#b"}),
    ],
)
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_front_matter_becomes_fields(block: str, fields: dict[str, Any], end: str) -> None:
    text = f"---\n{block}\n---\n\nThe text.\n".replace("\n", end)
    found, rest = split_front_matter(text)
    assert found == fields
    assert rest == f"The text.{end}"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "---",
        "---\n",
        "---\n---\n",
        "---\ntitle: x\n",
        "---\nA sentence.\n---\n",
        " ---\ntitle: x\n---\n",
        "a\n---\n",
    ],
)
def test_what_is_no_front_matter_stays_text(text: str) -> None:
    assert split_front_matter(text) == ({}, text)


VALUES = st.one_of(
    st.booleans(),
    st.integers(-(10**17), 10**17),
    st.text(st.characters(categories=["L", "N", "P", "S", "Zs"])),
)


@given(st.dictionaries(st.from_regex("[a-z]{1,9}", fullmatch=True), st.one_of(VALUES, st.lists(VALUES))))
def test_front_matter_that_is_written_as_json_is_read_as_it_was(fields: dict[str, Any]) -> None:
    lines = [f"{key}: {json.dumps(value)}" for key, value in fields.items() if not _has_brackets(value)]
    expected = {key: value for key, value in fields.items() if not _has_brackets(value)}
    found, rest = split_front_matter("\n".join(["---", *lines, "---", "text"]))
    assert (found, rest) == ((expected, "text") if lines else ({}, "---\n---\ntext"))


def _has_brackets(value: Any) -> bool:
    return isinstance(value, list) and any(set(str(item)) & set("[]#") for item in value)


@given(st.text(st.sampled_from("-ab:[]'\"#|> \n\t.\r"), max_size=200))
def test_front_matter_never_raises_and_loses_no_text(text: str) -> None:
    for whole in (text, f"---\n{text}\n---\nThe end."):
        fields, rest = split_front_matter(whole)
        assert whole.endswith(rest)
        assert fields or rest == whole or whole.startswith("---")


def test_a_file_with_front_matter(tmp_path: Path) -> None:
    write(tmp_path, {"a.md": "---\ntitle: Leave\ntags: [hr]\n---\n# Another heading\nThirty days.", "b.txt": "Plain."})
    assert list(read_documents(tmp_path)) == [
        Document("a.md", "# Another heading\nThirty days.", "Leave", (), {"tags": ["hr"]}),
        Document("b.txt", "Plain.", "b"),
    ]


# Titles.


@pytest.mark.parametrize(
    ("ending", "text", "title"),
    [
        (".rst", "=====\nTitle\n=====\n\nText.", "Title"),
        (".rst", "====\n A B\n====\n", "A B"),
        (".rst", ".. _label:\n\nTitle\n~~~~~\n", "Title"),
        (".rst", "# no heading\n\nText.", ""),
        (".rst", "A longer line\n---\n", ""),
        (".rst", "=====  =====\nA      B\n=====  =====\n", ""),
        (".md", "Title\n---\ntext", "Title"),
        (".md", "A sentence of\ntwo lines\n---\n", ""),
        (".md", "- an item\n---\n", ""),
        (".md", "a | b\n--- | ---\n", ""),
        (".txt", "Not a title\n---\n", ""),
        (".txt", "Title\n=====\n", "Title"),
        ("", "Title\n-----\n", "Title"),
    ],
)
def test_headings(ending: str, text: str, title: str) -> None:
    assert first_heading(text, ending) == title


# Web pages.

PAGE = """<!DOCTYPE html><html><head><title>Leave &amp; holidays</title><meta name="Author" content="Ann Lee">
<meta name=keywords content="hr, time off"><meta name="viewport" content="x"><style>p {color: red}</style></head>
<body><header><a href="/">Home</a></header><nav><ul><li>Menu</ul></nav>
<main><h1>Leave<a href="#x">¶</a></h1><p>Twenty-eight <b>days</b>
a year.<p>Ask &lt;first&gt;.<script>if (a < b) { "<p>" }</script><ul><li>one<li>two</ul>
<table><tr><td>a<td>b<tr><td>c</table><pre>x = 1
y = 2</pre></main><footer>Imprint</footer><!-- <p>old --></body></html>"""


def test_a_page_is_its_main_text() -> None:
    content = html_content(PAGE.encode())
    assert content.title == "Leave & holidays"
    assert content.metadata == {"author": "Ann Lee", "keywords": ["hr", "time off"]}
    assert content.text == ("Leave¶\n\nTwenty-eight days a year.\n\nAsk <first>.\n\none\ntwo\n\na b\nc\n\nx = 1\ny = 2")


@pytest.mark.parametrize(
    ("page", "title", "text"),
    [
        ("<h1>Cats</h1><p>A cat.", "Cats", "Cats\n\nA cat."),
        ("<nav>Menu</nav><p>A cat.", "", "A cat."),
        ("<div role=navigation><div>Menu</div></div><p>A cat.", "", "A cat."),
        ("<div>Menu</div><div role='main'><div>A</div> cat.</div><div>End</div>", "", "A\n\ncat."),
        ("<p>Menu<article>A cat is a small animal.</article>", "", "A cat is a small animal."),
        ("<p>The news of today is long<article>One</article>", "", "The news of today is long\n\nOne"),
        ("<header><h1>Cats</h1></header><p>A cat.", "Cats", "A cat."),
        ("<article><header><h1>Cats</h1></header>A cat.</article>", "Cats", "Cats\n\nA cat."),
        ("<nav>Nothing else", "", "Nothing else"),
        ("<p hidden>x</p>a<input hidden>b<svg><title>x</title></svg><svg/>c", "", "abc"),
        ("a < b, 1<2 &#38; &#99999999999999999999; &copy", "", "a < b, 1<2 & \ufffd ©"),
        ("<title>One</title><title>Two</title>x", "One", "x"),
        ("<p title='a > b' class=\"x\">A cat.", "", "A cat."),
        ("text <!-- never closed <p>more", "", "text"),
        ("text <a href='never closed> more", "", "text more"),
        ("<script>never closed <p>more", "", ""),
        ("", "", ""),
    ],
)
def test_pages_of_all_kinds(page: str, title: str, text: str) -> None:
    content = html_content(page.encode())
    assert (content.title, content.text) == (title, text)


def test_a_page_may_say_its_encoding() -> None:
    for head in ('<meta charset="windows-1251">', "<META http-equiv=x content='text/html; charset=windows-1251'>"):
        assert html_content(f"{head}<p>Привет".encode("cp1251")).text == "Привет"
    assert html_content("<meta charset=iso-8859-1>“x” ñ".encode("cp1252")).text == "“x” ñ"
    for lie in ("zip", "rot13", "idna", "euc-jp"):
        with pytest.raises(Flaw):
            html_content(f"<meta charset={lie}>".encode() + b"\xff\xff\xff")


TAGS = st.sampled_from(["p", "div", "nav", "main", "article", "script", "h1", "title", "pre", "svg", "br", "header"])
PIECES = st.one_of(
    st.builds("<{}>".format, TAGS),
    st.builds("</{}>".format, TAGS),
    st.builds("<{} role=main hidden>".format, TAGS),
    st.sampled_from(
        ["<!--", "-->", "<![CDATA[", "<!", "<?", "</", "<", ">", "&#", "&amp", '"', "'", "=", "/>", "<a b='"]
    ),
    st.text(max_size=9),
)


@given(st.lists(PIECES, max_size=60).map("".join))
@example("<p>" * 5000 + "x" + "</div>" * 5000)
def test_no_page_raises(page: str) -> None:
    try:
        raw = page.encode()
    except UnicodeEncodeError:
        return
    try:
        content = html_content(raw)
    except Flaw:
        assert "\0" in page
        return
    assert "\0" not in content.text + content.title


@given(
    st.lists(TAGS.filter(lambda tag: tag in ("p", "div", "h1", "pre")), max_size=20), st.sampled_from(["cat", "a b"])
)
def test_text_below_any_tags_is_read(tags: list[str], word: str) -> None:
    page = "".join(f"<{tag}>" for tag in tags) + word + "".join(f"</{tag}>" for tag in reversed(tags))
    assert html_content(page.encode()).text == word


@pytest.mark.parametrize(
    "unit",
    [
        "<a ",
        "<a b='",
        "<!--",
        "<![CDATA[",
        "</a ",
        "<",
        "<div>",
        "&#",
        "<script>",
        "</nav>",
        "<a\t",
        "<nav>x",
        "<x=\"'",
        "<a '\">",
        "<a b=\"'>",
        "<a b=",
    ],
)
def test_broken_pages_are_read_in_linear_time(unit: str) -> None:
    start = time.perf_counter()
    html_content((unit * 50_000).encode())
    assert time.perf_counter() - start < 10, "the square of the length takes hours"


# Word documents.

W = 'xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main"'
CORE = (
    '<cp:coreProperties xmlns:cp="c" xmlns:dc="http://purl.org/dc/elements/1.1/" xmlns:dcterms="t">'
    "{}<dc:creator>Ann Lee</dc:creator><dcterms:created>2024-01-31T08:00:00Z</dcterms:created></cp:coreProperties>"
)
BODY = (
    '<w:p><w:pPr><w:pStyle w:val="Heading1"/></w:pPr><w:r><w:t>Tra</w:t></w:r><w:r><w:t>vel</w:t></w:r></w:p>'
    "<w:p><w:r><w:t>Ask</w:t><w:tab/><w:t>first &amp; go.</w:t></w:r>"
    "<w:del><w:r><w:delText>old</w:delText></w:r></w:del></w:p>"
    "<w:p/><w:tbl><w:tr><w:tc><w:p><w:r><w:t>cell</w:t></w:r></w:p></w:tc></w:tr></w:tbl>"
)


def docx(body: str = BODY, core: str | None = None, **parts: str) -> bytes:
    document = f'<?xml version="1.0"?><w:document {W}><w:body>{body}</w:body></w:document>'
    files = {"word/document.xml": document, **({"docProps/core.xml": core} if core else {}), **parts}
    return packed(files)


def packed(files: Mapping[str, str | bytes]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return buffer.getvalue()


def test_a_word_document_has_text_title_and_facts() -> None:
    content = docx_content(docx(core=CORE.format("<dc:title>Travel costs</dc:title>")))
    assert content.text == "Travel\nAsk\tfirst & go.\ncell"
    assert content.title == "Travel costs"
    assert content.metadata == {"author": "Ann Lee", "created": "2024-01-31T08:00:00Z"}
    assert docx_content(docx(core=CORE.format(""))).title == "Travel"
    assert docx_content(docx("<w:p/>")).text == ""


def test_text_that_is_there_twice_is_read_once() -> None:
    choice = "<x:Choice>{0}</x:Choice><x:Fallback>{0}</x:Fallback>".format("<w:r><w:t>box</w:t></w:r>")
    assert docx_content(docx(f'<w:p><x:AlternateContent xmlns:x="m">{choice}</x:AlternateContent></w:p>')).text == "box"


BOMB = '<!DOCTYPE x [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;&a;&a;">]>'


@pytest.mark.parametrize(
    ("raw", "problem"),
    [
        (b"", "not a Word document"),
        (b"nonsense", "not a Word document"),
        (docx()[:-30], "not a Word document"),
        (packed({"other.xml": "<a/>"}), "not a Word document"),
        (packed({"word/document.xml": "<a><b></a>"}), "XML of the Word document is damaged"),
        (packed({"word/document.xml": f"{BOMB}<a>&b;</a>"}), "declares entities"),
        (packed({"word/document.xml": '<!DOCTYPE x SYSTEM "file:///etc/passwd"><a/>'}), "declares entities"),
        (b"\xd0\xcf\x11\xe0" + bytes(600), "has a password, or is a .doc"),
    ],
)
def test_a_bad_word_document_says_why(raw: bytes, problem: str) -> None:
    with pytest.raises(BadFile, match=problem):
        docx_content(raw)


def test_a_word_document_that_grows_beyond_all_measure_is_refused() -> None:
    blanks = packed({"word/document.xml": b"<a>" + b" " * (65 * 2**20) + b"</a>"})
    with pytest.raises(TooLarge, match="the unpacked document is larger than 64 MiB"):
        docx_content(blanks)
    with pytest.raises(TooLarge, match="the text is larger than 16 MiB"):
        docx_content(docx(f"<w:p><w:r><w:t>{'x' * (17 * 2**20)}</w:t></w:r></w:p>"))


@given(st.integers(0, 10**6), st.integers(0, 255))
def test_a_word_document_with_a_changed_byte_is_read_or_refused(at: int, byte: int) -> None:
    raw = bytearray(docx(core=CORE.format("")))
    raw[at % len(raw)] = byte
    with contextlib.suppress(Flaw):
        docx_content(bytes(raw))


# PDF.


def pdf(text: str = "A cat is a small animal.", facts: str = "") -> bytes:
    """A PDF of one page, written by hand; without a text, its page is blank."""
    stream = f"BT /F1 12 Tf 72 720 Td ({text}) Tj ET" if text else ""
    objects = [
        "<< /Type /Catalog /Pages 2 0 R >>",
        "<< /Type /Pages /Kids [3 0 R] /Count 1 >>",
        "<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Contents 4 0 R"
        " /Resources << /Font << /F1 << /Type /Font /Subtype /Type1 /BaseFont /Helvetica >> >> >> >>",
        f"<< /Length {len(stream)} >>\nstream\n{stream}\nendstream",
        f"<< {facts} >>",
    ]
    content, offsets = "%PDF-1.4\n", []
    for number, thing in enumerate(objects, 1):
        offsets.append(len(content))
        content += f"{number} 0 obj\n{thing}\nendobj\n"
    table = "".join(f"{offset:010} 00000 n \n" for offset in offsets)
    trailer = f"trailer\n<< /Size {len(objects) + 1} /Root 1 0 R /Info 5 0 R >>\nstartxref\n{len(content)}\n%%EOF\n"
    return f"{content}xref\n0 {len(objects) + 1}\n0000000000 65535 f \n{table}{trailer}".encode("latin-1")


def locked_pdf(password: str) -> bytes:
    from pypdf import PdfReader, PdfWriter

    writer, buffer = PdfWriter(PdfReader(io.BytesIO(pdf()))), io.BytesIO()
    writer.encrypt(password, "owner", algorithm="RC4-128")
    writer.write(buffer)
    return buffer.getvalue()


def test_a_pdf_has_text_title_and_facts() -> None:
    facts = "/Title (Cats) /Author (Ann Lee) /CreationDate (D:20240131080000Z)"
    content = pdf_content(pdf(facts=facts))
    assert (content.text, content.title) == ("A cat is a small animal.", "Cats")
    assert content.metadata == {"author": "Ann Lee", "created": "2024-01-31T08:00:00+00:00"}
    assert pdf_content(pdf(facts="/CreationDate (yesterday)")).metadata == {}


def test_a_pdf_that_grows_beyond_all_measure_is_refused() -> None:
    blanks = zlib.compress(b" " * (100 * 2**20), 9)
    head, tail = pdf("").split(b"<< /Length 0 >>\nstream\n")
    stream = b"<< /Length %d /Filter /FlateDecode >>\nstream\n" % len(blanks)
    with pytest.raises(BadFile, match="the PDF unpacks to more than pypdf reads"):
        pdf_content(head + stream + blanks + tail)


def test_a_pdf_that_is_locked_against_changes_is_read() -> None:
    assert pdf_content(locked_pdf("")).text == "A cat is a small animal."


@pytest.mark.parametrize(
    ("make", "problem"),
    [
        (lambda: b"", "the PDF is damaged"),
        (lambda: b"%PDF-1.4\n", "the PDF is damaged"),
        (lambda: pdf()[:200], "the PDF is damaged"),
        (lambda: pdf(""), "the PDF has no text, only pictures of it"),
        (lambda: locked_pdf("secret"), "the PDF has a password"),
    ],
)
def test_a_bad_pdf_says_why(make: Any, problem: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(BadFile, match=problem):
        pdf_content(make())
    assert not caplog.records
    write(tmp_path, {"a.txt": "A cat."})
    (tmp_path / "b.pdf").write_bytes(make())
    with pytest.raises(DataError, match=rf"b\.pdf:1: {problem}; .*, or leave it out with --skip-bad"):
        list(load_dataset(tmp_path).documents())
    assert str(load_dataset(tmp_path, skip_bad=True).reading) == "1 document from 1 file; unreadable: 1"


@given(st.integers(0, 10**6), st.binary(max_size=8))
def test_a_pdf_with_changed_bytes_is_read_or_refused(at: int, content: bytes) -> None:
    raw = pdf(facts="/Title (Cats)")
    at %= len(raw)
    with contextlib.suppress(Flaw):
        pdf_content(raw[:at] + content + raw[at + len(content) :])


def without_pypdf(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pypdf", None)


def test_without_pypdf_a_folder_is_read_without_its_pdf_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    without_pypdf(monkeypatch)
    docs = write(tmp_path / "docs", {"a.txt": "A cat.", "b.md": "A bird.", "c.png": ""})
    (docs / "d.pdf").write_bytes(pdf())
    data = load_dataset(docs)
    assert str(data.reading) == "2 documents from 2 files; not read: 2 (.pdf without pypdf 1, .png 1)"
    assert info(data)["not read"] == {".pdf without pypdf": 1, ".png": 1}
    warning = "docs: 1 PDF file was not read, as pypdf is not installed; run: pip install 'triever[files]'"
    assert warning in caplog.text
    caplog.clear()
    write(docs, {"corpus.jsonl": CORPUS})
    assert load_dataset(docs, read_as="records").source.read_as == "records"
    assert "PDF" not in caplog.text, "beside records a PDF is no document"


def test_without_pypdf_a_pdf_alone_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    without_pypdf(monkeypatch)
    path = tmp_path / "docs" / "a.pdf"
    path.parent.mkdir()
    path.write_bytes(pdf())
    for named, read_as in ((path, ""), (path, "text"), (path.parent, ""), (path.parent, "text")):
        with pytest.raises(MissingExtra, match=r"reading a PDF needs .*; run: pip install 'triever\[files\]'"):
            load_dataset(named, read_as=read_as)
    for read in (lambda: list(read_documents(path)), lambda: pdf_content(pdf())):
        with pytest.raises(MissingExtra):
            read()


# Folders of such files.


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    docs = write(
        tmp_path / "docs",
        {
            "README": "About\n=====\nThis folder.",
            "a.md": "# A\nOne.",
            "b.markdown": "---\ndate: 2024-01-31\n---\n# B\nTwo.",
            "c.rst": "C\n~~~\nThree.",
            "d.txt": "Four.",
            "e.html": PAGE,
            "f.HTM": "<title>F</title>Six.",
            "Makefile": "all:",
        },
    )
    (docs / "g.docx").write_bytes(docx())
    (docs / "h.pdf").write_bytes(pdf())
    return docs


def test_every_file_of_a_folder_is_read_or_counted(folder: Path) -> None:
    data = load_dataset(folder)
    assert {document.id: document.title for document in data.documents()} == {
        "README": "About",
        "a.md": "A",
        "b.markdown": "B",
        "c.rst": "C",
        "d.txt": "d",
        "e.html": "Leave & holidays",
        "f.HTM": "F",
        "g.docx": "Travel",
        "h.pdf": "h",
    }
    assert str(data.reading) == "9 documents from 9 files; not read: 1 (no ending 1)"


@pytest.mark.parametrize("name", ["README", "b.markdown", "c.rst", "e.html", "g.docx", "h.pdf"])
def test_a_file_alone_is_the_same_document(name: str, folder: Path) -> None:
    expected = next(document for document in load_dataset(folder).documents() if document.id == name)
    for read_as in ("", "text"):
        assert list(load_dataset(folder / name, read_as=read_as).documents()) == [expected]
    assert list(read_documents(folder / name)) == [expected]
    with pytest.raises(DataError, match="is plain text, not a file of records"):
        load_dataset(folder / name, read_as="records")


def test_pages_beside_records_are_no_corpus(tmp_path: Path) -> None:
    data = load_dataset(write(tmp_path, {"corpus.jsonl": CORPUS, "index.html": PAGE, "README": "x"}))
    assert (data.source.read_as, data.unread) == ("records", ("README", "index.html"))


def test_files_are_limited_in_size(tmp_path: Path) -> None:
    write(tmp_path, {"a.txt": "A cat."})
    (tmp_path / "b.html").write_bytes(b"x" * (16 * 2**20 + 1))
    with pytest.raises(DataError, match=r"b\.html:1: the file is larger than 16 MiB; .*skip-bad"):
        list(load_dataset(tmp_path).documents())


# triever data show.


@pytest.mark.long
def test_show_prints_what_a_file_became(folder: Path) -> None:
    shown = run(["data", "show", "docs", "e.html"], folder.parent)
    assert shown.returncode == 0, shown.stderr
    lines = [line.split() for line in shown.stdout.splitlines()]
    assert ["title", "Leave", "&", "holidays"] in lines
    assert ["keywords", "hr,", "time", "off"] in lines
    assert shown.stdout.endswith("\nx = 1\ny = 2\n")
    found = json.loads(run(["data", "show", "docs", "b.markdown", "--json"], folder.parent).stdout)
    assert found == {"id": "b.markdown", "title": "B", "metadata": {"date": "2024-01-31"}, "text": "# B\nTwo."}


def test_show_proposes_the_nearest_ids(folder: Path) -> None:
    for wrong, hint in (
        ("markdown", "did you mean b.markdown?"),
        ("g.dcox", "did you mean g.docx?"),
        ("???", "the first"),
    ):
        refused = run(["data", "show", "docs", wrong], folder.parent)
        assert refused.returncode == 2
        assert f"triever: docs has no document with the id {wrong}; {hint}" in refused.stderr


def test_show_tells_an_id_and_a_title_in_the_metadata_from_those_of_the_document(tmp_path: Path) -> None:
    record = {"_id": "d1", "title": "Cats", "text": "A cat.", "metadata": {"id": "other", "title": "Dogs"}}
    write(tmp_path, {"corpus.jsonl": json.dumps(record)})
    lines = [line.split() for line in run(["data", "show", "corpus.jsonl", "d1"], tmp_path).stdout.splitlines()]
    for row in (["id", "d1"], ["title", "Cats"], ["id", "other"], ["title", "Dogs"]):
        assert row in lines


def test_show_takes_records_and_skips_bad_ones(tmp_path: Path) -> None:
    good = {"_id": "d2", "title": "Cats", "text": "A cat.", "year": 1999, "expansions": ["what purrs"]}
    write(tmp_path, {"corpus.jsonl": f"{CORPUS.splitlines()[0]}\nnonsense\n{json.dumps(good)}\n"})
    assert run(["data", "show", "corpus.jsonl", "d2"], tmp_path).returncode == 2
    found = json.loads(run(["data", "show", "corpus.jsonl", "d2", "--json", "--skip-bad"], tmp_path).stdout)
    assert found == {
        "id": "d2",
        "title": "Cats",
        "metadata": {"year": 1999},
        "expansions": ["what purrs"],
        "text": "A cat.",
    }
