"""Prompt templates that a separate process compiles and renders. The process receives only data and sends only text."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from secrets import token_hex
from types import MappingProxyType
from typing import Any

from agentkit_prompts.context.parts import MEDIA_OPENING, Media, neutralise_markers
from agentkit_prompts.errors import PromptError, TemplateError
from agentkit_prompts.limits import MAX_DEPTH
from agentkit_prompts.templates.isolated_process import IsolatedProcess, read_text
from agentkit_prompts.templates.request_loop import serve
from agentkit_prompts.templates.sandbox.finalise import json_text, parts_of, text
from agentkit_prompts.templates.sandbox.meter import DEFAULT, Limits, Meter
from agentkit_prompts.templates.sandbox.operation_errors import TemplateOperationError, require
from agentkit_prompts.templates.sandbox.program import Program, Syntax, compile_program
from agentkit_prompts.templates.sandbox.trace import Mark, Trace
from agentkit_prompts.templates.sandbox.values import RenderedText, Site
from agentkit_prompts.templates.spans import BREAK

_ONLY_DATA = "isolated=True passes data to the template, not {}: place it in a trusted template"
_WORKER = "agentkit_prompts.templates.isolated_program"
_MAX_ANSWER_CHARS = DEFAULT.output_chars * len(BREAK + MEDIA_OPENING) // len(MEDIA_OPENING)
"""Maximum characters of the output: more than the usual limit, because the process adds a character to each marker."""


def start_process() -> IsolatedProcess:
    """Return a process for the texts of one template; the process starts at its first request."""
    return IsolatedProcess(_WORKER, TemplateError)


def isolated_program(
    source: str, process: IsolatedProcess, *, syntax: Syntax, file: str | None, first_line: int
) -> Program:
    """Compile a template in a separate process; the program renders it in that process, too.

    Args:
        source: Text of the template.
        process: The process.
        syntax: As for `compile_program`.
        file: Name of the file for error messages; None without a file.
        first_line: Line of the file on which the text starts, counted from 1.

    Raises:
        TemplateError: The source is not a template, or its compilation exceeds the limits of the process.
    """
    if not isinstance(source, str):
        raise TemplateError(f"a template is text, got {type(source).__name__}", file=file)
    request = {"source": source, "syntax": syntax, "file": file, "first_line": first_line, "limits": asdict(DEFAULT)}
    compiled = process.ask("compile", _compiled, **request)

    def run(values: Mapping[str, object]) -> Trace:
        tag = token_hex(8)
        data = {name: _data(values[name], tag, name, file) for name in compiled.names if name in values}
        read = partial(_traced, compiled.sites)
        return process.ask("render", read, **request, values=data, tag=tag)

    return replace(compiled, source=source, file=file, remote=run)


def _compiled(answer: Any) -> Program:
    """Return the program that a reply of the process describes: its names and sites, without code."""
    return Program(
        source="",
        file=None,
        limits=DEFAULT,
        literal=None if answer["literal"] is None else read_text(answer["literal"]),
        names=MappingProxyType({read_text(name): int(line) for name, line in answer["names"].items()}),
        required=frozenset(map(read_text, answer["required"])),
        kwargs=MappingProxyType({read_text(name): bool(required) for name, required in answer["kwargs"].items()}),
        sites=tuple(
            [Site(int(line), str(pointer), tuple(map(str, roots))) for line, pointer, roots in answer["sites"]]
        ),
    )


def _traced(sites: tuple[Site, ...], answer: Any) -> Trace:
    """Return the trace in a reply of the process. The reply is untrusted: it can contain text only, not media."""
    if sum([len(read_text(piece)) for piece, _, _ in answer]) > _MAX_ANSWER_CHARS:
        raise ValueError("too long")
    texts: list[str] = []
    marks: list[Mark] = []
    for piece, site, indices in answer:
        if site is not None and not 0 <= int(site) < len(sites):
            raise ValueError("unknown site")
        texts.append(neutralise_markers(piece))
        marks.append(Mark((None if site is None else int(site),), tuple(map(int, indices))))
    return Trace(sites, texts, marks, sum(map(len, texts)))


def _data(value: object, tag: str, name: str, file: str | None) -> Any:
    try:
        return _as_json(Meter(DEFAULT), value, tag, 0)
    except TemplateOperationError as error:
        raise TemplateError(f"{name}: {error}", file=file, variable=name) from None


def _as_json(meter: Meter, value: Any, tag: str, depth: int) -> Any:
    """Return JSON data for a value of the context.

    The printed text of an object is stored under the key `tag`, which is random, so that data cannot contain it.
    """
    kind = type(value)
    meter.visit(1)
    if depth > MAX_DEPTH:
        raise TemplateOperationError(f"the data is cyclic or nests deeper than {MAX_DEPTH} levels")
    if value is None or kind in (str, bool, int, float):
        return value
    if kind is RenderedText:
        raise TemplateOperationError(_ONLY_DATA.format("text of other prompts"))
    require(value)
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, Mapping):
        _require_text_keys(value)
        return {str(key): _as_json(meter, item, tag, depth + 1) for key, item in value.items()}
    if _is_list(value):
        return [_as_json(meter, item, tag, depth + 1) for item in value]
    return _object_as_json(meter, value, tag)


def _require_text_keys(mapping: Mapping[Any, Any]) -> None:
    if not all(isinstance(key, str) for key in mapping):
        raise TemplateOperationError("isolated=True passes JSON data to the template: mapping keys must be text")


def _is_list(value: Any) -> bool:
    """True for a sequence except bytes, and except a named tuple, whose fields templates read by name."""
    return isinstance(value, Sequence) and not hasattr(type(value), "_fields") and not isinstance(value, bytes)


def _object_as_json(meter: Meter, value: Any, tag: str) -> Any:
    if not isinstance(value, Media) and not hasattr(type(value), "__prompt__"):
        return json.loads(json_text(meter, value))
    if any(isinstance(part, Media) for part in parts_of(meter, value)):
        raise TemplateOperationError(_ONLY_DATA.format("media"))
    fields = json.loads(json_text(meter, value))
    if not isinstance(fields, dict):
        fields = {}
    printed = text(meter, value)
    return {**fields, "text": fields.get("text", printed), tag: printed}


class _ContextObject(dict[str, Any]):
    """Object of the context in the separate process: a dict of its fields, with its printed text."""

    printed = ""

    def __prompt__(self) -> str:
        return self.printed


def _result_of(request: dict[str, Any]) -> Any:
    program = compile_program(
        request["source"],
        syntax=request["syntax"],
        file=request["file"],
        first_line=request["first_line"],
        limits=Limits(**request["limits"]),
    )
    if request["operation"] == "compile":
        return {
            "names": dict(program.names),
            "required": sorted(program.required),
            "kwargs": dict(program.kwargs),
            "sites": program.sites,
            "literal": program.literal,
        }
    trace = program.trace({name: _with_text(value, request["tag"]) for name, value in request["values"].items()})
    texts = iter(trace.texts)
    return [(next(texts), site, indices) for sites, indices in trace.marks for site in sites]


def _with_text(value: Any, tag: str) -> Any:
    if isinstance(value, list):
        return tuple([_with_text(item, tag) for item in value])
    if not isinstance(value, dict):
        return value
    fields = {key: _with_text(item, tag) for key, item in value.items() if key != tag}
    if tag not in value:
        return fields
    result = _ContextObject(fields)
    result.printed = value[tag]
    return result


def _text_and_place(error: PromptError) -> tuple[str, dict[str, Any]]:
    if not isinstance(error, TemplateError):
        return str(error), {}
    where = error.file or "<template>"
    text = str(error).removeprefix(f"{where}:{error.line}: " if error.line else f"{where}: ")
    return text, {"file": error.file, "line": error.line, "variable": error.variable}


def main() -> None:
    """Run the separate process: reply to requests until stdin ends."""
    serve(_result_of, _text_and_place)


if __name__ == "__main__":
    main()
