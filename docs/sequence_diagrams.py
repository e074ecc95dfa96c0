"""Write docs/run.svg and docs/approval.svg, the sequence diagrams of the page on the architecture.

Run it after a change of the steps below: .venv/bin/python docs/sequence_diagrams.py
"""

from __future__ import annotations

from html import escape
from pathlib import Path
from typing import NamedTuple

DOCS = Path(__file__).parent
COLUMN = 148
ROW = 38
TOP = 58
INK, LINE, STORED = "#24292f", "#808080", "#0b6fb8"


class Call(NamedTuple):
    """An arrow between two participants; dashed if it is an answer, and coloured if it stores data."""

    source: int
    target: int
    text: str
    kind: str = "call"


class Note(NamedTuple):
    """A heading over all columns."""

    text: str


RUN_PARTICIPANTS = [
    "caller",
    "Agent, Attempt",
    "run_loop",
    "Journalled",
    "RunSteps",
    "model, tools",
    "journal, session",
]
RUN: list[Call | Note] = [
    Call(0, 1, "agent.run(input)"),
    Call(1, 1, "checks options; claims run and session"),
    Call(1, 2, "run_loop(setup, steps)"),
    Note("Context: nothing is sent, and no message is stored"),
    Call(2, 3, "begin, compact, tools, select_examples, recall"),
    Call(3, 4, "each step, after the lines before it are written"),
    Call(4, 6, "reads messages and memory"),
    Call(3, 6, "lines Begin, Compact, Equip, SelectExamples, Recall", "stored"),
    Call(2, 2, "composes the prompt: an error here changes nothing"),
    Call(2, 4, "append: the input"),
    Call(4, 6, "input, to the session; then line Append", "stored"),
    Note("Repeated for each reply"),
    Call(2, 4, "call_model(composition)"),
    Call(4, 5, "request"),
    Call(5, 4, "reply", "answer"),
    Call(3, 6, "line CallModel: reply, usage, tokens of layers", "stored"),
    Call(2, 4, "ask_approval, call_tools"),
    Call(4, 5, "calls, with their keys"),
    Call(5, 4, "results", "answer"),
    Call(3, 6, "lines AskApproval, CallTools: one for each result", "stored"),
    Call(2, 4, "append: reply and results"),
    Call(4, 6, "messages, to the session; then line Append", "stored"),
    Call(2, 2, "checks limits; composes the next prompt"),
    Note("The answer: a reply without calls"),
    Call(2, 4, "append, check_output"),
    Call(4, 6, "answer, to the session; then line Append", "stored"),
    Call(2, 1, "RunResult", "answer"),
    Call(1, 6, "waits until the last line is written", "stored"),
    Call(1, 0, "RunResult", "answer"),
]

APPROVAL_PARTICIPANTS = ["process A", "database", "worker 1", "person", "worker 2", "model, tools"]
APPROVAL: list[Call | Note] = [
    Call(0, 1, "agent.start: run and leg 0", "stored"),
    Call(1, 2, "leg 0, from the queue"),
    Call(2, 1, "state running, fence 1", "stored"),
    Call(2, 1, "lines Begin, Append", "stored"),
    Call(2, 5, "model call"),
    Call(2, 1, "line CallModel", "stored"),
    Call(2, 2, "the reply calls pay: Paused"),
    Call(2, 1, "state waiting, calls", "stored"),
    Note("No process, no memory and no queue entry. Worker 1 can end now"),
    Call(3, 1, "handle.info()"),
    Call(1, 3, "waiting: pay", "answer"),
    Call(3, 1, "approve: decision, leg 1", "stored"),
    Note("Another worker, perhaps on another machine, days later"),
    Call(1, 4, "leg 1, from the queue"),
    Call(4, 1, "state running, fence 2: worker 1 cannot store", "stored"),
    Call(1, 4, "journal and decisions", "answer"),
    Call(4, 4, "replays the reply"),
    Call(4, 1, "line AskApproval", "stored"),
    Call(4, 5, "pay, with its key"),
    Call(4, 1, "line CallTools; then line Append", "stored"),
    Call(4, 5, "model call"),
    Call(4, 1, "lines CallModel and Append; state finished, output", "stored"),
    Call(0, 1, "handle.result()"),
    Call(1, 0, "RunRecord", "answer"),
]


