"""The page docs/cli.md, made from the commands themselves: `python -m tests.cli_page > docs/cli.md`."""

from __future__ import annotations

import html
import sys
from collections.abc import Iterator
from typing import Any

import typer
from typer import Context

from triever.cli import app

HEADER = """# Command line

Made from the commands' own help. `-v` or `--verbose` prints more messages and `-q` or `--quiet` nothing but results and
errors, anywhere on the line. Results go to standard output and everything else to standard error, so that `--json` can
be piped. Where standard error is no terminal, long work says every few seconds how far it is. A mistake ends with exit
code 2 and one sentence, Ctrl-C with 130; neither leaves anything half-written."""


def commands(command: Any, path: str) -> Iterator[tuple[str, Any]]:
    """Every command below this one, with the words that call it."""
    if hasattr(command, "commands"):
        for name, inner in command.commands.items():
            yield from commands(inner, f"{path} {name}")
    else:
        yield path, command


def section(path: str, command: Any) -> str:
    context = Context(command, info_name=path)
    usage = command.get_usage(context).removeprefix("Usage: ")
    rows = [record for parameter in command.params if (record := row(parameter, context))]
    parts = [f"## {path}", command.help, f"```text\n{usage}\n```"]
    if rows:
        lines = [f"| {code(names)} | {text} |" for names, text in rows]
        parts.append("\n".join(["| argument or option | what it is |", "| --- | --- |", *lines]))
    return "\n\n".join(parts)


def row(parameter: Any, context: Context) -> tuple[str, str] | None:
    if parameter.param_type_name == "argument":
        return parameter.metavar or parameter.name.upper(), parameter.help or ""
    record = parameter.get_help_record(context)
    return (record[0], record[1]) if record else None


def code(text: str) -> str:
    """A text as code in a table; between backticks, GitHub and mkdocs do not agree on how a bar is written."""
    return f"<code>{html.escape(text).replace('|', '&#124;')}</code>" if "|" in text else f"`{text}`"


def render() -> str:
    root = typer.main.get_command(app())
    return "\n\n".join([HEADER, *(section(path, command) for path, command in commands(root, "triever"))]) + "\n"


if __name__ == "__main__":
    sys.stdout.write(render())
