"""Packages that export many names, and import a module only when a name of it is asked for."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path

__all__ = ["exports_of_stub"]

_ONE = re.compile(r"^from (\S+) import (?:\(\s*)?(\w+) as \2\b", re.MULTILINE)
_ALL = re.compile(r"^from (\S+) import \*$", re.MULTILINE)


def exports_of_stub(package: str, file: str) -> tuple[Callable[[str], object], Callable[[], list[str]], list[str]]:
    """Return `__getattr__`, `__dir__` and `__all__` of `package`, as the stub (`.pyi`) next to its `file` lists them.

    The stub is the one list of what is public: type checkers and editors read it too.
    """
    stub = Path(file).with_suffix(".pyi").read_text("utf-8")
    homes = {name: module for module, name in _ONE.findall(stub)}
    homes |= {name: module for module in _ALL.findall(stub) for name in import_module(module).__all__}
    public = sorted(homes)

    def get(name: str) -> object:
        module = homes.get(name)
        if module is None:
            from agentkit_prompts.names import nearest

            what = f"module {package!r} has no attribute {name!r}{nearest(name, public)}"
            raise AttributeError(what, name=name, obj=sys.modules[package])
        value = getattr(import_module(module), name)
        setattr(sys.modules[package], name, value)
        return value

    def names() -> list[str]:
        return sorted({*vars(sys.modules[package]), *public} - {exports_of_stub.__name__})

    return get, names, public
