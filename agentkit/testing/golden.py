"""Golden files of compositions: the messages, tools and media of a request as readable text."""

from __future__ import annotations

import difflib
import os
import re
from pathlib import Path

from agentkit_prompts.composition.composition import Composition

UPDATE = "AGENTKIT_UPDATE_GOLDEN"
"""Environment variable: if it is set, `assert_golden` writes its files instead of comparing them."""

_INVISIBLE = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff]"
)


def golden_text(composition: Composition) -> str:
    """Return messages, tool calls, tools and media of a composition as text, with `|` before each line of content.

    Characters that are invisible in a diff (controls, direction marks, lone surrogates) are written as escapes.
    """
    lines: list[str] = []
    for index, message in enumerate(composition.messages):
        head = f"== {message.role}"
        if message.tool_call_id is not None:
            head += f" answers {_escaped(message.tool_call_id)}"
        if message.name is not None:
            head += f" name {_escaped(message.name)}"
        lines.append(head)
        lines += [f"| {_escaped(line)}" for line in composition.marked_text(index).split("\n")]
        lines += [
            f"-> {_escaped(call.id)} {_escaped(call.name)} {_escaped(call.arguments)}" for call in message.tool_calls
        ]
    for tool in composition.tools:
        lines += ["== tool", f"| {_escaped(tool.json)}"]
    for kind, media in composition.media.items():
        lines += [f"== {kind} {name}" for name in media]
    return "\n".join(lines) + "\n"


def assert_golden(composition: Composition, path: str | Path) -> None:
    """Compare a composition with a golden file. If `AGENTKIT_UPDATE_GOLDEN` is set, write the file instead.

    Raises:
        AssertionError: The file is missing, or the composition differs; the message contains the difference.
    """
    path = Path(path)
    text = golden_text(composition)
    if os.environ.get(UPDATE, "") not in ("", "0"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8", newline="\n")
        return
    if not path.is_file():
        raise AssertionError(f"{path}: the golden file is missing: run once with {UPDATE}=1 and review the file")
    stored = path.read_text(encoding="utf-8")
    if stored != text:
        names = (f"{path} (stored)", "composed now")
        difference = "\n".join(difflib.unified_diff(stored.splitlines(), text.splitlines(), *names, lineterm=""))
        raise AssertionError(f"the composition changed; if this is intended, run with {UPDATE}=1\n{difference}")


def _escaped(text: str) -> str:
    """Return text on one line of visible characters; two texts are equal only if their escaped texts are equal."""
    # Backslashes first: an escape must differ from the same characters in the text.
    text = text.replace("\\", "\\\\")
    text = _INVISIBLE.sub(lambda match: match[0].encode("unicode_escape").decode("ascii"), text)
    return text.replace("\n", "\\n")