def diagram(title: str, participants: list[str], rows: list[Call | Note]) -> str:
    """Return a sequence diagram as SVG."""
    width = COLUMN * len(participants)
    height = TOP + ROW * len(rows) + 20
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="system-ui, sans-serif" '
        'font-size="17" role="img">',
        f"<title>{escape(title)}</title>",
        f'<rect width="{width}" height="{height}" fill="#ffffff"/>',
    ]
    for colour in (INK, STORED):
        parts.append(
            f'<defs><marker id="m{colour[1:]}" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" '
            f'orient="auto"><path d="M0 0L8 4L0 8z" fill="{colour}"/></marker></defs>'
        )
    for number, name in enumerate(participants):
        middle = _middle(number)
        parts += [
            f'<line x1="{middle}" y1="44" x2="{middle}" y2="{height - 10}" stroke="{LINE}" stroke-dasharray="2 3"/>',
            f'<rect x="{middle - 71}" y="14" width="142" height="30" rx="6" fill="#eef1f6" stroke="{LINE}"/>',
            f'<text x="{middle}" y="34" text-anchor="middle" font-size="14.5" font-weight="bold">{escape(name)}</text>',
        ]
    for number, row in enumerate(rows):
        y = TOP + ROW * number + 22
        if isinstance(row, Note):
            parts += [
                f'<rect x="8" y="{y - 17}" width="{width - 16}" height="22" rx="4" fill="#f6f0df"/>',
                f'<text x="{width / 2:g}" y="{y - 2}" text-anchor="middle" fill="{INK}">{escape(row.text)}</text>',
            ]
        else:
            parts.append(_arrow(row, y, width))
    return "\n".join([*parts, "</svg>\n"])


def _middle(number: int) -> int:
    return COLUMN * number + COLUMN // 2


def _arrow(call: Call, y: int, width: int) -> str:
    """Return an arrow with its text, which stays inside of the picture."""
    colour = STORED if call.kind == "stored" else INK
    dashes = ' stroke-dasharray="5 4"' if call.kind == "answer" else ""
    start, end = _middle(call.source), _middle(call.target)
    middle = (start + end) // 2
    path = f"M{start} {y}H{end - 4 if end > start else end + 4}"
    if start == end:
        path = f"M{start} {y - 8}h14v10h-10"
        middle = start
    half = len(call.text) * 4.3
    middle_of_text = min(max(middle, half + 6), width - half - 6)
    # A white outline keeps the text readable on the lines of the participants.
    text = (
        f'<text x="{middle_of_text:g}" y="{y - 8}" text-anchor="middle" fill="{colour}" stroke="#ffffff" '
        f'stroke-width="4" paint-order="stroke">{escape(call.text)}</text>'
    )
    if start == end:
        text = text.replace(f'x="{middle_of_text:g}"', f'x="{start + 22}"').replace('"middle"', '"start"')
    arrow = (
        f'<path d="{path}" fill="none" stroke="{colour}" stroke-width="1.4"{dashes} marker-end="url(#m{colour[1:]})"/>'
    )
    return arrow + text


def diagrams() -> dict[str, str]:
    """Return the text of each file."""
    return {
        "run.svg": diagram("One run: calls, and the data that is stored", RUN_PARTICIPANTS, RUN),
        "approval.svg": diagram("An approval across processes", APPROVAL_PARTICIPANTS, APPROVAL),
    }


if __name__ == "__main__":
    for name, text in diagrams().items():
        (DOCS / name).write_text(text, "utf-8")
