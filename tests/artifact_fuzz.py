"""Artifacts that somebody has changed, half of them signed again: `python -m tests.artifact_fuzz 1000 --seed 7`.

A mutation is drawn from a seed alone, so that one that fails can be made again. The small artifacts of tests/golden
are what is changed. Opened and searched, each gives a TrieverError or valid hits, and where nothing was signed
again, the right ones. Nothing else may come, nothing outside the folder may be opened, and neither time nor memory
may run away.
"""

from __future__ import annotations

import argparse
import contextlib
import faulthandler
import hashlib
import io
import json
import math
import os
import random
import resource
import shutil
import signal
import sys
import tempfile
import time
import traceback
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import triever
from tests.golden import make_artifacts as golden
from triever import artifact
from triever.commands.use import status
from triever.errors import TrieverError

SECONDS = 20
"""One artifact is opened and searched in less."""
MEMORY = 600 * 2**20
"""All mutations together take no more memory than that above what the first search took."""

# --- Signing --------------------------------------------------------------------------------------------------


def read_manifest(folder: Path) -> dict[str, Any]:
    """The manifest as it is."""
    return json.loads((folder / artifact.MANIFEST).read_text(encoding="utf-8"))


def sign(folder: Path, raw: dict[str, Any]) -> None:
    """Write a manifest with the digest that it should have, as anybody can."""
    with contextlib.suppress(TypeError, ValueError, RecursionError):
        raw["digest"] = artifact.digest_of(raw)
    (folder / artifact.MANIFEST).write_text(json.dumps(raw, indent=1, ensure_ascii=False), encoding="utf-8")


def resign(folder: Path, role: str, content: bytes) -> None:
    """Put another content into the file of a role, under the name and with the hash that go with it."""
    raw = read_manifest(folder)
    entry = raw["files"][role]
    sha256 = hashlib.sha256(content).hexdigest()
    (folder / entry["file"]).unlink()
    entry |= {"file": f"{role}-{sha256[:16]}{Path(entry['file']).suffix}", "sha256": sha256, "bytes": len(content)}
    (folder / entry["file"]).write_bytes(content)
    sign(folder, raw)


# --- Mutations that anybody's disk can make, without a signature ----------------------------------------------


def flipped(content: bytes, chance: random.Random) -> bytes:
    """With one bit changed, or a few bytes."""
    if not content:
        return b"\0"
    changed = bytearray(content)
    for _ in range(chance.choice([1, 1, 1, 8])):
        changed[chance.randrange(len(changed))] ^= 1 << chance.randrange(8)
    return bytes(changed)


def cut(content: bytes, chance: random.Random) -> bytes:
    """Shorter, or longer."""
    at = chance.randrange(len(content) + 1)
    return chance.choice([content[:at], content[at:], content + content[:at], content[:at] + b"\0" * 64 + content[at:]])


def damage(folder: Path, chance: random.Random) -> str:
    """Change one file, or what stands in its place."""
    path = chance.choice(sorted(path for path in folder.iterdir() if path.name != artifact.LOCK))
    what = chance.choice(["flip", "cut", "remove", "link", "zeros", "pipe", "folder", "swap", "empty", "sparse"])
    content = path.read_bytes()
    path.unlink()
    if what == "flip":
        path.write_bytes(flipped(content, chance))
    elif what == "cut":
        path.write_bytes(cut(content, chance))
    elif what == "link":
        target = folder.parent / f"outside-{path.name}"
        target.write_bytes(content)
        path.symlink_to(target)
    elif what == "zeros":
        path.symlink_to("/dev/zero")
    elif what == "pipe":
        os.mkfifo(path)
    elif what == "folder":
        path.mkdir()
    elif what == "swap":
        path.write_bytes(chance.choice(sorted(one for one in folder.iterdir() if one.is_file())).read_bytes())
    elif what == "empty":
        path.write_bytes(b"")
    elif what == "sparse":
        with path.open("wb") as file:
            file.truncate(2**40)
    return f"{what} {path.name}"


# --- Mutations by somebody who signs them ---------------------------------------------------------------------

VALUES: tuple[Any, ...] = (
    *(None, True, False, -1, 0, 1, 2, 7, 2**15, 2**31, 2**63, -(2**70), 10**400, 0.5, -1e308, 1e308),
    *("", "x", "a\tb", "\ud800", "\x1b[31m", "/etc/passwd", "../x", "bm25", "dense", "cuda:9", "auto"),
    *([], {}, [1], [[]], [None], ["a"], {"kind": "bm25"}, {"a": {"b": [1, 2]}}, [[0], 1]),
)


