"""Everything shown is run: the commands and the code of the README and of the pages that promise to work."""

from __future__ import annotations

import ast
import dataclasses
import itertools
import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

import triever
from tests import front_page, scale_page
from tests.marks import quick
from tests.warm import code_program, program
from triever import cli
from triever.config import options

PAGES = [
    "README.md",
    "docs/index.md",
    "docs/own-documents.md",
    "docs/rag.md",
    "docs/serving.md",
    "docs/suggest.md",
    "docs/evaluation.md",
    "docs/data.md",
    "docs/search.md",
    "docs/performance.md",
    "docs/encoders.md",
    "docs/bring-your-own.md",
    "docs/coming-from.md",
    "docs/generative.md",
    "docs/language-models.md",
    "docs/contextual.md",
    "docs/gdr.md",
    "docs/reatt.md",
    "docs/query-writer.md",
    "docs/experiments.md",
    "docs/scale.md",
    "docs/sharing.md",
    "docs/theory.md",
    "docs/findings/study.md",
    "docs/many-machines.md",
]
LONG = {
    *("docs/index.md", "docs/evaluation.md", "docs/encoders.md", "docs/generative.md", "docs/contextual.md"),
    *("docs/gdr.md", "docs/reatt.md", "docs/query-writer.md", "docs/scale.md", "docs/theory.md", "docs/serving.md"),
    *("docs/language-models.md", "docs/bring-your-own.md", "docs/coming-from.md", "docs/performance.md"),
    *("docs/own-documents.md", "docs/suggest.md", "docs/findings/study.md"),
}
"""Pages that take long; `make test` only looks whether their commands and their code can be read."""
FENCE = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
NOT_RUN = ("make ", "pip ", "git ", "cd ")


def blocks(page: Path) -> list[tuple[str, str]]:
    return [(match[1], match[2]) for match in FENCE.finditer(page.read_text(encoding="utf-8"))]


def shell(language: str, text: str) -> str:
    """The commands of a block; in a transcript those are the lines behind a dollar sign."""
    if language == "console":
        return "\n".join(line[2:] for line in text.splitlines() if line.startswith("$ "))
    return "" if text.startswith(NOT_RUN) else text


@pytest.mark.parametrize("name", quick(*(page for page in PAGES if page not in LONG), of=PAGES))
def test_what_a_page_shows_can_be_done(root: Path, tmp_path: Path, name: str) -> None:
    places = [str(program().parent), str(Path(sys.executable).parent), os.environ["PATH"]]
    environment = {**os.environ, "PATH": os.pathsep.join(places)}
    ran = 0
    for language, text in blocks(root / name):
        if language == "python":
            command = [str(code_program()), text]
        elif language in ("sh", "console") and shell(language, text):
            command = ["bash", "-euo", "pipefail", "-c", shell(language, text)]
        else:
            continue
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{text}\n{done.stdout}\n{done.stderr}"
        ran += 1
    assert ran, "a page that promises to work shows nothing"


@pytest.mark.parametrize("name", sorted(LONG))
def test_what_a_long_page_shows_can_be_read(root: Path, name: str) -> None:
    root_command = typer.main.get_command(cli.app())
    for language, text in blocks(root / name):
        if language == "python":
            imports = [line for line in ast.parse(text).body if isinstance(line, ast.Import | ast.ImportFrom)]
            exec(compile(ast.Module(imports, []), name, "exec"), {})
        elif language in ("sh", "console"):
            for line in shell(language, text).replace("\\\n", " ").splitlines():
                if line.startswith("triever "):  # others may go over several lines
                    parse(root_command, shlex.split(line, comments=True)[1:])


def parse(command: Any, words: list[str], parent: Any = None) -> None:
    """Read the words of a command as the command line does, without running it; mistakes raise."""
    context = command.make_context(words[0] if words else "triever", list(words), parent=parent)
    if hasattr(command, "resolve_command"):
        _, inner, rest = command.resolve_command(context, [*context._protected_args, *context.args])
        parse(inner, rest, context)


def test_make_targets_that_are_shown_exist(root: Path) -> None:
    made = set(re.findall(r"^([a-z]+):", (root / "Makefile").read_text(), re.MULTILINE))
    for page in [*root.glob("*.md"), *(root / "docs").glob("*.md")]:
        shown = set(re.findall(r"(?:`|^)make ([a-z]+)", page.read_text(encoding="utf-8"), re.MULTILINE))
        assert shown <= made, f"{page.name} shows a target that does not exist"


