"""No command shows a character that a terminal would obey or hide, wherever it comes from; JSON still says the same."""

from __future__ import annotations

import contextlib
import io
import json
import logging
import os
import re
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any
from unicodedata import category

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.toml_text import to_toml
from tests.warm import program
from triever import Document, Query, cli, terminal
from triever.data.writers import write_documents, write_qrels, write_queries
from triever.evaluation.report import Report
from triever.printable import printable, printable_json

JOINERS = "\u200c\u200d"  # how Persian, Hindi and emoji are spelled
BLANK = "\u034f\u115f\u1160\u17b4\u17b5\u3164\uffa0"  # letters by their category, and nothing is to be seen
VISIBLE = (
    "\u0600\u0601\u0602\u0603\u0604\u0605\u06dd\u070f\u0890\u0891\u08e2\U000110bd\U000110cd"  # signs below numbers
)
HOSTILE = BLANK + "".join(
    letter
    for letter in map(chr, range(sys.maxunicode + 1))
    if category(letter) in ("Cc", "Cf", "Cs", "Zl", "Zp")
    and letter not in JOINERS + VISIBLE
    and not "\U00013430" <= letter <= "\U0001345f"  # hieroglyphs: how they are put together
)
BREAKS = "\t\n\r\v\f\x1c\x1d\x1e\x85\u2028\u2029\0"
NASTY = "".join(one for one in HOSTILE if not 0xD800 <= ord(one) <= 0xDFFF and one not in BREAKS)
"""What may stand in an id, in the name of a file, and among the words of a command."""
TITLE = f"Red{NASTY}\r\t\u2028\x85tide\n2"
FILE = "\x01\x1b\x7f\x9b\xad\u061c\u200e\u200f\u202e\u2066\ufeff\ufff9\U000e0041"  # some: a name has 255 bytes at most


def test_the_names_of_this_test_hold_what_they_should() -> None:
    for one in "\x00\x1b\x7f\x9b\xad\u061c\u200b\u200e\u200f\u202e\u2060\u2069\ufeff\ufff9\ud800\U000e0041":
        assert one in HOSTILE, f"{ord(one):x}"
    assert {*FILE} <= {*NASTY}


@given(st.text())
@example(HOSTILE)
@example("Größe 東京 नमस्ते می\u200cخواهم 👩\u200d🚀 ☂\ufe0f \u0604")
def test_what_is_printed_has_none_and_keeps_the_rest(text: str) -> None:
    shown = printable(text)
    assert not {*shown} & {*HOSTILE}
    assert [one for one in text if one not in HOSTILE] == [
        one for one in re.sub(ESCAPES, unescaped, shown) if one not in HOSTILE
    ]
    assert printable(shown) == shown


ESCAPES = re.compile(r"\\(?:x[0-9a-f]{2}|u[0-9a-f]{4}|U[0-9a-f]{8}|[tnr])")


def unescaped(match: re.Match[str]) -> str:
    one = match[0].encode("ascii").decode("unicode_escape")
    return one if one in HOSTILE else match[0]


values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.text(st.characters(exclude_categories=["Cs"]) | st.sampled_from(NASTY)),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(st.sampled_from(NASTY + "aé")), inner, max_size=3)
    ),
)


@given(values)
@example({NASTY: [NASTY, "é 東京 \\u200f"]})
def test_json_says_the_same_without_them(value: Any) -> None:
    text = printable_json(value)
    assert json.loads(text) == value
    assert not {*text} & {*HOSTILE} - {"\n"}


def test_json_keeps_letters_readable_and_names_half_of_one() -> None:
    assert printable_json(["Größe 東京 👩\u200d🚀"]) == '[\n "Größe 東京 👩\u200d🚀"\n]'
    assert json.loads(printable_json("a\ud800b")) == "a\ud800b"
    assert "\ud800" not in printable_json("a\ud800b")


