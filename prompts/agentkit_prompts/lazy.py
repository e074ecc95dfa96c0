"""Lazy exports: a package imports a module at the first use of one of its names."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module


def exports(
    package: str, names_of: Mapping[str, str], *, all_of: Sequence[str] = ()
) -> tuple[Callable[[str], object], Callable[[], list[str]], list[str]]:
    """Return `__getattr__`, `__dir__` and `__all__` of `package`.

    The stub (`.pyi`) next to the package declares the same names for type checkers and editors.

    Args:
        package: Name of the package.
        names_of: Exported names, separated by spaces, by the module that defines them.
        all_of: Modules whose public names are all exported; they are imported now.
    """
    homes = {name: module for module, names in names_of.items() for name in names.split()}
    homes |= {name: module for module in all_of for name in import_module(module).__all__}
    public = sorted(homes)

    def get(name: str) -> object:
        module = homes.get(name)
        if module is None:
            raise _unknown_name(package, name, public)
        value = getattr(import_module(module), name)
        # Stored in the package, so that the next read does not call this function.
        setattr(sys.modules[package], name, value)
        return value

    def names() -> list[str]:
        return sorted({*vars(sys.modules[package]), *public} - {exports.__name__})

    return get, names, public


def _unknown_name(package: str, name: str, public: list[str]) -> Exception:
    """Return the error about a name that a package does not export."""
    # Imported here, because only errors need these modules.
    from agentkit_prompts.hints import is_submodule, module_hint
    from agentkit_prompts.names import nearest

    problem = f"module {package!r} has no attribute {name!r}"
    advice = nearest(name, public)
    # Only for identifiers: a search for other text, such as a path with dots, would import modules.
    if name.isidentifier() and not name.startswith("_"):
        hint = module_hint(package, name)
        if hint is not None:
            # An `ImportError`, because `from PACKAGE import NAME` would replace an `AttributeError` and lose the hint.
            return ImportError(f"{problem}; {hint}", name=package)
        if is_submodule(package, name):
            advice = f"; import {package}.{name} first"
    return AttributeError(f"{problem}{advice}", name=name, obj=sys.modules[package])
