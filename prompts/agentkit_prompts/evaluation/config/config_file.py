"""`load_datasets` and `load_config`: readers of the Python and YAML configuration files of evaluation suites."""

from __future__ import annotations

import os
from collections.abc import Hashable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from agentkit_prompts.errors import InContextError, Problem, Problems
from agentkit_prompts.evaluation.config.config_code import Interpreter
from agentkit_prompts.evaluation.config.config_expressions import Unread
from agentkit_prompts.evaluation.config.config_values import Imported, Unreadable
from agentkit_prompts.evaluation.problems import some
from agentkit_prompts.limits import MAX_DEPTH, MAX_ENTRIES, MAX_INPUT_BYTES, MAX_SOURCE_CHARS, MAX_VALUES
from agentkit_prompts.names import nearest
from agentkit_prompts.strict_yaml import StrictLoader
from agentkit_prompts.system.regular_files import read_regular_text

_VALUES = (str, int, float, list, tuple, dict, set, type(None))
_YAML = (".yaml", ".yml")
_VALUE_SIZE = MAX_INPUT_BYTES // MAX_VALUES
"""Size, in characters, that each value counts as, besides the characters of a text."""


class _Variables(dict[str, Any]):
    """The variables of a file. The use of a variable that could not be read raises an error with the reason."""

    def __init__(self, file: Path, read: Mapping[str, Any]) -> None:
        super().__init__()
        self._file = file
        self._unread = {name: value for name, value in read.items() if isinstance(value, Unread)}
        values = {
            name: value
            for name, value in read.items()
            if isinstance(value, _VALUES) and not isinstance(value, Imported) and not name.startswith("__")
        }
        self.update(_copies_of(values))

    def __missing__(self, name: object) -> Any:
        unread = self._unread.get(str(name))
        if unread is not None:
            raise InContextError(unread.reason, path=unread.path, line=unread.line, name=unread.name)
        text = f"{self._file}: no {name!r}{nearest(str(name), self)}"
        raise InContextError(text, path=str(self._file), name=str(name))

    def unread(self) -> list[Unread]:
        """Return the reasons of the unreadable variables whose names end with `datasets`, each reason once."""
        return list(dict.fromkeys(unread for name, unread in self._unread.items() if name.endswith("datasets")))


class _Copy(NamedTuple):
    """A copy of a value, and its size: `_VALUE_SIZE` for each value inside, plus the characters of all texts."""

    value: Any
    size: int


class _Copier:
    """Copier of values. Containers are copied, a shared container once; imported names become plain text."""

    def __init__(self) -> None:
        self.copies: dict[int, _Copy] = {}
        """Copies of containers, by the `id` of the container."""

    def copy(self, value: Any, depth: int = 0) -> _Copy:
        if isinstance(value, str):
            return _Copy(str(value), _VALUE_SIZE + len(value))
        if not isinstance(value, dict | list | tuple | set):
            return _Copy(value, _VALUE_SIZE)
        if id(value) not in self.copies:
            # The limit also ends the copy of a list that contains itself.
            if depth >= MAX_DEPTH:
                raise Unreadable(f"values that nest more than {MAX_DEPTH} levels deep")
            self.copies[id(value)] = self._container(value, depth)
        return self.copies[id(value)]

    def uncounted(self, value: Any) -> Sequence[Any]:
        """Return the values of a variable whose size must be counted: the items of a list, or the value itself.

        A container that was copied before is already counted, so the result is empty.
        """
        if id(value) in self.copies:
            return ()
        if isinstance(value, list):
            return value
        return (value,)

    def _container(self, value: Any, depth: int) -> _Copy:
        keys = self._inner(value, depth)
        if not isinstance(value, dict):
            return _Copy(type(value)(copy.value for copy in keys), _size(keys))
        values = self._inner(value.values(), depth)
        pairs = zip(keys, values, strict=True)
        return _Copy({key.value: copy.value for key, copy in pairs}, _size([*keys, *values]))

    def _inner(self, values: Iterable[Any], depth: int) -> list[_Copy]:
        return [self.copy(value, depth + 1) for value in values]


def _size(copies: Iterable[_Copy]) -> int:
    """Return the size of a container of these copies."""
    return _VALUE_SIZE + sum(copy.size for copy in copies)


def _copies_of(variables: Mapping[str, Any]) -> dict[str, Any]:
    """Return copies of the variables of a file, which are limited in size.

    A dataset counts once, because suites list the same dataset in several collections. Inside a dataset, a shared value
    counts at each place, because the JSON text of the dataset repeats the value.

    Raises:
        Unreadable: The variables nest too deeply, or are too large.
    """
    copier = _Copier()
    copies: dict[str, Any] = {}
    size = 0
    for name, value in variables.items():
        for part in copier.uncounted(value):
            if id(part) not in copier.copies:
                size += copier.copy(part).size
            if size > MAX_INPUT_BYTES:
                limits = f"{MAX_VALUES:,} values or {MAX_INPUT_BYTES:,} characters"
                raise Unreadable(f"its variables up to {name!r} have more than {limits}", name)
        copies[name] = copier.copy(value).value
    return copies


