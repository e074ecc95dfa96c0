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


def imported(path: str, base: Path) -> Any:
    """Return an object of a module, which is imported if necessary.

    Args:
        path: `package.module:name`, or `./file.py:name` with a path relative to `base`. The name can have dots.
        base: The folder of relative paths.

    Raises:
        AgentDefinitionError: The module or name is unknown, or the import failed.
    """
    source, colon, name = path.rpartition(":")
    if not colon or not source or not name:
        raise AgentDefinitionError(f"{path!r:.80}: expected `package.module:name` or `./file.py:name`", name=path)
    module = module_of(source, base)
    value: Any = module
    for attribute in name.split("."):
        try:
            value = getattr(value, attribute)
        except AttributeError:
            suggestion = nearest(attribute, _suggestions(value, module))
            raise AgentDefinitionError(
                f"{path!r:.80}: {source} has no {attribute!r}{suggestion}", name=attribute
            ) from None
    return value


def _suggestions(value: Any, module: ModuleType) -> list[str]:
    """Return the attributes of a value that an error can suggest: public objects that the module defines."""
    attributes = getattr(value, "__dict__", {})
    return [name for name, item in attributes.items() if not name.startswith("_") and _is_defined_in(item, module)]


def module_of(source: str, base: Path) -> ModuleType:
    """Return the module with a name, or the module of a file relative to `base`.

    Raises:
        AgentDefinitionError: The module is unknown, or the import failed.
    """
    if source.endswith(".py"):
        return _module_of_file(source, base)
    return _module_of_name(source)


def _is_defined_in(value: Any, module: ModuleType) -> bool:
    """True if a module defines a class or function, or has an object that is no plain data and no import."""
    if isinstance(value, type | FunctionType):
        return value.__module__ == module.__name__
    return type(value).__module__ not in ("builtins", "__future__", "typing", "pathlib")


def _module_of_name(name: str) -> ModuleType:
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


def _module_of_file(source: str, base: Path) -> ModuleType:
    file = Path(os.path.realpath(base / source))
    if not file.is_file():
        raise AgentDefinitionError(f"missing file {file}; check the path", path=str(file))
    text = file.read_bytes()
    name = f"{file.stem}_{hashlib.blake2b(str(file).encode() + text, digest_size=6).hexdigest()}"
    # The name contains a hash of the text: agents that use the same file share its objects until the file changes.
    if (loaded := sys.modules.get(name)) is not None:
        return loaded
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        # Compiled here, because the cached bytecode of an import can be of an older text.
        exec(compile(text, file, "exec"), module.__dict__)
    except BaseException as error:
        del sys.modules[name]
        if not isinstance(error, Exception):
            raise
        raise AgentDefinitionError(
            f"{file} could not be imported: {type(error).__name__}: {error}{_sibling_hint(error, file)}",
            path=str(file),
        ) from error
    return module


def _sibling_hint(error: Exception, file: Path) -> str:
    """Return the remedy if a file imports a file next to it; empty for another error."""
    name = getattr(error, "name", None)
    if not isinstance(error, ModuleNotFoundError) or not name:
        return ""
    sibling = file.with_name(f"{name.partition('.')[0]}.py")
    if not sibling.is_file():
        return ""
    return (
        f"; {sibling.name} is next to it: name both as modules, `{sibling.stem}:NAME` and `{file.stem}:NAME`, and run "
        "in their folder, or import from one file"
    )
