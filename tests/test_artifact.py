"""Artifacts: whole or refused, and the refusal says which file."""

from __future__ import annotations

import io
import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from tests.artifact_fuzz import bomb, peak, resign
from tests.warm import run_code
from triever import artifact
from triever.data.store import SCHEMA
from triever.errors import ArtifactError, Busy, UsageError


def save(path: Path, number: int = 1) -> None:
    with artifact.writing(path) as writer:
        writer.array("numbers", np.arange(10) * number)
        writer.table("names", pa.table({"name": ["a", "ü", "東"]}))
        writer.json("words", {"n": number})
        writer.text("card", "# Card\n")
        writer.commit("toy", {"n": number}, {"seen": True}, "triever test")


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    save(tmp_path / "model")
    return tmp_path / "model"


def file_of(folder: Path, role: str) -> Path:
    return next(folder.glob(f"{role}-*"))


def test_what_is_saved_comes_back(saved: Path) -> None:
    with artifact.read(saved) as snapshot:
        assert snapshot.manifest.kind == "toy"
        assert snapshot.manifest.options == {"n": 1}
        assert snapshot.manifest.state == {"seen": True}
        assert snapshot.array("numbers").tolist() == list(range(10))
        assert snapshot.table("names", pa.schema([("name", pa.string())])).to_pydict() == {"name": ["a", "ü", "東"]}
        assert snapshot.json("words") == {"n": 1}
        assert snapshot.text("card") == "# Card\n"
        snapshot.verify()


shapes = arrays.array_shapes(min_dims=1, max_dims=3, min_side=0, max_side=4)


@given(array=arrays.arrays(st.sampled_from(["i4", "i8", "f2", "f4", "u1", "?"]), shapes))
def test_any_array_comes_back(tmp_path_factory: pytest.TempPathFactory, array: np.ndarray) -> None:
    folder = tmp_path_factory.mktemp("arrays") / "a"
    with artifact.writing(folder) as writer:
        writer.array("it", array)
        writer.commit("toy", {}, {}, "")
    found = artifact.read(folder).array("it")
    assert found.dtype == array.dtype
    np.testing.assert_array_equal(found, array)


TENSORS = {
    "matrix": torch.arange(6.0).reshape(2, 3).t(),  # not contiguous
    "half": torch.tensor([1.5, -2], dtype=torch.bfloat16),
    "number": torch.tensor(7),
    "nothing": torch.empty(0, 4),
    "learned": torch.nn.Parameter(torch.ones(2)),
}


def put_tensors(folder: Path, tensors: dict[str, torch.Tensor]) -> artifact.Snapshot:
    with artifact.writing(folder) as writer:
        writer.tensors("weights", tensors)
        writer.commit("toy", {}, {}, "")
    return artifact.read(folder)


def test_tensors_come_back(tmp_path: Path) -> None:
    with put_tensors(tmp_path / "a", TENSORS) as snapshot:
        found = snapshot.tensors("weights")
    assert found.keys() == TENSORS.keys()
    for name, tensor in TENSORS.items():
        assert found[name].dtype == tensor.dtype
        assert torch.equal(found[name], tensor)
    assert not found["learned"].requires_grad
    found["number"] += 1  # they are the reader's own


def test_tensors_that_share_memory_come_back_apart(tmp_path: Path) -> None:
    base = torch.arange(12.0).reshape(3, 4)
    shared = {"base": base, "tied": base, "rows": base[1:], "column": base[:, 0]}
    with put_tensors(tmp_path / "a", shared) as snapshot:
        found = snapshot.tensors("weights")
    assert all(torch.equal(found[name], tensor) for name, tensor in shared.items())
    assert len({tensor.untyped_storage().data_ptr() for tensor in found.values()}) == 4


@pytest.mark.parametrize("tensor", [torch.empty(2, device="meta"), torch.eye(2).to_sparse()])
def test_tensors_without_values_in_place_are_refused(tmp_path: Path, tensor: torch.Tensor) -> None:
    with pytest.raises(ArtifactError, match=r"tensor bad .* cannot be saved"):
        put_tensors(tmp_path / "a", {"bad": tensor})


