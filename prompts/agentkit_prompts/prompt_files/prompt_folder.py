"""`PromptFolder`: prompts from `*.prompt.j2` files of a folder or a package, reloaded as a whole."""

from __future__ import annotations

import importlib.resources
import os
import stat
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from errno import ELOOP, ENOENT, ENOTDIR
from importlib.resources.abc import Traversable
from pathlib import Path
from threading import Lock
from types import MappingProxyType
from typing import Any, NamedTuple

from agentkit_prompts.errors import PromptError, PromptFilesError, TemplateError, brief, check_types
from agentkit_prompts.limits import MAX_FILE_BYTES
from agentkit_prompts.names import nearest
from agentkit_prompts.prompt_files.prompt_file import SUFFIX, LoadedPrompt, PromptFile, content_hash, entries_of
from agentkit_prompts.system.regular_files import open_inside
from agentkit_prompts.tree.layers import PLACES, Layers
from agentkit_prompts.tree.prompt import BasePrompt


@dataclass(frozen=True, slots=True)
class Reload:
    """Result of `PromptFolder.reload`."""

    changed: tuple[str, ...] = ()
    """Names of new, changed and removed prompts; empty if nothing changed or a file is invalid."""
    error: PromptError | None = None
    """Error that names every invalid file: the old prompts are then still used. None if all files are valid."""


class _State(NamedTuple):
    """Content of a folder after one read."""

    texts: Mapping[str, str]
    entries: Mapping[str, LoadedPrompt]
    layers: Layers
    version: str


class _ExtendedLayers(NamedTuple):
    """Result of the last call of `PromptFolder.layers`, and its inputs."""

    state: _State
    fields: dict[str, Any]
    layers: Layers


