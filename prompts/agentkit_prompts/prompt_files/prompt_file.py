"""`PromptFile`: a prompt from one file, or from one file per locale."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, NamedTuple

from agentkit_prompts.errors import PromptError, TemplateError
from agentkit_prompts.prompt_files.front_matter import FrontMatter, Source, read_source
from agentkit_prompts.prompt_files.prompt_kinds import PROMPT_KINDS
from agentkit_prompts.templates.template import Template
from agentkit_prompts.tokens.budget import Size
from agentkit_prompts.tree.additional_info import AdditionalInfoPrompt
from agentkit_prompts.tree.layers import Place
from agentkit_prompts.tree.leaves import TextPrompt
from agentkit_prompts.tree.prompt import BasePrompt

__all__ = ["SUFFIX", "Entry", "PromptFile", "content_hash", "entries_of"]

SUFFIX = ".prompt.j2"


@dataclass(frozen=True, slots=True)
class PromptFile:
    """Origin of a prompt in a folder, and other settings of its front matter."""

    name: str
    files: tuple[str, ...]
    """One file per locale; the file with the fallback text is first."""
    role: Place | None
    """Place in `Layers`; None for a prompt that is only used by name."""
    order: float
    """Prompts of one place are sorted by order, then by name."""
    version: str | None
    """Version set by the author."""
    hash: str
    """Hash of the files, 16 hex digits."""


class Entry(NamedTuple):
    """A prompt and its files, as (file, text)."""

    sources: tuple[tuple[str, str], ...]
    prompt: BasePrompt
    file: PromptFile


def entries_of(
    texts: Mapping[str, str], label: str, before: Mapping[str, Entry], problems: list[PromptError]
) -> dict[str, Entry]:
    """Return the prompts of the files, by name; problems are added to `problems`.

    Args:
        texts: Text of each file, by its name in errors: `label`, a slash, and its path.
        label: Name of their folder.
        before: Earlier prompts, which are reused if their files are unchanged.
        problems: List to which errors are added.
    """
    entries: dict[str, Entry] = {}
    for name, parts in sorted(_groups(texts, label, problems).items()):
        sources = tuple([(part.file, texts[part.file]) for part in parts])
        entry = before.get(name)
        # Reuse the object of an unchanged prompt, because caches identify prompts by identity.
        if entry is None or entry.sources != sources:
            errors = _errors(parts)
            problems += errors
            if errors:
                continue
            entry = _entry(name, parts, sources, label)
        entries[name] = entry
    return entries


def _errors(parts: Sequence[Source]) -> list[PromptError]:
    # Contradictions would cause more errors when prompts are created.
    return [*_contradictions(parts)] or [*_broken(parts)]


def _groups(texts: Mapping[str, str], label: str, problems: list[PromptError]) -> dict[str, list[Source]]:
    """Return the files of each prompt. The file without a locale comes first: its front matter applies to all files."""
    groups: dict[str, list[Source]] = {}
    faults: list[TemplateError] = []
    for file, text in texts.items():
        source = read_source(file, file.removeprefix(f"{label}/").removesuffix(SUFFIX), text, faults)
        if source is not None:
            groups.setdefault(source.name, []).append(source)
    problems += faults
    for parts in groups.values():
        parts.sort(key=lambda part: (part.locale is not None, part.of_name, part.locale or ""))
    return groups


def _entry(name: str, parts: Sequence[Source], sources: tuple[tuple[str, str], ...], label: str) -> Entry:
    front = parts[0].front
    role = None
    if front.role != "none":
        role = front.role
    files = tuple([part.file for part in parts])
    file = PromptFile(name, files, role, front.order, front.version, content_hash(sources, label))
    return Entry(sources, _prompt(front, parts), file)


def _contradictions(parts: Sequence[Source]) -> Iterator[TemplateError]:
    """Yield the contradictions between the first file of a prompt and the other files."""
    first = parts[0]
    counts = first.front.given()
    names: dict[str | None, str] = {}
    for part in parts:
        other = names.setdefault(part.locale, part.file)
        if other != part.file:
            yield _taken(part, other)
        for key, value in part.front.given().items():
            if key not in ("locale", "version", "name") and counts.get(key, ...) != value:
                message = f"{key} differs from {first.file}, which applies to every locale: set it there"
                yield TemplateError(message, file=part.file, line=part.lines[key], name=key)


def _taken(part: Source, other: str) -> TemplateError:
    text = f"the prompt {part.name!r}"
    if part.locale:
        text = f"the text of {part.name!r} for {part.locale}"
    line = part.lines.get("name") or part.lines.get("locale")
    return TemplateError(f"{text} is also in {other}: rename one of them", file=part.file, line=line, name="name")


def _broken(parts: Sequence[Source]) -> Iterator[PromptError]:
    """Create a prompt of each file separately, so that an error names the right file."""
    first = parts[0]
    try:
        # Check the budget first: its errors would be reported for each file.
        _size(first.front)
    except PromptError as error:
        yield TemplateError(f"budget: {error}", file=first.file, line=first.lines["budget"], name="budget")
        return
    for part in parts:
        try:
            _prompt(first.front, [part])
        except TemplateError as error:
            yield error
        except PromptError as error:
            # The first file contains the schema, so all files have the same error.
            yield TemplateError(str(error), file=first.file, line=first.lines.get("schema"), name="schema")
            return


def _kind(front: FrontMatter) -> type[BasePrompt]:
    if front.kind == "text" and front.schema_ is not None:
        return AdditionalInfoPrompt
    return PROMPT_KINDS[front.kind]


@lru_cache(maxsize=64)
def _default(kind: type[BasePrompt]) -> BasePrompt:
    """Return a prompt of the kind with default settings."""
    if kind is TextPrompt:
        return kind("")
    return kind()


def _size(front: FrontMatter) -> Size:
    kind = _kind(front)
    if front.budget.cut == "items" and kind.items is None:
        raise PromptError("cut: items needs a kind that shows items: memo, recalled, knowledge or examples", name="cut")
    return replace(_default(kind).size, **front.budget.model_dump(exclude_unset=True))


def _prompt(front: FrontMatter, parts: Sequence[Source]) -> BasePrompt:
    kind, first = _kind(front), parts[0]
    options = {"volatility": front.volatility, "fence": front.fence}
    fields: dict[str, Any] = {name: value for name, value in options.items() if value is not None}
    if front.schema_ is not None or any(part.body.strip() for part in parts):
        fields["template"] = _template(front, parts, str(_default(kind).template.text))
    elif kind is TextPrompt:
        fields["template"] = Template("", file=first.file)
    return kind(name=first.name, size=_size(front), **fields)


def _template(front: FrontMatter, parts: Sequence[Source], default: str) -> Template:
    """Return the template of the files; `default` is the text of a file without a body."""
    first = parts[0]
    texts: Any = {part.locale or "": part.body if part.body.strip() else default for part in parts}
    if texts.keys() == {""}:
        texts = texts[""]
    return Template(
        texts,
        engine=front.engine,
        params_schema=front.schema_,
        file=first.file,
        first_line=first.first_line,
        places={part.locale or "": (part.file, part.first_line) for part in parts},
    )


def content_hash(files: Any, label: str) -> str:
    """Hash files with their names relative to the folder."""
    # The lengths keep the borders between names and texts unambiguous.
    state = hashlib.blake2b(digest_size=8)
    for file, text in files:
        name = file.removeprefix(f"{label}/")
        state.update(f"{len(name)} {len(text)} {name}{text}".encode("utf-8", "surrogatepass"))
    return state.hexdigest()
