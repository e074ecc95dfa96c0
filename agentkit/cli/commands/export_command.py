"""`agentkit export`: fine-tuning rows of stored conversations."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any

import typer

from agentkit.cli.agent_option import AgentSource, conversation_memory, opened_agent
from agentkit.cli.options import HOME, AsJson, Home, TenantName, UserName, utf8
from agentkit.cli.screen import note, progress_bar
from agentkit.cli.stored_sessions import PAGE, Output, all_sessions, existing_session, first_of, write_lines
from agentkit.cli.training_rows import training_rows
from agentkit_memory import Memory

__all__ = ["export"]


def export(
    agent: AgentSource = None,
    session: Annotated[
        list[str] | None,
        typer.Option("--session", "-s", metavar="NAME", help="Conversation to export; all by default. Repeatable."),
    ] = None,
    template: Annotated[
        str | None, typer.Option(metavar="NAME", help="Chat template: adds the text of each row and its trained spans.")
    ] = None,
    output: Output = None,
    user: UserName = None,
    tenant: TenantName = None,
    as_json: AsJson = False,
    home: Home = HOME,
) -> None:
    """Write fine-tuning rows: the prompt of the agent and the answer, for every answer of stored conversations.

    Memory is queried again: for current documents and facts, and for messages from before the question.

    Example: agentkit export --agent shop.yaml --output rows.jsonl
    """
    with (
        opened_agent(agent, home=home, model="offline") as loaded,
        conversation_memory(loaded, home, tenant, user) as memory,
    ):
        names = [utf8(name) for name in session or ()] or [stored.name for stored in all_sessions(memory)]
        with progress_bar() as bar:
            task = bar.add_task("conversations", total=len(names))

            def rows() -> Iterator[dict[str, Any]]:
                for name in names:
                    yield from training_rows(loaded.agent, existing_session(memory, name), template)
                    bar.advance(task)

            write_lines(rows(), output, as_json)
        if user is None and not session:
            _note_users(memory)


def _note_users(memory: Memory) -> None:
    """Print the users whose conversations are not part of the export."""
    own = ("", memory.scope.with_default_user().user)
    users = dict.fromkeys(user for user, _ in memory.newest_sessions(limit=PAGE) if user not in own)
    if users:
        note(f"left out: conversations of users ({first_of([*users])}); --user NAME writes the conversations of a user")
