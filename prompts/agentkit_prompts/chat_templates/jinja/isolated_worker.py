"""Renders chat templates for another process: one JSON request a line on stdin, one JSON answer a line on stdout."""

from __future__ import annotations

import json
import math
import sys
from datetime import datetime
from typing import Any

__all__ = ["main"]

_MAX_MEMORY = 1 << 30  # bytes of address space
_MAX_CPU_SECONDS = 8


def main() -> None:
    """Answer `{"what": NAME, ...}` with `{"made": VALUE}` or `{"error": TEXT}` until stdin ends."""
    from agentkit_prompts.chat_templates.jinja.chat_template import JinjaChatTemplate  # before memory is limited
    from agentkit_prompts.errors import ChatTemplateError

    output = sys.stdout
    sys.stdout = sys.stderr  # nothing but answers is written where they are
    for line in sys.stdin:
        _limit()
        request = json.loads(line)
        try:
            answer = {"made": _made(JinjaChatTemplate, request)}
        except ChatTemplateError as error:
            answer = {"error": str(error)}
        except MemoryError:
            return
        output.write(json.dumps(answer) + "\n")
        output.flush()


def _made(kind: Any, request: dict[str, Any]) -> Any:
    from agentkit_prompts.chat_templates.jinja.diagnose import read_names
    from agentkit_prompts.chat_templates.jinja.markers import literals
    from agentkit_prompts.templates.engine import Limits

    source, what = request["source"], request["what"]
    limits = Limits(**request["limits"]) if request["limits"] else None
    now = datetime.fromisoformat(request["now"]) if request.get("now") else None
    template = kind(source, limits=limits, file=request["file"], now=now)
    if what == "render":
        variables = {**template.clock, **request["variables"]}
        return template.run(source, *request["given"], variables, request["marks"])
    if what == "literals":
        return list(literals(source))
    return sorted(read_names(source)) if what == "names" else None


def _limit() -> None:
    """Limit this process: memory, files, and the CPU time of the request that comes."""
    try:
        import resource
    except ImportError:  # a system without such limits; the other process looks at the clock
        return
    used = resource.getrusage(resource.RUSAGE_SELF)
    seconds = math.ceil(used.ru_utime + used.ru_stime) + _MAX_CPU_SECONDS
    for limit, amount in (
        (resource.RLIMIT_AS, _MAX_MEMORY),
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_FSIZE, 0),
        (resource.RLIMIT_CPU, seconds),
    ):
        _, hard = resource.getrlimit(limit)
        if hard == resource.RLIM_INFINITY or amount < hard:
            resource.setrlimit(limit, (amount, hard))


if __name__ == "__main__":
    main()
