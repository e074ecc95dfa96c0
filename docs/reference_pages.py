"""Write `docs/reference/*.md`, a page for each public module: `python docs/reference_pages.py`.

`./scripts/docs` does the same before it builds the site; `./scripts/docs reference` writes the pages only, for readers
of a clone. Signatures and docstrings are read from the source. git ignores the pages.
"""

from __future__ import annotations

import importlib
import re
import sys
import textwrap
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

import griffe

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "docs" / "reference"
DOORS = {
    "agentkit.prompts": "Prompts",
    "agentkit.prompts.chat_templates": "Chat templates",
    "agentkit.prompts.evaluation": "Evaluation of models",
    "agentkit.prompts.example_selectors": "Example selectors",
    "agentkit.prompts.prompters": "Prompters",
    "agentkit.tools": "Tools",
    "agentkit.tools.types": "Types for extensions of tools",
    "agentkit.memory": "Memory",
    "agentkit.memory.recall": "Parts of recall",
    "agentkit.inbox": "Messages to running runs",
    "agentkit.inspector": "Inspector",
    "agentkit.models": "Models",
    "agentkit.guards": "Guards",
    "agentkit.durable": "Durable runs",
    "agentkit.observing": "Spans and metrics",
    "agentkit.sandbox": "Code mode and sandboxes",
    "agentkit.server": "Server",
    "agentkit.agent_files": "Agent files",
    "agentkit.errors": "Errors of runs",
    "agentkit.evals": "Evaluation of agents",
    "agentkit.improve": "Improvement of prompts",
    "agentkit.testing": "Testing",
    "agentkit.training": "Fine-tuning rows",
    "agentkit": "Agents and runs",
}
"""Subjects of the pages. A name that several modules export is described on the first of their pages."""
WIDTH = 88
"""Maximum columns of a line of a signature."""
INDENT = "    "
STARS = {griffe.ParameterKind.var_positional: "*", griffe.ParameterKind.var_keyword: "**"}
SECTIONS = {"raises": "Raises", "yields": "Yields", "returns": "Returns"}
IS_SHOWN_DUNDER = {"__call__", "__enter__", "__aenter__", "__iter__", "__getitem__", "__len__"}


def pages() -> dict[Path, str]:
    """Return the text of each page."""
    source = _source()
    homes = {door: _homes(door) for door in DOORS}
    described: dict[str, str] = {}
    for door, entries in homes.items():
        anchors: set[str] = set()
        for name, path in entries.items():
            if path not in described:
                # A class and a function, such as `Tool` and `tool`, have equal anchors; the site numbers the second.
                anchor = f"{name.lower()}_1" if name.lower() in anchors else name.lower()
                anchors.add(anchor)
                described[path] = f"{door}.md#{anchor}"
    texts = {}
    for door, subject in DOORS.items():
        lead = f"<!-- Written by docs/reference_pages.py. -->\n\nPublic names of `{door}`."
        parts = [f"# Reference: {subject[0].lower()}{subject[1:]}", lead]
        links = {name: described[path] for name, path in homes[door].items()}
        elsewhere = [f"[{name}]({link})" for name, link in links.items() if not link.startswith(f"{door}.md#")]
        if elsewhere:
            parts.append(f"Described on other pages: {', '.join(elsewhere)}.")
        for name, path in homes[door].items():
            if described[path].startswith(f"{door}.md#"):
                parts += _entry(source, name, path, described)
        texts[FOLDER / f"{door}.md"] = "\n\n".join(parts) + "\n"
    return texts


def _source() -> griffe.ModulesCollection:
    loader = griffe.GriffeLoader(
        search_paths=[ROOT, ROOT / "prompts", ROOT / "tools", ROOT / "memory"],
        allow_inspection=False,
        docstring_parser=griffe.Parser.google,
        docstring_options={"warnings": False},
    )
    for package in ("agentkit", "agentkit_prompts", "agentkit_tools", "agentkit_memory"):
        loader.load(package)
    loader.resolve_aliases(implicit=False, external=False)
    return loader.modules_collection


