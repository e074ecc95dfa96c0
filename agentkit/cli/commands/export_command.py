"""`agentkit export`: fine-tuning rows of stored conversations."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any

import typer

from agentkit.cli.agent_option import AgentSource, opened_agent, store_of
from agentkit.cli.options import HOME, AsJson, Home, TenantName, UserName, utf8
from agentkit.cli.screen import note, progress_bar
from agentkit.cli.stored_sessions import PAGE, Output, all_sessions, existing_session, first_of, write_lines
from agentkit.cli.training_rows import training_rows
from agentkit_memory import Memory

__all__ = ["export"]


def export(
    agent: AgentSource = None,
    session: Annotated[
        list[str] | None, typer.Option("--session", "-s", metavar="NAME", help="Conversations; all of them.")
    ] = None,
    template: Annotated[
        str | None, typer.Option(metavar="NAME", help="Chat template: adds the text and what of it is trained on.")
    ] = None,
    output: Output = None,
    user: UserName = None,
    tenant: TenantName = None,
    as_json: AsJson = False,
    home: Home = HOME,
) -> None:
    """Write fine-tuning rows: for every answer in stored conversations the prompt that the agent would send, and it.

    Memory is asked again: for the documents and facts there are now, and for messages from before the question.

    Example: agentkit export --agent shop.yaml --output rows.jsonl
    """
    with (
        opened_agent(agent, home=home, model="offline") as loaded,
        store_of(loaded, home, tenant, user) as memory,
    ):
        wanted = [utf8(name) for name in session or ()] or [one.name for one in all_sessions(memory)]
        with progress_bar() as bar:
            task = bar.add_task("conversations", total=len(wanted))

            def rows() -> Iterator[dict[str, Any]]:
                for name in wanted:
                    yield from training_rows(loaded.agent, existing_session(memory, name), template)
                    bar.advance(task)

            write_lines(rows(), output, as_json)
        if user is None and not session:
            _note_users(memory)


def _note_users(memory: Memory) -> None:
    """Say whose conversations are left out, where somebody may take them for all there are."""
    users = dict.fromkeys(user for user, _ in memory.newest_sessions(limit=PAGE) if user)
    if users:
        note(f"left out: conversations of users ({first_of([*users])}); --user NAME writes theirs")
