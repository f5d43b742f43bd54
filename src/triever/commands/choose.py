"""Commands that help to choose: the options of a system, and the system for a dataset."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from triever.commands.options import Data, Expansions, Json, ReadAs, SkipBad
from triever.commands.shared import open_data
from triever.printable import printable
from triever.terminal import emit, table

if TYPE_CHECKING:
    from triever.lab.option_list import Option


def options(
    system: Annotated[
        str,
        typer.Argument(
            metavar="SYSTEM",
            help="generative, contextual, gdr, reatt, bm25, dense, multivector, reranked, fused, answerer, given "
            "or run.",
        ),
    ],
    text: Annotated[
        str, typer.Argument(metavar="TEXT", help="Show only options whose name or meaning contains this text.")
    ] = "",
    json_: Json = False,
) -> None:
    """List the options of a system as --set takes them, with their defaults and what they mean."""
    from triever.lab.option_list import by_choice, listed

    found = listed(system, text)
    if json_:
        emit([option.to_dict() for option in found])
        return
    for given, group in by_choice(found).items():
        if given:
            emit(f"\nwith {given}:")
        emit(table([_row(option) for option in group]))


def _row(option: Option) -> dict[str, str]:
    default = "(not set)" if option.word is None else option.word or "(empty)"
    unnamed = [choice for choice in option.choices if choice not in option.meaning]
    choices = f" (choices: {', '.join(option.choices)})" if unnamed else ""
    return {"option": option.name, "default": default, "meaning": f"{option.meaning}{choices}"}


def suggest(
    data: Data,
    changes: Annotated[
        str, typer.Option(metavar="rarely|daily|hourly", help="How often documents come, go or change.")
    ] = "rarely",
    expansions: Expansions = None,
    read_as: ReadAs = "",
    skip_bad: SkipBad = False,
    json_: Json = False,
) -> None:
    """Suggest a system for a dataset on this machine: why, what it costs, and the commands."""
    from triever.lab import suggest as lab
    from triever.lab.situation import Situation, check_changes, described, this_machine

    check_changes(changes)  # before a large corpus is read
    dataset = open_data(data, skip_bad, read_as)
    if expansions:
        dataset = dataset.with_expansions(expansions)
    situation = Situation(described(data, dataset), this_machine(), changes)
    advice = lab.suggest(situation, expansions=str(expansions or ""), read_as=read_as, skip_bad=skip_bad)
    emit(advice.to_dict() if json_ else "\n".join(map(printable, lab.lines(advice))))
