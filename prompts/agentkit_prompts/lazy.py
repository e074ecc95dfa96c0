"""Packages that export many names and import a module only when a name of it is asked for."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from importlib import import_module

__all__ = ["lazy_exports"]


def lazy_exports(package: str, homes: Mapping[str, str]) -> Callable[[str], object]:
    """Return a `__getattr__` for `package`; `homes` maps each module to the names, in one string, that it defines."""
    home_of = {name: module for module, names in homes.items() for name in _words(names)}

    def get(name: str) -> object:
        module = home_of.get(name)
        if module is None:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(import_module(module), name)
        setattr(sys.modules[package], name, value)
        return value

    return get


def _words(names: str) -> Iterable[str]:
    return names.split()
