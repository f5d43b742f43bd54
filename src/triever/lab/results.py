"""Measured results as files: each holds the command, the data and the machine of its numbers.

Tables in the documentation are made from these files, never by hand.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import platform
import re
import shlex
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypedDict

from triever.arguments import as_path
from triever.data.folders import listed
from triever.errors import DataError, cause
from triever.evaluation.finding import Finding, FindingRecord, Part, PartRecord, Values
from triever.evaluation.report import Report
from triever.files import atomic
from triever.lab.origin import shown
from triever.lab.run_results import Beside, Machine, RunResult
from triever.lab.tables import PLAN, RecipeTable, Row, is_plan, is_run, read_plan
from triever.version import __version__

UNSHOWN = "smoke"
"""The setting that only shows that a recipe runs; its numbers mean nothing, so no page shows them. A recipe without
settings is the same in all of them, and shown."""

_log = logging.getLogger("triever")

# An absolute path, in a text or alone. After a letter or a dot a slash begins none, as in queries/s.
_ROOTED = re.compile(r"""(?<![\w.:/])(?:[A-Za-z]:\\|~?/)[^\s'",;:]*""")


def record(
    report: Report, *, command: Sequence[str], seconds: float, systems: Mapping[str, object]
) -> dict[str, object]:
    """A report together with all that is needed to measure it again."""
    return {
        "command": shlex.join(["triever", *command]),
        "systems": dict(systems),
        "report": report.to_dict(),
        "seconds": round(seconds, 1),
        "peak_memory_mb": peak_memory_mb(),
        **surroundings(),
    }


def benchmark(command: Sequence[str], rows: Sequence[Mapping[str, object]]) -> dict[str, object]:
    """The rows of a benchmark together with the machine that they were measured on."""
    return {"command": shlex.join(command), **surroundings(), "rows": list(rows)}


def earlier_rows(path: Path) -> list[dict[str, object]]:
    """The rows of a benchmark that was written to a file."""
    try:
        rows = json.loads(path.read_text(encoding="utf-8"))["rows"]
    except (OSError, ValueError, KeyError, TypeError):
        rows = None
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        hint = "name a file that `triever bench decode --out` has written"
        raise DataError(f"{path} has no rows of a benchmark", hint)
    return rows


def analysis(finding: Finding, *, command: Sequence[str], seconds: float) -> dict[str, object]:
    """The finding of an analysis together with the command and the machine."""
    made = {"command": shlex.join(["triever", *command]), "seconds": round(seconds, 1)}
    return {**made, "finding": finding.to_dict(), **surroundings()}


def run_record(outcome: Mapping[str, object], *, command: Sequence[str], seconds: float) -> RunResult:
    """The outcome of a run of a recipe together with the machine; no path of this machine stays in it."""
    cost = {"seconds": round(seconds, 1), "peak_memory_mb": peak_memory_mb(), **gpu_peak()}
    return without_paths({"command": shlex.join(["triever", *command]), **outcome, **cost, **surroundings()})


def without_paths(value: object) -> Any:  # of the same type as the value
    """The same value, in which only the last name of every absolute path is left: the rest may tell who ran it.

    >>> without_paths({"backbone": "/home/ann/weights/small", "extra": ["queries/s", "no /tmp/x/y.json; look"]})
    {'backbone': 'small', 'extra': ['queries/s', 'no y.json; look']}
    """
    if isinstance(value, str):
        return _ROOTED.sub(lambda path: re.split(r"[/\\]", path[0].rstrip("/\\"))[-1], value)
    if isinstance(value, Mapping):
        return {key: without_paths(inner) for key, inner in value.items()}
    return [without_paths(inner) for inner in value] if isinstance(value, list | tuple) else value


def surroundings() -> dict[str, object]:
    """The machine and the versions that a number was measured with, and what else the machine was doing."""
    return {"hardware": _hardware(), "software": _software(), "beside": beside()}


def write(path: str | Path, result: Mapping[str, object]) -> None:
    """Write a result to its file."""
    with atomic(Path(path)) as file:
        file.write((json.dumps(result, indent=1, ensure_ascii=False) + "\n").encode())


def is_result(path: Path) -> bool:
    """Whether a file holds what `write` has written: how it was made, and on which machine."""
    try:
        values = json.loads(path.read_bytes())
    except (ValueError, RecursionError):
        return False
    return isinstance(values, dict) and {"command", "hardware"} <= values.keys()


class ResultFile(TypedDict, total=False):
    """What the file of a comparison or an analysis holds, as far as pages read it: a `report` or a `finding`."""

    command: str
    seconds: float
    hardware: Machine
    report: dict[str, object]
    finding: FindingRecord


@dataclass(frozen=True)
class Section:
    """A part of a page: the table of a recipe in one setting, one comparison, or one analysis."""

    page: str  # the recipe's name, or the folder that holds the file
    title: str
    body: str
    made_by: str  # the words of the command, without its options
    table: RecipeTable | None = None  # for a recipe
    unlisted: int = 0  # results in the recipe's folder that its list of cells lacks
    picture: str = ""  # the name of the file with its picture, beside the page; "" for none
    report: Report | None = None  # for a comparison

    def markdown(self, *, pictures: bool = False) -> str:
        """The section under its heading, and below it what shows its picture, if that is wanted."""
        shown = f"\n\n![{self.title}]({self.picture})" if pictures and self.picture else ""
        return f"## {self.title}\n\n{self.body}{shown}"


def render(folder: str | Path) -> str:
    """All results of a folder as one Markdown page."""
    return "\n\n".join([_header(folder), *(section.markdown() for section in sections(folder))]) + "\n"


def sections(folder: str | Path) -> list[Section]:
    """A section for each recipe and setting, and for each other result of a folder, in the order of their paths."""
    try:
        files = sorted(as_path(folder).rglob("*.json"))
    except OSError as error:
        raise DataError(f"{folder} cannot be opened: {error.strerror}", "check its permissions") from error
    plans = {file: _json(file) for file in files if file.name == PLAN}
    strange = {file.parent for file, plan in plans.items() if plan is not None and not is_plan(plan)}
    # A plan that is damaged, or no plan at all beside results of runs, is named as soon as it is read.
    strange -= {file.parent for file in files if file.parent in strange and is_run(_json(file))}
    recipes = {file.parent for file in plans} - strange
    results = {file: result for file in files if file.parent not in recipes and (result := _result(file)) is not None}
    others = [file for file in files if file.parent not in recipes and file not in results]
    if not recipes and not results:
        only = f", only other JSON such as {others[0]}" if others else ""
        raise DataError(f"{folder} holds no results{only}", "write results with: triever compare ... --out FILE")
    if others:
        names = listed([str(file) for file in others])
        _log.warning("left out %d JSON files that are no results, but something else: %s", len(others), names)
    made = (
        _section(file.relative_to(folder), results[file]) if file in results else _recipe_section(file.parent)
        for file in files
        if file in results or (file.name == PLAN and file.parent in recipes)
    )
    return [section for section in made if section]


def _header(folder: str | Path) -> str:
    command = shlex.join(["triever", "results", shown(folder)])
    return f"""# Results

Every number on this page is made from a file in `{shown(folder)}/` by `{command}`; each file holds
the values, their 95% intervals, the command, the data's fingerprint and the machine."""


def _section(name: Path, result: ResultFile) -> Section:
    is_analysis = "finding" in result
    try:
        machine = result["hardware"]
        gpu = f"{machine['gpu']}; " if machine.get("gpu") else ""
        where = f"{gpu}{machine['processor']}, {machine['cores']} cores; {result['seconds']} s"
        report = None if is_analysis else Report.from_dict(result["report"])
        shown = _measured(report) if report else _analysed(result["finding"])
    except DataError as error:
        raise DataError(f"{name}: {error.problem}", error.hint) from error
    except (LookupError, TypeError, AttributeError) as error:
        raise DataError(f"{name} is a damaged result: {cause(error)}", "remove it, or write it again") from error
    words = shlex.split(result["command"])[: 3 if is_analysis else 2]
    page = name.parent.as_posix() if name.parent.name else "more"
    title = name.with_suffix("").as_posix()
    return Section(page, title, f"`{result['command']}`\n\n{shown}{where}.", " ".join(words), report=report)


def _measured(report: Report) -> str:
    about = ", ".join(f"{key} {value}" for key, value in report.about.items())
    return f"{report.markdown()}\n\n{about}. "


def _analysed(finding: FindingRecord) -> str:
    try:
        parts = [Part(**part) for part in finding["parts"] if not _is_false_none(part, finding.get("values", {}))]
        return "".join(f"{part.markdown()}\n\n" for part in parts)
    except (LookupError, TypeError, AttributeError) as error:
        raise DataError(f"the finding of an analysis is damaged: {cause(error)}", "write it again") from error


def _is_false_none(part: PartRecord, values: Values) -> bool:
    """Whether a part says "none" of examples though there are some: `--examples 0` wrote that into older files."""
    if part.get("lines") != ["none"] or values.get("examples") or not values.get("sets"):
        return False
    only_the_second_finds = values["sets"][2]
    return only_the_second_finds["questions"] > 0


def _recipe_section(folder: Path) -> Section | None:
    """The table of a recipe in one setting; nothing for a setting that is not shown."""
    plan = read_plan(folder)
    setting = "" if plan.get("as_it_stands") else plan["setting"]
    if setting == UNSHOWN:
        return None
    table, unlisted = RecipeTable.of(plan, folder), RecipeTable.unlisted(plan, folder)
    usual = shlex.join(["triever", "experiment", plan["name"], *(["--setting", setting] if setting else [])])
    title = f"**{plan['title']}**" + (f": {plan['about']}" if plan["about"] else "")
    more = f"{UNLISTED}\n\n{unlisted.markdown()}" if unlisted.rows else ""
    picture = f"{plan['name'].rpartition('/')[2]}-{plan['setting']}.svg" if table.panels() else ""
    parts = [f"`{plan.get('command', usual)}`", title, table.markdown(), more, _origins([*table.rows, *unlisted.rows])]
    name, body = ", ".join(filter(None, [plan["name"], setting])), "\n\n".join(filter(None, parts))
    leftover = sum(len(row.results) for row in unlisted.rows)
    return Section(plan["name"], name, body, "triever experiment", table, leftover, picture)


UNLISTED = (
    f"`{PLAN}` does not list these results: they were measured after it was last written, or with other options than "
    "it names. Nothing was expected of them."
)


def _origins(rows: Sequence[Row]) -> str:
    """The data and the machines of a table, each once."""
    results = [result for row in rows for result in row.results]
    data = [f"data {result['data']['dataset']}, fingerprint {result['data']['fingerprint']}" for result in results]
    hardware = [result["hardware"] for result in results]
    machines = [f"{machine.get('gpu') or machine['processor']}, {machine['cores']} cores" for machine in hardware]
    origins = [*dict.fromkeys(data), *dict.fromkeys(machines)]
    return f"{'; '.join(origins)}." if origins else "Nothing has been run yet."


def _result(file: Path) -> ResultFile | None:
    """The comparison or analysis in a file; None where it holds something else, as a benchmark or a package does."""
    result = _json(file)
    if not isinstance(result, dict) or not result.keys() & {"report", "finding"}:
        return None
    try:
        made = ResultFile(command=result["command"], seconds=result["seconds"], hardware=result["hardware"])
    except KeyError as error:
        problem = f"{file} is not a result file, because it has no {error}"
        raise DataError(problem, "remove it, or write it again") from error
    if "finding" in result:
        return {**made, "finding": result["finding"]}
    return {**made, "report": result["report"]}


def _json(file: Path) -> object:
    """What is in a JSON file; None where it cannot be read as JSON."""
    try:
        return json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return None


def _hardware() -> Machine:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    system = f"{platform.system()} {platform.machine()}"
    if gpu := _gpu():
        return {"processor": _processor(), "cores": cores, "gpu": gpu, "system": system}
    return {"processor": _processor(), "cores": cores, "system": system}


def beside() -> Beside:
    """What else the machine is doing right now: times that are taken beside other work are longer than alone."""
    doing = Beside()
    with contextlib.suppress(OSError, AttributeError):  # Windows has no load
        doing["load"] = round(os.getloadavg()[0], 1)
    torch = sys.modules.get("torch")
    if torch and torch.cuda.is_available():
        free, total = torch.cuda.mem_get_info()
        doing["gpu_mb"] = max(0, total - free - torch.cuda.memory_reserved()) >> 20
    return doing


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
    return {"triever": __version__, "commit": commit(), "python": platform.python_version(), **used}


COMMIT = "TRIEVER_COMMIT"
"""The environment variable that names the commit where git cannot: in a copy without its repository, or without git."""


def commit() -> str:
    """The commit of the code that runs: git's for a checkout, with "-changed" if its code was changed since.

    Where git knows none, it is the environment variable TRIEVER_COMMIT; "" where that is not set either.
    """
    return _commit_by_git() or os.environ.get(COMMIT, "").strip()


def _commit_by_git() -> str:
    """The commit of the checkout that runs; "" for an installed package, and where there is no git."""
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


def forget_peaks() -> None:
    """Begin to measure peak memory anew, where the system allows it; elsewhere peaks count from the start."""
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")  # resets the peak on Linux
    torch = sys.modules.get("torch")
    if torch and torch.cuda.is_available():
        torch.cuda.reset_peak_memory_stats()


def gpu_peak() -> dict[str, int]:
    """The peak memory of this process on the GPU, where there is one."""
    torch = sys.modules.get("torch")
    if not torch or not torch.cuda.is_available():
        return {}
    return {"peak_gpu_memory_mb": round(torch.cuda.max_memory_allocated() / 2**20)}


def peak_memory_mb() -> int | None:
    """The peak memory of this process; None on Windows, where it is not known."""
    if sys.platform == "win32":
        return None
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return round(peak / (2**20 if sys.platform == "darwin" else 2**10))
