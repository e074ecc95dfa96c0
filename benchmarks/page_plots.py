"""Plots of `docs/benchmarks.md` and `docs/scale.md`, readable on light and dark pages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from page_text import Row

GREY = "#767676"
"""Colour of texts and lines: legible on white and on black."""
OURS = "#e4572e"
COLOURS = {
    "pydantic-ai": "#c2489a",
    "openai-agents": "#3d9970",
    "langchain": "#3d7ebf",
    "haystack": "#b08a1e",
    "agno": "#7d6bc9",
    "llama-index": "#2aa6a6",
    "jinja2": "#a0703c",
    "minijinja": "#6f9a2f",
    "FTS5": "#777777",
    "json": "#777777",
    "mem0": "#d0648a",
}
WORKLOADS = {
    "run": "a run with two tool calls",
    "construct, tools ready": "an agent, tools ready",
    "call": "a tool call",
    "build": "a tool from a function",
    "messages, N=40": "a prompt after 40 turns",
    "messages, N=1000": "a prompt after 1,000 turns",
    "turn after 100 turns": "a turn after 100 turns",
    "turn after 300 turns": "a turn after 300 turns",
    "import": "an import",
}
"""Rows of the plot, from top to bottom."""


def _colour(who: str) -> str:
    return next((colour for name, colour in COLOURS.items() if who.startswith(name)), GREY)


def _library(who: str) -> str:
    """Return the name of the library without details."""
    return next((name for name in COLOURS if who.startswith(name)), who)


def plot_workloads(rows: Sequence[Row], file: Path) -> None:
    """Draw the multiples of the limit of agentkit and of other libraries, by workload."""
    first: dict[str, Row] = {}
    for row in rows:
        if row.others:
            first.setdefault(row.workload, row)
    names = [name for name in WORKLOADS if name in first]
    if not names:
        return
    plt = pyplot()
    figure, axes = plt.subplots(figsize=(9.0, 0.5 * len(names) + 1.9))
    handles: dict[str, Any] = {}
    for position, name in enumerate(reversed(names)):
        row = first[name]
        for other in row.others:
            library = _library(other["who"])
            (handles[library],) = axes.plot(other["ratio"], position, "o", color=_colour(library), markersize=7)
        (handles["agentkit"],) = axes.plot(row.figure["ratio"], position, "D", color=OURS, markersize=9)
    axes.set_yticks(range(len(names)), [WORKLOADS[name] for name in reversed(names)])
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter("{x:g}")
    axes.axvline(1, color=GREY, linewidth=1)
    axes.set_xlabel("times the same work written by hand (logarithmic)")
    axes.grid(axis="x", color=GREY, alpha=0.3)
    libraries = ["agentkit", *[name for name in COLOURS if name in handles]]
    axes.legend(
        [handles[name] for name in libraries],
        libraries,
        ncols=min(5, len(libraries)),
        loc="lower center",
        bbox_to_anchor=(0.4, 1.0),
        frameon=False,
    )
    save(figure, file)


def plot_turns(figures: Sequence[Mapping[str, Any]], file: Path) -> None:
    """Draw the cost of a turn against the number of turns before it, for each library."""
    points: dict[str, list[tuple[int, float]]] = {}
    for row in figures:
        if row["workload"].startswith("W4 turn after "):
            number = int(row["workload"].split()[3].replace(",", ""))
            points.setdefault(row["who"], []).append((number, row["value"] / 1000))
    if not points:
        return
    plt = pyplot()
    figure, axes = plt.subplots(figsize=(9.0, 4.6))
    for who, line in points.items():
        colour = OURS if who.startswith("agentkit") else _colour(who)
        style = "--" if who in ("json each turn", "agentkit, custom") else "-"
        numbers, values = zip(*line, strict=True)
        axes.plot(numbers, values, style, marker="o", color=colour, label=who, linewidth=2)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.xaxis.set_major_formatter("{x:,g}")
    axes.yaxis.set_major_formatter("{x:g}")
    axes.set_xlabel("turns before (logarithmic)")
    axes.set_ylabel("CPU milliseconds of a turn (logarithmic)")
    axes.grid(color=GREY, alpha=0.3)
    axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), frameon=False)
    save(figure, file)


def pyplot() -> Any:
    """Return pyplot for plots that are readable on a light and on a dark page."""
    import matplotlib

    matplotlib.use("svg")
    import matplotlib.pyplot as plt

    plt.rcParams |= {
        "svg.fonttype": "none",
        "svg.hashsalt": "agentkit",
        "font.family": "sans-serif",
        "text.color": GREY,
        "axes.labelcolor": GREY,
        "axes.edgecolor": GREY,
        "xtick.color": GREY,
        "ytick.color": GREY,
    }
    return plt


def save(figure: Any, file: Path) -> None:
    """Write a plot without a background, and without a date."""
    figure.savefig(file, transparent=True, bbox_inches="tight", metadata={"Date": None})
    pyplot().close(figure)
