"""An extension for the API page: the help of an option is the docstring of its field."""

from __future__ import annotations

import importlib
from typing import Any

import griffe

from triever.config import options


class OptionHelp(griffe.Extension):
    """Gives a field that is made by `option(default, "help")` its help as docstring, and its default as value."""

    def on_attribute_instance(self, *, attr: griffe.Attribute, **_more: Any) -> None:
        """Called for each attribute when it is read."""
        call = attr.value
        if isinstance(call, griffe.ExprCall) and str(call.function) == "option" and attr.parent and not attr.docstring:
            owner = getattr(importlib.import_module(attr.module.path), attr.parent.name)
            attr.docstring = griffe.Docstring(options(owner)[attr.name].metadata["help"], parent=attr)
            attr.value = call.arguments[0]
