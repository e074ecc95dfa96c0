"""`DistinctCalls`: detection of a tool call that a stream sends again."""

from __future__ import annotations

import json
from collections.abc import Iterable


class DistinctCalls:
    """Tool calls of a stream, in order.

    Servers send a call again at another index. The repeated call has an id and the name of the call, and the same
    arguments or none. Calls with other ids are separate calls, also if they are equal.
    """

    def __init__(self) -> None:
        self._calls: dict[str, list[tuple[str, object]]] = {}
        """Names and arguments of the calls, by id."""

    def repeats(self, ids: Iterable[str], name: str, arguments: object) -> bool:
        """True if a call is an earlier call again; stores any other call."""
        keys = [id_ for id_ in ids if id_]
        # The arguments are parsed only if an id occurs twice.
        for call_name, value in [call for key in keys for call in self._calls.get(key, ())]:
            if call_name == name and _repeats(arguments, value):
                return True
        # Two calls without arguments may have one id at servers that send no useful ids.
        if arguments:
            for key in keys:
                self._calls.setdefault(key, []).append((name, arguments))
        return False


def _repeats(arguments: object, earlier: object) -> bool:
    return not arguments or arguments == earlier or _value(arguments) == _value(earlier)


def _value(arguments: object) -> object:
    """Return arguments without the differences of their JSON text."""
    if not isinstance(arguments, str):
        return arguments
    try:
        return json.loads(arguments)
    except (ValueError, RecursionError):
        return arguments