def _homes(door: str) -> dict[str, str]:
    """Return the public names of a module, in alphabetical order, with the path of their definition."""
    module = importlib.import_module(door)
    names = sorted((name for name in module.__all__ if not name.startswith("_")), key=str.lower)
    return {name: f"{_home(module, name)}.{name}" for name in names}


def _home(door: ModuleType, name: str) -> str:
    value = getattr(door, name)
    if isinstance(value, type | FunctionType):
        return value.__module__
    # A constant, an alias, or a function that a decorator replaced.
    modules = [at for at, module in sys.modules.items() if at.startswith("agentkit") and _assigns(module, name)]
    return max(modules, key=len)


def _assigns(module: ModuleType, name: str) -> bool:
    code = "" if module.__file__ is None else Path(module.__file__).read_text("utf-8")
    return re.search(rf"^(?:{name}\b[^=\n]*=|(?:async )?def {name}\()", code, re.MULTILINE) is not None


def _entry(source: griffe.ModulesCollection, name: str, path: str, described: dict[str, str]) -> list[str]:
    if not path.startswith("agentkit"):
        return [f"## {name}", f"`{path}`, of another library."]
    item = source[path]
    if item.is_alias:
        item = item.final_target
    writer = Writer(source, described)
    if isinstance(item, griffe.Class):
        return writer.class_entry(name, item)
    if isinstance(item, griffe.Function):
        return [f"## {name}", *writer.function(name, item)]
    return [f"## {name}", *_value(name, item), *writer.docstring(item)]


def _value(name: str, item: Any) -> Iterator[str]:
    annotation = "" if item.annotation is None else f": {item.annotation}"
    value = "..." if item.value is None or len(str(item.value)) > 400 else str(item.value)
    yield _code(f"{name}{annotation} = {value}")


