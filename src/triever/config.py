"""Options as dataclasses: read from a mapping, a TOML file or `key=value` words, and written back.

One dataclass is the constructor's arguments, the recipe's keys and the command line's `--set` words.
A key that does not exist names its nearest neighbour; a value that does not fit names its key.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import re
import tomllib
import types
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from triever.arguments import as_path
from triever.errors import UsageError, nearest

T = TypeVar("T")


def option(default: T, help: str, *, shared: bool = False) -> T:  # noqa: A002 - the word that every reader expects
    """A dataclass field that carries its line of help.

    One that all subclasses share is given by its name alone, stands behind their own, and is left out of their repr.
    """
    return dataclasses.field(default=default, metadata={"help": help}, kw_only=shared, repr=not shared)


def options(cls: Any) -> dict[str, dataclasses.Field[Any]]:
    """The fields of a dataclass that a person may set, by name."""
    fields = [field for field in dataclasses.fields(cls) if field.init]
    return {field.name: field for shared in (False, True) for field in fields if field.kw_only is shared}


@functools.cache
def _hints(cls: type) -> Mapping[str, Any]:
    """The types of a class's fields; resolving them takes longer than checking values against them."""
    return get_type_hints(cls)


def build(cls: type[T], values: Mapping[str, object], *, where: str = "") -> T:
    """An instance of a dataclass from loosely typed values; a string is parsed if the option is not text."""
    known = options(cls)
    hints = _hints(cls)
    for key in values:
        if key not in known:
            raise UsageError(f"{where}{key} is not an option of {cls.__name__}", nearest(key, known))
    tables = {key: _spelled_table(value, hints[key], f"{where}{key}") for key, value in values.items()}
    whole = {key: _completed(value, known[key].default) for key, value in tables.items()}
    return cls(**{key: _fit(value, hints[key], f"{where}{key}") for key, value in whole.items()})


def from_words(cls: type[T], words: Iterable[str] | None) -> T:
    """An instance of a dataclass from the `key=value` words of a command line, of which there may be none."""
    return build(cls, assignments(words or ()))


def _spelled_table(value: object, hint: object, where: str) -> object:
    """The table that a word such as {kind="bm25"} stands for, if the option takes a table; else the value itself."""
    takes = hasattr(hint, "of_options") or dataclasses.is_dataclass(hint)
    return _toml(value, where) if takes and isinstance(value, str) and value.startswith("{") else value


def _completed(value: object, default: object) -> object:
    """A table with its missing keys filled in from the option's default, if both are of the same kind."""
    if not isinstance(value, Mapping) or not dataclasses.is_dataclass(default):
        return value
    usual = plain(default)
    if value.get("kind", usual.get("kind")) != usual.get("kind"):
        return value
    return usual | {key: _completed(part, getattr(default, key, None)) for key, part in value.items()}


def validate(instance: object) -> None:
    """Check the options of an instance that Python code made, just as `build` checks values."""
    hints = _hints(type(instance))
    for name in options(type(instance)):
        object.__setattr__(instance, name, _fit(getattr(instance, name), hints[name], name))


def to_dict(instance: object) -> dict[str, Any]:
    """The options of an instance as plain values; `build` takes them back."""
    return {name: plain(getattr(instance, name)) for name in options(type(instance))}


def assignments(words: Iterable[str]) -> dict[str, Any]:
    """`key=value` words as a mapping. Dots make tables inside it; a value for such a table itself is its kind.

    >>> assignments(["k1=0.9", "docids=semantic", "docids.branch=10"])
    {'k1': '0.9', 'docids': {'kind': 'semantic', 'branch': '10'}}
    """
    result: dict[str, Any] = {}
    for word in words:
        key, equals, value = word.partition("=")
        if not equals or not key:
            raise UsageError(f"--set {word!r} is not of the form key=value", "for example: --set k1=0.9")
        *parents, last = key.strip().split(".")
        table = result
        for parent in parents:
            if not isinstance(table.setdefault(parent, {}), dict):
                table[parent] = {"kind": table[parent]}
            table = table[parent]
        if isinstance(table.get(last), dict):
            table[last] = {"kind": value.strip(), **table[last]}
        else:
            table[last] = value.strip()
    return result


