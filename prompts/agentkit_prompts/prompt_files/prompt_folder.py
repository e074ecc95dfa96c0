"""`PromptFolder`: prompts from `*.prompt.j2` files of a folder or a package, reloaded all at once or not at all."""

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
from agentkit_prompts.prompt_files.prompt_file import SUFFIX, Entry, PromptFile, content_hash, entries_of
from agentkit_prompts.system.regular_files import open_inside
from agentkit_prompts.tree.layers import PLACES, Layers
from agentkit_prompts.tree.prompt import BasePrompt

__all__ = ["PromptFolder"]


@dataclass(frozen=True, slots=True)
class Reload:
    """What `PromptFolder.reload` did."""

    changed: tuple[str, ...] = ()
    """Names of the prompts that are new, different or gone; empty when nothing changed or something is broken."""
    error: PromptError | None = None
    """Why the old prompts stay: names every broken file."""


class _State(NamedTuple):
    texts: Mapping[str, str]
    entries: Mapping[str, Entry]
    layers: Layers
    version: str


class _Extended(NamedTuple):
    """The layers of the last call of `layers`, and what they were made of."""

    state: _State
    fields: dict[str, Any]
    layers: Layers


class PromptFolder(Mapping[str, BasePrompt]):
    """Prompts by name, from the `*.prompt.j2` files of a folder and of those inside it.

    A file is a template. YAML front matter between two lines of `---` may set:

    - `role`: the place of `Layers` it goes to; `system` when not given, `none` to be taken by name only.
    - `order`: a number; prompts of one place stand in ascending order, equal ones by name.
    - `kind`: `text` (the default), `info`, `input`, `conversation`, `memo` (documents), `recalled` (messages of earlier
      conversations), `knowledge` (facts), `summary`, `tools` or `examples`. Without text of its own, a kind has its
      default template.
    - `schema`: JSON Schema of the additional kwargs, each of which the template sees by its name (`text`, `info`); of
      what the template sees (other kinds).
    - `budget`: fields of `Size`. `volatility`, `fence`: as in `BasePrompt`. `engine`: `jinja` or `fstring`.
    - `name`, `locale`: in place of those of the file name. `version`: text for people, kept in `files`.

    `greeting.prompt.j2` and `greeting.zh.prompt.j2` are one prompt with a text per locale; the file without a locale is
    the fallback, and its front matter counts for all. A prompt in an inner folder is named `folder/greeting`. A link
    that leads out of the folder is not read: a folder from elsewhere would send what it names to the model.

    Raises:
        PromptFilesError: Files cannot be used; names every one of them, with the line.
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
        self._latest: _Extended | None = None
        self._state = self._read(None)

    @classmethod
    def load(cls, path: str | Path) -> PromptFolder:
        """Load a folder.

        Raises:
            PromptFilesError: There is no such folder or no prompt in it, or files cannot be used.
        """
        check_types(PromptError, "PromptFolder.load", path=(path, (str, Path), "the path of a folder"))
        return cls(Path(path), Path(path).as_posix())

    @classmethod
    def from_package(cls, package: str) -> PromptFolder:
        """Load the files that a package such as `"myapp.prompts"` brings along, zipped or not.

        Raises:
            PromptFilesError: There is no such package or no prompt in it, or files cannot be used.
        """
        try:
            root = importlib.resources.files(package)
        except (ImportError, TypeError, ValueError) as error:
            what = PromptError(
                f"{package!r}: expected an importable package with {SUFFIX} files in it ({error})", name=package
            )
            raise PromptFilesError([what]) from error
        return cls(root, package)

    @property
    def files(self) -> Mapping[str, PromptFile]:
        """Where each prompt is from."""
        return MappingProxyType({name: entry.file for name, entry in self._state.entries.items()})

    @property
    def version(self) -> str:
        """Hash of all files, 16 hex digits."""
        return self._state.version

    def layers(self, **fields: Any) -> Layers:
        """Return the prompts in their places, the same object until something changes.

        Args:
            fields: Other fields of `Layers`; prompts given for a place stand behind those of the folder.

        Raises:
            SchemaConflict: Prompts that were given and those of the folder require different things.
        """
        state = self._state
        if not fields:
            return state.layers
        latest = self._latest
        if latest is None or latest.state is not state or latest.fields != fields:
            latest = self._latest = _Extended(state, fields, _layers(state.entries, fields))
        return latest.layers

    def reload(self) -> Reload:
        """Read the files again. Everything is built before anything is replaced; what did not change stays the same
        object. When something is broken the old prompts stay, and the result names the problem.
        """
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
        return self._state.entries[name].prompt

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
        earlier: Mapping[str, Entry] = {}
        if before is not None:
            # The same objects, so that caches by identity stay valid.
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
    """A folder to read: its name in errors, and the folder that its links must not leave, if it is on a disk."""

    name: str
    folder: Traversable
    top: Path | None


def _texts(root: Traversable, label: str, problems: list[PromptError]) -> dict[str, str]:
    """Return the text of every prompt file, by the name errors give it, sorted."""
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
            # Such as a path of more characters than the system takes.
            except (OSError, ValueError) as error:
                problems.append(_unreadable(file, error))
    return dict(sorted(texts.items()))


def _items(current: _Folder, seen: set[str], problems: list[PromptError]) -> list[Traversable]:
    """Return the items of a folder, in the reverse order of their names; none if it was read before."""
    try:
        if isinstance(current.folder, Path):
            real = os.path.realpath(current.folder)
            if real in seen:
                what = "a link leads to this folder a second time: remove it"
                problems.append(TemplateError(what, file=current.name))
                return []
            seen.add(real)
        return sorted(current.folder.iterdir(), key=lambda item: item.name, reverse=True)
    except (OSError, ValueError) as error:
        problems.append(TemplateError(f"expected a folder with {SUFFIX} files ({error})", file=current.name))
        return []


def _read_item(item: Traversable, file: str, top: Path | None, label: str, texts: dict[str, str]) -> list[_Folder]:
    """Read a prompt file into `texts`; of a folder, return it.

    Raises:
        TemplateError: A link leads out of `top`.
        OSError: The item cannot be read.
        ValueError: It is no text, or too long.
    """
    is_prompt = item.name.endswith(SUFFIX)
    if item.name.startswith(".") or not (is_prompt or _is_folder(item)):
        return []
    if isinstance(item, Path):
        # The folders of a package can be at several places: each item has the folder that it is in.
        top = top or Path(os.path.realpath(item.parent))
        _check_inside(item, file, top, label)
    if not is_prompt:
        return [_Folder(file, item, top)]
    texts[file] = _text(item, top)
    return []


def _check_inside(item: Path, file: str, top: Path, label: str) -> None:
    if not Path(os.path.realpath(item)).is_relative_to(top):
        what = f"is a link that leads out of {label}, and is not read: copy what it leads to into the folder"
        raise TemplateError(what, file=file)


def _unreadable(file: str, error: Exception) -> TemplateError:
    what, line = f"cannot be read ({error!s:.300})", None
    if isinstance(error, UnicodeDecodeError):
        what += "; prompt files are UTF-8 text"
        line = error.object.count(b"\n", 0, error.start) + 1
    return TemplateError(what, file=file, line=line)


def _is_folder(item: Traversable) -> bool:
    """True if it is a folder. Raises if that cannot be read: `Path.is_dir` of Python 3.14 would return False."""
    if not isinstance(item, Path):
        return item.is_dir()
    try:
        return stat.S_ISDIR(item.stat().st_mode)
    except OSError as error:
        # A link that leads nowhere.
        if error.errno in (ENOENT, ENOTDIR, ELOOP):
            return False
        raise


def _text(item: Traversable, top: Path | None) -> str:
    """Read a file the same way on every machine: UTF-8 with or without a mark, any line ends."""
    if not item.is_file():
        raise ValueError("not a regular file")
    opened = open_inside(item, top) if isinstance(item, Path) and top is not None else item.open("rb")
    with opened as file:
        data = file.read(MAX_FILE_BYTES + 1)
    if len(data) > MAX_FILE_BYTES:
        raise ValueError(f"it has more than the {MAX_FILE_BYTES:,} bytes that are read")
    return data.decode("utf-8-sig").replace("\r\n", "\n").replace("\r", "\n")


def _prompts_by_place(entries: Iterable[Entry]) -> dict[str, list[Any]]:
    placed: dict[str, list[Any]] = {place: [] for place in PLACES}
    for entry in sorted(entries, key=lambda entry: (entry.file.order, entry.file.name)):
        if entry.file.role is not None:
            placed[entry.file.role].append(entry.prompt)
    return placed


def _layers(entries: Mapping[str, Entry], fields: Mapping[str, Any]) -> Layers:
    placed = _prompts_by_place(entries.values())
    for place in placed.keys() & fields.keys():
        given = fields[place]
        placed[place] += given if isinstance(given, list | tuple) else [given]
    filled = {place: prompts for place, prompts in placed.items() if prompts or place in fields}
    return Layers(**{**fields, **filled})
