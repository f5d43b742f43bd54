from __future__ import annotations

import re
import shutil
import subprocess
import sys
import sysconfig
import venv
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.marks import quick
from triever.data import python_docs
from triever.data.dataset import Dataset
from triever.data.python_docs import documents, questions, written_questions
from triever.data.records import Document
from triever.data.words import stemmer
from triever.errors import DataError, UsageError

SECRET = "only-in-the-environment-7f3a"


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Document]]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRIEVER_CACHE", str(tmp_path_factory.mktemp("cache")))
        patch.setenv("TRIEVER_SECRET", SECRET)
        yield {document.id: document for document in documents()}


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "cache"
    monkeypatch.setenv("TRIEVER_CACHE", str(folder))
    return folder


@pytest.fixture
def installed(tmp_path: Path) -> Callable[..., str]:
    """Makes an environment with one package in it, file by file, and names its interpreter."""

    def install(**files: str) -> str:
        home = tmp_path / "env"
        venv.create(home, symlinks=True)
        package = Path(sysconfig.get_path("purelib", "venv", {"base": str(home)}), "rude")
        package.mkdir(parents=True)
        for name, text in files.items():
            (package / f"{name}.py").write_text(text, encoding="utf-8")
        return str(home / "bin" / "python")

    return install


# The library ----------------------------------------------------------------------------------------------


def test_there_are_thousands_of_documents_in_order(library: dict[str, Document]) -> None:
    assert 5_000 < len(library) < 9_000
    assert list(library) == sorted(library)
    assert all(document.title == document.id and document.text.strip() for document in library.values())


def test_every_kind_is_there(library: dict[str, Document]) -> None:
    kinds = Counter(document.metadata["kind"] for document in library.values())
    assert set(kinds) == {"module", "class", "function", "method", "property"}
    assert library["heapq"].metadata["kind"] == "module"
    assert library["fractions.Fraction"].metadata["kind"] == "class"
    assert library["heapq.merge"].metadata["kind"] == "function"
    assert library["str.split"].metadata["kind"] == "method"
    assert library["pathlib.PurePath.stem"].metadata["kind"] == "property"


@pytest.mark.parametrize(
    "name",
    [
        "OSError",
        "asyncio.run",
        "collections.OrderedDict.move_to_end",
        "collections.abc.MutableMapping.setdefault",
        "concurrent.futures.Executor.shutdown",  # found by way of a lazy module
        "contextlib.ExitStack.pop_all",  # written in a private base class
        "dict.fromkeys",
        "getpass.getpass",  # an alias, and the only name on the module's list
        "heapq.merge",
        "ipaddress.IPv4Network.subnets",
        "json.JSONDecodeError",
        "len",
        "open",
        "os.getcwd",
        "os.path",
        "os.path.join",
        "pathlib.Path.glob",
        "pathlib.PurePath.joinpath",
        "random.randint",  # a bound method
        "random.random",
        "socket.socket.recv",
        "sqlite3.connect",
        "str.maketrans",
        "str.split",
        "subprocess.run",
        "typing.Optional",
        "unittest.main",
    ],
)
def test_things_go_by_the_name_that_people_write(name: str, library: dict[str, Document]) -> None:
    assert name in library


@pytest.mark.parametrize(
    "name",
    [
        "IOError",
        "asyncio.runners.run",
        "builtins.len",
        "collections.Counter.fromkeys",  # raises, without a text
        "datetime.datetime.today",  # the text is that of datetime.date
        "genericpath.exists",
        "io.open",
        "multiprocessing.dummy.list.sort",
        "os.error",
        "pathlib._local.Path",
        "posixpath.join",
        "random.Random.randint",
        "socket.SocketType.recv",
        "str.__len__",
        "this",
        "threading._shutdown",
        "urllib.parse.SplitResult.count",
    ],
)
def test_other_paths_to_the_same_things_are_not_documents(name: str, library: dict[str, Document]) -> None:
    assert name not in library


def test_no_private_part_in_any_name(library: dict[str, Document]) -> None:
    parts = {part for name in library for part in name.split(".")}
    assert not [part for part in parts if part.startswith("_")]
    tops = {name.partition(".")[0] for name in library}
    assert not tops & {"antigravity", "idlelib", "lib2to3", "posix", "test", "turtledemo"}


def test_text_is_signature_then_docstring(library: dict[str, Document]) -> None:
    lines = library["heapq.merge"].text.splitlines()
    assert lines[:3] == [
        "merge(*iterables, key=None, reverse=False)",
        "",
        "Merge multiple sorted inputs into a single sorted output.",
    ]
    assert library["str.split"].text.startswith("split(sep=None, maxsplit=-1)\n\n")
    assert library["int.from_bytes"].text.startswith("from_bytes(bytes, byteorder='big', *, signed=False)\n\n")


def test_nothing_of_this_machine_gets_into_the_texts(library: dict[str, Document]) -> None:
    texts = "\n".join(document.text for document in library.values())
    assert not re.search(r" at 0x[0-9a-f]+", texts)
    assert SECRET not in texts
    assert sys.executable not in texts
    assert sysconfig.get_path("stdlib") not in texts