@given(st.text(st.sampled_from(HOSTILE + "ab"), min_size=1, max_size=5))
@example(NASTY)
def test_tables_and_lines(text: str) -> None:
    report = Report.of(
        {text: {"nDCG@10": {"q": 0.5}}},
        title=text,
        about={text: text},
        extra={text: {text: text}},
    )
    with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.redirect_stderr(io.StringIO()) as beside:
        terminal.emit(report.table())
        terminal.emit(text)
        terminal.emit({text: text})
        terminal.emit(terminal.table([{text: text, "number": 0.5}]))
        terminal.note(text)
    assert not {*out.getvalue(), *beside.getvalue()} & {*HOSTILE} - {"\n"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which every name and every text is hostile, with a model, a run and a result."""
    root = tmp_path_factory.mktemp("hostile") / f"r{FILE[:20]}"
    data = root / "data" / f"d{FILE}"
    documents = [Document(f"wolf{number}{NASTY}", f"A wolf. {TITLE}", f"{TITLE}{number}") for number in range(4)]
    queries = [Query(f"q{NASTY}", f"wolf {TITLE}", answers=(NASTY,))]
    write_documents(data / "corpus.jsonl", documents)
    write_queries(data / "queries.jsonl", queries)
    for split in (f"test{FILE}", f"train{FILE}"):
        write_qrels(data / "qrels" / f"{split}.tsv", {queries[0].id: {documents[0].id: 1, f"gone{NASTY}": 1}})
    (data / f"unread{FILE}.bin").write_bytes(b"\0")
    (data / f"ignored{FILE}.jsonl").write_text('{"_id": "x", "text": "y"}\n')
    twice = json.dumps({"_id": f"twice{NASTY}", "text": TITLE})
    (root / f"bad{FILE}.jsonl").write_text(f"{twice}\n{twice}\n")
    write_documents(root / f"new{FILE}.jsonl", [Document(f"new{NASTY}", "A new wolf.")])
    recipe = {"title": TITLE, "about": TITLE, "data": {"name": str(data), "test": [f"test{FILE}"]}}
    recipe |= {"system": {"kind": "bm25"}, "axes": {"k1": [0.5, 2.0]}, "settings": {"smoke": {}}}
    (root / f"r{FILE}.toml").write_text(to_toml(recipe))
    (root / "cache" / f"python-library-{FILE}.jsonl").parent.mkdir()
    (root / "cache" / f"python-library-{FILE}.jsonl").write_text("")
    said(root, "fit", "bm25", "--data", str(data), "--out", f"m{FILE}")
    small = ("--set", "backbone=scratch:hidden=32,layers=1,heads=2,vocabulary=300", "--set", "training.steps=0")
    said(root, "fit", "generative", "--data", str(data), "--out", f"g{FILE}", "--set", "docids=title", *small)
    said(root, "fit", "contextual", "--data", str(data), "--out", f"c{FILE}", *small)
    said(root, "fit", "dense", "--data", str(data), "--out", f"v{FILE}", *small)
    rows = ("--set", "docids=semantic", "--set", "decoder.rows=nodes", "--set", "docids.leaf=2")
    said(root, "fit", "generative", "--data", str(data), "--out", f"n{FILE}", *rows, *small)
    untrained = ("--set", "training.answer_steps=0", "--set", "document_length=64")
    said(root, "fit", "reatt", "--data", str(data), "--out", f"a{FILE}", *small, *untrained)
    said(root, "run", f"m{FILE}", str(data), "--split", f"test{FILE}", "--out", f"x{FILE}.run")
    said(root, "compare", f"m{FILE}", "--data", str(data), "--split", f"test{FILE}", "--out", f"results/c{FILE}.json")
    return root


M, G, C, A, X = f"m{FILE}", f"g{FILE}", f"c{FILE}", f"a{FILE}", f"x{FILE}.run"
V, N = f"v{FILE}", f"n{FILE}"
T, Q = f"test{FILE}", f"wolf {NASTY}"
D = f"data/d{FILE}"
WORDS: dict[str, list[list[str]]] = {
    "quickstart": [["--backbone", NASTY]],
    "data info": [[D], [D, "--json"], [NASTY], [f"bad{FILE}.jsonl"], [f"bad{FILE}.jsonl", "--skip-bad"]],
    "data show": [[D, f"wolf1{NASTY}"], [D, f"wolf1{NASTY}", "--json"], [D, f"wolf{NASTY}"], [D, NASTY]],
    "data convert": [[D, f"converted{FILE}"], [D, f"data/d{FILE}"], [D, "y", "--to", NASTY]],
    "data sample": [
        [D, f"sample{FILE}", "--documents", "2"],
        [D, "z", "--documents", NASTY],
        [D, "z", "--documents", "2", "--first", NASTY],
    ],
    "fit": [
        ["bm25", "--data", D, "--out", M, "--replace"],
        ["bm25", "--data", D, "--out", M],
        [NASTY, "--data", D, "--out", "m"],
        ["bm25", "--data", D, "--out", "m", "--set", f"{NASTY}=1"],
        ["bm25", "--data", f"bad{FILE}.jsonl", "--out", "m"],
        ["bm25", "--data", D, "--out", "m", f"--{NASTY}"],
    ],
    "suggest": [[D], [D, "--json"], [NASTY], [D, "--changes", NASTY], [D, "--expansions", NASTY]],
    "options": [["bm25"], ["bm25", "--json"], ["bm25", NASTY], [NASTY]],
    "write-queries": [[D, "--out", "q.jsonl", "--set", f"{NASTY}=1"], [D, "--out", "q.jsonl", "--writer", NASTY]],
    "search": [
        *([M, Q], [M, Q, "--json"], [G, Q], [G, Q, "--json"], [M, NASTY], [NASTY, Q], [M, Q, "--set", NASTY]),
        *([M, Q, "--text"], [M, Q, "--text", "--json"], [M, Q, "--where", NASTY], [M, Q, "--where", f"{NASTY}>1"]),
    ],
    "ask": [[A, Q], [A, Q, "--json"], [A, NASTY], [M, Q], [NASTY, Q], [A, Q, "--where", NASTY]],
    "explain": [[M, Q], [M, Q, "--json"], [G, Q], [G, Q, "--json"]],
    "run": [
        [M, D, "--split", T, "--out", f"again{FILE}.run"],
        [M, D, "--split", NASTY, "--out", "a.run"],
        [M, D, "--split", T, "--out", "a.run", "--query-vectors", NASTY],
    ],
    "vectors": [[M, "--out", f"v{FILE}.npy"], [NASTY, "--out", "v.npy"]],
    "evaluate": [
        [X, D, "--split", T],
        [X, D, "--split", T, "--json"],
        [X, f"{D}/qrels/{T}.tsv"],
        [X, D, "--split", T, "-m", NASTY],
    ],
    "compare": [
        [M, f"b{FILE}=bm25", "--data", D, "--split", T],
        [M, f"b{FILE}=bm25", "--data", D, "--split", T, "--json"],
        [M, "--data", D, "--split", T, "-m", f"nDCG(x={NASTY})@10"],
        [NASTY, "--data", D, "--split", T],
    ],
    "analyse overlap": [
        [X, M, "--data", D, "--split", T],
        [X, M, "--data", D, "--split", T, "--json"],
        [X, "--data", D, "--split", T, "--plot", NASTY],
    ],
    "analyse seen": [
        [X, M, "--data", D, "--split", T, "--train", f"train{FILE}"],
        [X, M, "--data", D, "--split", T, "--train", f"train{FILE}", "--json"],
        [X, "--data", D, "--split", T, "--train", NASTY],
    ],
    "analyse calibration": [
        [G, "--data", D, "--split", T, "--fit-on", f"train{FILE}"],
        [G, "--data", D, "--split", T, "--fit-on", f"train{FILE}", "--json"],
        [G, "--data", D, "--split", T, "--fit-on", NASTY],
        [M, "--data", D, "--split", T],
    ],
    "analyse vocabulary": [
        [C, "--words", "wolf", "--clusters", "2"],
        [C, "--words", "", "--clusters", "2"],
        [C, "--clusters", "2", "--json"],
        [C, "--words", NASTY],
        [M],
    ],
    "analyse heads": [[A, "--data", D, "--split", T], [A, "--data", D, "--split", T, "--json"], [M, "--data", D]],
    "analyse normalisation": [[V, "--data", D, "--split", T], [M, "--data", D, "--split", T], [NASTY, "--data", D]],
    "analyse rank": [
        [V, "--data", D, "--split", T],
        [V, "--data", D, "--split", T, "--json"],
        [V, "--data", D, "--split", NASTY],
        [M, "--data", D, "--split", T],
    ],
    "analyse posterior": [
        [N, "--data", D, "--split", T],
        [N, "--data", D, "--split", T, "--json"],
        [M, "--data", D, "--split", T],
    ],
    "analyse memory": [[M, f"g{NASTY}={G}"], [M, f"g{NASTY}={G}", "--json"], [M, "--grow", NASTY]],
    "add": [
        [M, f"new{FILE}.jsonl", "--replace"],
        [M, f"bad{FILE}.jsonl"],
        [M, f"bad{FILE}.jsonl", "--skip-bad", "--replace"],
        [M, NASTY],
    ],
    "delete": [[M, f"wolf3{NASTY}"], [M, NASTY]],
    "sync": [
        [M, D, "--dry-run"],
        [M, f"new{FILE}.jsonl", "--dry-run", "--json"],
        [M, D, "--yes"],
        [M, NASTY],
        [NASTY, D],
    ],
    "status": [[M], [M, "--json"], [G], [NASTY]],
    "shard": [
        [M, "--into", "2", "--out", f"s{FILE}"],
        [G, "--into", "99", "--out", NASTY],
        [NASTY, "--into", "2", "--out", "s"],
    ],
    "push": [[M, NASTY], [NASTY, "a/b"], [M, "a/b", "--endpoint", NASTY]],
    "pull": [[NASTY, "--out", "p"], ["a/b", "--out", M], ["a/b", "--out", "p", "--endpoint", NASTY]],
    "pack": [[M, "--out", f"z{FILE}.zip"], [NASTY, "--out", "z.zip"]],
    "unpack": [[f"z{FILE}.zip", "--out", f"u{FILE}"], [f"z{FILE}.zip", "--out", M], [NASTY, "--out", "u"]],
    "serve": [[NASTY], [M, "--set", f"{NASTY}=1"], [M, "--host", NASTY], [M, "--key-file", NASTY]],
    "mcp": [[NASTY], [M, "--port", NASTY]],
    "weights list": [[], ["--json"]],
    "weights install": [[NASTY]],
    "docids info": [
        [D, "--scheme", "title"],
        [D, "--scheme", "title", "--json"],
        [D, "--scheme", NASTY],
        [D, "--vectors", NASTY],
    ],
    "docids browse": [[G], [G, "--json"], [G, NASTY], [M], [NASTY]],
    "bench decode": [["--set", f"{NASTY}=1"], ["--set", f"device={NASTY}"]],
    "bench trie": [[NASTY]],
    "bench train": [["--set", f"{NASTY}=1"]],
    "bench search": [
        [f"b{FILE}=bm25", "--data", D, "--split", T],
        [f"b{FILE}=bm25", "--data", D, "--split", T, "--json"],
    ],
    "bench serve": [
        [NASTY, "--data", D, "--split", T],
        [M, "--data", D, "--split", T, "--set", f"{NASTY}=1"],
        [M, "--data", D, "--split", NASTY],
    ],
    "experiment": [
        [f"r{FILE}.toml", "--list"],
        [f"r{FILE}.toml", "--list", "--json"],
        [f"r{FILE}.toml", "--out", "lab"],
        [f"r{FILE}.toml", "--out", "lab", "--report"],
        [f"r{FILE}.toml", "--out", "lab", "--report", "--json"],
        [NASTY],
        [f"r{FILE}.toml", "--seeds", NASTY],
    ],
    "results": [["results"], ["lab"], [NASTY]],
    "cache list": [[], ["--json"]],
    "cache clear": [[]],
}


def test_every_command_is_here() -> None:
    groups = {
        name: [f"{name} {part}" for part in parts] if isinstance(parts, dict) else [name]
        for name, parts in cli.COMMANDS.items()
    }
    assert sorted(WORDS) == sorted(name for names in groups.values() for name in names)


def ran(folder: Path, *words: str) -> subprocess.CompletedProcess[bytes]:
    environment = {**os.environ, "COLUMNS": "120", "TRIEVER_CACHE": str(folder / "cache"), "PYTHONUTF8": "1"}
    return subprocess.run([program(), *words], cwd=folder, env=environment, capture_output=True, check=False)


def said(folder: Path, *words: str) -> str:
    """What a command that works says."""
    done = ran(folder, *words)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout.decode()


@pytest.mark.long
@pytest.mark.parametrize("command", WORDS)
def test_no_command_shows_what_a_terminal_obeys(folder: Path, command: str) -> None:
    for words in WORDS[command]:
        done = ran(folder, *command.split(), *words)
        out, beside = done.stdout.decode(), done.stderr.decode()
        assert done.returncode in (0, 2), beside
        assert not {*out, *beside} & {*HOSTILE} - {"\n"}, words
        if "--json" in words:
            assert done.returncode == 0, beside
            check_json(json.loads(out), command)


UNNAMED = ("weights list", "status", "docids info", "options", "analyse heads")
"""Commands whose JSON names nothing that a person has named."""


def check_json(value: Any, command: str) -> None:
    """JSON holds names as they are."""
    whole = json.dumps(value, ensure_ascii=False)
    wanted = [json.dumps(name, ensure_ascii=False)[1:-1] for name in (FILE, NASTY)]
    assert any(name in whole for name in wanted) or command in UNNAMED


@pytest.mark.skipif(os.name == "nt", reason="needs a pseudo-terminal")
def test_neither_do_bars_and_tables_of_a_terminal(folder: Path) -> None:
    import pty

    ours, theirs = pty.openpty()
    words = ("compare", f"b{FILE}[red]=bm25", M, "--data", D, "--split", T)
    environment = {**os.environ, "COLUMNS": "200", "TERM": "xterm-256color"}
    with subprocess.Popen(
        [program(), *words], cwd=folder, env=environment, stdin=theirs, stdout=theirs, stderr=theirs
    ) as done:
        os.close(theirs)
        shown = b""
        with contextlib.suppress(OSError):  # as Linux says that the other end was closed
            while piece := os.read(ours, 2**16):
                shown += piece
    os.close(ours)
    text = shown.decode()
    assert done.returncode == 0, text
    assert "[red]" in text
    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text)  # colours, and what moves the bar
    assert not {*plain} & {*HOSTILE} - {"\n", "\r"}


def test_a_bug_is_shown_without_them(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(why: str) -> None:
        raise RuntimeError(why)

    monkeypatch.setitem(cli.COMMANDS, "results", fails)
    with pytest.raises(SystemExit) as stop:
        cli.main(["results", NASTY])
    assert stop.value.code == 1
    shown = capsys.readouterr().err
    assert "RuntimeError: \\u034f" in shown
    assert not {*shown} & {*HOSTILE} - {"\n"}


def test_neither_do_logs_and_warnings(monkeypatch: pytest.MonkeyPatch) -> None:
    try:
        raise RuntimeError(NASTY)
    except RuntimeError as error:
        told = (type(error), error, error.__traceback__)
    record = logging.LogRecord(NASTY, logging.WARNING, "file", 1, "%s", (TITLE,), told)
    monkeypatch.setattr(warnings, "formatwarning", warnings.formatwarning)
    terminal.tame_warnings()
    for text in (
        terminal.OneLine("%(name)s: %(message)s").format(record),
        warnings.formatwarning(NASTY, UserWarning, FILE, 1, NASTY),
    ):
        assert not {*text} & {*HOSTILE} - {"\n"}
