"""Every option of a system by the name that `--set` takes, read from the dataclasses that are the options.

Nothing about an option is written down here: names, defaults, meanings and choices are those of the classes.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args, get_origin, get_type_hints

from triever import config, plugins
from triever.docids.schemes import SCHEMES, Scheme, scheme_class
from triever.errors import UsageError
from triever.retriever import KINDS, Retriever, system

_log = logging.getLogger("triever")


@dataclass(frozen=True)
class Option:
    """One option: its name for `--set`, its default as a plain value, what it takes and what it means."""

    name: str
    default: object  # None: not set
    takes: str
    meaning: str
    choices: tuple[str, ...] = ()
    given: str = ""  # the choice that has this option, such as docids.kind=semantic; all have it where this is empty

    @property
    def word(self) -> str | None:
        """The default as `--set` takes it; None if nothing stands for it there."""
        return None if self.default is None else _word(self.default)

    def mentions(self, text: str) -> bool:
        """Whether its name or its meaning contains a text, in any case."""
        searched = f"{self.name}\n{self.meaning}\n{self.given}\n{' '.join(self.choices)}"
        return text.casefold() in searched.casefold()

    def to_dict(self) -> dict[str, object]:
        """The same as plain values, for JSON."""
        return dataclasses.asdict(self) | {"choices": list(self.choices)}


def listed(kind: str, text: str = "") -> list[Option]:
    """The options of a system; with a text only those that mention it."""
    every = list(_Walk(system(kind)).options())
    chosen = [option for option in every if option.mentions(text)]
    if text and not chosen:
        problem = f"no option of {kind} mentions {text!r}"
        raise UsageError(problem, f"leave it out to see all {len(every)} options")
    return chosen


def by_choice(options: Sequence[Option]) -> dict[str, list[Option]]:
    """Options by the choice that has them; those that are always there come first, under an empty text."""
    groups: dict[str, list[Option]] = {"": []}
    for option in options:
        groups.setdefault(option.given, []).append(option)
    return {given: group for given, group in groups.items() if group}


@dataclass(frozen=True)
class _Walk:
    """A way through the options of a system, and of all tables inside it."""

    system: type[Retriever[Any]]

    def options(self) -> Iterator[Option]:
        """Every option of the system."""
        return self._of(self.system, None)

    def _of(self, owner: type, instance: object, prefix: str = "", given: str = "") -> Iterator[Option]:
        """The options of a class below a prefix; defaults are those of the instance, or else of the class."""
        hints = get_type_hints(owner)
        for name, field in config.options(owner).items():
            default = getattr(instance, name) if instance is not None else _default(field)
            option = Option(f"{prefix}{name}", default, "", field.metadata.get("help", ""), given=given)
            yield from self._expanded(option, hints[name])

    def _expanded(self, option: Option, hint: object) -> Iterator[Option]:
        """An option by itself, or the options of the table that it is."""
        hint = _without_none(hint)
        family = get_origin(hint) or hint
        if family is Scheme or family is Retriever:
            yield from self._of_family(option, SCHEME if family is Scheme else SYSTEM)
        elif dataclasses.is_dataclass(family) and isinstance(family, type):
            yield from self._of(family, option.default, f"{option.name}.", option.given)
        else:
            choices = tuple(map(str, get_args(hint))) if family is Literal else ()
            default = config.plain(option.default)
            yield dataclasses.replace(option, default=default, takes=_takes(hint), choices=choices)

    def _of_family(self, option: Option, family: _Family) -> Iterator[Option]:
        """The kinds that an option may be, and what each of them adds."""
        kinds = tuple(kind for kind in family.kinds() if self._accepts(option, kind))
        begun = option.default
        own_kind = getattr(begun, "kind", None)
        name = f"{option.name}.kind"
        meaning = f"{option.meaning}{family.addition}"
        yield Option(name, own_kind, family.takes, meaning, kinds, option.given)
        for kind in kinds if family.shows_all else (own_kind,) if own_kind else ():
            instance = begun if kind == own_kind else None
            yield from self._of(family.find(kind), instance, f"{option.name}.", f"{name}={kind}")

    def _accepts(self, option: Option, kind: str) -> bool:
        """Whether the system can be built with this kind: contextual takes titles alone, for example."""
        try:
            config.from_words(self.system, [*filter(None, [option.given]), f"{option.name}.kind={kind}"])
        except UsageError as error:
            _log.debug("%s.kind=%s is left out: %s", option.name, kind, error)
            return False
        return True


@dataclass(frozen=True)
class _Family:
    """Classes of which an option takes one, by its kind."""

    takes: str
    kinds: Callable[[], Sequence[str]]
    find: Callable[[str], type]
    shows_all: bool  # else only the options of the default: there would be no end to systems in systems
    addition: str = ""  # to the meaning of the option


SCHEME = _Family("a docid scheme", lambda: [*SCHEMES, *plugins.names(plugins.SCHEMES, SCHEMES)], scheme_class, True)
SYSTEM = _Family(
    "a system",
    lambda: [*KINDS, *plugins.names(plugins.RETRIEVERS, KINDS)],
    system,
    False,
    "; its own options follow the dot, and `triever options` lists them",
)


def _default(field: dataclasses.Field[Any]) -> object:
    if field.default is not dataclasses.MISSING:
        return field.default
    return None if field.default_factory is dataclasses.MISSING else field.default_factory()


def _without_none(hint: object) -> object:
    """The type of an option that need not be set."""
    types = [choice for choice in get_args(hint) if choice is not type(None)]
    return types[0] if len(types) == 1 and type(None) in get_args(hint) else hint


def _takes(hint: Any) -> str:
    if get_origin(hint) is Literal:
        return "one of its choices"
    if get_origin(hint) in (tuple, list):
        return "a list, such as a,b"
    return config.NAMES.get(hint, str(hint))


def _word(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        return ",".join(str(item["kind"]) if isinstance(item, dict) else _word(item) for item in value)
    return str(value)