def edited(value: Any, chance: random.Random) -> Any:
    """A JSON value with one place changed."""
    places = list(_places(value))
    if not places:
        return chance.choice(VALUES)
    inside, key = chance.choice(places)
    how = chance.choice(["set", "set", "set", "near", "drop", "copy", "deep"])
    before = inside[key]
    if how == "set":
        inside[key] = chance.choice(VALUES)
    elif how == "near" and isinstance(before, int | float) and not isinstance(before, bool):
        inside[key] = chance.choice([before + 1, before - 1, before * 1000, -before, float(before)])
    elif how == "drop":
        del inside[key]
    elif how == "copy" and isinstance(inside, list):
        inside.insert(key, before)
    elif how == "copy":
        inside[f"{key}_too"] = before
    elif how == "deep":
        deep: Any = before
        for _ in range(200):
            deep = [deep]
        inside[key] = deep
    else:
        inside[key] = chance.choice(VALUES)
    return value


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    keys = value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
    for key in list(keys):
        yield value, key
        yield from _places(value[key])


def edit_json(content: bytes, chance: random.Random) -> bytes:
    """Another JSON value, or none."""
    if chance.random() < 0.1:
        return chance.choice([b"[" * 100_000, b"NaN", b'{"a": Infinity}', b"{", b"\xff", b"", b"1" * 10_000])
    return json.dumps(edited(json.loads(content), chance)).encode()


def edit_array(content: bytes, chance: random.Random) -> bytes:
    """An array of another shape or type, or with other numbers."""
    array = np.load(io.BytesIO(content))
    how = chance.choice(["value", "value", "value", "shape", "type", "rows", "order", "declared", "flip"])
    if how == "flip":
        return flipped(content, chance)
    if how == "declared":  # a header that says something else than the file holds
        shape = chance.choice([(2**40,), (-1,), (0, 2**60), (1, 2, 3), (True,), (2**63,), array.shape[::-1]])
        header = {"descr": array.dtype.str, "fortran_order": False, "shape": shape}
        made = io.BytesIO()
        np.lib.format.write_array_header_1_0(made, header)
        return made.getvalue() + array.tobytes()
    if how == "value" and array.size:
        array = array.copy()
        flat = array.reshape(-1)
        for _ in range(chance.choice([1, 1, 5])):
            flat[chance.randrange(flat.size)] = _number(array.dtype, chance)
    elif how == "shape":
        array = chance.choice([array[None], array[..., None], array.reshape(-1), array[:0], array.T])
    elif how == "type":
        with np.errstate(all="ignore"):
            array = array.astype(
                chance.choice(["i1", "i4", "i8", "u8", "f2", "f4", "f8", ">i4", ">f4", "?", "S4", "c8"])
            )
    elif how == "rows":
        array = chance.choice([array[:-1], array[1:], np.concatenate([array, array[:1]])])
    else:
        array = np.array(array[::-1])
    made = io.BytesIO()
    np.save(made, array)
    return made.getvalue()


def _number(dtype: np.dtype, chance: random.Random) -> Any:
    if dtype.kind == "f":
        return chance.choice([np.nan, np.inf, -np.inf, 0.0, -1.0, np.finfo(dtype).max])
    if dtype.kind == "b":
        return chance.random() < 0.5
    limits = np.iinfo(dtype)
    return chance.choice([limits.min, limits.max, 0, 1, max(limits.min, -1), chance.randrange(0, 100)])


def edit_table(content: bytes, chance: random.Random) -> bytes:
    """Documents with other columns, rows or values."""
    table = pq.read_table(io.BytesIO(content))
    name = chance.choice(table.column_names)
    how = chance.choice(["flip", "drop", "null", "double", "rows", "type", "bytes", "value", "more", "bomb", "footer"])
    if how == "flip":
        return flipped(content, chance)
    if how == "footer":
        at = len(content) - 8 - chance.randrange(int.from_bytes(content[-8:-4], "little")) - 1
        return content[:at] + bytes([chance.randrange(256)]) + content[at + 1 :]
    rows = table.to_pylist()
    at = chance.randrange(len(rows))
    if how == "drop":
        table = table.drop_columns([name])
    elif how == "value" and "id" not in table.column_names:  # where passages begin and end
        rows[at][name] = int(_number(np.dtype(np.int64), chance))
        table = pa.Table.from_pylist(rows, table.schema)
    elif how in ("null", "value"):
        rows[at][name] = (
            None if how == "null" else chance.choice(["", "a\nb", "\u2028", "{", "[1]", "e\u0301", "x" * 999])
        )
        if name == "expansions" and how == "value":
            rows[at][name] = [None]
        table = pa.Table.from_pylist(rows, table.schema)
    elif how == "double":
        same = "id" if "id" in table.column_names else name
        rows[at][same] = rows[at - 1][same]
        table = pa.Table.from_pylist(rows, table.schema)
    elif how == "rows":
        table = chance.choice([table.slice(1), table.slice(0, 0), pa.concat_tables([table, table])])
    elif how == "type":
        kept = pa.array(range(len(rows)), pa.int32())
        table = table.set_column(table.column_names.index(name), name, kept)
    elif how == "bytes":
        broken = pa.array([b"\xff\xfe"] * len(rows), pa.binary()).view(pa.string())
        table = table.set_column(table.column_names.index(name), name, broken)
    elif how == "more":
        table = table.append_column("other", pa.array(["x"] * len(rows)))
    else:
        return bomb(len(rows))
    made = io.BytesIO()
    pq.write_table(table, made, compression="zstd", use_dictionary=chance.random() < 0.7)
    return made.getvalue()


