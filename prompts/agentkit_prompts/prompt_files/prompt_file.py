"""`PromptFile`: a prompt from one file, or from one file per locale."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, NamedTuple

from agentkit_prompts.errors import PromptError, TemplateError
from agentkit_prompts.prompt_files.front_matter import FrontMatter, PromptSource, read_source
from agentkit_prompts.prompt_files.prompt_kinds import PROMPT_KINDS
from agentkit_prompts.templates.template import Template
from agentkit_prompts.tokens.budget import Size
from agentkit_prompts.tree.additional_info import AdditionalInfoPrompt
from agentkit_prompts.tree.layers import Place
from agentkit_prompts.tree.leaves import TextPrompt
from agentkit_prompts.tree.prompt import BasePrompt

SUFFIX = ".prompt.j2"


@dataclass(frozen=True, slots=True)
class PromptFile:
    """Files and settings of a prompt in a `PromptFolder`."""

    name: str
    files: tuple[str, ...]
    """Names of the files, one per locale; the file without a locale, which is the fallback, is first."""
    role: Place | None
    """Place in `Layers`; None for a prompt that is only used by name."""
    order: float
    """Prompts of one place are sorted by order, then by name."""
    version: str | None
    """Version that the front matter sets; None if it sets none."""
    hash: str
    """Hash of the files, 16 hex digits."""


class LoadedPrompt(NamedTuple):
    """A loaded prompt, its settings, and the (name, text) pairs of its files."""

    file_texts: tuple[tuple[str, str], ...]
    prompt: BasePrompt
    file: PromptFile


def entries_of(
    texts: Mapping[str, str], label: str, before: Mapping[str, LoadedPrompt], problems: list[PromptError]
) -> dict[str, LoadedPrompt]:
    """Return the loaded prompts of a folder by name, without the invalid prompts.

    Args:
        texts: Texts of the files by their names, which are `label`, a slash, and the path of the file in the folder.
        label: Name of the folder in errors.
        before: Prompts of the previous load, which are reused if their files are unchanged.
        problems: List to which the errors of invalid files are added.
    """
    entries: dict[str, LoadedPrompt] = {}
    for name, sources in sorted(_groups(texts, label, problems).items()):
        file_texts = tuple([(source.file, texts[source.file]) for source in sources])
        entry = before.get(name)
        # Reuse the object of an unchanged prompt, because caches compare prompts by identity.
        if entry is None or entry.file_texts != file_texts:
            errors = _errors(sources)
            problems += errors
            if errors:
                continue
            entry = _entry(name, sources, file_texts, label)
        entries[name] = entry
    return entries


def _errors(sources: Sequence[PromptSource]) -> list[PromptError]:
    # After a contradiction, the creation of prompts would report its consequences as more errors.
    return [*_contradictions(sources)] or [*_errors_of_files(sources)]


def _groups(texts: Mapping[str, str], label: str, problems: list[PromptError]) -> dict[str, list[PromptSource]]:
    """Return the files of each prompt by its name, the file without a locale first: its front matter applies to all."""
    groups: dict[str, list[PromptSource]] = {}
    faults: list[TemplateError] = []
    for file, text in texts.items():
        source = read_source(file, file.removeprefix(f"{label}/").removesuffix(SUFFIX), text, faults)
        if source is not None:
            groups.setdefault(source.name, []).append(source)
    problems += faults
    for sources in groups.values():
        sources.sort(key=lambda source: (source.locale is not None, source.has_locale_in_name, source.locale or ""))
    return groups


def _entry(
    name: str, sources: Sequence[PromptSource], file_texts: tuple[tuple[str, str], ...], label: str
) -> LoadedPrompt:
    front = sources[0].front
    role = None
    if front.role != "none":
        role = front.role
    files = tuple([source.file for source in sources])
    file = PromptFile(name, files, role, front.order, front.version, content_hash(file_texts, label))
    return LoadedPrompt(file_texts, _prompt(front, sources), file)


def _contradictions(sources: Sequence[PromptSource]) -> Iterator[TemplateError]:
    """Yield the contradictions between the first file of a prompt and the other files."""
    first = sources[0]
    # The default budget depends on the kind, so that a missing budget is equal to no other budget.
    settings = first.front.model_dump(by_alias=True, exclude={"budget"}) | first.front.keys_in_file()
    names: dict[str, str] = {}
    for source in sources:
        other = names.setdefault((source.locale or "").lower(), source.file)
        if other != source.file:
            yield _duplicate_error(source, other)
        for key, value in source.front.keys_in_file().items():
            if key not in ("locale", "version", "name") and settings.get(key) != value:
                message = f"{key} differs from {first.file}, which applies to every locale: set it there"
                yield TemplateError(message, file=source.file, line=source.lines[key], name=key)


def _duplicate_error(source: PromptSource, other: str) -> TemplateError:
    text = f"the prompt {source.name!r}"
    if source.locale:
        text = f"the text of {source.name!r} for {source.locale}"
    line = source.lines.get("name") or source.lines.get("locale")
    return TemplateError(f"{text} is also in {other}: rename one of them", file=source.file, line=line, name="name")


def _errors_of_files(sources: Sequence[PromptSource]) -> Iterator[PromptError]:
    """Yield the errors of a prompt: create a prompt of each file separately, so that an error names the right file."""
    first = sources[0]
    try:
        # Check the budget first, because its errors would be reported once per file.
        _size(first.front)
    except PromptError as error:
        yield TemplateError(f"budget: {error}", file=first.file, line=first.lines["budget"], name="budget")
        return
    for source in sources:
        try:
            _prompt(first.front, [source])
        except TemplateError as error:
            yield error
        except PromptError as error:
            # The error is about the schema, which is in the first file, so all files have the same error.
            yield TemplateError(str(error), file=first.file, line=first.lines.get("schema"), name="schema")
            return


def _prompt_class(front: FrontMatter) -> type[BasePrompt]:
    if front.kind == "text" and front.schema_ is not None:
        return AdditionalInfoPrompt
    return PROMPT_KINDS[front.kind]


@lru_cache(maxsize=64)
def _default_prompt(prompt_class: type[BasePrompt]) -> BasePrompt:
    """Return a prompt of a class with default settings."""
    if prompt_class is TextPrompt:
        return prompt_class("")
    return prompt_class()


def _size(front: FrontMatter) -> Size:
    prompt_class = _prompt_class(front)
    if front.budget.cut == "items" and prompt_class.items is None:
        *kinds, last = [kind for kind, kind_class in PROMPT_KINDS.items() if kind_class.items is not None]
        raise PromptError(f"cut: items needs a kind that shows items: {', '.join(kinds)} or {last}", name="cut")
    return replace(_default_prompt(prompt_class).size, **front.budget.model_dump(exclude_unset=True))


def _prompt(front: FrontMatter, sources: Sequence[PromptSource]) -> BasePrompt:
    prompt_class, first = _prompt_class(front), sources[0]
    options = {"volatility": front.volatility, "fence": front.fence}
    fields: dict[str, Any] = {name: value for name, value in options.items() if value is not None}
    if front.schema_ is not None or any(source.body.strip() for source in sources):
        fields["template"] = _template(front, sources, str(_default_prompt(prompt_class).template.text))
    elif prompt_class is TextPrompt:
        fields["template"] = Template("", file=first.file)
    return prompt_class(name=first.name, size=_size(front), **fields)


def _template(front: FrontMatter, sources: Sequence[PromptSource], default: str) -> Template:
    """Return the template of the files; `default` is the text of a file without a body."""
    first = sources[0]
    texts: Any = {source.locale or "": source.body if source.body.strip() else default for source in sources}
    if texts.keys() == {""}:
        texts = texts[""]
    return Template(
        texts,
        engine=front.engine,
        params_schema=front.schema_,
        file=first.file,
        first_line=first.first_line,
        places={source.locale or "": (source.file, source.first_line) for source in sources},
    )


def content_hash(files: Any, label: str) -> str:
    """Return a hash of files, given as (name, text) pairs, with their names relative to the folder; 16 hex digits."""
    # With the lengths, a character cannot move from a name to a text without changing the hash.
    state = hashlib.blake2b(digest_size=8)
    for file, text in files:
        name = file.removeprefix(f"{label}/")
        state.update(f"{len(name)} {len(text)} {name}{text}".encode("utf-8", "surrogatepass"))
    return state.hexdigest()