class PromptFolder(Mapping[str, BasePrompt]):
    """Prompts by name, from the `*.prompt.j2` files of a folder and its subfolders.

    A file is a template. YAML front matter between two lines of `---` can set:

    - `role`: place in `Layers`, by default `system`; `none` for use by name only.
    - `order`: a number; prompts of one place are sorted by order, then by name.
    - `kind`: `text` (the default), `info`, `input`, `conversation`, `memo` (documents), `recalled` (messages of earlier
      conversations), `knowledge` (facts), `summary`, `tools`, `skills`, `loaded_skills` or `examples`. A file without
      text uses the default template of its kind.
    - `schema`: JSON Schema. In the kinds `text` and `info` it describes the additional kwargs, which the template reads
      by name; in other kinds it describes all values of the template.
    - `budget`: fields of `Size`.
    - `volatility`, `fence`: as in `BasePrompt`.
    - `engine`: `jinja` or `fstring`.
    - `name`, `locale`: name and locale, if they differ from the name of the file.
    - `version`: version for people, in `files`.

    `greeting.prompt.j2` and `greeting.zh.prompt.j2` are one prompt with a text per locale. The file without a locale is
    the fallback, and its front matter applies to all locales. A prompt in an inner folder is named `folder/greeting`. A
    link to a target outside the folder is rejected, because a folder of a third party could send any file to the model.

    Raises:
        PromptFilesError: Files are invalid; names all of them, with their lines.
    """

    __slots__ = ("_label", "_latest", "_lock", "_root", "_state")

    def __init__(self, root: Traversable, label: str) -> None:
        if not callable(getattr(root, "iterdir", None)) or not isinstance(label, str):
            raise PromptError(
                f"PromptFolder: expected a folder and a label, got {brief(root)}; use PromptFolder.load(path)"
            )
        self._root = root
        self._label = label
        self._lock = Lock()
        self._latest: _ExtendedLayers | None = None
        self._state = self._read(None)

    @classmethod
    def load(cls, path: str | Path) -> PromptFolder:
        """Load a folder.

        Raises:
            PromptFilesError: The folder does not exist or contains no prompt, or files are invalid.
        """
        check_types(PromptError, "PromptFolder.load", path=(path, (str, Path), "the path of a folder"))
        return cls(Path(path), Path(path).as_posix())

    @classmethod
    def from_package(cls, package: str) -> PromptFolder:
        """Load the prompt files in a package such as `"myapp.prompts"`, zipped or not.

        Raises:
            PromptFilesError: The package does not exist or contains no prompt, or files are invalid.
        """
        try:
            root = importlib.resources.files(package)
        except (ImportError, TypeError, ValueError) as error:
            failure = PromptError(
                f"{package!r}: expected an importable package with {SUFFIX} files in it ({error})", name=package
            )
            raise PromptFilesError([failure]) from error
        return cls(root, package)

    @property
    def files(self) -> Mapping[str, PromptFile]:
        """Files and settings of each prompt, by the name of the prompt."""
        return MappingProxyType({name: entry.file for name, entry in self._state.entries.items()})

    @property
    def version(self) -> str:
        """Hash of all files, 16 hex digits."""
        return self._state.version

    def layers(self, **fields: Any) -> Layers:
        """Return `Layers` with the prompts in their places; the same object until a prompt changes.

        Args:
            fields: Fields of `Layers`. Prompts in these fields follow the prompts of the folder at the same place.

        Raises:
            SchemaConflict: Prompts in `fields` and prompts of the folder require the same kwarg with different schemas.
        """
        state = self._state
        if not fields:
            return state.layers
        latest = self._latest
        if latest is None or latest.state is not state or latest.fields != fields:
            latest = self._latest = _ExtendedLayers(state, fields, _layers(state.entries, fields))
        return latest.layers

    def reload(self) -> Reload:
        """Read the files again. All prompts are replaced at once; unchanged prompts are the same objects as before.

        If a file is invalid, the old prompts are still used, and the result contains the error.
        """
        # Only reloads take the lock: readers see either the old or the new state.
        with self._lock:
            before = self._state
            try:
                now = self._read(before)
            except PromptError as error:
                return Reload(error=error)
            if now is before:
                return Reload()
            self._state = now
        names = sorted(before.entries.keys() | now.entries.keys())
        return Reload(tuple(name for name in names if before.entries.get(name) is not now.entries.get(name)))

    def __getitem__(self, name: str) -> BasePrompt:
        entries = self._state.entries
        if name not in entries:
            raise KeyError(f"no prompt is named {name!r}{nearest(str(name), entries)}")
        return entries[name].prompt

    def __iter__(self) -> Iterator[str]:
        return iter(self._state.entries)

    def __len__(self) -> int:
        return len(self._state.entries)

    def __repr__(self) -> str:
        return f"PromptFolder({self._label!r}, {len(self)} prompts, version {self.version})"

    def _read(self, before: _State | None) -> _State:
        problems: list[PromptError] = []
        texts = _texts(self._root, self._label, problems)
        if not texts and not problems:
            problems.append(PromptError(f"{self._label}: no {SUFFIX} file in this folder", path=self._label))
        earlier: Mapping[str, LoadedPrompt] = {}
        if before is not None:
            # Return the same objects, so that caches by identity are still valid.
            if not problems and texts == before.texts:
                return before
            earlier = before.entries
        entries = entries_of(texts, self._label, earlier, problems)
        if problems:
            raise PromptFilesError(problems)
        try:
            return _State(texts, entries, _layers(entries, {}), content_hash(texts.items(), self._label))
        except PromptError as error:
            raise PromptFilesError([error]) from error


class _Folder(NamedTuple):
    """A folder to read, and its name in errors. `top` is the folder that must contain the targets of links; None at the
    start and in a zipped package.
    """

    name: str
    folder: Traversable
    top: Path | None


def _texts(root: Traversable, label: str, problems: list[PromptError]) -> dict[str, str]:
    """Return the texts of all prompt files by their names in errors, sorted; add the errors of unreadable files."""
    texts: dict[str, str] = {}
    seen: set[str] = set()
    waiting = [_Folder(label, root, None)]
    while waiting:
        current = waiting.pop()
        for item in _items(current, seen, problems):
            file = f"{current.name}/{item.name}"
            try:
                waiting += _read_item(item, file, current.top, label, texts)
            except TemplateError as error:
                problems.append(error)
            # For example, the path is too long for the system, or the file is not UTF-8.
            except (OSError, ValueError) as error:
                problems.append(_unreadable(file, error))
    return dict(sorted(texts.items()))


