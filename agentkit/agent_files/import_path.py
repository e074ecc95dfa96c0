"""Import of objects by path: `package.module:name`, or `./file.py:name` for a file outside of a package."""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import os
import sys
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

from agentkit.errors import AgentDefinitionError
from agentkit_prompts.names import nearest

__all__ = ["imported", "module_of"]


def imported(path: str, base: Path) -> Any:
    """Import a module and return its attribute.

    Args:
        path: `package.module:name`, or `./file.py:name` with a path relative to `base`. The name may have dots.
        base: The folder of relative paths.

    Raises:
        AgentDefinitionError: The module or name is unknown, or the import failed.
    """
    where, colon, name = path.rpartition(":")
    if not colon or not where or not name:
        raise AgentDefinitionError(f"{path!r:.80}: expected `package.module:name` or `./file.py:name`", name=path)
    module = module_of(where, base)
    value: Any = module
    for part in name.split("."):
        try:
            value = getattr(value, part)
        except AttributeError:
            attributes = {}
            if hasattr(value, "__dict__"):
                attributes = vars(value)
            names = [key for key, item in attributes.items() if not key.startswith("_") and _is_own(item, module)]
            raise AgentDefinitionError(
                f"{path!r:.80}: {where} has no {part!r}{nearest(part, names)}", name=part
            ) from None
    return value


def module_of(where: str, base: Path) -> ModuleType:
    """Import a module by its name, or a file relative to `base`, and return it.

    Raises:
        AgentDefinitionError: The module is unknown, or the import failed.
    """
    if where.endswith(".py"):
        return _of_file(where, base)
    return _of_name(where)


def _is_own(value: Any, module: ModuleType) -> bool:
    """Return True if an error should suggest a value: it is defined in the module, and not plain data."""
    if isinstance(value, type | FunctionType):
        return value.__module__ == module.__name__
    return type(value).__module__ not in ("builtins", "__future__", "typing", "pathlib")


def _of_name(name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name and (name == error.name or name.startswith(f"{error.name}.")):
            raise AgentDefinitionError(
                f"unknown module {name!r:.80}: install it, run in the folder that contains it, or name its file, "
                "such as ./tools.py:name",
                name=name,
            ) from None
        raise AgentDefinitionError(f"module {name!r:.80} could not be imported: {error}", name=name) from error
    except Exception as error:
        raise AgentDefinitionError(
            f"module {name!r:.80} could not be imported: {type(error).__name__}: {error}", name=name
        ) from error


def _of_file(where: str, base: Path) -> ModuleType:
    file = Path(os.path.realpath(base / where))
    if not file.is_file():
        raise AgentDefinitionError(f"missing file {file}; check the path", path=str(file))
    text = file.read_bytes()
    name = f"{file.stem}_{hashlib.blake2b(str(file).encode() + text, digest_size=6).hexdigest()}"
    # Agents that use the same file share its objects.
    if (loaded := sys.modules.get(name)) is not None:
        return loaded
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        # The text is compiled here, because the cached bytecode of an import may be of an older text.
        exec(compile(text, file, "exec"), module.__dict__)
    except BaseException as error:
        del sys.modules[name]
        if not isinstance(error, Exception):
            raise
        raise AgentDefinitionError(
            f"{file} could not be imported: {type(error).__name__}: {error}", path=str(file)
        ) from error
    return module