def bomb(rows: int, size: int = 2**25) -> bytes:
    """Some kilobytes that stand for documents of so many letters each."""
    texts = pa.DictionaryArray.from_arrays(pa.array([0] * rows, pa.int32()), pa.array(["x" * size]))
    plain = {"id": [f"d{row}" for row in range(rows)], "title": [""] * rows}
    table = pa.table({**plain, "text": texts, "expansions": [[""]] * rows, "metadata": [""] * rows})
    made = io.BytesIO()
    pq.write_table(table, made, compression="zstd")
    return made.getvalue()


def edit_tensors(content: bytes, chance: random.Random) -> bytes:
    """Tensors of other names, shapes, types or numbers."""
    from safetensors.torch import load, save

    how = chance.choice(["flip", "header", "name", "drop", "shape", "type", "value", "value"])
    if how == "flip":
        return flipped(content, chance)
    size = int.from_bytes(content[:8], "little")
    if how == "header":
        head = json.dumps(edited(json.loads(content[8 : 8 + size]), chance)).encode()
        return len(head).to_bytes(8, "little") + head + content[8 + size :]
    import torch

    tensors = load(content)
    name = chance.choice(sorted(tensors))
    tensor = tensors[name]
    if how == "name":
        tensors[f"{name}x"] = tensors.pop(name)
    elif how == "drop":
        del tensors[name]
    elif how == "shape":
        tensors[name] = chance.choice([tensor[None], tensor.reshape(-1), tensor[:0], tensor[1:]]).clone().contiguous()
    elif how == "type":
        tensors[name] = tensor.to(chance.choice([torch.float16, torch.int64, torch.bool, torch.float64]))
    elif tensor.numel():
        values = [math.nan, math.inf, -math.inf, 3e38, 0.0]
        tensor.view(-1)[chance.randrange(tensor.numel())] = chance.choice(values)
    return save(tensors)


EDITS: dict[str, Callable[[bytes, random.Random], bytes]] = {
    ".json": edit_json,
    ".npy": edit_array,
    ".parquet": edit_table,
    ".safetensors": edit_tensors,
    ".md": flipped,
}


def forge(folder: Path, chance: random.Random) -> str:
    """Change the manifest or one of the files, and sign it again."""
    raw = read_manifest(folder)
    if chance.random() < 0.35:
        part = chance.choice(["options", "options", "state", "state", "files", "all"])
        if part == "all":
            raw = edited(raw, chance)
        else:
            raw[part] = edited(raw[part], chance)
        sign(folder, raw)
        return f"manifest {part}"
    role = chance.choice(sorted(raw["files"]))
    path = folder / raw["files"][role]["file"]
    resign(folder, role, EDITS[path.suffix](path.read_bytes(), chance))
    return f"signed {role}{path.suffix}"


# --- Opening and searching ------------------------------------------------------------------------------------


class Watch:
    """Every file that is opened, and every program that is started, from now on."""

    def __init__(self) -> None:
        self.folder: Path | None = None
        self.seen: list[str] = []
        sys.addaudithook(self._hook)

    def _hook(self, event: str, arguments: tuple[Any, ...]) -> None:
        if self.folder is None:
            return
        if event in (
            "subprocess.Popen",
            "os.system",
            "os.exec",
            "os.posix_spawn",
            "pickle.find_class",
            "socket.connect",
        ):
            self.seen.append(f"{event} {arguments}")
        elif event == "open" and isinstance(arguments[0], str | bytes | os.PathLike):
            path = Path(os.path.abspath(os.fsdecode(arguments[0])))
            allowed = (
                self.folder,
                Path(sys.prefix),
                Path(sys.base_prefix),
                golden.FOLDER.parents[2],
                Path("/proc/self"),
            )
            if not any(path.is_relative_to(place) for place in (*allowed, Path("/sys"), Path("/proc"))):
                self.seen.append(f"open {path}")


def unpacked(name: str, folder: Path) -> None:
    """The artifact of a zip file, in a folder of its own."""
    with zipfile.ZipFile(golden.FOLDER / f"{name}.zip") as archive:
        archive.extractall(folder)


