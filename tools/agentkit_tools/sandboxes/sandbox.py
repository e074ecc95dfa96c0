"""The protocol `Sandbox`, and the data that a sandbox receives and returns."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any, Protocol, TypeAlias

from agentkit_prompts.errors import brief, check_types
from agentkit_tools.errors import ToolError, ToolFailure

_MAX_SECONDS = 86_400.0
_MIN_MEMORY, _MAX_MEMORY = 64, 65_536
_MAX_NAME_BYTES = 255
_MIN_OUTPUT, _MAX_OUTPUT = 100, 1_000_000


class SandboxError(ToolError):
    """A sandbox received an invalid job, or its answer is no answer of a sandbox."""


class SandboxUnavailable(SandboxError):
    """A sandbox cannot be used here: a package is missing, or the operating system does not allow the isolation."""


@dataclass(frozen=True, slots=True)
class SandboxLimits:
    """Limits of one execution.

    Raises:
        SandboxError: A limit is not a number, or is out of range. The error lists all problems.
    """

    seconds: float = 10.0
    """Maximum seconds of the code. The time in which the code waits for the results of calls is not counted."""
    memory_mb: int = 256
    """Maximum memory in megabytes, 64 or more."""
    output_chars: int = 20_000
    """Maximum characters of the printed text, and of the value of the last expression; the rest is dropped."""

    def __post_init__(self) -> None:
        problems: list[str] = []
        for name, (low, high) in _RANGES.items():
            value = getattr(self, name)
            is_number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
            if name != "seconds":
                is_number = is_number and isinstance(value, int)
            if not is_number or not low <= value <= high:
                problems.append(f"{name}={brief(value, 40)} must be a number from {low:g} to {high:g}")
        if problems:
            raise SandboxError(f"SandboxLimits: {'; '.join(problems)}")


_RANGES: Mapping[str, tuple[float, float]] = {
    "seconds": (0.05, _MAX_SECONDS),
    "memory_mb": (_MIN_MEMORY, _MAX_MEMORY),
    "output_chars": (_MIN_OUTPUT, _MAX_OUTPUT),
}


@dataclass(frozen=True, slots=True)
class SandboxJob:
    """Code for a sandbox, and its environment. A sandbox passes no environment variables of the host to the code.

    Raises:
        SandboxError: A value has another type, or the path of a file is absolute or leaves the folder of the code.
            The error lists all problems.
    """

    code: str
    """Python code. `await` is allowed outside of functions."""
    functions: tuple[str, ...] = ()
    """Names of async functions that the code can call. Their results come from the host."""
    files: Mapping[str, bytes] = field(default_factory=dict)
    """Files in the working folder of the code, by relative path."""
    arguments: tuple[str, ...] = ()
    """Arguments of a script, `sys.argv[1:]`."""
    limits: SandboxLimits = field(default_factory=SandboxLimits)
    file: str = "code.py"
    """Path of the code, for tracebacks, `__file__` and `sys.argv[0]`. A script imports the modules of `files` next to
    it."""

    def __post_init__(self) -> None:
        check_types(
            SandboxError,
            "SandboxJob",
            code=(self.code, str, "Python code"),
            functions=(self.functions, tuple, "a tuple of names"),
            files=(self.files, Mapping, "contents by path"),
            arguments=(self.arguments, tuple, "a tuple of texts"),
            limits=(self.limits, SandboxLimits, "SandboxLimits"),
            file=(self.file, str, "a path"),
        )
        problems = [f"functions: {name!r:.80} is not a name" for name in self.functions if not _is_name(name)]
        problems += [f"arguments: {text!r:.80} is not a text" for text in self.arguments if not isinstance(text, str)]
        if not _is_inside(self.file):
            problems.append(f"file: expected a relative path, such as scripts/fill.py, got {self.file!r:.80}")
        for path, content in self.files.items():
            if not _is_inside(path):
                problems.append(f"files: expected a relative path, such as data/rows.csv, got {path!r:.80}")
            elif not isinstance(content, bytes):
                problems.append(f"files: {path!r:.80}: expected bytes, got {type(content).__name__}")
            elif any(str(parent) in self.files for parent in PurePosixPath(path).parents):
                problems.append(f"files: {path!r:.80} is in a folder that is a file, too")
        if problems:
            raise SandboxError(f"SandboxJob: {'; '.join(problems)}")


def _is_name(name: object) -> bool:
    return isinstance(name, str) and name.isidentifier()


def _is_inside(name: object) -> bool:
    """True for the path of a file in the folder of the code."""
    if not isinstance(name, str) or "\0" in name or "\\" in name:
        return False
    path = PurePosixPath(name)
    is_long = any(len(part.encode("utf-8", "surrogatepass")) > _MAX_NAME_BYTES for part in path.parts)
    return bool(path.parts) and not path.is_absolute() and ".." not in path.parts and str(path) == name and not is_long


@dataclass(frozen=True, slots=True)
class SandboxCall:
    """A call of a function of the host. The arguments are JSON data."""

    name: str
    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SandboxAnswer:
    """The result of a call: a value as JSON data, or an error, which the code receives as a `RuntimeError`."""

    value: Any = None
    error: str = ""


AnswerCalls: TypeAlias = Callable[[Sequence[SandboxCall]], Awaitable[Sequence[SandboxAnswer]]]
"""Function that answers calls. It receives all calls that the code made before it waited, in order."""


@dataclass(frozen=True, slots=True)
class SandboxResult:
    """The end of an execution."""

    output: str = ""
    """Printed text, cut at the limit."""
    value: str = ""
    """The value of the last expression: JSON if possible, otherwise its `repr`; empty for None."""
    error: str = ""
    """Traceback without paths of the host, or the limit that the code exceeded; empty if the code ended."""


class Sandbox(Protocol):
    """A place for code that must not reach the host: its files, its network, its environment variables.

    `MontySandbox` and `ProcessSandbox` are sandboxes on this machine. A class with the method `run` can send the job to
    another machine.
    """

    async def run(self, job: SandboxJob, answer: AnswerCalls) -> SandboxResult:
        """Execute code, and stop it at a limit or if this task is cancelled.

        Args:
            job: The code, and its files, functions and limits.
            answer: Answers calls of functions of the host.

        Raises:
            SandboxUnavailable: The sandbox cannot be used here.
            SandboxError: The sandbox refused the job, or its answer is invalid. An error of the code is a result.
        """
        ...


async def refuse_calls(calls: Sequence[SandboxCall]) -> Sequence[SandboxAnswer]:
    """Answer the calls of code that has no functions of the host."""
    return [SandboxAnswer(error=f"unknown function {call.name!r:.80}") for call in calls]


def checked_result(sandbox: Sandbox, result: object) -> SandboxResult:
    """Return the result of a sandbox, which can be a class of the developer.

    Raises:
        SandboxError: The result is no `SandboxResult` of texts.
    """
    if isinstance(result, SandboxResult):
        texts = (result.output, result.value, result.error)
        if all(isinstance(text, str) for text in texts):
            return result
    raise SandboxError(
        f"{type(sandbox).__name__}.run: expected a SandboxResult with output, value and error as texts, got "
        f"{brief(result, 100)}"
    )


def result_text(result: SandboxResult) -> str:
    """Return the text of a result for the model.

    Raises:
        ToolFailure: The code failed.
    """
    if result.error:
        data: Mapping[str, str] | None = None
        if result.output:
            data = {"output": result.output}
        raise ToolFailure(result.error, data)
    texts: list[str] = []
    if result.output:
        texts.append(result.output.removesuffix("\n"))
    if result.value:
        texts.append(f"Value: {result.value}")
    return "\n".join(texts) or "The code ended, and printed nothing."
