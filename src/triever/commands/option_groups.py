"""Options that go together: each group is a dataclass, declared once, that a command takes as one parameter."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, is_dataclass
from inspect import Parameter, Signature, signature
from typing import TYPE_CHECKING, Any, get_type_hints

from triever.commands.options import DataOption, Json, Out, Plot, ReadAs, SkipBad, Split
from triever.commands.shared import check_before_work, command_words, open_data
from triever.terminal import emit, note, tell

if TYPE_CHECKING:
    from triever.data.datasets import Dataset
    from triever.evaluation.finding import Finding

LAST = ("read_as", "skip_bad")
"""Options that come last in every help."""


@dataclass(frozen=True)
class Questions:
    """The questions of a dataset that a command asks."""

    data: DataOption
    split: Split = "test"
    read_as: ReadAs = ""
    skip_bad: SkipBad = False

    def dataset(self) -> Dataset:
        """The dataset, opened."""
        return open_data(self.data, self.skip_bad, self.read_as)


@dataclass(frozen=True)
class Output:
    """Where the result of a command goes."""

    json_: Json = False
    plot: Plot = None
    out: Out = None
    started: float = field(default_factory=time.perf_counter, init=False)

    @property
    def seconds(self) -> float:
        """How long the command has taken so far."""
        return time.perf_counter() - self.started

    def check(self, measures: Sequence[str] = ()) -> None:
        """Refuse measures and files that cannot be used, before any work."""
        check_before_work(measures, self.plot, self.out)

    def tell(self, finding: Finding) -> None:
        """Print a finding, draw it, and write it to a file together with the machine."""
        from triever.lab import results

        if self.out:
            results.write(self.out, results.analysis(finding, command=command_words(), seconds=self.seconds))
            note(f"wrote {self.out}")
        emit(dict(finding.values)) if self.json_ else tell(finding)
        if self.plot:
            finding.plot(self.plot)
            note(f"wrote {self.plot}")


def grouped(function: Callable[..., None]) -> Callable[..., None]:
    """A command as the command line sees it: with the options of a group in place of each group that it takes."""
    own = _parameters(function)
    groups = {name: _parameters(taken.annotation) for name, taken in own.items() if is_dataclass(taken.annotation)}
    options = [option for name in own for option in groups.get(name, {name: own[name]}).values()]

    @functools.wraps(function)
    def command(**given: Any) -> None:
        made = {
            name: own[name].annotation(**{option: given.pop(option) for option in group})
            for name, group in groups.items()
        }
        function(**made, **given)

    shown = Signature(sorted(options, key=lambda option: option.name in LAST))
    setattr(command, "__signature__", shown)  # noqa: B010
    return command


def _parameters(function: Callable[..., Any]) -> dict[str, Parameter]:
    """What a function or a dataclass takes, by name, with the types themselves in place of their names."""
    hints = get_type_hints(function, include_extras=True)
    return {
        name: parameter.replace(kind=Parameter.KEYWORD_ONLY, annotation=hints[name])
        for name, parameter in signature(function).parameters.items()
    }