class Writer:
    """Writes the entries of classes and functions."""

    def __init__(self, source: griffe.ModulesCollection, described: dict[str, str]) -> None:
        self.source = source
        self.described = described

    def class_entry(self, name: str, item: griffe.Class) -> list[str]:
        """Return the description of a class and its members."""
        members = {key: self._target(member) for key, member in self._members(item).items()}
        parts = [f"## {name}", *self._bases(item)]
        constructor = members.pop("__init__", None)
        if "TypedDict" in " ".join(map(str, item.bases)) or self._is_options(item):
            return [*parts, *self.docstring(item), _bullets(self._option_rows(item))]
        if isinstance(constructor, griffe.Function) and constructor.parameters[-1].name != "values":
            parts += self.function(name, constructor, item)
        else:
            parts += self.docstring(item)
        explained = self._explained(constructor, item)
        rows = [
            _row(key, member.annotation, _default_of_field(member), self._text(member))
            for key, member in members.items()
            if isinstance(member, griffe.Attribute) and self._is_public(key) and key not in explained
            if member.docstring is not None or "property" in member.labels
        ]
        if rows:
            parts += ["Attributes:", _bullets(rows)]
        for key, member in members.items():
            if isinstance(member, griffe.Function) and self._is_public(key) and (member.docstring or member.overloads):
                heading = f"{name}.{key}".replace("__", r"\_\_")  # not in bold
                parts += [f"### {heading}", *self.function(key, member)]
        return parts

    def function(self, name: str, item: griffe.Function, owner: griffe.Class | None = None) -> list[str]:
        """Return the signature, the description and the parameters; of the constructor of `owner` if it is set."""
        documented = owner if owner is not None else item
        if documented.docstring is None and item.docstring is not None:
            documented = item
        item = _informative(item)
        parts = [_code(self._signature(name, item, owner is not None)), *self.docstring(documented)]
        rows = list(self._parameter_rows(item, documented, owner))
        if rows:
            parts.insert(2 if documented.docstring else 1, _bullets(rows))
        return parts

    def docstring(self, item: Any) -> list[str]:
        """Return the text of a docstring, without its parameters."""
        if item.docstring is None:
            return []
        parts = []
        for section in item.docstring.parsed:
            kind = section.kind.value
            if kind == "text":
                parts.append(_harmless(section.value))
            elif kind in SECTIONS:
                errors = [one.annotation if kind == "raises" else None for one in section.value]
                rows = [
                    _row("", error, None, one.description) for error, one in zip(errors, section.value, strict=True)
                ]
                parts += [f"{SECTIONS[kind]}:", _bullets(rows)]
            elif kind == "examples":
                parts += [f"```py\n{text}\n```" if "code" in str(code) else text for code, text in section.value]
            elif kind == "admonition":
                parts.append(f"{section.title}: {section.value.description}")
        return parts

    def _members(self, item: griffe.Class) -> dict[str, Any]:
        """Return the members of a class and of its bases without a description."""
        members: dict[str, Any] = {}
        for base in reversed(item.mro() if not item.is_alias else []):
            if base.path not in self.described:
                members |= base.members
        return members | item.members

    def _bases(self, item: griffe.Class) -> list[str]:
        links = []
        for base in item.bases:
            path = getattr(base, "canonical_path", str(base)).split("[")[0]
            if path in self.described:
                links.append(f"[{path.rpartition('.')[2]}]({self.described[path]})")
        return [f"Derived from {', '.join(links)}."] if links else []

    def _explained(self, constructor: Any, item: griffe.Class) -> set[str]:
        if not isinstance(constructor, griffe.Function):
            return set()
        names = {parameter.name for parameter in constructor.parameters}
        return {name for name in names if self._meaning(name, item, constructor, item)}

    def _parameter_rows(self, item: griffe.Function, documented: Any, owner: griffe.Class | None) -> Iterator[str]:
        for parameter in item.parameters:
            if parameter.name in ("self", "cls") or parameter.name.startswith("_"):
                continue
            options = self._options_class(parameter)
            if options is not None and not (options.path in self.described and owner is None):
                yield from self._option_rows(options, owner)
                continue
            meaning = self._meaning(parameter.name, item, documented, owner)
            star = STARS.get(parameter.kind, "") if parameter.kind is not None else ""
            if star and not meaning and options is None:
                continue
            if options is not None:
                link = f"[{options.name}]({self.described[options.path]})"
                mentions = f"`{options.name}`" in meaning
                meaning = meaning.replace(f"`{options.name}`", link) if mentions else f"{meaning} See {link}.".strip()
            default = None if star else self._default(parameter.default, item)
            yield _row(star + parameter.name, None if options else parameter.annotation, default, meaning)

    def _meaning(self, name: str, item: griffe.Object, documented: Any, owner: griffe.Class | None) -> str:
        for source in (documented, item):
            if source is None or source.docstring is None:
                continue
            for section in source.docstring.parsed:
                if section.kind.value == "parameters":
                    for one in section.value:
                        if one.name.lstrip("*") == name:
                            return str(one.description)
        if owner is not None:
            field = self._members(owner).get(name)
            if field is not None:
                return self._text(self._target(field))
        return ""

    def _options_class(self, parameter: griffe.Parameter) -> griffe.Class | None:
        match = re.match(r"Unpack\[(\w+)", str(parameter.annotation or ""))
        if match is None or parameter.function is None:
            return None
        item: Any = self.source[parameter.function.module.path]
        item = self._target(item.members[match[1]]) if match[1] in item.members else None
        if item is None:  # defined inside `if TYPE_CHECKING:`
            return None
        return item if isinstance(item, griffe.Class) else None

    def _is_options(self, item: griffe.Class) -> bool:
        return any("TypedDict" in str(base) for one in item.mro() for base in one.bases)

    def _option_rows(self, item: griffe.Class, owner: griffe.Class | None = None) -> list[str]:
        """Return the fields of a TypedDict and of its bases; `owner` can describe fields without a description."""
        fields: dict[str, Any] = {}
        for one in [*reversed(item.mro()), item]:
            fields |= {key: member for key, member in one.members.items() if isinstance(member, griffe.Attribute)}
        described = {} if owner is None else owner.all_members
        texts = {
            key: self._text(field) or self._text(self._target(described.get(key, field)))
            for key, field in fields.items()
        }
        return [_row(key, field.annotation, None, texts[key]) for key, field in fields.items()]

    def _default(self, default: Any, item: griffe.Function) -> str | None:
        """Return a default; the value of a constant."""
        if default is None:
            return None
        name = str(default)
        if re.fullmatch(r"_[A-Z_]+|NO_[A-Z_]+", name):
            constant = item.module.members.get(name)
            target = None if constant is None else self._target(constant)
            if target is not None and getattr(target, "value", None) is not None and len(str(target.value)) < 60:
                return str(target.value)
        return name

    def _signature(self, name: str, item: griffe.Function, is_constructor: bool) -> str:
        prefix = "async " if "async" in item.labels else ""
        returns = "" if is_constructor or item.returns is None else f" -> {item.returns}"
        parts = list(self._signature_parts(item))
        line = f"{prefix}{name}({', '.join(parts)}){returns}"
        if len(line) <= WIDTH:
            return line
        body = textwrap.fill(", ".join(parts) + ",", WIDTH, initial_indent=INDENT, subsequent_indent=INDENT)
        return f"{prefix}{name}(\n{body}\n){returns}"

    def _signature_parts(self, item: griffe.Function) -> Iterator[str]:
        """Yield each parameter as in a call, and the markers `*` and `/`."""
        before: griffe.ParameterKind | None = None
        for parameter in item.parameters:
            if before is griffe.ParameterKind.positional_only and parameter.kind is not before:
                yield "/"
            if parameter.kind is griffe.ParameterKind.keyword_only and before not in (
                griffe.ParameterKind.keyword_only,
                griffe.ParameterKind.var_positional,
            ):
                yield "*"
            before = parameter.kind
            if parameter.name in ("self", "cls"):
                before = None
                continue
            star = STARS.get(parameter.kind, "") if parameter.kind is not None else ""
            default = self._default(parameter.default, item)
            yield f"{star}{parameter.name}" if star or default is None else f"{parameter.name}={default}"
        if before is griffe.ParameterKind.positional_only:
            yield "/"

    def _target(self, member: Any) -> Any:
        try:
            return member.final_target if member.is_alias else member
        except griffe.AliasResolutionError:
            return member

    def _text(self, item: Any) -> str:
        if item.docstring is None:
            return ""
        return "\n\n".join(str(one.value) for one in item.docstring.parsed if one.kind.value == "text")

    def _is_public(self, name: str) -> bool:
        return not name.startswith("_") or name in IS_SHOWN_DUNDER


