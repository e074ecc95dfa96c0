"""`agentkit prompts ...`: the versions of the prompts and tools of stored runs and evaluations."""

from __future__ import annotations

import difflib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import typer

from agentkit.cli.existing_runs import existing_runs
from agentkit.cli.options import AsJson, utf8
from agentkit.cli.screen import fail, put, put_json, put_table

if TYPE_CHECKING:
    from agentkit.evals import EvaluationReport
    from agentkit.runs.version_rows import VersionUse

prompts_app = typer.Typer(no_args_is_help=True)

Url: TypeAlias = Annotated[
    str,
    typer.Option(
        "--url",
        envvar="AGENTKIT_RUNS_URL",
        metavar="URL",
        help="Database of runs: sqlite:///runs.db or postgresql://... The runs of a server are in runs.db of --home.",
    ),
]
AgentName: TypeAlias = Annotated[str | None, typer.Option("--agent", metavar="NAME", help="Only this agent.")]
Tenant: TypeAlias = Annotated[str | None, typer.Option("--tenant", metavar="NAME", help="Only runs of this tenant.")]


@prompts_app.callback()
def prompts() -> None:
    """Show versions of prompts and tools: their runs, their differences, and their scores."""


@prompts_app.command()
def log(url: Url, agent: AgentName = None, tenant: Tenant = None, as_json: AsJson = False) -> None:
    """List the versions of agents in stored runs, with the parts that changed.

    Example: agentkit prompts log --url sqlite:///.agentkit/runs.db
    """
    from agentkit.run.parts.agent_version import changed_names

    uses = existing_runs(url).store.rows.versions.uses(_text(agent), _text(tenant))
    if as_json:
        for use in uses:
            put(json.dumps({**asdict(use), "parts": dict(use.parts)}))
        return
    table: list[tuple[str, ...]] = []
    latest: dict[str, VersionUse] = {}
    for use in uses:
        before = latest.get(use.agent)
        latest[use.agent] = use
        changed = "first version"
        if before is not None:
            changed = ", ".join(changed_names(before.parts, use.parts)) or "model, settings or output"
        counts = str(use.runs), str(use.failed), f"{use.money:.4g}"
        table.append((use.agent, use.version, _time(use.first), _time(use.last), *counts, changed))
    put_table(("agent", "version", "first run", "last run", "runs", "failed", "USD", "changed"), table)


@prompts_app.command()
def diff(
    before: Annotated[str, typer.Argument(metavar="VERSION", help="Version, or its first characters.")],
    after: Annotated[str, typer.Argument(metavar="VERSION", help="Version, or its first characters.")],
    url: Url,
    agent: AgentName = None,
    as_json: AsJson = False,
) -> None:
    """Print the differences of two versions as a unified diff of their prompts and tool schemas.

    Example: agentkit prompts diff 1f0c 9a2b --url sqlite:///.agentkit/runs.db
    """
    from agentkit.run.parts.agent_version import changed_names

    versions = existing_runs(url).store.rows.versions
    uses = versions.uses(_text(agent))
    old, new = (_version(uses, utf8(name)) for name in (before, after))
    names = changed_names(old.parts, new.parts)
    texts = versions.texts({use.parts[name] for use in (old, new) for name in names if name in use.parts})
    if as_json:
        put_json({name: [_part_text(use, name, texts) for use in (old, new)] for name in names})
        return
    for name in names:
        pair = [_part_text(use, name, texts) for use in (old, new)]
        lines = difflib.unified_diff(
            pair[0].splitlines(), pair[1].splitlines(), f"{old.version}/{name}", f"{new.version}/{name}", lineterm=""
        )
        put("\n".join(lines))
    if not names:
        put("the prompts and the tool schemas are equal")


@prompts_app.command()
def scores(
    files: Annotated[list[Path], typer.Argument(metavar="FILE...", help="Files of `agentkit eval --out`.")],
    as_json: AsJson = False,
) -> None:
    """Print the scores of the versions in files of evaluations.

    Example: agentkit prompts scores before.jsonl after.jsonl
    """
    from agentkit.evals import read_report

    reports = [read_report(file) for file in files]
    if as_json:
        put_json([_form(file, report) for file, report in zip(files, reports, strict=True)])
        return
    table: list[tuple[str, ...]] = []
    for file, report in zip(files, reports, strict=True):
        for name in report.score_names:
            summary = report.summary(name)
            counts = str(summary.rows), str(len(report.failures))
            table.append((report.agent, report.version, file.name, name, *counts, str(summary.interval)))
    put_table(("agent", "version", "file", "score", "rows", "failed", "mean and 95 %"), table)


def _form(file: Path, report: EvaluationReport) -> dict[str, Any]:
    means = {name: report.summary(name).interval._asdict() for name in report.score_names}
    return {
        "agent": report.agent,
        "version": report.version,
        "file": str(file),
        "failed": len(report.failures),
        "scores": means,
    }


def _text(option: str | None) -> str | None:
    if option is None:
        return None
    return utf8(option)


def _time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M")


def _version(uses: Sequence[VersionUse], name: str) -> VersionUse:
    """Return the version that starts with a text. The command exits with an error if it is not unique."""
    matches = [use for use in uses if use.version.startswith(name)]
    if len({use.version for use in matches}) != 1:
        versions = ", ".join(dict.fromkeys([use.version for use in matches or uses])) or "none"
        problem = "no version starts" if not matches else "several versions start"
        fail(f"{problem} with {name!r:.60}; versions: {versions}", code=2)
    return matches[0]


def _part_text(use: VersionUse, name: str, texts: Mapping[str, str]) -> str:
    if name not in use.parts:
        return ""
    hash = use.parts[name]
    return texts.get(hash, f"(the text with the hash {hash} is not stored)")