def test_a_file_that_holds_no_tensors_says_so(tmp_path: Path) -> None:
    with artifact.writing(tmp_path / "a") as writer:
        writer._put("weights", "safetensors", lambda file: file.write(b"no tensors at all"))
        writer.commit("toy", {}, {}, "")
    with artifact.read(tmp_path / "a") as snapshot, pytest.raises(ArtifactError, match="does not hold tensors"):
        snapshot.tensors("weights")


def test_a_new_state_replaces_the_old_and_sweeps_its_files(saved: Path) -> None:
    before = {path.name for path in saved.iterdir()}
    (saved / ".writing-dead").write_bytes(b"left by a writer that was killed")
    (saved / "notes.txt").write_text("the user's own")
    save(saved, number=2)
    after = {path.name for path in saved.iterdir()}
    assert artifact.read(saved).json("words") == {"n": 2}
    # The table and the card are the same, so they keep their names; the rest is new.
    assert after - before == {file_of(saved, "numbers").name, file_of(saved, "words").name, "notes.txt"}
    assert len(after) == len(before) + 1


def test_a_reader_keeps_the_snapshot_that_it_opened(saved: Path) -> None:
    snapshot = artifact.read(saved)
    save(saved, number=3)
    assert snapshot.array("numbers").tolist() == list(range(10))
    assert snapshot.json("words") == {"n": 1}


def test_an_error_while_writing_leaves_the_old_state(saved: Path) -> None:
    with pytest.raises(RuntimeError), artifact.writing(saved) as writer:
        writer.array("numbers", np.zeros(3))
        raise RuntimeError
    assert artifact.read(saved).array("numbers").tolist() == list(range(10))
    assert not list(saved.glob(".writing-*"))


def test_one_writer_at_a_time(saved: Path) -> None:
    with artifact.writing(saved), pytest.raises(Busy, match="is being written to by another process"):
        save(saved)
    save(saved)


def test_a_lock_dies_with_its_holder(saved: Path) -> None:
    code = "import os, sys; from triever import artifact\n"
    code += "with artifact.writing(sys.argv[1]): os.kill(os.getpid(), 9)"
    subprocess.run([sys.executable, "-c", code, str(saved)], check=False)
    save(saved, number=4)
    assert artifact.read(saved).json("words") == {"n": 4}


def test_a_writer_may_wait_for_another(saved: Path) -> None:
    with ExitStack() as first:
        first.enter_context(artifact.writing(saved))
        with pytest.raises(Busy), artifact.writing(saved, wait=0.1):
            pass
        threading.Timer(0.3, first.close).start()
        with artifact.writing(saved, wait=60) as writer:
            writer.json("words", {"n": 5})
            writer.commit("toy", {}, {}, "")
    assert artifact.read(saved).json("words") == {"n": 5}


def test_an_artifact_may_be_kept_from_being_replaced(saved: Path) -> None:
    before = contents(saved)
    refused = pytest.raises(ArtifactError, match="model already exists; replace it with --replace, or name another")
    with refused, artifact.writing(saved, replace=False):
        pass
    assert contents(saved) == before


def test_of_two_writers_of_a_new_artifact_the_second_replaces_nothing(tmp_path: Path) -> None:
    with ExitStack() as first:
        writer = first.enter_context(artifact.writing(tmp_path / "new", replace=False))

        def finish() -> None:
            writer.commit("toy", {"n": 1}, {}, "")
            first.close()

        threading.Timer(0.3, finish).start()
        refused = pytest.raises(ArtifactError, match="new already exists")
        with refused, artifact.writing(tmp_path / "new", replace=False, wait=60):
            pass
    assert artifact.read(tmp_path / "new").manifest.options == {"n": 1}


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.parametrize(
    "files",
    [
        {"manifest.json": '{"name": "my-extension"}'},
        {"manifest.json": '{"name": "my-extension"}', ".lock": "", "icons-0123456789abcdef.json": "[]"},
        {"manifest.json": "CACHE MANIFEST", ".lock": ""},
        {"train-0123456789abcdef.parquet": "PAR1"},
        {".lock": "", "thesis.docx": "years of work"},
    ],
)
def test_what_is_no_artifact_is_never_touched(tmp_path: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    before = contents(tmp_path)
    with pytest.raises(ArtifactError, match=r"holds other files .* and is not a Triever artifact; save to"):
        save(tmp_path)
    assert contents(tmp_path) == before


def edit_manifest(folder: Path, change: Callable[[dict], None], *, sign: bool = True) -> None:
    raw = json.loads((folder / "manifest.json").read_text())
    change(raw)
    if sign:
        raw["digest"] = artifact.digest_of(raw)
    (folder / "manifest.json").write_text(json.dumps(raw))


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)