def root_of(path: str | os.PathLike[str], root: str | os.PathLike[str] | None = None) -> Path:
    """Return the root folder of a configuration, which contains all its files.

    The folder is `root`, else the nearest parent folder named `configs`, else the folder of the file.

    Raises:
        InContextError: The file is outside of the folder, or its name is invalid.
    """
    try:
        file = Path(path).resolve()
        if root is None:
            return next((folder for folder in file.parents if folder.name == "configs"), file.parent)
        folder = Path(root).resolve()
    # For example, a link leads to itself, or no file can have this name.
    except (OSError, ValueError, RuntimeError) as error:
        raise InContextError(f"{str(path)!r:.200}: cannot be read ({error})", path=str(path)) from error
    if not file.is_relative_to(folder):
        text = f"{file}: is outside of the root {folder}; pass a root that contains it"
        raise InContextError(text, path=str(file), name="root", value=str(folder))
    return folder


def load_config(path: str | os.PathLike[str], *, root: str | os.PathLike[str] | None = None) -> Mapping[str, Any]:
    """Return the variables of a configuration file.

    Python code is interpreted without imports: imported names become dotted text, and a variable whose value calls
    imported code raises an error at its use. `read_base` and relative imports read other files of the configuration.

    Args:
        path: A `.py` file of OpenCompass or AISBench, or a `.yaml` file with the same keys.
        root: Folder that must contain all files after resolving links; by default the nearest parent folder named
            `configs`, else the folder of the file.

    Raises:
        InContextError: The file cannot be read, or exceeds a limit.
    """
    file = Path(path)
    suffix = file.suffix.lower()
    if suffix not in (".py", *_YAML):
        raise InContextError(f"{file}: expected a .py or .yaml file", path=str(file), value=file.suffix)
    try:
        if suffix in _YAML:
            return _Variables(file, _read_yaml(file))
        return _Variables(file, _Files(root_of(file, root)).read(file))
    except Unreadable as error:
        raise InContextError(f"{file}: {error}", path=str(file), name=error.name) from error


def load_datasets(path: str | os.PathLike[str], *, root: str | os.PathLike[str] | None = None) -> list[dict[str, Any]]:
    """Return the datasets of a configuration file: dicts with `infer_cfg` and `reader_cfg`, which `run` accepts.

    The datasets are the list `datasets`; else all lists of datasets in the file; else the file, if it is a dataset.
    Entries with the same content are one dataset, because suites collect the datasets of other lists in a list.

    Args:
        path: As for `load_config`.
        root: As for `load_config`.

    Raises:
        InContextError: As `load_config`; or the file has no dataset, or a dataset is incomplete or unreadable.
    """
    variables = load_config(path, root=root)
    assert isinstance(variables, _Variables)
    # Skipping an unreadable dataset would change the rows that a score describes.
    unread = variables.unread()
    if unread:
        text = some([variable.reason for variable in unread], "; ")
        raise InContextError(text, path=unread[0].path, line=unread[0].line, name=unread[0].name)
    datasets = _datasets_of(variables)
    if not datasets:
        names = ", ".join(list(variables)[:10]) or "none"
        text = f"{path}: no list of datasets with infer_cfg and reader_cfg; variables: {names}"
        raise InContextError(text, path=str(path), name="datasets")
    _check_complete(path, datasets)
    return datasets


def _check_complete(path: str | os.PathLike[str], datasets: Sequence[Mapping[str, Any]]) -> None:
    problems: Problems = []
    for number, dataset in enumerate(datasets):
        problems += _missing(number, dataset)
    if problems:
        raise InContextError(f"{path}: {some([*map(str, problems)], '; ')}", path=str(path), problems=problems)


def _missing(number: int, dataset: Mapping[str, Any]) -> Problems:
    """Return a problem for each of `infer_cfg` and `reader_cfg` that a dataset lacks."""
    text = f"missing in dataset {_name(dataset)}"
    keys = [key for key in ("infer_cfg", "reader_cfg") if not isinstance(dataset.get(key), Mapping)]
    return [Problem(f"datasets[{number}].{key}", text) for key in keys]


