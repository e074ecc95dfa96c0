"""`agentkit sessions ...` and `agentkit export`: conversations that are stored, shown and written out."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer

from agentkit.cli.agent_option import AgentSource, apart, loaded_agent, opened_agent, scope_of, store_of
from agentkit.cli.options import HOME, AsJson, Home, TenantName, UserName, open_existing, utf8
from agentkit.cli.screen import complain, note, plain, progress_bar, put, put_json, put_table
from agentkit.cli.training_rows import training_rows
from agentkit.server.served_runs.event_form import message_form
from agentkit_memory import Memory
from agentkit_memory.conversations.stored_session import StoredSession
from agentkit_memory.store.records import SessionInfo
from agentkit_prompts.context.wire.write_openai_chat import openai_message
from agentkit_prompts.system.private_files import private_file

__all__ = ["export_rows", "sessions_app"]

sessions_app = typer.Typer(no_args_is_help=True, help="Conversations that are stored: list, show, export.")
_PAGE = 200
_NAMED = 5
Name = Annotated[str, typer.Argument(metavar="NAME", help="Name of a conversation.")]
Output = Annotated[Path | None, typer.Option("--output", "-o", metavar="FILE", help="Write there; stdout otherwise.")]


@sessions_app.command("list")
def list_sessions(
    agent: AgentSource = None,
    user: UserName = None,
    tenant: TenantName = None,
    as_json: AsJson = False,
    home: Home = HOME,
) -> None:
    """List the conversations of a scope, by name.

    Example: agentkit sessions list --json
    """
    with _opened(agent, home, tenant, user) as memory:
        found = list(_all(memory))
    if as_json:
        put_json([{"name": one.name, "messages": one.messages, "last_at": one.last_at} for one in found])
        return
    if found:
        times = [one.last_at and f"{datetime.fromtimestamp(one.last_at, UTC):%Y-%m-%d %H:%M} UTC" for one in found]
        rows = [(one.name, one.messages, last or "") for one, last in zip(found, times, strict=True)]
        put_table(("name", "messages", "last"), rows)
    else:
        whose = "without a user" if user is None else f"of the user {user}"
        others = f"--user NAME shows those of {'a' if user is None else 'another'} user"
        others += ", --agent those of an agent" if agent is None else ""
        note(f"no conversation {whose} is stored; {others}")


@sessions_app.command()
def show(
    name: Name,
    agent: AgentSource = None,
    user: UserName = None,
    tenant: TenantName = None,
    as_json: AsJson = False,
    home: Home = HOME,
) -> None:
    """Show the messages of a conversation.

    Example: agentkit sessions show trip
    """
    with _opened(agent, home, tenant, user) as memory:
        messages = tuple(_session(memory, utf8(name)).conversation)
    if as_json:
        put_json([{"seq": at, **message_form(message)} for at, message in enumerate(messages, 1)])
        return
    for message in messages:
        calls = "".join(f"\n  calls {call.name} {call.arguments}" for call in message.tool_calls)
        put(f"{message.role}: {message.text}{calls}")


@sessions_app.command()
def export(
    names: Annotated[list[str] | None, typer.Argument(metavar="[NAME]...", help="Conversations; all of them.")] = None,
    output: Output = None,
    agent: AgentSource = None,
    user: UserName = None,
    tenant: TenantName = None,
    as_json: AsJson = False,
    home: Home = HOME,
) -> None:
    """Write conversations as JSON lines, each with its messages in the form of OpenAI.

    Example: agentkit sessions export trip --output trip.jsonl
    """
    with _opened(agent, home, tenant, user) as memory:
        wanted = [utf8(name) for name in names or ()] or [one.name for one in _all(memory)]
        told = ((name, map(openai_message, _session(memory, name).conversation)) for name in wanted)
        lines = ({"session": name, "messages": [*messages]} for name, messages in told)
        _write(lines, output, as_json)


def export_rows(
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
        wanted = [utf8(name) for name in session or ()] or [one.name for one in _all(memory)]
        with progress_bar() as bar:
            task = bar.add_task("conversations", total=len(wanted))

            def rows() -> Iterator[dict[str, Any]]:
                for name in wanted:
                    yield from training_rows(loaded.agent, _session(memory, name), template)
                    bar.advance(task)

            _write(rows(), output, as_json)
        if user is None and not session:
            _note_users(memory)


def _note_users(memory: Memory) -> None:
    """Say whose conversations are left out, where somebody may take them for all there are."""
    users = dict.fromkeys(user for user, _ in memory.newest_sessions(limit=_PAGE) if user)
    if users:
        named = ", ".join(map(plain, [*users][:_NAMED]))
        more = ", ..." if len(users) > _NAMED else ""
        note(f"left out: conversations of users ({named}{more}); --user NAME writes theirs")


def _write(lines: Iterator[dict[str, Any]], output: Path | None, as_json: bool) -> None:
    """Write JSON lines, to a file that is there as a whole or not at all."""
    if output is None:
        for line in lines:
            put(json.dumps(line, ensure_ascii=True, default=str))
        return
    fresh = output.with_name(f".{output.name}.part")
    count = 0
    fresh.unlink(missing_ok=True)
    private_file(fresh)
    with fresh.open("w", encoding="utf-8") as file:
        for line in lines:
            file.write(json.dumps(line, ensure_ascii=False, default=str) + "\n")
            count += 1
    fresh.replace(output)
    if as_json:
        put_json({"lines": count, "file": str(output)})
    else:
        note(f"{count} lines written to {output}")


@contextmanager
def _opened(agent: str | None, home: Path, tenant: str | None, user: str | None) -> Iterator[Memory]:
    with ExitStack() as closing:
        if agent is None:
            yield closing.enter_context(open_existing(home, scope_of(None, tenant, user)))
            return
        loaded = loaded_agent(agent, home=home)
        closing.callback(loaded.close)
        if loaded.memory is None:  # which makes no store to look into one
            closing.enter_context(open_existing(home, scope_of(None, tenant, user)))
        if names := apart(loaded, tenant, user):
            more = ", ..." if len(names) > _NAMED else ""
            note(
                f"not here, from before {loaded.name} had a memory: {', '.join(map(plain, names[:_NAMED]))}{more}; "
                "without `memory` in its file they are shown"
            )
        yield closing.enter_context(store_of(loaded, home, tenant, user))


def _all(memory: Memory) -> Iterator[SessionInfo]:
    after = ""
    while page := memory.sessions(after=after, limit=_PAGE):
        yield from page
        after = page[-1].name


def _session(memory: Memory, name: str) -> StoredSession:
    if not memory.sessions(name=name):
        complain(f"there is no conversation {name!r}: `agentkit sessions list` shows those there are")
        raise typer.Exit(1)
    return memory.session(name)