def test_texts_made_by_machine_are_left_out(library: dict[str, Document]) -> None:
    texts = [document.text for document in library.values()]
    assert not [text for text in texts if text.startswith("Alias for field number")]
    assert "ast.Add" not in library  # its docstring is "Add"


@pytest.mark.long
def test_a_second_walk_gives_the_same_list(library: dict[str, Document]) -> None:
    assert documents() == list(library.values())  # another cache folder: nothing is remembered


# Packages -------------------------------------------------------------------------------------------------


def test_a_part_of_the_library_has_the_same_names(library: dict[str, Document]) -> None:
    expected = [document for name, document in library.items() if f"{name}.".startswith("json.")]
    assert documents("json") == expected
    assert "json.loads" in {document.id for document in expected}


def test_a_rude_package_hurts_nobody(
    installed: Callable[..., str], capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    marker = tmp_path / "imported"
    trap = f"open({str(marker)!r}, 'w')"
    python = installed(
        __init__='"""Rude."""\nimport sys\nprint("{}")\nsys.stdout = None\nfrom functools import reduce',
        quits="import sys\nsys.exit(3)",
        raises="raise KeyboardInterrupt",
        waits='import threading, time\n"""."""\nthreading.Thread(target=time.sleep, args=(60,)).start()',
        fine='import os\n\ndef bow(env=os.environ, at=__file__, to=3):\n    """Be polite at 0x7f00aa."""',
        _private=trap,
        test_it=trap,
        conftest=trap,
        __main__=trap,
    )
    assert [document.id for document in documents("rude", python=python)] == ["rude", "rude.fine.bow"]
    assert documents("rude", python=python)[1].text == "bow(env=..., at=..., to=3)\n\nBe polite."
    assert not marker.exists()
    assert capfd.readouterr() == ("", "")


def test_members_are_named_after_public_classes(installed: Callable[..., str]) -> None:
    python = installed(
        __init__="from rude._parts import Child, Other\nfrom collections import OrderedDict",
        _parts='''
class _Base:
    def shared(self): """In the private base."""
    def again(self): """Written twice."""

class Child(_Base):
    """A child."""
    def again(self): """Written twice."""

class Other(Child):
    """Another."""
    def again(self): """Written twice."""
    @property
    def size(self): """How large."""
    @classmethod
    def make(cls, size=1): """From nothing."""
    class Inner:
        """Inside."""
''',
    )
    found = {document.id: document.text for document in documents("rude", python=python)}
    assert list(found) == [
        "rude.Child",
        "rude.Child.again",
        "rude.Child.shared",
        "rude.Other",
        "rude.Other.Inner",
        "rude.Other.make",
        "rude.Other.size",
    ]
    assert found["rude.Other.make"] == "make(size=1)\n\nFrom nothing."


def test_a_package_that_is_not_there() -> None:
    with pytest.raises(UsageError, match="no installed package named 'numpyy'") as error:
        documents("numpyy")
    assert "numpy" in error.value.hint


@pytest.mark.parametrize("name", ["no such", "../json", "rude.missing", "1", "."])
def test_names_that_no_package_can_have(name: str) -> None:
    with pytest.raises(UsageError, match="no installed package"):
        documents(name)


def test_a_package_that_cannot_be_imported(installed: Callable[..., str]) -> None:
    python = installed(__init__="import sys\nsys.exit('no')")
    with pytest.raises(UsageError, match=r"'rude' cannot be imported \(SystemExit: no\)"):
        documents("rude", python=python)


def test_a_package_that_kills_its_interpreter(installed: Callable[..., str]) -> None:
    python = installed(__init__="import os\nos._exit(0)")
    with pytest.raises(DataError, match="ended before its documentation was read"):
        documents("rude", python=python)


@pytest.mark.long
def test_a_package_that_never_ends(installed: Callable[..., str], monkeypatch: pytest.MonkeyPatch) -> None:
    python = installed(__init__="import time\ntime.sleep(60)")
    monkeypatch.setattr(python_docs, "_TIMEOUT", 2.0)
    with pytest.raises(DataError, match="within 2 s"):
        documents("rude", python=python)


def test_an_interpreter_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be run"):
        documents(python=str(tmp_path / "python"))


# The cache ------------------------------------------------------------------------------------------------


@pytest.fixture
def small(installed: Callable[..., str]) -> Callable[[], list[str]]:
    """Reads a package that is quickly walked, and gives the texts."""
    python = installed(__init__='"""Small."""', part='"""A part: ä."""')
    return lambda: [document.text for document in documents("rude", python=python)]


def _no_walk(package: str, python: str) -> list[dict[str, str]]:
    raise AssertionError("walked again")


def test_the_cache_is_used(small: Callable[[], list[str]], cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert small() == ["Small.", "A part: ä."]
    assert [path.suffix for path in cache.iterdir()] == [".jsonl"]
    monkeypatch.setattr(python_docs, "_walk", _no_walk)
    assert small() == ["Small.", "A part: ä."]


def test_a_new_version_is_walked_again(installed: Callable[..., str]) -> None:
    python = installed(__init__='"""First."""')
    assert documents("rude", python=python)[0].text == "First."
    module = next(Path(python).parent.parent.rglob("rude/__init__.py"))
    module.write_text('"""The second."""')
    assert documents("rude", python=python)[0].text == "The second."


@pytest.mark.parametrize("damage", quick(b"[1, 2]\n", of=[b"", b"\n", b"{", b"\xff\xfe", b"[1, 2]\n"]))
def test_a_torn_cache_is_made_again(damage: bytes, small: Callable[[], list[str]], cache: Path) -> None:
    first = small()
    (file,) = cache.iterdir()
    whole = file.read_bytes()
    lines = whole.splitlines(keepends=True)
    for torn in (damage, whole[: len(whole) // 2], b"".join(lines[:-1]), whole + damage + b"x"):
        file.write_bytes(torn)
        assert small() == first
        assert file.read_bytes() == whole
    assert list(cache.iterdir()) == [file]


def test_no_cache_is_no_error(small: Callable[[], list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("TRIEVER_CACHE", str(tmp_path / "file"))
    assert small() == ["Small.", "A part: ä."]


def test_a_full_disk_is_no_error(small: Callable[[], list[str]], cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(python_docs.os, "replace", full)
    assert small() == ["Small.", "A part: ä."]
    assert list(cache.iterdir()) == []


# The questions --------------------------------------------------------------------------------------------


def test_questions_are_many_and_distinct() -> None:
    queries, _ = questions()
    assert len(queries) >= 300
    assert len({query.id for query in queries}) == len(queries)
    assert len({query.text.casefold().rstrip("?") for query in queries}) == len(queries)


def test_questions_are_split_in_three() -> None:
    queries, judgements = questions()
    assert list(judgements) == ["train", "dev", "test"]
    assert (len(judgements["dev"]), len(judgements["test"])) == (120, 240)
    assert len(judgements["train"]) >= 5000
    assert len({name for grades in judgements["train"].values() for name in grades}) >= 2000
    judged = [query_id for qrels in judgements.values() for query_id in qrels]
    assert sorted(judged) == sorted(query.id for query in queries)


@pytest.mark.long
def test_no_question_for_training_is_a_judged_one_in_other_words() -> None:
    """By the overlap of their stems; that no vectors are near was checked when the questions were written."""
    queries, judgements = questions()
    stem = stemmer("english")
    stems = {query.id: frozenset(map(stem, re.findall(r"\w+", query.text.lower()))) for query in queries}
    judged = [stems[query_id] for split in ("dev", "test") for query_id in judgements[split]]
    added = [stems[query.id] for query in queries if query.id.startswith("pt")]
    assert len(added) > 6000
    near = [ours for ours in added for theirs in judged if len(ours & theirs) > 0.5 * len(ours | theirs)]
    assert not near


def test_no_question_names_its_answer() -> None:
    queries, judgements = questions()
    answers = {query_id: set(qrels[query_id]) for qrels in judgements.values() for query_id in qrels}
    for query in queries:
        assert answers[query.id]
        for name in answers[query.id]:
            assert not re.search(rf"(?<![\w.]){re.escape(name)}(?!\w)", query.text, re.IGNORECASE), query


def test_every_answer_is_a_document(library: dict[str, Document]) -> None:
    _, judgements = questions()
    answers = {name for qrels in judgements.values() for grades in qrels.values() for name in grades}
    assert not answers - library.keys()


@pytest.mark.long
@pytest.mark.parametrize("version", ["3.11", "3.12", "3.13"])
def test_every_answer_is_a_document_of_every_python(version: str) -> None:
    python = shutil.which(f"python{version}")
    if not python or subprocess.run([python, "-c", ""], check=False, capture_output=True).returncode:
        pytest.skip(f"no Python {version} here")
    _, judgements = questions()
    answers = {name for qrels in judgements.values() for grades in qrels.values() for name in grades}
    assert not answers - {document.id for document in documents(python=python)}


def test_written_questions_are_shipped_for_most_documents(library: dict[str, Document]) -> None:
    written = written_questions()
    there = [written[name] for name in library if name in written]
    assert len(there) > 0.8 * len(library)
    assert sum(map(len, there)) > 8 * len(there)
    assert all(question.strip() and len(set(some)) == len(some) for some in there for question in some)
    shipped = Path(python_docs.__file__).with_name("questions") / "written.jsonl.gz"
    assert shipped.stat().st_size < 2_000_000


def test_written_questions_go_by_the_name_of_the_corpus(
    library: dict[str, Document], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.chdir(tmp_path)
    data = Dataset.of("some", [library["str.split"], Document("mine", "a text")])
    first, second = data.with_expansions("python").documents()
    assert first.expansions == tuple(written_questions()["str.split"])
    assert second.expansions == ()
    assert not caplog.messages  # that other Pythons have other documents is no news
    Path("python").write_text('{"_id": "mine", "texts": ["whose?"]}\n')
    assert [one.expansions for one in data.with_expansions("python").documents()] == [(), ("whose?",)]