def test_every_file_in_the_readme_tree_exists(root: Path) -> None:
    tree = next(text for language, text in blocks(root / "README.md") if language == "text")
    folder = root
    for line in tree.splitlines():
        name, depth = line.split()[0], (len(line) - len(line.lstrip())) // 2
        folder = root if depth == 0 else root / "src" / "triever" if depth == 1 else root / "src" / "triever" / "data"
        assert (folder / name).exists(), f"the README shows {name}"


def test_the_readme_tree_is_complete(root: Path) -> None:
    tree = (root / "README.md").read_text(encoding="utf-8")
    for path in (root / "src" / "triever").iterdir():
        if not path.name.startswith("__pycache__"):
            assert f"  {path.name}{'/' if path.is_dir() else ''} " in tree, f"the README does not show {path.name}"


def test_every_command_is_in_the_readme(root: Path) -> None:
    from triever.cli import COMMANDS

    text = (root / "README.md").read_text(encoding="utf-8")
    for name in COMMANDS:
        assert f"triever {name}" in text, f"the README does not show triever {name}"


def test_links_between_pages_lead_somewhere(root: Path) -> None:
    for page in [*root.glob("*.md"), *(root / "docs").glob("*.md")]:
        for target in re.findall(r"\]\(([^)#:]+\.md)\)", page.read_text(encoding="utf-8")):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


RULE = re.compile(r"\|( *:?-+:? *\|)+")


def test_every_column_of_a_table_has_a_name(root: Path) -> None:
    for page in [root / "README.md", *sorted((root / "docs").rglob("*.md"))]:
        lines = page.read_text(encoding="utf-8").splitlines()
        for number, (line, below) in enumerate(itertools.pairwise(lines), 1):
            if RULE.fullmatch(below.strip()):
                cells = re.split(r"(?<!\\)\|", line.strip())[1:-1]
                assert all(cell.strip() for cell in cells), f"{page}:{number}: {line}"


@pytest.mark.long
def test_the_site_builds_and_holds_the_api(root: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path)]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    page = (tmp_path / "api" / "index.html").read_text(encoding="utf-8")
    assert 'href="../style.css"' in page, "without it, wide code looks as if it ended at the edge"
    assert re.search(r"pre > code {[^}]*overflow-x: auto;", (tmp_path / "style.css").read_text(encoding="utf-8"))
    missing = [name for name in triever.__all__ if f'id="triever.{name}"' not in page]
    assert not missing, "docs/api.md has no section for these"
    assert 'id="triever.Retriever.search_many"' in page
    unexplained = [f"{kind.__name__}.{name}" for kind, name in public_options() if not explained(kind, name, page)]
    assert not unexplained, "docs/api.md does not show these options"


def public_options() -> Iterator[tuple[type, str]]:
    """Every option of every public class."""
    for kind in (getattr(triever, name) for name in triever.__all__):
        if dataclasses.is_dataclass(kind):
            yield from ((kind, name) for name, field in options(kind).items() if "help" in field.metadata)


def explained(kind: type, name: str, page: str) -> bool:
    """Whether a page has an option, of a class or of one that it is made from."""
    return any(f'id="triever.{base.__name__}.{name}"' in page for base in kind.__mro__)


def test_the_api_page_has_every_public_name_once(root: Path) -> None:
    page = (root / "docs" / "api.md").read_text(encoding="utf-8")
    assert sorted(re.findall(r"^::: triever\.(\w+)$", page, re.MULTILINE)) == sorted(triever.__all__)


def test_the_table_on_the_first_page_is_made_from_the_results() -> None:
    for path in front_page.PAGES:
        page = path.read_text(encoding="utf-8")
        assert page == front_page.render(page), f"{path.name}: run: make pages"


def test_the_tables_of_scale_are_made_from_the_benchmark() -> None:
    page, result = scale_page.PAGE.read_text(encoding="utf-8"), json.loads(scale_page.RESULT.read_bytes())
    assert page == scale_page.render(page, result), "run: make pages"


def test_the_pages_of_results_are_made_from_the_results(root: Path) -> None:
    from triever.lab.pages import pages

    docs = root / "docs"
    files = [docs / "results.md", *docs.glob("results/**/*.md")]
    kept = {path.relative_to(docs).as_posix(): path.read_text(encoding="utf-8") for path in files}
    assert kept == pages(root / "results"), "run: make pages"


def test_every_page_is_in_the_menu(root: Path) -> None:
    menu = re.findall(r"[\w./-]+\.md", (root / "mkdocs.yml").read_text(encoding="utf-8"))
    assert sorted(menu) == sorted(path.relative_to(root / "docs").as_posix() for path in root.glob("docs/**/*.md"))
