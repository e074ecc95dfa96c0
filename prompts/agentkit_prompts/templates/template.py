"""`Template`: text with slots, per locale, compiled once at construction."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from pydantic import GetCoreSchemaHandler
from pydantic_core import CoreSchema, core_schema

from agentkit_prompts.context.frozen import FrozenDict
from agentkit_prompts.context.parts import Media, Source
from agentkit_prompts.errors import PromptError, TemplateError, brief, check_types
from agentkit_prompts.hints import hinted, with_option_hints
from agentkit_prompts.system.regular_files import read_regular_text
from agentkit_prompts.templates.rendered import Rendered
from agentkit_prompts.templates.traced_text import TracedText

if TYPE_CHECKING:
    from agentkit_prompts.schemas.params import JsonSchema, ParamsSchema, Problem
    from agentkit_prompts.templates.item_paths import ItemPaths
    from agentkit_prompts.templates.sandbox.program import Program, Syntax

MediaTable = dict[str, dict[str, Source]]
"""Payloads of media, by kind and then by id, which is the hash of the content."""

_MAX_TAG = 64
"""Characters of a locale that are compared; tags of languages are shorter."""
_TEXT = r"((?:[^{]|\{(?![{%#]))*+)"
_AROUND_ONE_NAME = re.compile(rf"\A{_TEXT}\{{\{{ *+([A-Za-z]\w*+) *+\}}\}}{_TEXT}")


def media_table(media: Iterable[Media]) -> MediaTable:
    """Group media parts by kind and id."""
    table: MediaTable = {}
    for part in media:
        table.setdefault(part.kind, {})[part.id] = part.source
    return table


def schema_of_names(names: Mapping[str, bool]) -> JsonSchema | None:
    """Return the JSON Schema of an object with these properties, required if True; None without names."""
    if not names:
        return None
    schema: JsonSchema = {"type": "object", "properties": {name: {} for name in names}}
    required = [name for name, is_required in names.items() if is_required]
    if required:
        schema["required"] = required
    return schema


class _Around(NamedTuple):
    """Text around one `{{ name }}`."""

    before: str
    name: str
    after: str


class _CompiledText(NamedTuple):
    """The compiled text of one locale."""

    program: Program
    literal: Rendered | None
    """The rendering, which is always the same, if the text has no slots; else None."""
    around: _Around | None
    """The text around the slot if the text has only one plain slot; else None."""


@hinted
class Template:
    """Text with slots. Immutable; compiled at construction.

    Args:
        text: The text, or a mapping of locales to texts. A locale such as `zh-CN` falls back to `zh`, then to the first
            text.
        engine: `jinja` (a sandboxed, bounded Jinja), `fstring` (`{name}` slots, plain names only), or `literal` (no
            slots: the text is never compiled).
        params_schema: Schema of the values: a TypeAdapter, a model, dataclass or TypedDict, or a JSON Schema object. A
            rendering checks the values against it and applies its defaults.
        file: File of the text, for error messages.
        first_line: Line of that file at which the text starts, counted from 1.
        places: File and first line by locale, if the texts come from several files.
        isolated: True for an untrusted template: it is compiled and rendered in a separate process, which is killed if
            it exceeds its limits. The start takes about 0.3 s. The template receives JSON data: no media, no text of
            other prompts, and dates as text.

    Raises:
        TemplateError: Syntax error, with file and line.
        PromptError: The params schema forbids extra fields or rejects arbitrary types.
    """

    __slots__ = ("_check", "_options", "_texts", "engine", "file", "names", "params_schema", "required", "text")

    text: str | Mapping[str, str]
    engine: Syntax
    params_schema: ParamsSchema | None
    file: str | None
    names: Mapping[str, int]
    """First line, by name, of the names that the text reads."""
    required: frozenset[str]
    """Names that must be defined; `{{ depth | default(1) }}` and `{{ depth or 1 }}` read an optional name."""
    _texts: dict[str | None, _CompiledText]
    """Compiled texts by the tag of the locale; the first text is also the value of None."""
    _check: Callable[[Mapping[str, Any]], tuple[Mapping[str, Any], list[Problem]]] | None
    _options: dict[str, Any]

    # Type checkers then accept text for a field of this type, which validation converts.
    if TYPE_CHECKING:

        def __get__(self, instance: object, owner: object) -> Template: ...
        def __set__(self, instance: object, value: Template | str | Mapping[str, str]) -> None: ...

    def __init__(
        self,
        text: str | Mapping[str, str],
        *,
        engine: Syntax = "jinja",
        params_schema: ParamsSchema | None = None,
        file: str | Path | None = None,
        first_line: int = 1,
        places: Mapping[str, tuple[str, int]] | None = None,
        isolated: bool = False,
    ) -> None:
        check_types(
            PromptError,
            "Template",
            text=(text, (str, Mapping), "text, or a mapping of locales to text"),
            file=(file, (str, Path, type(None)), "a path"),
            first_line=(first_line, int, "a whole number"),
            places=(places, (Mapping, type(None)), "a mapping of locales to a file and a line"),
            isolated=(isolated, bool, "True or False"),
        )
        for locale, place in (places or {}).items():
            if not _is_place(place):
                raise PromptError(f"Template: places[{brief(locale)}]: expected a pair of a file and a line")
        check = None
        if params_schema is not None:
            from agentkit_prompts.schemas.params import check_params_schema, params_checker, with_resolved_names

            params_schema = with_resolved_names(params_schema)
            check_params_schema(params_schema)
            check = params_checker(params_schema)
        sources = _sources(text)
        source_file = None
        if file is not None:
            source_file = str(file)
        files = dict.fromkeys(sources, (source_file, first_line)) | dict(places or {})
        programs = _programs(sources, files, engine, isolated=isolated)
        names: dict[str, int] = {}
        for program in programs.values():
            for name, line in program.names.items():
                names.setdefault(name, line)
        # Joining the texts around a slot would skip the check of a params schema and the isolated process.
        has_short_form = engine == "jinja" and check is None and not isolated
        texts: dict[str | None, _CompiledText] = {
            _tag(locale): _compiled_text(program, has_short_form=has_short_form) for locale, program in programs.items()
        }
        texts[None] = next(iter(texts.values()))
        options = {"engine": engine, "params_schema": params_schema, "file": source_file, "first_line": first_line}
        put = object.__setattr__
        put(self, "text", text if isinstance(text, str) else FrozenDict(sources))
        put(self, "engine", engine)
        put(self, "params_schema", params_schema)
        put(self, "file", source_file)
        put(self, "names", FrozenDict(names))
        put(self, "required", frozenset().union(*[program.required for program in programs.values()]))
        put(self, "_texts", texts)
        put(self, "_check", check)
        put(self, "_options", {**options, "places": places, "isolated": isolated})

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"Template is read-only: create a new template to change {name!r}")

    def __copy__(self) -> Template:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Template:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return partial(Template, **self._options), (self.text,)

    @classmethod
    def from_file(
        cls,
        path: str | Path,
        *,
        engine: Syntax = "jinja",
        params_schema: ParamsSchema | None = None,
        isolated: bool = False,
    ) -> Template:
        """Read a UTF-8 template file.

        Raises:
            TemplateError: The file cannot be read, is not UTF-8, or has a syntax error.
        """
        try:
            text = read_regular_text(path)
        except (OSError, ValueError) as error:
            raise TemplateError(f"cannot be read as UTF-8 text ({error})", file=str(path)) from error
        return cls(text, engine=engine, params_schema=params_schema, file=path, isolated=isolated)

    def with_text(self, text: str) -> Template:
        """Return a template with another first text, and the same settings. Raises the errors of the class."""
        if isinstance(self.text, str):
            return Template(text, **self._options)
        return Template({**self.text, next(iter(self.text)): text}, **self._options)

    @property
    def first_place(self) -> tuple[str | None, int]:
        """File of the first text, None if it is from no file, and the line at which it starts, counted from 1."""
        locale = ""
        if not isinstance(self.text, str):
            locale = next(iter(self.text))
        place = self._options["file"], self._options["first_line"]
        places: Mapping[str, tuple[str, int]] = self._options["places"] or {}
        return places.get(locale, place)

    @property
    def json_schema(self) -> JsonSchema | None:
        """The params schema as JSON Schema; without it, a schema inferred from the names of the text, or None."""
        if self.params_schema is not None:
            from agentkit_prompts.schemas.params import to_json_schema

            return to_json_schema(self.params_schema)
        return schema_of_names({name: name in self.required for name in sorted(self.names)})

    @property
    def kwargs_schema(self) -> JsonSchema | None:
        """JSON Schema inferred from the names that the text reads as `additional_kwargs.NAME`; None without names."""
        read: dict[str, bool] = {}
        for compiled in self._texts.values():
            for name, required in compiled.program.kwargs.items():
                read[name] = read.get(name, False) or required
        return schema_of_names(read)

    @property
    def reads(self) -> frozenset[str]:
        """Names on which the rendering depends: the names that the text reads, and `locale` if it has several texts."""
        names = frozenset(self.names)
        if isinstance(self.text, str) or len(self.text) == 1:
            return names
        return names | {"locale"}

    @property
    def version(self) -> str:
        """Hash of the texts of all locales, 16 hex digits."""
        texts = {"": self.text} if isinstance(self.text, str) else self.text
        state = hashlib.blake2b(digest_size=8)
        for locale, text in texts.items():
            state.update(f"{locale}\0{len(text)}\0{text}".encode("utf-8", "surrogatepass"))
        return state.hexdigest()

    def program(self, locale: str | None = None) -> Program:
        """Return the program of the text for a locale; `zh_CN` falls back to `zh`, then to the first text."""
        return self._text_for(locale).program

    def _text_for(self, locale: str | None) -> _CompiledText:
        """Return the compiled text for a locale, with the fallbacks of `program`."""
        if locale in self._texts:
            return self._texts[locale]
        tag = _tag(locale or "")
        while tag:
            if tag in self._texts:
                return self._texts[tag]
            tag = tag.rpartition("-")[0]
        return self._texts[None]

    def around(self, name: str, locale: str | None = None) -> tuple[str, str] | None:
        """Return the texts before and after `{{ name }}` if the template is only text around this slot, else None."""
        around = self._text_for(locale).around
        if around is not None and around.name == name:
            return around.before, around.after
        return None

    def problems(self, values: Mapping[str, Any]) -> list[Problem]:
        """Return the problems that the params schema finds in `values`; empty without a params schema."""
        if self._check is not None:
            return self._check(values)[1]
        return []

    def run(
        self,
        values: Mapping[str, Any],
        *,
        locale: str | None = None,
        prefixes: Mapping[str, str] | None = None,
        paths: ItemPaths | None = None,
    ) -> Rendered:
        """Render the text with `values`, and return the text with its origins.

        `prefixes` maps names in `values` to the path of their value in the context, if the name is not the path.
        `paths` maps items of `values` to their path in the context, if they can have another position there.

        Raises:
            TemplateError: A value is missing, has the wrong type or cannot be printed, or a limit is exceeded.
        """
        if self._check is not None:
            values, problems = self._check(values)
            if problems:
                listing = "; ".join(f"{name}: {problem}" for name, problem in problems)
                raise TemplateError(f"values do not fit the params_schema: {listing}", file=self.file)
        compiled = self._text_for(locale)
        if compiled.literal is not None:
            return compiled.literal
        try:
            trace = compiled.program.trace(values)
        except TemplateError as error:
            raise error.in_text(compiled.program.source) from error.__cause__
        return TracedText(trace, values, prefixes or {}, paths)

    @with_option_hints
    def render(self, params: Mapping[str, Any], locale: str | None = None) -> str:
        """Render to plain text; media are replaced by their alt text."""
        return self.run(params, locale=locale).plain

    def multimodal_render(self, params: Mapping[str, Any], locale: str | None = None) -> tuple[str, MediaTable]:
        """Render to text with a marker for each use of a media part, and a table of the payloads."""
        rendered = self.run(params, locale=locale)
        return rendered.text, media_table(rendered.media)

    def __repr__(self) -> str:
        text = self.text if isinstance(self.text, str) else next(iter(self.text.values()))
        return f"Template({self.file or (text if len(text) <= 40 else text[:37] + '...')!r})"

    @classmethod
    def __get_pydantic_core_schema__(cls, source: object, handler: GetCoreSchemaHandler) -> CoreSchema:
        """Return a schema that converts text, or a mapping of locales to texts, for a field of this type."""

        def coerce(value: Any) -> Template:
            if isinstance(value, Template):
                return value
            if isinstance(value, str | Mapping):
                return cls(value)
            raise ValueError(f"expected a Template or its text, got {type(value).__name__}")

        return core_schema.no_info_plain_validator_function(coerce)


def _is_place(place: object) -> bool:
    return isinstance(place, tuple) and len(place) == 2 and isinstance(place[0], str) and isinstance(place[1], int)


def _tag(locale: str) -> str:
    """Return a locale in the form in which locales are compared: without case, and with hyphens."""
    return locale[:_MAX_TAG].replace("_", "-").lower()


def _sources(text: str | Mapping[str, str]) -> dict[str, str]:
    """Return the texts by locale; one text has the locale `""`."""
    if isinstance(text, str):
        return {"": text}
    sources = dict(text)
    if not sources or not all(isinstance(source, str) for source in sources.values()):
        raise PromptError("Template: expected text, or a mapping of at least one locale to text")
    if len({_tag(locale) for locale in sources}) < len(sources):
        raise PromptError(f"Template: locales that differ only in case or hyphens: {brief(list(sources))}")
    return sources


def _programs(
    sources: Mapping[str, str], files: Mapping[str, tuple[str | None, int]], engine: Syntax, *, isolated: bool
) -> dict[str, Program]:
    """Return the compiled text of each locale; if isolated, one separate process compiles all."""
    if isolated:
        from agentkit_prompts.templates.isolated_program import isolated_program, start_process

        compiler: Callable[..., Program] = partial(isolated_program, process=start_process())
    else:
        from agentkit_prompts.templates.sandbox.program import compile_program

        compiler = compile_program
    programs: dict[str, Program] = {}
    for locale, source in sources.items():
        file, first_line = files[locale]
        try:
            programs[locale] = compiler(source, syntax=engine, file=file, first_line=first_line)
        except TemplateError as error:
            raise error.in_text(source) from error.__cause__
    return programs


def _compiled_text(program: Program, *, has_short_form: bool) -> _CompiledText:
    literal = None
    if program.literal is not None:
        literal = Rendered.from_text(program.literal)
    around = None
    # Jinja normalises line breaks, so text with carriage returns needs the engine.
    if has_short_form and len(program.names) == 1 and "\r" not in program.source:
        match = _AROUND_ONE_NAME.fullmatch(program.source)
        if match is not None:
            around = _Around(match[1], match[2], match[3].removesuffix("\n"))
    return _CompiledText(program, literal, around)