def _items(current: _Folder, seen: set[str], problems: list[PromptError]) -> list[Traversable]:
    """Return the items of a folder, sorted by name in reverse; empty, with an error, for a folder that was already
    read or cannot be read.
    """
    try:
        if isinstance(current.folder, Path):
            real = os.path.realpath(current.folder)
            if real in seen:
                reason = "a link leads to this folder a second time: remove it"
                problems.append(TemplateError(reason, file=current.name))
                return []
            seen.add(real)
        return sorted(current.folder.iterdir(), key=lambda item: item.name, reverse=True)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        problems.append(TemplateError(f"expected a folder with {SUFFIX} files ({reason})", file=current.name))
        return []


def _read_item(item: Traversable, file: str, top: Path | None, label: str, texts: dict[str, str]) -> list[_Folder]:
    """Add the text of a prompt file to `texts`; return a folder in a list, to be read later. Ignore other items.

    Raises:
        TemplateError: The target of a link is outside of `top`.
        OSError: The item cannot be read.
        ValueError: The file is not text, or is too long.
    """
    is_prompt = item.name.endswith(SUFFIX)
    if item.name.startswith(".") or not (is_prompt or _is_folder(item)):
        return []
    if isinstance(item, Path):
        # A package can have several folders on the disk, so `top` is the folder of the first item on the path.
        top = top or Path(os.path.realpath(item.parent))
        if not Path(os.path.realpath(item)).is_relative_to(top):
            reason = f"is a link to a target outside of {label}: copy the target into the folder"
            raise TemplateError(reason, file=file)
    if not is_prompt:
        return [_Folder(file, item, top)]
    texts[file] = _text(item, top)
    return []


def _unreadable(file: str, error: Exception) -> TemplateError:
    reason, line = f"cannot be read ({error!s:.300})", None
    if isinstance(error, UnicodeDecodeError):
        reason += "; prompt files are UTF-8 text"
        line = error.object.count(b"\n", 0, error.start) + 1
    return TemplateError(reason, file=file, line=line)


def _is_folder(item: Traversable) -> bool:
    """True for a folder.

    Raises:
        OSError: The path cannot be read. `Path.is_dir` of Python 3.14 would return False.
    """
    if not isinstance(item, Path):
        return item.is_dir()
    try:
        return stat.S_ISDIR(item.stat().st_mode)
    except OSError as error:
        # The target of a link can be missing.
        if error.errno in (ENOENT, ENOTDIR, ELOOP):
            return False
        raise


def _text(item: Traversable, top: Path | None) -> str:
    """Read a file of UTF-8 text, without its byte order mark and with line feeds as line ends."""
    if not item.is_file():
        raise ValueError("not a regular file")
    opened = open_inside(item, top) if isinstance(item, Path) and top is not None else item.open("rb")
    with opened as file:
        data = file.read(MAX_FILE_BYTES + 1)
    if len(data) > MAX_FILE_BYTES:
        raise ValueError(f"it has more than the {MAX_FILE_BYTES:,} bytes that are read")
    return data.decode("utf-8-sig").replace("\r\n", "\n").replace("\r", "\n")


def _prompts_by_place(entries: Iterable[LoadedPrompt]) -> dict[str, list[Any]]:
    placed: dict[str, list[Any]] = {place: [] for place in PLACES}
    for entry in sorted(entries, key=lambda entry: (entry.file.order, entry.file.name)):
        if entry.file.role is not None:
            placed[entry.file.role].append(entry.prompt)
    return placed


def _layers(entries: Mapping[str, LoadedPrompt], fields: Mapping[str, Any]) -> Layers:
    placed = _prompts_by_place(entries.values())
    for place in placed.keys() & fields.keys():
        added = fields[place]
        placed[place] += added if isinstance(added, list | tuple) else [added]
    filled = {place: prompts for place, prompts in placed.items() if prompts or place in fields}
    return Layers(**{**fields, **filled})
