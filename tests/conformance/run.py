"""Run the cases of one system: `python tests/conformance/run.py SYSTEM CASES.jsonl [CASES.jsonl ...]`.

Prints the failing ids, at most 20, and as its last line `N passed, M failed`; only required cases count. Ends with
status 1 if a case fails. The module of the system, next to this file, defines the meaning of a case.
"""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

SYSTEMS = ("lazyllm", "lmdeploy", "opencompass", "aisbench", "opencompass_configs", "chat_templates")
_SHOWN = 20


def check(system: str, files: Iterable[Path], every: int = 1) -> Iterator[tuple[str, str | None]]:
    """Yield the id of every required result of each `every`-th case, with its problem or None."""
    module = importlib.import_module(f"tests.conformance.{system}")
    for file in files:
        with file.open(encoding="utf-8") as lines:
            for line in islice(lines, 0, None, every):
                if line.strip():
                    case: dict[str, Any] = json.loads(line)
                    yield from module.check(case, file.parent)


def main(arguments: list[str]) -> int:
    """Run the command line."""
    if len(arguments) < 2 or arguments[0] not in SYSTEMS:
        print(f"usage: run.py SYSTEM CASES.jsonl [CASES.jsonl ...]\nSYSTEM: {', '.join(SYSTEMS)}", file=sys.stderr)
        return 2
    passed, failed = 0, 0
    for name, problem in check(arguments[0], map(Path, arguments[1:])):
        if problem is None:
            passed += 1
            continue
        failed += 1
        if failed <= _SHOWN:
            print(f"{name}: {problem}"[:400])
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
    sys.exit(main(sys.argv[1:]))