def sparse(path: Path) -> None:
    with path.open("ab") as file:
        file.truncate(2**40)


def in_place_of(folder: Path, name: str, make: Callable[[Path], object]) -> None:
    path = folder / "manifest.json" if name == "manifest" else file_of(folder, name)
    path.unlink()
    make(path)


DAMAGE: dict[str, tuple[Callable[[Path], object], str]] = {
    "torn file": (
        lambda f: truncate(file_of(f, "numbers")),
        r"numbers-\w+\.npy has \d+ bytes, but \d+ were saved",
    ),
    "changed file": (
        lambda f: flip(file_of(f, "numbers")),
        r"numbers-\w+\.npy was changed after it was saved",
    ),
    "missing file": (lambda f: file_of(f, "names").unlink(), r"names-\w+\.parquet is missing"),
    "torn manifest": (lambda f: truncate(f / "manifest.json"), r"manifest\.json is damaged"),
    "empty manifest": (lambda f: (f / "manifest.json").write_text(""), r"manifest\.json is damaged"),
    "binary manifest": (
        lambda f: (f / "manifest.json").write_bytes(b"\xff\xfe\x00"),
        r"manifest\.json is damaged",
    ),
    "nested manifest": (lambda f: (f / "manifest.json").write_text("[" * 100_000), r"manifest\.json is damaged"),
    "no manifest": (
        lambda f: (f / "manifest.json").unlink(),
        r"model is not a Triever artifact: it has no manifest",
    ),
    "foreign manifest": (
        lambda f: (f / "manifest.json").write_text('{"name": "my-extension"}'),
        r"manifest\.json was not written by Triever",
    ),
    "newer format": (
        lambda f: edit_manifest(f, lambda raw: raw.update(version=99)),
        r"manifest\.json has format version 99, .* up to 2; run: pip install --upgrade triever",
    ),
    **{
        f"format version {version}": (
            lambda f, version=version: edit_manifest(f, lambda raw: raw.update(version=version)),
            r"manifest\.json has format version .*, which no Triever has written",
        )
        for version in (0, -1, True, 1.0, "1", None)
    },
    "kind that is no text": (
        lambda f: edit_manifest(f, lambda raw: raw.update(kind=["toy"])),
        r"manifest\.json is not a valid manifest",
    ),
    "name of another content": (
        lambda f: edit_manifest(f, lambda raw: raw["files"]["words"].update(sha256="0" * 64)),
        r"names the file 'words-\w+\.json', which Triever never writes",
    ),
    "file of a terabyte": (lambda f: sparse(file_of(f, "words")), r"words-\w+\.json has \d+ bytes, but"),
    "manifest of a terabyte": (lambda f: sparse(f / "manifest.json"), r"manifest\.json cannot be opened: it has"),
    **{
        f"{what} in place of {name}": (
            lambda f, make=make, name=name: in_place_of(f, name, make),
            rf"{name}.* cannot be opened",
        )
        for what, make in {
            "a link to zeros": lambda path: path.symlink_to("/dev/zero"),
            "a link to a file": lambda path: path.symlink_to(__file__),
            "a pipe": lambda path: os.mkfifo(path),
            "a folder": lambda path: path.mkdir(),
        }.items()
        for name in ("manifest", "words", "numbers")
    },
    "edited manifest": (
        lambda f: edit_manifest(f, lambda raw: raw["options"].update(n=5), sign=False),
        r"manifest\.json was changed after it was saved",
    ),
    "path out of the folder": (
        lambda f: edit_manifest(f, lambda raw: raw["files"]["words"].update(file="../../secret")),
        r"names the file '\.\./\.\./secret', which Triever never writes",
    ),
    "manifest without files": (
        lambda f: edit_manifest(f, lambda raw: raw.pop("files")),
        r"is not a valid manifest",
    ),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_damage_is_refused_with_the_name_of_the_file(saved: Path, damage: str) -> None:
    break_it, sentence = DAMAGE[damage]
    break_it(saved)
    with pytest.raises(ArtifactError, match=sentence):
        artifact.read(saved).verify()


def test_an_array_of_objects_is_never_unpickled(saved: Path) -> None:
    content = io.BytesIO()
    np.save(content, np.array([{"a": 1}], dtype=object), allow_pickle=True)
    resign(saved, "numbers", content.getvalue())
    with pytest.raises(ArtifactError, match="holds Python objects"):
        artifact.read(saved).array("numbers")


CONTENT: dict[str, tuple[str, bytes, str]] = {
    "JSON that is none": ("words", b"{", "does not hold JSON"),
    "JSON without an end": ("words", b"[" * 100_000, "does not hold JSON"),
    "not a number": ("words", b'{"n": NaN}', "does not hold JSON: NaN is not a number"),
    "a card that is no text": ("card", b"\xff\xfe", "does not hold text"),
    "no array": ("numbers", b"\x93NUMPY", "does not hold an array"),
    "a table of letters": ("names", b"PAR1 nothing PAR1", "does not hold a valid table"),
}


@pytest.mark.parametrize("case", CONTENT)
def test_content_that_was_signed_again_is_checked(saved: Path, case: str) -> None:
    role, content, sentence = CONTENT[case]
    resign(saved, role, content)
    names = pa.schema([("name", pa.string())])
    readers = {"numbers": "array", "words": "json", "card": "text"}
    with artifact.read(saved) as snapshot, pytest.raises(ArtifactError, match=sentence):
        snapshot.table(role, names) if role == "names" else getattr(snapshot, readers[role])(role)


@pytest.mark.parametrize("shape", [(2**40,), (-1, -10), (0, 2**60), (11,), (9,), (2, 2, 2), (2**63,)])
def test_a_shape_is_compared_with_the_file(saved: Path, shape: tuple[int, ...]) -> None:
    content = io.BytesIO()
    np.lib.format.write_array_header_1_0(content, {"descr": "<i8", "fortran_order": False, "shape": shape})
    resign(saved, "numbers", content.getvalue() + np.arange(10).tobytes())
    with artifact.read(saved) as snapshot, pytest.raises(ArtifactError, match="does not hold an array: its shape"):
        snapshot.array("numbers")


def test_a_table_that_is_a_bomb_is_refused_before_it_goes_off(saved: Path) -> None:
    content = bomb(1000)  # 32 GB
    assert len(content) < 100_000
    resign(saved, "names", content)
    before = peak()
    with artifact.read(saved) as snapshot, pytest.raises(ArtifactError, match="take more than 256 MiB"):
        snapshot.table("names", SCHEMA)
    assert peak() - before < 400 * 2**20


def read_with_wrong_footers(folder: Path) -> int:
    """How many footers of a table, each wrong in one byte, are refused; the others are read."""
    content, refused = file_of(folder, "names").read_bytes(), 0
    length = int.from_bytes(content[-8:-4], "little")
    for at in range(len(content) - 8 - length, len(content) - 8):
        for value in (0, 15, 255, content[at] ^ 2):
            resign(folder, "names", content[:at] + bytes([value]) + content[at + 1 :])
            with artifact.read(folder) as snapshot:
                try:
                    snapshot.table("names", pa.schema([("name", pa.string())]))
                except ArtifactError:
                    refused += 1
    return refused


@pytest.mark.long
def test_a_wrong_footer_of_a_table_never_ends_the_process(saved: Path) -> None:
    code = "import sys; from pathlib import Path; from tests.test_artifact import read_with_wrong_footers\n"
    code += "print(read_with_wrong_footers(Path(sys.argv[1])))"
    done = run_code(code, saved)
    assert done.returncode == 0, done.stderr[-2000:]  # pyarrow aborts over some of them
    assert int(done.stdout) > 100


@pytest.mark.long
def test_texts_that_are_honestly_all_alike_are_saved_and_opened(tmp_path: Path) -> None:
    same = pa.table({"name": ["x" * 2**20] * 300})
    with artifact.writing(tmp_path / "model") as writer:
        writer.table("names", same)
        writer.commit("toy", {}, {}, "")
    with artifact.read(tmp_path / "model") as snapshot:
        assert snapshot.table("names", same.schema).equals(same)


def test_the_folder_itself_may_be_a_link(saved: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(saved)
    with artifact.read(tmp_path / "link") as snapshot:
        snapshot.verify()


TORN = {
    "cut": lambda text: text[: len(text) // 2],
    "its first letter": lambda text: text[:1],
    "empty": lambda text: text[:0],
    "zeros": lambda text: "\0" * len(text),
}


@pytest.mark.parametrize("how", TORN)
def test_where_a_manifest_is_torn_what_is_advised_is_possible(saved: Path, how: str) -> None:
    text = (saved / "manifest.json").read_text()
    (saved / "manifest.json").write_text(TORN[how](text))
    with pytest.raises(ArtifactError, match="is damaged: it is not valid JSON; save the retriever again"):
        artifact.read(saved)
    save(saved, number=8)
    assert artifact.read(saved).json("words") == {"n": 8}


def test_where_nobody_can_tell_whose_manifest_it_was_nothing_is_touched(saved: Path) -> None:
    (saved / "manifest.json").write_bytes(b"\xff\xfe something else")
    before = contents(saved)
    with pytest.raises(ArtifactError, match="is damaged: it is not UTF-8 text; if it was a saved retriever, copy it"):
        artifact.read(saved)
    with pytest.raises(ArtifactError, match=r"holds other files \(manifest.json\)"):
        save(saved)
    assert contents(saved) == before


def test_a_disk_that_is_full_is_told_and_loses_nothing(saved: Path) -> None:
    code = "import resource, signal, sys; from pathlib import Path; from tests.test_artifact import save\n"
    code += "signal.signal(signal.SIGXFSZ, signal.SIG_IGN); resource.setrlimit(resource.RLIMIT_FSIZE, (40, 40))\n"
    code += "save(Path(sys.argv[1]), number=9)"
    done = run_code(code, saved)
    assert "ArtifactError" in done.stderr.splitlines()[-1], done.stderr
    assert "cannot be written to: File too large; allow larger files" in done.stderr
    assert artifact.read(saved).json("words") == {"n": 1}
    assert not list(saved.glob(".writing-*"))


def test_a_name_that_no_system_takes_is_told(tmp_path: Path) -> None:
    for name in ("x" * 5000, "a\0b"):
        for call in (artifact.read, save):
            with pytest.raises(UsageError, match=r"is too long|holds a NUL"):
                call(tmp_path / name)


def test_where_nothing_can_be_read(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(ArtifactError, match="is a file, not a saved folder"):
        artifact.read(tmp_path / "file")
    for address in ("http://127.0.0.1:8931/rooms", Path("https://here/rooms")):
        said = f"{str(address).replace('https:/here', 'https://here')} is the address of a server; name a saved folder"
        with pytest.raises(ArtifactError, match=re.escape(said)):
            artifact.read(address)
    with pytest.raises(ArtifactError, match="does not exist"):
        artifact.read(tmp_path / "nothing")


def test_where_nothing_may_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(ArtifactError, match="is a file; name a folder to save to"):
        save(tmp_path / "file")
    with pytest.raises(ArtifactError, match=r"holds other files \(file\) and is not a Triever artifact"):
        save(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file"]


def test_an_interrupted_first_save_can_be_repeated(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt), artifact.writing(tmp_path / "new") as writer:
        writer.json("words", {})
        raise KeyboardInterrupt
    with pytest.raises(ArtifactError, match="save again: the last save was interrupted"):
        artifact.read(tmp_path / "new")
    save(tmp_path / "new")
    artifact.read(tmp_path / "new").verify()


def test_parts_are_told_apart_by_their_names(tmp_path: Path) -> None:
    with artifact.writing(tmp_path / "model") as writer:
        writer.json("words", ["outer"])
        for name in ("first", "second"):
            writer.inside(name).json("words", [name])
            writer.inside(name).inside("deep").array("numbers", np.arange(len(name)))
        writer.commit("test", {}, {"first": {"deep": {"n": 1}}, "second": {"deep": {"n": 2}}}, "")
    with artifact.read(tmp_path / "model") as snapshot:
        assert snapshot.json("words") == ["outer"]
        for number, name in enumerate(("first", "second"), 1):
            part = snapshot.inside(name)
            assert part.json("words") == [name]
            assert part.inside("deep").state == {"n": number}
            assert len(part.inside("deep").array("numbers")) == len(name)
            assert part.has("words")
            assert not part.has("numbers")
        snapshot.inside("first").verify()
