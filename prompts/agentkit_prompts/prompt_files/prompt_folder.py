"""`PromptFolder`: prompts from `*.prompt.j2` files of a folder or a package, reloaded all at once or not at all."""

from __future__ import annotations

import importlib.resources
import os
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from errno import ELOOP, ENOENT, ENOTDIR
from importlib.resources.abc import Traversable
from pathlib import Path
from threading import Lock
from types import MappingProxyType
from typing import Any, NamedTuple

from agentkit_prompts.errors import PromptError, PromptFilesError, TemplateError, brief, check_types
from agentkit_prompts.prompt_files.prompt_file import SUFFIX, Entry, PromptFile, content_hash, entries_of
from agentkit_prompts.system.regular_files import open_inside
from agentkit_prompts.tree.layers import PLACES, Layers
from agentkit_prompts.tree.prompt import BasePrompt

__all__ = ["PromptFolder"]

_MAX_BYTES = 1 << 20


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

    __slots__ = ("_given", "_label", "_lock", "_root", "_state")

    def __init__(self, root: Traversable, label: str) -> None:
        if not callable(getattr(root, "iterdir", None)) or not isinstance(label, str):
            raise PromptError(
                f"PromptFolder: expected a folder and a label, got {brief(root)}; use PromptFolder.load(path)"
            )
        self._root = root
        self._label = label
        self._lock = Lock()
        self._given: tuple[_State, dict[str, Any], Layers] | None = None
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
        known = self._given
        if known is None or known[0] is not state or known[1] != fields:
            known = self._given = (state, fields, _layers(state.entries, fields))
        return known[2]

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
        if before is not None and not problems and texts == before.texts:
            return before
        entries = entries_of(texts, self._label, before.entries if before is not None else {}, problems)
        if problems:
            raise PromptFilesError(problems)
        try:
            layers = _layers(entries, {})
        except PromptError as error:
            raise PromptFilesError([error]) from error
        return _State(texts, entries, layers, content_hash(texts.items(), self._label))


def _texts(root: Traversable, label: str, problems: list[PromptError]) -> dict[str, str]:
    """Return the text of every prompt file, by the name errors give it, sorted."""
    texts: dict[str, str] = {}
    seen: set[str] = set()
    todo: list[tuple[str, Traversable, Path | None]] = [(label, root, None)]
    while todo:
        name, folder, top = todo.pop()
        try:
            if isinstance(folder, Path):
                real = os.path.realpath(folder)
                if real in seen:
                    problems.append(TemplateError("a link leads to this folder a second time: remove it", file=name))
                    continue
                seen.add(real)
                top = top or Path(real)
            inside = sorted(folder.iterdir(), key=lambda item: item.name, reverse=True)
        except (OSError, ValueError) as error:
            problems.append(TemplateError(f"expected a folder with {SUFFIX} files ({error})", file=name))
            continue
        for item in inside:
            file, is_prompt = f"{name}/{item.name}", item.name.endswith(SUFFIX)
            try:
                if item.name.startswith(".") or not (_is_folder(item) or is_prompt):
                    continue
                if isinstance(item, Path):
                    top = top or Path(os.path.realpath(item.parent))  # of a package that is spread over several folders
                    if not Path(os.path.realpath(item)).is_relative_to(top):
                        what = f"is a link that leads out of {label}, and is not read: copy what it leads to into the"
                        problems.append(TemplateError(f"{what} folder", file=file))
                        continue
                if is_prompt:
                    texts[file] = _text(item, top)
                else:
                    todo.append((file, item, top))
            except (OSError, ValueError) as error:  # such as a path of more characters than the system takes
                what, line = f"cannot be read ({error!s:.300})", None
                if isinstance(error, UnicodeDecodeError):
                    what += "; prompt files are UTF-8 text"
                    line = error.object.count(b"\n", 0, error.start) + 1
                problems.append(TemplateError(what, file=file, line=line))
    return dict(sorted(texts.items()))


def _is_folder(item: Traversable) -> bool:
    """Return whether it is a folder, or raise where nobody can tell: from Python 3.14 on `Path.is_dir` never raises."""
    if not isinstance(item, Path):
        return item.is_dir()
    try:
        return stat.S_ISDIR(item.stat().st_mode)
    except OSError as error:
        if error.errno in (ENOENT, ENOTDIR, ELOOP):  # a link that leads nowhere
            return False
        raise


def _text(item: Traversable, top: Path | None) -> str:
    """Read a file the same way on every machine: UTF-8 with or without a mark, any line ends."""
    if not item.is_file():
        raise ValueError("not a regular file")
    with item.open("rb") if top is None or not isinstance(item, Path) else open_inside(item, top) as file:
        data = file.read(_MAX_BYTES + 1)
    if len(data) > _MAX_BYTES:
        raise ValueError(f"it has more than the {_MAX_BYTES:,} bytes that are read")
    return data.decode("utf-8-sig").replace("\r\n", "\n").replace("\r", "\n")


def _layers(entries: Mapping[str, Entry], fields: Mapping[str, Any]) -> Layers:
    placed: dict[str, Any] = {}
    ordered = sorted(entries.values(), key=lambda entry: (entry.file.order, entry.file.name))
    for place in PLACES:
        prompts: list[Any] = [entry.prompt for entry in ordered if entry.file.role == place]
        given = fields.get(place, ())
        prompts += given if isinstance(given, list | tuple) else [given]
        if prompts or place in fields:
            placed[place] = prompts
    return Layers(**{**fields, **placed})
