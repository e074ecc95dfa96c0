"""Errors of the declaration, rendering and composition of prompts.

Every message contains the problem, its place, the expected value and advice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple, Self, TypeAlias, TypedDict, TypeVar, Unpack

from agentkit_prompts.limits import MAX_LISTED, MAX_SHOWN_CHARS

E = TypeVar("E", bound="Picklable")


class Place(TypedDict, total=False):
    """Keyword arguments of errors, which describe the problem as data; see `Picklable`."""

    path: str | None
    name: str | None
    line: int | None
    value: str | int | float | None
    problems: Iterable[tuple[str, str]]
    suggestion: str | None


class Problem(NamedTuple):
    """One problem of an input.

    `place` is a path such as ``documents[3].text``, empty for the input as a whole; `text` is the problem.
    """

    place: str
    text: str

    def __str__(self) -> str:
        return f"{self.place}: {self.text}" if self.place else self.text


Problems: TypeAlias = list[Problem]


def listed(problems: Iterable[Problem]) -> str:
    """Return the problems as one text, separated by semicolons."""
    return "; ".join(map(str, problems))


def raise_problems(
    error: Callable[..., Picklable],
    subject: str,
    problems: Iterable[Problem],
    *,
    advice: str = "",
    cause: Exception | None = None,
    **place: Any,
) -> None:
    """Raise an error that lists all problems of a subject; do nothing without problems.

    Args:
        error: The class of the error.
        subject: Start of the message; empty for no subject.
        problems: All problems.
        advice: Text after the problems.
        cause: Error that caused the problems.
        **place: More arguments of the error.
    """
    problems = list(problems)
    if problems:
        raise error_of_problems(error, subject, problems, advice=advice, **place) from cause


def error_of_problems(
    error: Callable[..., E], subject: str, problems: Iterable[Problem], *, advice: str = "", **place: Any
) -> E:
    """Return the error that `raise_problems` raises."""
    problems = list(problems)
    opening = ""
    if subject:
        opening = f"{subject}: "
    return error(f"{opening}{listed(problems)}{advice}", problems=problems, **place)


class Picklable(Exception):
    """Base of the errors of all packages. It contains the problem as data, and can be pickled.

    Attributes:
        path: Place of the problem in the input, such as ``conversation[2].content[0].type``, or the path of a file, if
            known.
        name: Name of the argument, field, option or object at fault, if known; a comma separates several names.
        line: Line in the file or template, counted from 1, if known.
        value: The invalid value, or the type of a value that is neither text nor a number, if the error is about a
            value.
        problems: Every problem with its place, if the error can list several.
        suggestion: The valid name that is most similar to `name`, if any is similar.
    """

    path: str | None = None
    name: str | None = None
    line: int | None = None
    value: str | int | float | None = None
    problems: Any = ()
    suggestion: str | None = None

    def __init__(self, *args: object, **place: Unpack[Place]) -> None:
        super().__init__(*args)
        if "problems" in place:
            place["problems"] = tuple([Problem(*problem) for problem in place["problems"]])
        self.__dict__.update(place)

    def __reduce__(self) -> tuple[Any, ...]:
        return _remade, (type(self), self.args, self.__dict__)


def _remade(kind: type[Picklable], args: tuple[Any, ...], state: Mapping[str, Any]) -> Picklable:
    error = kind.__new__(kind)
    # Not through the constructor, because some classes have other parameters than the message.
    error.args = args
    error.__dict__.update(state)
    return error


class PromptError(Picklable):
    """Base of every error of the prompt layer.

    Attributes:
        prompt: Path of the prompt in its tree, such as ``system[0].wrapped_prompts[1]``, if known.
    """

    prompt: str | None = None

    def at(self, prompt: str) -> PromptError:
        """Put the step `prompt` before the path of the prompt, also in the message, and return this error.

        A prompt calls this method for an error that was raised in a prompt inside it.
        """
        message = ""
        if self.args:
            message = str(self.args[0])
        path = prompt
        if self.prompt is not None:
            message = message.removeprefix(f"{self.prompt}: ")
            path = f"{prompt}.{self.prompt}"
        self.prompt = path
        self.args = (f"{self.prompt}: {message}", *self.args[1:])
        return self


_INLINE = "<template>"
"""Name of a template without a file and without a known text."""
_MAX_SHOWN_LINE = 60
"""Maximum characters of a line of a template in an error."""


class TemplateError(PromptError):
    """A template cannot be compiled or rendered.

    Attributes:
        file: File or name of the template; None if unknown.
        line: Line in that file, counted from 1; None if unknown.
        variable: The variable at fault, if known.
        name: The unknown or restricted name, such as a filter, if known.
    """

    def __init__(
        self,
        message: str,
        *,
        file: str | None = None,
        line: int | None = None,
        variable: str | None = None,
        name: str | None = None,
        value: str | int | float | None = None,
    ) -> None:
        source = file or _INLINE
        if line:
            source = f"{source}:{line}"
        super().__init__(f"{source}: {message}", name=name, value=value)
        self.file = file
        self.line = line
        self.variable = variable

    def in_text(self, text: str) -> Self:
        """Return the error; without a file, it names the template by the line at fault, or else by its first line."""
        start, name, rest = str(self).partition(_INLINE)
        lines = text.splitlines()
        # The message of an isolated template already names the line.
        if self.file is not None or start or not name or not text.strip():
            return self
        line = text.strip()
        if self.line is not None and self.line <= len(lines) and lines[self.line - 1].strip():
            line = lines[self.line - 1].strip()
        quoted = brief(line.splitlines()[0], _MAX_SHOWN_LINE)
        self.args = (f"<template {quoted}>{rest}", *self.args[1:])
        return self


class PromptFilesError(PromptError):
    """Prompt files cannot be used; the message names all of them.

    Attributes:
        errors: The errors, each a `TemplateError` with file and line if known.
    """

    def __init__(self, errors: Iterable[PromptError]) -> None:
        self.errors = tuple(errors)
        texts = [str(error) for error in self.errors]
        if len(texts) > 1:
            texts.insert(0, f"{len(texts)} problems with prompt files:")
        super().__init__("\n".join(texts))


class SchemaConflict(PromptError):
    """Two prompts require the same additional kwarg with different schemas.

    Attributes:
        name: The kwarg.
        problems: Path and schema, as text, of both prompts; the path is "" for the template around other prompts.
    """


class SelectorError(PromptError):
    """The code of a selector of examples failed; `__cause__` is its exception."""


class MediaError(PromptError):
    """A media part cannot be read, or its type is not accepted."""


class MessageError(PromptError, ValueError):
    """A message, part or conversation is invalid."""


class ContextError(PromptError, ValueError):
    """A context, or a value for a context, is invalid; the message names all problems.

    Attributes:
        problems: Every problem, with its place.
    """

    def __init__(self, subject: str, problems: Iterable[tuple[str, str]]) -> None:
        self.problems: tuple[Problem, ...] = tuple([Problem(*problem) for problem in problems])
        message = f"{subject}: {listed(self.problems[:MAX_LISTED])}"
        more = len(self.problems) - MAX_LISTED
        if more > 0:
            message = f"{message}; and {more} more"
        super().__init__(message)
        self.name = ", ".join([problem.place for problem in self.problems[:MAX_LISTED]])


class KwargsError(PromptError):
    """Additional kwargs that prompts require are missing or invalid; the message names all of them.

    Attributes:
        problems: Text of the problem, and paths of the prompts that require the kwarg, by the name of the kwarg.
    """

    def __init__(self, problems: Mapping[str, tuple[str, tuple[str, ...]]]) -> None:
        needs = "; ".join(
            f"{name!r}: {problem} (needed by {', '.join(paths)})" if paths else f"{name!r}: {problem}"
            for name, (problem, paths) in problems.items()
        )
        super().__init__(
            f"additional_kwargs of the user input do not match the prompts: {needs}. Pass them with the input, "
            "UserInput(text, additional_kwargs={...}) or --kwarg NAME=VALUE, or for a whole session with keep_kwargs"
        )
        self.problems = dict(problems)


class BudgetError(PromptError):
    """The minimum of a composition exceeds the budget.

    Attributes:
        required: Tokens of the minimum.
        limit: Tokens of the budget.
        parts: Tokens of each part of the minimum, by prompt path, `tools`, or `overhead`.
    """

    def __init__(
        self,
        message: str,
        *,
        required: int,
        limit: int,
        parts: Mapping[str, int] | None = None,
        name: str | None = None,
    ) -> None:
        super().__init__(message, name=name)
        self.required = required
        self.limit = limit
        self.parts = dict(parts or {})


class ChatTemplateError(PromptError, ValueError):
    """A chat template is unknown, cannot be compiled, or has no place for a message.

    Attributes:
        template: Name or file of the template, if known.
        refusal: Message that the template passed to `raise_exception` to refuse the conversation, if it did.
    """

    def __init__(
        self,
        *args: object,
        template: str | None = None,
        refusal: str | None = None,
        **place: Unpack[Place],
    ) -> None:
        super().__init__(*args, **place)
        self.template = template
        self.refusal = refusal


class ControlTokenError(ChatTemplateError):
    """Untrusted text would become a control token of the chat template.

    Attributes:
        found: Pairs of a token and the path, in the context, of the text that forms it. Empty if the places are
            unknown, because the template changes text or writes tokens that depend on untrusted text.
    """

    def __init__(self, message: str, found: Iterable[tuple[str, str]] = (), **place: Unpack[Place]) -> None:
        super().__init__(message, **place)
        self.found = tuple(found)


class TokenizerError(PromptError, ValueError):
    """A tokenizer does not fit a text, or does not fit token ids of a model.

    Attributes:
        path: Place of the text, such as ``conversation[2]`` or ``reply``.
        position: Index of the first token at fault.
    """

    def __init__(self, message: str, *, place: str, position: int, value: int | None = None) -> None:
        super().__init__(
            f"{place}: the tokenizer does not fit: {message}; pass the tokenizer of the model",
            path=place,
            name="tokenizer",
            value=value,
        )
        self.position = position


class PrompterError(PromptError, ValueError):
    """Arguments of a prompter are missing, invalid, or have no place in the prompter."""


class InContextError(PromptError, ValueError):
    """An evaluation prompt, meta template or retriever is invalid or incomplete."""


class InContextWarning(UserWarning):
    """A part of an evaluation prompt is left out, because its format requires it; the message names the part.

    Attributes:
        name: The column, role, section, key or label that the warning is about, if known.
    """

    def __init__(self, message: str = "", *, name: str | None = None) -> None:
        super().__init__(message)
        self.name = name


class ToolFormWarning(UserWarning):
    """A tool is changed for a provider: its description is shortened, or its strict mode is not used."""


class UnshownWarning(UserWarning):
    """A context has documents, facts, examples or recalled messages that no prompt of the layers shows."""


class LiteralTextWarning(UserWarning):
    """A plain `str`, which is literal text, looks like a template. Use `Template` to declare a template."""


def brief(value: object, most: int = MAX_SHOWN_CHARS) -> str:
    """Return the representation of a value, cut to at most `most` characters."""
    try:
        return repr(value)[:most]
    # `repr` can raise any exception, for example for a number with more digits than Python writes.
    except Exception:
        return f"a {type(value).__name__} without a representation"


def start_of(text: str, most: int) -> str:
    """Return a text; of a longer text the first `most` characters, and the number of the other characters."""
    if len(text) <= most:
        return text
    return f"{text[:most]}... ({len(text) - most:,} more characters)"


def ends_of(text: str, most: int) -> str:
    """Return a text; of a longer text its start and its end, together `most` characters."""
    return text if len(text) <= most else f"{text[: most // 2]}...{text[-most // 2 :]}"


def shortened(text: str, most: int) -> str:
    """Return a text; of a longer text its start and dots, together at most `most` characters."""
    if len(text) <= most:
        return text
    return f"{text[: max(most - 3, 0)].rstrip()}..."[:most]


def kind_of(value: object) -> str:
    """Return a number, None or a class as text; of any other value the name of its type: it can be a secret."""
    if value is None or isinstance(value, int | float):
        return brief(value)
    if isinstance(value, type):
        return f"the class {value.__name__}, not an instance"
    return type(value).__name__


def check_types(
    error: Callable[[str], Exception],
    where: str,
    /,
    **arguments: tuple[object, type | tuple[type, ...], str],
) -> None:
    """Raise an error if arguments have invalid types; it lists all of them, also in its `problems`.

    Args:
        error: Function that creates the exception from its message.
        where: Name of the function or class in errors.
        **arguments: For each argument its value, its valid types, and their name for errors. True and False are only
            accepted as `bool`, not as `int`.
    """
    problems = [
        Problem(name, f"expected {expected}, got {kind_of(value)}")
        for name, (value, kinds, expected) in arguments.items()
        if not isinstance(value, kinds) or (isinstance(value, bool) and kinds is not bool)
    ]
    if problems:
        raised = error(f"{where}: {listed(problems)}")
        if isinstance(raised, Picklable):
            raised.name = ", ".join([problem.place for problem in problems])
            raised.problems = tuple(problems)
        raise raised
