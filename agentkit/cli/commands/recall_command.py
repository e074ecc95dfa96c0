"""`agentkit recall`: shows the recalled items of a question."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.text import Text

from agentkit.cli.agent_option import AgentSource, existing_memory
from agentkit.cli.options import HOME, AsJson, EmbedderName, Home, TenantName, UserName, utf8
from agentkit.cli.screen import degraded_note, note, plain, put, put_json
from agentkit_prompts.context.prompt_context import Document, RecalledMessage

if TYPE_CHECKING:
    from agentkit_memory.recall.recall_result import Recall

__all__ = ["recall"]


def recall(
    query: Annotated[str, typer.Argument(metavar="QUESTION", help="Question in any words.")],
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, metavar="N", help="Maximum number of chunks.")] = 5,
    why: Annotated[bool, typer.Option("--why", help="Show every candidate with the parts of its score.")] = False,
    policy: Annotated[str | None, typer.Option(metavar="NAME", help="Name of a recall policy.")] = None,
    agent: AgentSource = None,
    as_json: AsJson = False,
    user: UserName = None,
    tenant: TenantName = None,
    embedder: EmbedderName = None,
    home: Home = HOME,
) -> None:
    """Show the recalled items of QUESTION with their scores, best first.

    The exit code is 1 if nothing is found.

    Example: agentkit recall "When do owls hunt?" --limit 3 --why
    """
    with existing_memory(agent, home, tenant, user, embedder) as memory:
        found = memory.recall(utf8(query), limit=limit, policy=policy)
    if as_json:
        put_json(_form(found, why))
    else:
        for fact in found.knowledge:
            _show(fact.score, "fact", "", fact.text)
        for one in found:
            _show(one.score, _place(one), _title(one), one.text)
        if why:
            for row in found.explain():
                put(str(row))
    for trouble in found.degraded:
        note(degraded_note(trouble))
    if not found and not found.knowledge:
        text = "nothing was found"
        if not user:
            text += "; --user NAME also searches the data of a user"
        note(text)
        raise typer.Exit(1)


def _form(found: Recall, why: bool) -> dict[str, object]:
    names = ("id", "source", "title", "score", "text")
    data: dict[str, object] = {
        "documents": [
            {name: getattr(document, name) for name in names} | {"metadata": dict(document.metadata)}
            for document in found.documents
        ],
        "recalled": [
            {name: getattr(message, name) for name in ("id", "session", "position", "role", "name", "score", "text")}
            | {"when": message.when and message.when.isoformat(), "metadata": dict(message.metadata)}
            for message in found.recalled
        ],
        "knowledge": [{"id": fact.id, "score": fact.score, "text": fact.text} for fact in found.knowledge],
        "degraded": found.degraded,
    }
    if why:
        data["candidates"] = [asdict(row) for row in found.explain()]
    return data


def _place(found: Document | RecalledMessage) -> str:
    if isinstance(found, RecalledMessage):
        return f"conversation {found.session}:{found.position}"
    line = found.metadata.get("line")
    if line is None:
        return found.source
    return f"{found.source}:{line}"


def _title(found: Document | RecalledMessage) -> str:
    if isinstance(found, Document):
        return found.title
    title = found.name or found.role
    if found.when:
        title += f", {found.when.date().isoformat()}"
    return title


def _show(score: float | None, place: str, title: str, text: str) -> None:
    head = Text.assemble((f"{score or 0:.2f}", "green"), " ", (plain(place), "cyan"), " ", (plain(title), "bold"))
    head.rstrip()
    console = Console(highlight=False)
    console.print(head, soft_wrap=True)
    lines = (f"  {line}".rstrip() for line in plain(text).strip().splitlines())
    console.print(Text("\n".join(lines)), soft_wrap=not console.is_terminal)