def _informative(item: griffe.Function) -> griffe.Function:
    """Return the overload with the most parameters, if the implementation ends with options of any type."""
    last = list(item.parameters)[-1:]
    if item.overloads and last and last[0].kind in STARS and str(last[0].annotation) == "Any":
        return max(item.overloads, key=lambda overload: len(overload.parameters))
    return item


def _default_of_field(field: griffe.Attribute) -> str | None:
    value = str(field.value) if field.value is not None and "class-attribute" in field.labels else None
    return None if value is None or len(value) > 60 or "field(" in value.lower() else value


def _code(text: str) -> str:
    return f"```py\n{text}\n```"


def _row(name: str, annotation: Any, default: str | None, meaning: str) -> str:
    about = []
    if annotation is not None:
        about.append(_literal(str(annotation)))
    if default is not None:
        about.append("optional" if default == "..." else f"default {_literal(default)}")
    label = f"`{name}`" if name else ""
    kind = f"({', '.join(about)})" if name and about else ", ".join(about)
    head = " ".join(part for part in (label, kind) if part)
    text = _harmless(" ".join(meaning.split())) if "\n\n" not in meaning else _harmless(meaning).replace("\n", "\n  ")
    return f"- {head}: {text}" if head and text else f"- {head}{text}"


def _literal(text: str) -> str:
    return f"`` {text} ``" if "`" in text else f"`{text}`"


def _bullets(rows: Iterable[str]) -> str:
    return "\n".join(rows)


def _harmless(text: str) -> str:
    """Return a docstring whose code blocks are not executed as code of a page."""
    return re.sub(r"^( *```)python\b", r"\1py", text, flags=re.MULTILINE)


def write() -> None:
    """Write the pages, and delete pages of modules that are not public."""
    texts = pages()
    FOLDER.mkdir(exist_ok=True)
    for path in FOLDER.glob("*.md"):
        if path not in texts:
            path.unlink()
    for path, text in texts.items():
        path.write_text(text, "utf-8")


if __name__ == "__main__":
    write()