def merged(values: Mapping[str, object], over: Mapping[str, object]) -> dict[str, Any]:
    """The first mapping with the values of the second over it; tables inside are merged too.

    >>> merged({"training": {"steps": 6, "batch": 8}}, {"training": {"batch": 4}})
    {'training': {'steps': 6, 'batch': 4}}
    """
    both = {
        key: merged(old, value) if isinstance(value, Mapping) and isinstance(old := values[key], Mapping) else value
        for key, value in over.items()
        if key in values
    }
    return {**values, **over, **both}


def read_toml(path: str | Path) -> dict[str, Any]:
    """A TOML file as a mapping."""
    try:
        return tomllib.loads(as_path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror or error}", "name a TOML file that exists") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{path}: not valid TOML: {error}", "correct the file at that line") from error


def plain(value: Any) -> Any:
    """An option's value as plain values: a table is a mapping, with its kind where it has one."""
    if dataclasses.is_dataclass(value):
        kind = {"kind": value.kind} if hasattr(type(value), "of_options") else {}
        return kind | to_dict(value)
    return [plain(item) for item in value] if isinstance(value, list | tuple) else value


def _fit(value: object, hint: Any, where: str) -> Any:
    """The value as the type that the option asks for, or an error that names the option."""
    origin = get_origin(hint)
    if origin in (Union, types.UnionType):
        return _fit_union(value, hint, where)
    if origin is Literal:
        if value not in get_args(hint):
            raise UsageError(f"{where} = {value!r} is not one of the choices", nearest(str(value), get_args(hint)))
        return value
    if hasattr(hint, "of_options"):  # one of several classes, chosen by its kind
        return hint.of_options(value, where)
    if dataclasses.is_dataclass(hint) and isinstance(hint, type):
        return _fit_nested(value, hint, where)
    if origin in (tuple, list):
        return origin(_fit(item, get_args(hint)[0], where) for item in _items(value, where))
    return _fit_scalar(value, hint, where)


def _fit_union(value: object, hint: object, where: str) -> object:
    if value is None and type(None) in get_args(hint):
        return None
    for choice in get_args(hint):
        if choice is not type(None):
            try:
                return _fit(value, choice, where)
            except UsageError as error:
                problem = error
    raise problem


def _fit_nested(value: object, hint: type, where: str) -> object:
    if isinstance(value, hint):
        return value
    if isinstance(value, Mapping):
        return build(hint, value, where=f"{where}.")
    raise UsageError(
        f"{where} = {value!r} should be a table", f"set its options, such as {where}.{next(iter(options(hint)))}"
    )


def _items(value: object, where: str) -> list[object]:
    if isinstance(value, str):
        return _toml(value, where) if value.startswith("[") else [part for part in value.split(",") if part]
    if isinstance(value, list | tuple):
        return list(value)
    raise UsageError(f"{where} = {value!r} should be a list", f"for example: {where}=a,b")


def _toml(word: str, where: str) -> Any:
    """A list or a table as TOML reads it; if only quotes are missing, the error shows the word with quotes."""
    value = _parsed(word)
    if not isinstance(value, str):
        return value
    quoted = _BARE.sub(lambda piece: piece[1] + _quoted(piece[2]), word)
    hint = f"texts inside need quotes: --set '{where}={quoted}'"
    if isinstance(_parsed(quoted), str):
        hint = 'write lists as ["one", "two"] and tables as {kind="bm25", k1=0.9}, in single quotes for the shell'
    raise UsageError(f"{where} = {word} is not valid TOML", hint)


# A piece of a list or table that has no quotes, and what stands before it.
_BARE = re.compile(r"""([\[=,]\s*)([^\s"'\[\]{},=]+)(?=\s*[,\]}])""")


def _quoted(word: str) -> str:
    return f'"{word}"' if isinstance(_parsed(word), str) else word


def _parsed(word: str) -> Any:
    """A word as TOML would read it; a word that is not TOML stays a word."""
    try:
        return tomllib.loads(f"value = {word}")["value"]
    except tomllib.TOMLDecodeError:
        return word


NAMES = {int: "a whole number", float: "a finite number", bool: "true or false", str: "text"}


def _fit_scalar(value: object, hint: type, where: str) -> object:
    scalar = _parsed(value) if isinstance(value, str) and hint is not str else value
    if hint is float and isinstance(scalar, int) and not isinstance(scalar, bool):
        scalar = float(scalar)
    if type(scalar) is not hint or (isinstance(scalar, float) and not math.isfinite(scalar)):
        raise UsageError(f"{where} = {value!r} should be {NAMES.get(hint, hint)}", "correct the value")
    return scalar
