"""Loop that replies to requests of another process: one JSON request per line on stdin, one JSON reply per line on
stdout.
"""

from __future__ import annotations

import codecs
import json
import math
import signal
import sys
from collections.abc import Callable
from importlib import import_module
from typing import Any

from agentkit_prompts.errors import PromptError
from agentkit_prompts.templates.sandbox.guards import CODECS

__all__ = ["serve"]

_JINJA = "agentkit_prompts.templates.sandbox"
_LATER = (
    *("difflib", "html", "jinja2.constants", "jinja2.debug", "pprint"),
    *(f"{_JINJA}.code_generator", f"{_JINJA}.parse", f"{_JINJA}.prompt_environment", f"{_JINJA}.static_analysis"),
)
"""Modules that are normally imported at their first use, when the process can no longer open files."""
_MAX_MEMORY = 1 << 30  # maximum bytes of address space
_MAX_CPU_SECONDS = 8
_MAX_SECONDS = 12
"""Maximum seconds of a request. The parent process stops waiting earlier, unless it was killed."""


def serve(made: Callable[[dict[str, Any]], Any], place: Callable[[PromptError], tuple[str, dict[str, Any]]]) -> None:
    """Reply to each request with `{"made": VALUE}` or `{"error": TEXT, "place": FIELDS}` until stdin ends.

    Args:
        made: Function that returns a reply. Its modules are imported before the first request, which limits files and
            memory.
        place: Function that returns the text of an error, and fields with its place.
    """
    for module in _LATER:
        import_module(module)
    for codec in ("unicode_escape", *CODECS):
        codecs.lookup(codec)
    output = sys.stdout
    sys.stdout = sys.stderr  # only replies are written to the output
    for line in sys.stdin:
        _limit()
        _end_in(_MAX_SECONDS)
        try:
            answer = {"made": made(json.loads(line))}
        except PromptError as error:
            text, fields = place(error)
            answer = {"error": text, "place": fields}
        except MemoryError:
            return
        output.write(json.dumps(answer) + "\n")
        output.flush()
        _end_in(0)


def _end_in(seconds: float) -> None:
    """Set the timer with which the system ends this process; 0 cancels it."""
    if hasattr(signal, "setitimer"):
        signal.setitimer(signal.ITIMER_REAL, seconds)


def _limit() -> None:
    """Limit this process: memory, files, other processes, and the CPU time of the next request."""
    try:
        import resource
    except ImportError:  # a system without such limits: the parent process measures the time
        return
    used = resource.getrusage(resource.RUSAGE_SELF)
    seconds = math.ceil(used.ru_utime + used.ru_stime) + _MAX_CPU_SECONDS
    for limit, amount in (
        (resource.RLIMIT_AS, _MAX_MEMORY),
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_FSIZE, 0),
        (resource.RLIMIT_NOFILE, 0),  # no other file, pipe or connection can be opened
        (resource.RLIMIT_NPROC, 0),
        (resource.RLIMIT_CPU, seconds),
    ):
        _, hard = resource.getrlimit(limit)
        if hard == resource.RLIM_INFINITY or amount < hard:
            resource.setrlimit(limit, (amount, hard))