def opened_and_searched(name: str, folder: Path) -> list[Any]:
    """What an artifact answers; an AssertionError if that cannot be."""
    with contextlib.redirect_stdout(io.StringIO()):
        status(folder, json_=True)
    if name.startswith(golden.WRITER):
        writer = triever.QueryWriter.load(folder, {"per_document": 1, "query_length": 4})
        assert all(isinstance(text, str) for _, texts in writer.write(golden.documents(5)) for text in texts)
        return []
    retriever = triever.load(folder)
    for result in retriever.search_many(golden.QUERIES, 5):
        ids = [hit.id for hit in result]
        assert len(set(ids)) == len(ids) <= 5, f"repeated ids: {ids}"
        assert all(one in retriever.documents for one in ids), f"unknown ids: {ids}"
        assert all(math.isfinite(hit.score) for hit in result), f"scores: {result}"
    retriever.explain(golden.QUERIES[0], 2)
    for hit in retriever.search(golden.QUERIES[0], 2):
        retriever.documents.document(hit.id)
    return golden.answers(retriever)


def one(name: str, seed: int, place: Path, watch: Watch) -> str:
    """Make the mutation of a seed, open it, and say what was wrong; nothing if all is as it should be."""
    chance = random.Random(f"{name} {seed}")
    folder = place / "model"
    unpacked(name, folder)
    signed = seed % 2 == 1
    try:
        what = forge(folder, chance) if signed else damage(folder, chance)
    except (TypeError, ValueError, OverflowError, IndexError, RecursionError, pa.ArrowException, UnicodeError):
        return ""  # a change that cannot be written down
    started = time.monotonic()
    watch.folder, watch.seen = place, []
    signal.alarm(SECONDS)
    try:
        found = opened_and_searched(name, folder)
        expected = json.loads(golden.EXPECTED.read_text(encoding="utf-8"))[name]
        problem = "" if signed or same(found, expected) else f"other answers: {found}"
    except TrieverError as error:
        problem = "" if "\n" not in str(error) and len(str(error)) < 2000 else f"not one sentence: {error}"
    except BaseException as error:
        problem = "".join(traceback.format_exception(error)[-6:])
    finally:
        signal.alarm(0)
        watch.folder = None
        for path in (*place.glob("outside-*"),):
            path.unlink()
        shutil.rmtree(folder)
    outside = [path for path in watch.seen if not path.startswith(f"open {place}")]
    problem = problem or ("outside: " + ", ".join(outside) if outside else "")
    took = time.monotonic() - started
    problem = problem or (f"took {took:.0f} s" if took > SECONDS else "")
    return f"{name} {seed} ({what}): {problem}" if problem else ""


def same(found: list[Any], expected: list[Any]) -> bool:
    """Whether answers are those of another machine, whose last bits may differ."""
    ids = [[hit[0] for hit in result] for result in found] == [[hit[0] for hit in result] for result in expected]
    scores = np.array([hit[1] for result in found for hit in result])
    return ids and np.allclose(scores, [hit[1] for result in expected for hit in result], atol=1e-2)


def peak() -> int:
    """The most memory that this process has had."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def run(count: int, seed: int = 0, only: str = "") -> list[str]:
    """So many mutations from a seed on, each of the next artifact; all that was wrong."""
    names = [name for name in sorted(path.stem for path in golden.FOLDER.glob("*.zip")) if name.startswith(only)]
    # Those of the format that is written now come first; few mutations do not reach the earlier ones.
    names = sorted(names, key=lambda name: not name.endswith(f"-{artifact.VERSION}"))[: max(1, count // 2)]
    signal.signal(signal.SIGALRM, _too_long)
    faulthandler.dump_traceback_later(3600, exit=True)
    problems = []
    with tempfile.TemporaryDirectory(prefix="triever-fuzz-") as temporary:
        place = Path(temporary).resolve()
        for name in names:  # as they are, so that all is imported and the memory of a search is known
            unpacked(name, place / "model")
            opened_and_searched(name, place / "model")
            shutil.rmtree(place / "model")
        before, watch = peak(), Watch()
        for number in range(seed, seed + count):
            problems += filter(None, [one(names[(number // 2) % len(names)], number, place, watch)])
            if peak() - before > MEMORY:
                problems.append(f"{number}: memory grew to {(peak() - before) >> 20} MiB")
                break
    return problems


def _too_long(*_: object) -> None:
    raise TimeoutError("it hangs")


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser()
    parser.add_argument("count", type=int)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="")
    asked = parser.parse_args()
    problems = run(asked.count, asked.seed, asked.only)
    print("\n".join([*problems, f"{len(problems)} problems in {asked.count} mutations"]))
    sys.exit(bool(problems))


if __name__ == "__main__":
    main()
