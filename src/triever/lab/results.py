"""Measured results as files: each says what was run, on which data, with which machine and command.

Tables in the documentation are made from these files, never by hand.
"""

from __future__ import annotations

import json
import os
import platform
import shlex
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from triever.errors import DataError
from triever.evaluation.report import Report
from triever.files import atomic
from triever.version import __version__


def record(report: Report, *, command: Sequence[str], seconds: float, systems: Mapping[str, Any]) -> dict[str, Any]:
    """A report together with all that is needed to run it again."""
    return {
        "command": shlex.join(["triever", *command]),
        "systems": dict(systems),
        "report": report.to_dict(),
        "seconds": round(seconds, 1),
        "peak_memory_mb": peak_memory_mb(),
        **surroundings(),
    }


def benchmark(command: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The rows of a benchmark together with what they were measured on."""
    return {"command": shlex.join(command), **surroundings(), "rows": list(rows)}


def surroundings() -> dict[str, Any]:
    """The machine and the versions that a number was measured with."""
    return {"hardware": _hardware(), "software": _software()}


def write(path: str | Path, result: Mapping[str, Any]) -> None:
    """Write a result to its file."""
    with atomic(Path(path)) as file:
        file.write((json.dumps(result, indent=1, ensure_ascii=False) + "\n").encode())


def render(folder: str | Path) -> str:
    """All results of a folder as one Markdown page."""
    files = sorted(Path(folder).rglob("*.json"))
    if not files:
        raise DataError(f"{folder} holds no results", "write some with: triever compare ... --out FILE")
    parts = [_section(file.relative_to(folder), _read(file)) for file in files]
    return "\n\n".join([HEADER, *parts]) + "\n"


HEADER = """# Results

Every number on this page is made from a file in `results/` by `triever results results`; each file holds
the values, their 95% intervals, the command, the data's fingerprint and the machine."""


def _section(name: Path, result: Mapping[str, Any]) -> str:
    report = Report.from_dict(result["report"])
    about = ", ".join(f"{key} {value}" for key, value in report.about.items())
    machine = result["hardware"]
    where = f"{machine['processor']}, {machine['cores']} cores; {result['seconds']} s"
    return f"## {name.with_suffix('').as_posix()}\n\n`{result['command']}`\n\n{report.markdown()}\n\n{about}. {where}."


def _read(file: Path) -> dict[str, Any]:
    try:
        result = json.loads(file.read_text(encoding="utf-8"))
        return {key: result[key] for key in ("command", "report", "seconds", "hardware")}
    except (ValueError, KeyError, TypeError) as error:
        raise DataError(f"{file} is not a result file: {error}", "remove it, or write it again") from error


def _hardware() -> dict[str, Any]:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    gpu = {"gpu": name} if (name := _gpu()) else {}
    return {"processor": _processor(), "cores": cores, **gpu, "system": f"{platform.system()} {platform.machine()}"}


def _gpu() -> str:
    """The name of the GPU, where torch is in use and has one."""
    torch = sys.modules.get("torch")
    return torch.cuda.get_device_name() if torch and torch.cuda.is_available() else ""


def _processor() -> str:
    """The processor's name; Linux on ARM has none to give, so there the architecture stands for it."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.machine())


def _software() -> dict[str, str]:
    used = {name: sys.modules[name].__version__ for name in ("torch", "transformers") if name in sys.modules}
    return {"triever": __version__, "commit": _commit(), "python": platform.python_version(), **used}


def _commit() -> str:
    """The commit of the checkout that runs, marked if its code was changed since; "" for an installed package."""
    try:
        if not _is_checkout():
            return ""
        changed = _git("status", "--porcelain", "--", ".")
        return _git("rev-parse", "--short", "HEAD") + ("-changed" if changed else "")
    except (OSError, subprocess.SubprocessError):
        return ""


def _is_checkout() -> bool:
    """Whether the repository around this file is Triever's: a package may lie, or be kept, in somebody else's."""
    here = Path(__file__).resolve()
    _git("ls-files", "--error-unmatch", "--", str(here))  # fails where the file is not tracked
    return here == Path(_git("rev-parse", "--show-toplevel")).resolve() / "src/triever/lab/results.py"


def _git(*words: str) -> str:
    command = ["git", "-C", str(Path(__file__).resolve().parents[1]), *words]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=10).stdout.strip()


def peak_memory_mb() -> int | None:
    """The most memory that this process has held."""
    if sys.platform == "win32":
        return None
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return round(peak / (2**20 if sys.platform == "darwin" else 2**10))
