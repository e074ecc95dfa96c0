"""`agentkit recall`: shows the recalled items of a question."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.text import Text

from agentkit.cli.agent_option import AgentSource, existing_memory, with_shared
from agentkit.cli.options import HOME, AsJson, EmbedderName, Home, SharedNames, TenantName, UserName, utf8
from agentkit.cli.screen import degraded_note, note, plain, put, put_json

if TYPE_CHECKING:
    from agentkit_memory.recall.recall_result import Recall
    from agentkit_prompts.context.prompt_context import Document, RecalledMessage


def recall(
    query: Annotated[str, typer.Argument(metavar="QUESTION", help="Question in any words.")],
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, metavar="N", help="Maximum number of chunks.")] = 5,
    why: Annotated[bool, typer.Option("--why", help="Show every candidate with the parts of its score.")] = False,
    policy: Annotated[str | None, typer.Option(metavar="NAME", help="Name of a recall policy.")] = None,
    agent: AgentSource = None,
    as_json: AsJson = False,
    user: UserName = None,
    tenant: TenantName = None,
    shared: SharedNames = None,
    embedder: EmbedderName = None,
    home: Home = HOME,
) -> None:
    """Show the recalled items of QUESTION with their scores, best first.

    The exit code is 1 if no item is found.

    Example: agentkit recall "When do owls hunt?" --limit 3 --why
    """
    with existing_memory(agent, home, tenant, user, embedder) as memory:
        if shared:
            memory = with_shared(memory, shared)
        recall = memory.recall(utf8(query), limit=limit, policy=policy)
    if as_json:
        put_json(_form(recall, why))
    else:
        for fact in recall.knowledge:
            _show(fact.score, "fact", "", fact.text)
        for result in recall:
            _show(result.score, _place(result), _title(result), result.text)
        if why:
            rows = recall.explain()
            for row in rows:
                put(str(row))
            if rows:
                note(
                    "+0.00 is the mean of the candidates that a search found; the score is the same value from 0 to 1, "
                    "so +0.00 is 0.50; in brackets: the values of the searches"
                )
    for problem in recall.degraded:
        note(degraded_note(problem))
    if not recall and not recall.knowledge:
        text = "no item was found"
        if not user:
            text += "; --user NAME also searches the data of a user"
        note(text)
        raise typer.Exit(1)


def _form(recall: Recall, why: bool) -> dict[str, object]:
    names = ("id", "source", "title", "score", "text")
    data: dict[str, object] = {
        "documents": [
            {name: getattr(document, name) for name in names} | {"metadata": dict(document.metadata)}
            for document in recall.documents
        ],
        "recalled": [
            {name: getattr(message, name) for name in ("id", "session", "position", "role", "name", "score", "text")}
            | {"when": message.when and message.when.isoformat(), "metadata": dict(message.metadata)}
            for message in recall.recalled
        ],
        "knowledge": [{"id": fact.id, "score": fact.score, "text": fact.text} for fact in recall.knowledge],
        "degraded": recall.degraded,
    }
    if why:
        data["candidates"] = [asdict(row) for row in recall.explain()]
    return data


def _place(result: Document | RecalledMessage) -> str:
    from agentkit_prompts.context.prompt_context import RecalledMessage

    if isinstance(result, RecalledMessage):
        return f"conversation {result.session}:{result.position}"
    line = result.metadata.get("line")
    if line is None:
        return result.source
    return f"{result.source}:{line}"


def _title(result: Document | RecalledMessage) -> str:
    from agentkit_prompts.context.prompt_context import Document

    if isinstance(result, Document):
        return result.title
    title = result.name or result.role
    if result.when:
        title += f", {result.when.date().isoformat()}"
    return title


def _show(score: float | None, place: str, title: str, text: str) -> None:
    head = Text.assemble((f"{score or 0:.2f}", "green"), " ", (plain(place), "cyan"), " ", (plain(title), "bold"))
    head.rstrip()
    console = Console(highlight=False)
    console.print(head, soft_wrap=True)
    lines = (f"  {line}".rstrip() for line in plain(text).strip().splitlines())
    console.print(Text("\n".join(lines)), soft_wrap=not console.is_terminal)
