"""Encodings of text files: read where the bytes leave no doubt, refused with a way out where they do."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from tests.data.test_datasets import write
from triever.data.datasets import load_dataset
from triever.data.formats.encodings import Undecodable, decode
from triever.errors import DataError

PROSE = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0\ufeff"))


@given(PROSE)
def test_utf8_is_always_read(text: str) -> None:
    assert decode(text.encode()) == decode(text.encode("utf-8-sig")) == text


@given(PROSE, st.sampled_from(["utf-16", "utf-32"]))
def test_a_byte_order_mark_decides(text: str, encoding: str) -> None:
    assert decode(text.encode(encoding)) == text
    big = text.encode(f"{encoding}-be")
    assert decode("\ufeff".encode(f"{encoding}-be") + big) == text


@given(PROSE, st.sampled_from(["utf-16-le", "utf-16-be", "cp1252"]))
@example("hello", "utf-16-le")
def test_without_a_mark_the_text_is_right_or_refused(text: str, encoding: str) -> None:
    raw = text.encode(encoding, "ignore")
    assume(not _is_utf8(raw))
    try:
        assert decode(raw) == raw.decode(encoding)
    except Undecodable:
        return


def _is_utf8(raw: bytes) -> bool:
    try:
        raw.decode()
    except UnicodeDecodeError:
        return False
    return True


@given(st.text(st.sampled_from("the quick brown fox, über Straßen\n"), min_size=2), st.sampled_from(["le", "be"]))
def test_utf16_without_a_mark_is_read_where_its_letters_are_latin(text: str, order: str) -> None:
    assert decode(text.encode(f"utf-16-{order}")) == text


SENTENCES = {
    "German": "Größere Straßen führen über Köln nach Düsseldorf.",
    "French": "À l’été, les élèves français déjà là où ça plaît très bien.",
    "Spanish": "¿Dónde está el niño? Mañana hará un día más frío en España.",
    "Portuguese": "A informação não está disponível até amanhã à tarde, então.",
    "Italian": "Perché è così? La città è più bella di quanto si può dire.",
    "Swedish": "På svenska är det så här: åtta små öar på sjön.",
    "Danish": "Rødgrød med fløde er på bordet, men æblerne er væk.",
    "English": "“Don’t”, he said—and left the café. It cost £5 – or €6.",
}


@pytest.mark.parametrize("language", SENTENCES)
def test_languages_of_western_europe_are_read(language: str) -> None:
    assert decode(SENTENCES[language].encode("cp1252")) == SENTENCES[language]


OTHERS = {
    "Czech": ("Příliš žluťoučký kůň úpěl ďábelské ódy.", ["cp1250", "iso8859-2"]),
    "Polish": ("Zażółć gęślą jaźń, miał łódź.", ["cp1250", "iso8859-2", "cp852"]),
    "Hungarian": ("Árvíztűrő tükörfúrógép, őszi eső.", ["cp1250"]),
    "Turkish": ("Bugün İstanbul’da çok güzel bir gün, şöyle ışıl ışıl.", ["cp1254"]),
    "Russian": ("Съешь же ещё этих мягких французских булок.", ["cp1251", "koi8-r", "cp866", "iso8859-5"]),
    "Greek": ("Καλημέρα κόσμε, τι κάνεις;", ["cp1253", "iso8859-7"]),
    "Japanese": ("吾輩は猫である。名前はまだ無い。", ["shift_jis", "euc-jp"]),
    "Chinese": ("天地玄黃,宇宙洪荒。", ["gbk", "big5"]),
    "Spanish of old computers": ("El niño está aquí, mañana en España.", ["mac-roman", "cp850"]),
    "German of old computers": ("Größere Straßen führen über Köln.", ["mac-roman", "cp850"]),
}


@pytest.mark.parametrize(
    ("text", "encoding"), [(text, encoding) for text, encodings in OTHERS.values() for encoding in encodings]
)
def test_other_encodings_are_refused_and_never_misread(text: str, encoding: str) -> None:
    with pytest.raises(Undecodable, match=r"and its encoding is not certain"):
        decode(text.encode(encoding))


@pytest.mark.parametrize(
    "raw",
    [
        "A café and naïve words".encode() + b" caf\xe9",  # one byte of Latin-1 in a text of UTF-8
        "Es waren schöne Tage, größer".encode().replace(b"\xc3\xb6", b"\xf6", 1),
        "déjà".encode()[:-1],  # cut in the middle of a letter
        bytes(range(256)),
        b"a\0b",
        b"\xff\xfea",  # half a letter of UTF-16
    ],
)
def test_damaged_text_is_refused(raw: bytes) -> None:
    with pytest.raises(Undecodable):
        decode(raw)


@given(st.binary(max_size=300))
def test_any_bytes_are_text_or_refused(raw: bytes) -> None:
    with contextlib.suppress(Undecodable):
        assert "\0" not in decode(raw)


def test_one_file_of_an_unknown_encoding_leaves_a_way_out(tmp_path: Path) -> None:
    write(tmp_path, {"a.txt": "A cat.", "b.md": "# Birds\nA bird."})
    (tmp_path / "c.txt").write_bytes("One\nПривет".encode("cp1251"))
    with pytest.raises(DataError, match=r"c\.txt:2: byte 0xcf at column 1 is not UTF-8.*leave it out with --skip-bad$"):
        list(load_dataset(tmp_path).documents())
    data = load_dataset(tmp_path, skip_bad=True)
    assert str(data.reading) == "2 documents from 2 files; unknown encoding: 1"


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-32", "cp1252", "utf-8-sig"])
@pytest.mark.parametrize("text", ["Ärger über Größe.", "# Café\nOlé."])
def test_a_folder_and_a_file_alone_are_read(text: str, encoding: str, tmp_path: Path) -> None:
    (tmp_path / "note.txt").write_bytes(text.encode(encoding))
    for path in (tmp_path, tmp_path / "note.txt"):
        assert [document.text for document in load_dataset(path, read_as="text").documents()] == [text]
    if encoding != "utf-16-le":
        assert [document.text for document in load_dataset(tmp_path / "note.txt").documents()] == [text]


def test_records_stay_utf8(tmp_path: Path) -> None:
    path = tmp_path / "corpus.jsonl"
    path.write_bytes('{"_id": "d1", "title": "", "text": "x"}\n{"_id": "d2", "text": "café"}\n'.encode("latin-1"))
    with pytest.raises(DataError, match=r"corpus\.jsonl:2: .* is not UTF-8; .*leave it out with --skip-bad$"):
        list(load_dataset(path).documents())
    data = load_dataset(path, skip_bad=True)
    assert len(list(data.documents())) == 1
