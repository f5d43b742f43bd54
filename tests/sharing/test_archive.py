"""A retriever as one zip: the same bytes each time, and nothing but a whole artifact comes out of one."""

from __future__ import annotations

import copy
import json
import shutil
import tempfile
import time
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import triever
from tests.artifact_fuzz import read_manifest
from tests.retrievers.contract import dataset
from tests.sharing.test_hub import changed, content, hits, said
from triever import BM25, ArtifactError, DataError, pack, unpack
from triever.artifact import MANIFEST, digest_of


@pytest.fixture(scope="module")
def zipped(saved: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A packed retriever, which no test changes."""
    return pack(saved, tmp_path_factory.mktemp("zips") / "model.zip")


def test_what_was_unpacked_answers_as_what_was_packed(saved: Path, zipped: Path, tmp_path: Path) -> None:
    out = unpack(zipped, tmp_path / "deep" / "out")
    assert content(out) == content(saved)
    assert hits(out) == hits(saved)
    assert all(path.is_file() and not path.is_symlink() for path in out.iterdir())
    assert [path.name for path in out.parent.iterdir()] == ["out"], "nothing is left beside it"


def test_the_same_retriever_gives_the_same_bytes(saved: Path, zipped: Path, tmp_path: Path) -> None:
    time.sleep(0.01)
    shutil.copytree(saved, tmp_path / "copy")
    (tmp_path / "copy" / "notes.txt").write_text("no part of the artifact")
    for path in (tmp_path / "copy").iterdir():
        path.chmod(0o600)
    assert pack(tmp_path / "copy", tmp_path / "copy.zip").read_bytes() == zipped.read_bytes()
    BM25().fit(dataset()).save(tmp_path / "fitted")
    assert pack(tmp_path / "fitted", tmp_path / "fitted.zip").read_bytes() == zipped.read_bytes()
    unpack(zipped, tmp_path / "out")
    assert pack(tmp_path / "out", tmp_path / "out.zip").read_bytes() == zipped.read_bytes()


def test_any_program_unpacks_it(saved: Path, zipped: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(zipped) as archive:
        assert archive.testzip() is None
        assert archive.namelist() == [MANIFEST, *sorted({*content(saved)} - {MANIFEST})]
        archive.extractall(tmp_path / "out")
    assert hits(tmp_path / "out") == hits(saved)


def test_a_zip_is_not_opened_as_it_is(zipped: Path) -> None:
    with pytest.raises(ArtifactError, match=r"model.zip is a zip, not a folder; run: triever unpack .* --out FOLDER"):
        triever.load(zipped)


def test_what_is_there_is_replaced_only_if_asked(saved: Path, zipped: Path, tmp_path: Path) -> None:
    out = changed(saved, tmp_path / "out")
    before = content(out)
    with pytest.raises(ArtifactError, match="out already exists; replace it with --replace"):
        unpack(zipped, out)
    assert content(out) == before
    reader = triever.load(out)
    unpack(zipped, out, replace=True)
    assert content(out) == content(saved)
    assert "mate" in reader.documents
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "letter.txt").write_text("dear")
    with pytest.raises(ArtifactError, match=r"mine holds other files \(letter.txt\) and is not a Triever artifact"):
        unpack(zipped, tmp_path / "mine", replace=True)


def test_a_damaged_artifact_is_not_packed(saved: Path, tmp_path: Path) -> None:
    shutil.copytree(saved, tmp_path / "model")
    name = next(name for name in content(saved) if name.endswith("npy"))
    (tmp_path / "model" / name).write_bytes(content(saved)[name][:-1] + b"x")
    with pytest.raises(ArtifactError, match=f"{name} was changed after it was saved"):
        pack(tmp_path / "model", tmp_path / "m.zip")
    assert [path.name for path in tmp_path.iterdir()] == ["model"]
    with pytest.raises(DataError, match="cannot be written"):
        pack(saved, tmp_path / "model")


# --- Zips of strangers ---------------------------------------------------------------------------------------


def refused(path: Path, sentence: str) -> None:
    """Whether a zip is refused with a sentence, and leaves nothing."""
    out = path.parent / "out" / "model"
    with pytest.raises(ArtifactError, match=sentence) as error:
        unpack(path, out)
    assert error.value.hint
    assert not list(path.parent.glob("out/*")) + list(path.parent.glob("out/.*"))


def written(
    path: Path, files: dict[str, bytes], change: Callable[[zipfile.ZipFile], object] = lambda _: None, **options: Any
) -> Path:
    with zipfile.ZipFile(path, "w", **options) as archive:
        for name, inside in files.items():
            archive.writestr(name, inside)
        change(archive)
    return path


def signed(saved: Path, files: dict[str, Any]) -> bytes:
    raw = {**read_manifest(saved), "files": files}
    return json.dumps({**raw, "digest": digest_of(raw)}).encode()


@pytest.mark.parametrize("name", ["../evil.txt", "/tmp/evil.txt", "a/../../evil", "inside/", "C:\\evil.txt", "evil"])
def test_files_that_no_manifest_names(saved: Path, tmp_path: Path, name: str) -> None:
    path = written(tmp_path / "m.zip", {**content(saved), name: b"x"})
    refused(path, r"m.zip holds '.*', which its manifest does not name; do not use this file")


def test_manifests_that_name_what_lies_elsewhere(saved: Path, tmp_path: Path) -> None:
    name = "../x-0123456789abcdef.npy"
    manifest = signed(saved, {"x": {"file": name, "sha256": "0123456789abcdef", "bytes": 1}})
    refused(
        written(tmp_path / "m.zip", {MANIFEST: manifest, name: b"x"}), "names the file '../x-.*', which Triever never"
    )


def test_one_name_twice(saved: Path, tmp_path: Path) -> None:
    with pytest.warns(UserWarning, match="Duplicate name"):
        path = written(tmp_path / "m.zip", content(saved), lambda archive: archive.writestr(MANIFEST, b"{}"))
    refused(path, "m.zip holds 'manifest.json', which its manifest does not name|was not written by Triever")


def test_bombs(saved: Path, tmp_path: Path) -> None:
    bomb = written(tmp_path / "b.zip", {MANIFEST: b" " * 2**24}, compression=zipfile.ZIP_DEFLATED)
    assert bomb.stat().st_size < 2**16
    refused(bomb, "b.zip was not made by triever pack: 'manifest.json' is compressed; unpack it with another program")

    def overlap(archive: zipfile.ZipFile) -> None:
        """Let many names stand for the same bytes."""
        last = archive.filelist[-1]
        for number in range(100):
            other = copy.copy(last)
            other.filename = other.orig_filename = f"{number:03}{last.filename[3:]}"
            archive.filelist.append(other)

    refused(written(tmp_path / "o.zip", content(saved), overlap), "o.zip holds more than its own size")


def test_other_files(saved: Path, tmp_path: Path) -> None:
    refused(written(tmp_path / "m.zip", {"a.txt": b"x"}), r"m.zip is not a packed Triever artifact: it has no manifest")
    refused(written(tmp_path / "n.zip", {MANIFEST: b'{"name": "app"}'}), r"n.zip/manifest.json was not written by")
    refused(written(tmp_path / "p.zip", {MANIFEST: b"\xff"}), r"p.zip is not a zip, or is damaged")
    (tmp_path / "t.zip").write_text("no zip at all")
    refused(tmp_path / "t.zip", "t.zip is not a zip, or is damaged: File is not a zip file; copy it again")
    refused(tmp_path / "none.zip", "none.zip cannot be opened: No such file or directory; check the path")
    refused(saved, "model cannot be opened: it is not an ordinary file")
    lacking = content(saved)
    lacking.pop(next(name for name in lacking if name.startswith("terms-")))
    refused(written(tmp_path / "l.zip", lacking), "l.zip lacks terms-.*.npy; copy it again from where it came")
    other = {
        name: inside[:-1] + b"x" if name.startswith("terms-") else inside for name, inside in content(saved).items()
    }
    refused(written(tmp_path / "c.zip", other), r"c.zip/terms-.*.npy was changed after it was saved")


def test_a_zip_that_is_cut_or_changed_anywhere_gives_nothing_or_the_same(saved: Path, zipped: Path) -> None:
    whole, right = zipped.read_bytes(), content(saved)

    @given(st.integers(0, len(whole) - 1), st.sampled_from([None, *range(8)]))
    @example(len(whole) - 1, None)
    @example(0, None)
    @example(30, 0)
    def check(at: int, bit: int | None) -> None:
        changed = whole[:at] if bit is None else whole[:at] + bytes([whole[at] ^ 1 << bit]) + whole[at + 1 :]
        with tempfile.TemporaryDirectory() as folder:
            path, out = Path(folder) / "m.zip", Path(folder) / "out"
            path.write_bytes(changed)
            try:
                unpack(path, out)
            except ArtifactError:
                assert [one.name for one in Path(folder).iterdir()] == ["m.zip"]
                return
            assert bit is not None, "what is cut short cannot be whole"
            assert content(out) == right

    check()


# --- The commands --------------------------------------------------------------------------------------------


def test_the_commands(saved: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, beside = said(capsys, "pack", saved, "--out", tmp_path / "m.zip")
    assert (code, out) == (0, "")
    assert beside == f"wrote {tmp_path}/m.zip: {(tmp_path / 'm.zip').stat().st_size:,} bytes\n"
    code, _, beside = said(capsys, "unpack", tmp_path / "m.zip", "--out", tmp_path / "out")
    assert (code, beside) == (0, f"wrote {tmp_path}/out; look at it with: triever status {tmp_path}/out\n")
    assert hits(tmp_path / "out") == hits(saved)
    code, _, problem = said(capsys, "unpack", tmp_path / "m.zip", "--out", tmp_path / "out")
    assert code == 2
    assert "already exists; replace it with --replace" in problem
    assert said(capsys, "unpack", tmp_path / "m.zip", "--out", tmp_path / "out", "--replace")[0] == 0
    code, _, problem = said(capsys, "search", tmp_path / "m.zip", "tea")
    assert code == 2
    assert f"run: triever unpack {tmp_path}/m.zip --out FOLDER" in problem
