"""`load_datasets`: the datasets of a configuration file as suites ship it, Python or YAML. No code is run."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from agentkit_prompts.errors import InContextError, nearest
from agentkit_prompts.evaluation.config.config_code import Interpreter
from agentkit_prompts.evaluation.config.config_scope import Unread
from agentkit_prompts.evaluation.config.config_sizes import Problem, apart, weigh
from agentkit_prompts.evaluation.config.config_values import Imported
from agentkit_prompts.strict_yaml import strict_loader
from agentkit_prompts.system.regular_files import read_regular_text

__all__ = ["load_config", "load_datasets", "root_of"]

_MAX_FILE = 10_000_000
"""Bytes of a file that code opens."""
_MAX_CODE = 500_000
"""Bytes of one file of code: its statements take some thousand times as much memory."""
_MAX_YAML = 1_000_000
"""Bytes of one file of YAML: reading it takes some seconds."""
_MAX_FILES = 2_000
_MAX_PROBLEMS = 20
_VALUES = (str, int, float, list, tuple, dict, set, type(None))
_YAML = (".yaml", ".yml")


class _Variables(dict[str, Any]):
    """The variables of a file. One that could not be read says why when it is asked for."""

    def __init__(self, file: Path, read: Mapping[str, Any]) -> None:
        super().__init__()
        self._file = file
        self._unread = {name: value for name, value in read.items() if isinstance(value, Unread)}
        held = {
            name: value
            for name, value in read.items()
            if isinstance(value, _VALUES) and not isinstance(value, Imported) and not name.startswith("__")
        }
        weigh(held)
        self.update(_copied(held))

    def __missing__(self, name: object) -> Any:
        unread = self._unread.get(str(name))
        if unread is not None:
            raise InContextError(unread.why, path=unread.path, line=unread.line, name=unread.name)
        text = f"{self._file}: no {name!r}{nearest(str(name), self)}"
        raise InContextError(text, path=str(self._file), name=str(name))

    def unread(self) -> list[Unread]:
        """Return the variables of datasets that could not be read."""
        return [unread for name, unread in self._unread.items() if name.endswith("datasets")]


def root_of(path: str | os.PathLike[str], root: str | os.PathLike[str] | None = None) -> Path:
    """Return the folder outside of which a configuration reads nothing.

    It is `root`, or else the nearest folder around it that is called `configs`, or else its own.

    Raises:
        InContextError: It does not lie in that folder, or no file can have the name.
    """
    try:
        file = Path(path).resolve()
        if root is None:
            return next((folder for folder in file.parents if folder.name == "configs"), file.parent)
        folder = Path(root).resolve()
    except (OSError, ValueError, RuntimeError) as error:  # a link to itself, or a name that no file can have
        raise InContextError(f"{str(path)!r:.200}: cannot be read ({error})", path=str(path)) from error
    if not file.is_relative_to(folder):
        text = f"{file}: does not lie in the root {folder}; give a folder that it lies in"
        raise InContextError(text, path=str(file), name="root", value=str(folder))
    return folder


def load_config(path: str | os.PathLike[str], *, root: str | os.PathLike[str] | None = None) -> Mapping[str, Any]:
    """Return the variables of a configuration file.

    Python is read, not run: imported names stand for themselves as dotted texts, `read_base` and relative imports read
    the files they name, and whatever calls anything that is imported is an error when its variable is asked for.

    Args:
        path: A `.py` file of OpenCompass or AISBench, or a `.yaml` file with the same keys.
        root: The folder that all files lie in which it reads, links followed; without one the nearest folder around it
            that is called `configs`, or else its own.

    Raises:
        InContextError: The file cannot be read, or does too much.
    """
    file = Path(path)
    try:
        if file.suffix.lower() in _YAML:
            return _Variables(file, _read_yaml(file))
        if file.suffix.lower() != ".py":
            raise InContextError(f"{file}: expected a .py or .yaml file", path=str(file), value=file.suffix)
        return _Variables(file, _Files(root_of(file, root)).read(file))
    except Problem as error:
        raise InContextError(f"{file}: {error}", path=str(file), name=error.name) from error


def load_datasets(path: str | os.PathLike[str], *, root: str | os.PathLike[str] | None = None) -> list[dict[str, Any]]:
    """Return the datasets of a configuration file: dicts with `infer_cfg` and `reader_cfg`, as `run` takes them.

    They are the list `datasets`, or else every list of datasets in the file.

    Args:
        path: As for `load_config`.
        root: As for `load_config`.

    Raises:
        InContextError: As `load_config`; or no dataset is found, or one is incomplete.
    """
    variables = load_config(path, root=root)
    assert isinstance(variables, _Variables)
    named = {name: value for name, value in variables.items() if _is_datasets(value)}
    lists = [named["datasets"]] if "datasets" in named else list(named.values())
    if not lists and _is_dataset(variables):
        lists = [[dict(variables)]]
    if problems := variables.unread():
        first = problems[0]
        text = _some([unread.why for unread in problems])
        raise InContextError(text, path=first.path, line=first.line, name=first.name)
    if not lists:
        listed = ", ".join(list(variables)[:10]) or "nothing"
        text = f"{path}: no list of datasets with infer_cfg and reader_cfg; variables: {listed}"
        raise InContextError(text, path=str(path), name="datasets")
    datasets = [entry for held in lists for entry in held]
    problems_of_datasets = [
        (f"datasets[{number}].{key}", f"dataset {number} ({_name(entry)}) has no {key}")
        for number, entry in enumerate(datasets)
        for key in ("infer_cfg", "reader_cfg")
        if not isinstance(entry.get(key), Mapping)
    ]
    if problems_of_datasets:
        text = f"{path}: {_some([text for _, text in problems_of_datasets])}"
        raise InContextError(text, path=str(path), problems=problems_of_datasets)
    return datasets


def _name(dataset: Mapping[str, Any]) -> str:
    abbr = dataset.get("abbr")
    return abbr[:80] if isinstance(abbr, str) else "without abbr"


def _some(problems: list[str]) -> str:
    more = len(problems) - _MAX_PROBLEMS
    return "; ".join(problems[:_MAX_PROBLEMS]) + (f"; and {more:,} more" if more > 0 else "")


def _is_dataset(value: object) -> bool:
    return isinstance(value, Mapping) and "infer_cfg" in value


def _is_datasets(value: object) -> bool:
    return isinstance(value, list) and bool(value) and all(map(_is_dataset, value))


class _Files:
    """The files that one configuration reads, all of them in a folder."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._known: dict[Path, dict[str, Any] | None] = {}
        self._at: list[Path] = []
        self._code = Interpreter(self._imported, self._opened)

    def read(self, file: Path) -> dict[str, Any]:
        """Return the variables of a file."""
        home = self._inside(file)
        known = self._known.get(home)
        if known is not None:
            return known
        if home in self._known:
            raise Problem(f"{file} imports itself", str(file))
        if len(self._known) >= _MAX_FILES:
            raise Problem(f"more than {_MAX_FILES:,} files")
        self._known[home] = None
        self._at.append(home)
        try:
            found = self._code.run(_text(home, _MAX_CODE, self._root), str(home))
        finally:
            self._at.pop()
        self._known[home] = found
        return found

    def _opened(self, path: str) -> str:
        return _text(self._inside(self._at[-1].parent / path), _MAX_FILE, self._root)

    def _inside(self, file: Path) -> Path:
        """Return where a file really is."""
        try:
            real = Path(os.path.realpath(file))
        except (OSError, ValueError) as error:
            raise Problem(f"{str(file)!r:.200}: cannot be read ({error})") from error
        if not real.is_relative_to(self._root):
            text = f"{str(file)!r:.200} lies outside of {self._root}: to read it, give a root around both"
            raise Problem(text, "root")
        return real

    def _imported(self, module: str, dots: int) -> Mapping[str, Any] | None:
        """Return the variables of a configuration that is imported; None where there is no file of that name."""
        here = self._at[-1]
        parts = module.split(".") if module else []
        if dots:
            homes = [here.parents[dots - 1]] if dots <= len(here.parents) else []
        elif "configs" in parts:
            homes = [*here.parents]
        else:
            return None
        for home in homes:
            file = home.joinpath(*parts).with_suffix(".py") if parts else home / "__init__.py"
            if _is_file(file):
                return self.read(file)
        return None


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:  # a name that no file can have
        return False