def _datasets_of(variables: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the list `datasets`, else the datasets of all lists, else the file as one dataset; or an empty list."""
    if _is_datasets(variables.get("datasets")):
        return _different(variables["datasets"])
    # Suites name the list of each file after the dataset, such as `gsm8k_datasets`.
    lists = [value for value in variables.values() if _is_datasets(value)]
    if not lists and _is_dataset(variables):
        return [dict(variables)]
    return _different([dataset for datasets in lists for dataset in datasets])


def _different(datasets: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the datasets whose contents differ, in order."""
    contents = _Contents()
    by_content: dict[int, dict[str, Any]] = {}
    for dataset in datasets:
        by_content.setdefault(contents.number(dataset), dataset)
    return list(by_content.values())


class _Contents:
    """Numbers of contents: values with the same content have the same number.

    The comparison of two datasets takes time in proportion to their sizes; the numbers take this time once per value.
    """

    def __init__(self) -> None:
        self._numbers: dict[Hashable, int] = {}
        self._containers: dict[int, int] = {}
        """Numbers of containers, by the `id` of the container; suites share containers between datasets."""

    def number(self, value: Any) -> int:
        """Return the number of a content."""
        if not isinstance(value, dict | list | tuple | set):
            # 1, 1.0 and True are equal, but have different texts in a prompt.
            return self._numbers.setdefault((type(value), value), len(self._numbers))
        if id(value) not in self._containers:
            content = self._content(value)
            self._containers[id(value)] = self._numbers.setdefault((type(value), content), len(self._numbers))
        return self._containers[id(value)]

    def _content(self, value: Any) -> Hashable:
        if isinstance(value, dict):
            return frozenset([(self.number(name), self.number(item)) for name, item in value.items()])
        if isinstance(value, set):
            return frozenset(map(self.number, value))
        return tuple(map(self.number, value))


def _name(dataset: Mapping[str, Any]) -> str:
    abbr = dataset.get("abbr")
    return abbr[:80] if isinstance(abbr, str) else "without abbr"


def _is_dataset(value: object) -> bool:
    return isinstance(value, Mapping) and "infer_cfg" in value


def _is_datasets(value: object) -> bool:
    return isinstance(value, list) and bool(value) and all(map(_is_dataset, value))


class _Files:
    """Files of one configuration, all inside a root folder."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._variables: dict[Path, dict[str, Any]] = {}
        self._stack: list[Path] = []
        """Files that are being read; each file imports the next file of the stack."""
        self._code = Interpreter(self._read_import, self._read_text)

    def read(self, file: Path) -> dict[str, Any]:
        """Return the variables of a file."""
        real = self._inside(file)
        if real in self._variables:
            return self._variables[real]
        if real in self._stack:
            raise Unreadable(f"{file} imports itself", str(file))
        if len(self._variables) >= MAX_ENTRIES:
            raise Unreadable(f"more than {MAX_ENTRIES:,} files")
        self._stack.append(real)
        # Each file is read once, so that a value that two files import is one object and counts once.
        try:
            source = _text(real, MAX_SOURCE_CHARS, self._root)
            self._variables[real] = self._code.run(source, str(real))
        finally:
            self._stack.pop()
        return self._variables[real]

    def _read_text(self, path: str) -> str:
        # A relative path is relative to the file that opens it, not to the working directory.
        return _text(self._inside(self._stack[-1].parent / path), MAX_SOURCE_CHARS, self._root)

    def _inside(self, file: Path) -> Path:
        """Return the path of a file after following links, if it is inside the root."""
        try:
            real = Path(os.path.realpath(file))
        except (OSError, ValueError) as error:
            raise Unreadable(f"{str(file)!r:.200}: cannot be read ({error})") from error
        if not real.is_relative_to(self._root):
            text = f"{str(file)!r:.200} is outside of {self._root}: pass a root that contains both"
            raise Unreadable(text, "root")
        return real

    def _read_import(self, module: str, dots: int) -> Mapping[str, Any] | None:
        """Return the variables of an imported configuration; None if the file does not exist."""
        parts = [part for part in module.split(".") if part]
        for folder in self._folders_of_import(parts, dots):
            file = folder / "__init__.py"
            if parts:
                file = folder.joinpath(*parts).with_suffix(".py")
            if _is_file(file):
                return self.read(file)
        return None

    def _folders_of_import(self, parts: Sequence[str], dots: int) -> Sequence[Path]:
        parents = self._stack[-1].parents
        if dots:
            return parents[dots - 1 : dots]
        # Suites import their configurations by absolute names, so the folder of the suite is above this file.
        if "configs" in parts:
            return parents
        return ()


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    # No file can have this name.
    except OSError:
        return False


def _text(file: Path, limit: int, folder: Path | None = None) -> str:
    try:
        return read_regular_text(file, limit, folder=folder)
    except FileNotFoundError as error:
        raise InContextError(f"{file}: file not found; check the path", path=str(file)) from error
    except (OSError, ValueError) as error:
        raise InContextError(f"{file}: cannot be read ({error})", path=str(file), value=limit) from error


def _read_yaml(file: Path) -> dict[str, Any]:
    text = _text(file, MAX_SOURCE_CHARS)
    try:
        variables = yaml.load(text, StrictLoader)
    except yaml.YAMLError as error:
        raise Unreadable(f"invalid YAML ({error})", "YAML") from error
    if not isinstance(variables, dict) or not all(isinstance(name, str) for name in variables):
        raise Unreadable(f"expected names and their values, got {type(variables).__name__}")
    return variables
