"""Golden compositions: everything a model would be sent, kept in a readable file that reviews can see change."""

from __future__ import annotations

import difflib
import os
import re
from pathlib import Path

from agentkit_prompts.composition.composition import Composition

__all__ = ["UPDATE", "assert_golden", "golden_text"]

UPDATE = "AGENTKIT_UPDATE_GOLDEN"
"""Environment variable that makes `assert_golden` write its files instead of comparing."""

_ODD = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff]")


def golden_text(composition: Composition) -> str:
    """Return messages, tool calls, tools and media of a composition as text, a bar before each line of content.

    Characters that cannot be seen in a diff (controls, direction marks, lone surrogates) are written as escapes.
    """
    lines: list[str] = []
    for index, message in enumerate(composition.messages):
        answers = named = ""
        if message.tool_call_id is not None:
            answers = f" answers {_seen(message.tool_call_id)}"
        if message.name is not None:
            named = f" name {_seen(message.name)}"
        lines.append(f"== {message.role}{answers}{named}")
        lines += [f"| {_seen(line)}" for line in composition.marked_text(index).split("\n")]
        lines += [f"-> {_seen(call.id)} {_seen(call.name)} {_seen(call.arguments)}" for call in message.tool_calls]
    for tool in composition.tools:
        lines += ["== tool", f"| {_seen(tool.json)}"]
    for kind, held in composition.media.items():
        lines += [f"== {kind} {name}" for name in held]
    return "\n".join(lines) + "\n"


def assert_golden(composition: Composition, path: str | Path) -> None:
    """Compare a composition with the file kept at `path`; write the file when `AGENTKIT_UPDATE_GOLDEN` is set.

    Raises:
        AssertionError: There is no such file, or the composition is another one; shows the difference.
    """
    path = Path(path)
    now = golden_text(composition)
    if os.environ.get(UPDATE, "") not in ("", "0"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(now, encoding="utf-8", newline="\n")
        return
    if not path.is_file():
        raise AssertionError(f"{path}: there is no golden file yet; run once with {UPDATE}=1 and review what it writes")
    kept = path.read_text(encoding="utf-8")
    if kept != now:
        names = (f"{path} (kept)", "composed now")
        difference = "\n".join(difflib.unified_diff(kept.splitlines(), now.splitlines(), *names, lineterm=""))
        raise AssertionError(f"the composition changed; if it should have, run with {UPDATE}=1\n{difference}")


def _seen(text: str) -> str:
    """Return text on one line of printable characters, no two texts alike."""
    return _ODD.sub(
        lambda found: found[0].encode("unicode_escape").decode("ascii"), text.replace("\\", "\\\\")
    ).replace("\n", "\\n")