def _text(file: Path, limit: int, folder: Path | None = None) -> str:
    try:
        return read_regular_text(file, limit, folder=folder)
    except FileNotFoundError as error:
        raise InContextError(f"{file}: there is no such file; check the path", path=str(file)) from error
    except (OSError, ValueError) as error:
        raise InContextError(f"{file}: cannot be read ({error})", path=str(file), value=limit) from error


def _read_yaml(file: Path) -> dict[str, Any]:
    text = _text(file, _MAX_YAML)
    try:
        found = yaml.load(text, strict_loader())
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise Problem(f"invalid YAML ({error})", "YAML") from error
    if not isinstance(found, dict) or not all(isinstance(name, str) for name in found):
        raise Problem(f"expected names and their values, got {type(found).__name__}")
    weigh(found)
    return found


def _copied(value: Any) -> Any:
    """Return a value with containers of its own and imported names as texts."""
    if isinstance(value, dict | set):
        apart(value)
    if isinstance(value, dict):
        return {(str(key) if isinstance(key, Imported) else key): _copied(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_copied(item) for item in value]
    if isinstance(value, tuple):
        return tuple(_copied(item) for item in value)
    if isinstance(value, set):
        return {_copied(item) for item in value}
    return str(value) if isinstance(value, str) else value
