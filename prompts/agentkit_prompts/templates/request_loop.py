"""Loop of a separate process, which reads one JSON request per line from stdin and writes one JSON reply per line to
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

_JINJA = "agentkit_prompts.templates.sandbox"
_LATER = (
    *("difflib", "html", "jinja2.constants", "jinja2.debug", "pprint"),
    *(f"{_JINJA}.code_generator", f"{_JINJA}.parse", f"{_JINJA}.prompt_environment", f"{_JINJA}.static_analysis"),
)
"""Modules that are usually imported at their first use. They are imported before the first request, because later the
process cannot open files."""
_MAX_MEMORY = 1 << 30  # maximum bytes of address space
_MAX_CPU_SECONDS = 8
_MAX_SECONDS = 12
"""Maximum seconds of a request. The parent process kills this process earlier, unless the parent was killed."""


def serve(
    result_of: Callable[[dict[str, Any]], Any], text_and_place: Callable[[PromptError], tuple[str, dict[str, Any]]]
) -> None:
    """Reply to each request with `{"result": VALUE}` or `{"error": TEXT, "place": FIELDS}` until stdin ends.

    Args:
        result_of: Function that returns the value of a reply to a request. It must not import modules, because the
            process cannot open files.
        text_and_place: Function that returns the text of an error, and the fields that describe its place.
    """
    for module in _LATER:
        import_module(module)
    for codec in ("unicode_escape", *CODECS):
        codecs.lookup(codec)
    output = sys.stdout
    # Other code cannot write to stdout, which contains only replies.
    sys.stdout = sys.stderr
    for line in sys.stdin:
        _limit()
        _end_in(_MAX_SECONDS)
        try:
            answer = {"result": result_of(json.loads(line))}
        except PromptError as error:
            text, fields = text_and_place(error)
            answer = {"error": text, "place": fields}
        except MemoryError:
            return
        output.write(json.dumps(answer) + "\n")
        output.flush()
        _end_in(0)


def _end_in(seconds: float) -> None:
    """Set the timer after which the system ends this process; 0 cancels the timer."""
    if hasattr(signal, "setitimer"):
        signal.setitimer(signal.ITIMER_REAL, seconds)


def _limit() -> None:
    """Limit memory, files and processes of this process, and the CPU time of the next request."""
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
