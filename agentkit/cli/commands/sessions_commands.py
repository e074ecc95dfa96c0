"""`agentkit sessions ...`: commands that list, show, export and import conversations."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from agentkit.cli.agent_option import AgentSource, conversation_memory, earlier_sessions, loaded_agent, scope_of
from agentkit.cli.options import HOME, AsJson, Home, Output, TenantName, UserName, open_existing, open_memory, utf8
from agentkit.cli.screen import note, progress_bar, put, put_json, put_table

if TYPE_CHECKING:
    from agentkit_memory import Memory
    from agentkit_memory.conversations.session_file import SessionImport
    from agentkit_memory.store.records import SessionInfo

sessions_app = typer.Typer(no_args_is_help=True)
Name = Annotated[str, typer.Argument(metavar="NAME", help="Name of a conversation.")]


@sessions_app.callback()
def sessions() -> None:
    """List, show, export and import conversations."""


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
    from agentkit.cli.stored_sessions import all_sessions

    with _opened(agent, home, tenant, user) as memory:
        infos = all_sessions(memory)
        owner = memory.scope.with_default_user().user
    if as_json:
        put_json([{"name": info.name, "messages": info.messages, "last_at": info.last_at} for info in infos])
        return
    if infos:
        put_table(("name", "messages", "last"), [(info.name, info.messages, _last(info)) for info in infos])
    else:
        text = f"no conversation of the user {owner} is stored; --user NAME shows another user"
        if agent is None:
            text += ", --agent FILE the conversations of an agent"
        note(text)


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
    from agentkit.cli.stored_sessions import existing_session
    from agentkit.server.served_runs.event_form import message_form

    with _opened(agent, home, tenant, user) as memory:
        messages = tuple(existing_session(memory, utf8(name)).conversation)
    if as_json:
        put_json([{"seq": at, **message_form(message)} for at, message in enumerate(messages, 1)])
        return
    for message in messages:
        calls = "".join(f"\n  calls {call.name} {call.arguments}" for call in message.tool_calls)
        put(f"{message.role}: {message.text}{calls}")


@sessions_app.command()
def export(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="[NAME]...", help="Conversations; all by default.")
    ] = None,
    output: Output = None,
    agent: AgentSource = None,
    user: UserName = None,
    tenant: TenantName = None,
    as_json: AsJson = False,
    home: Home = HOME,
) -> None:
    """Write conversations as JSON lines with messages in OpenAI's format.

    Example: agentkit sessions export trip --output trip.jsonl
    """
    from agentkit.cli.stored_sessions import all_sessions, existing_session, write_lines
    from agentkit_prompts.context.wire.write_openai_chat import openai_message

    with _opened(agent, home, tenant, user) as memory:
        selected = [utf8(name) for name in names or ()] or [info.name for info in all_sessions(memory)]
        conversations = ((name, map(openai_message, existing_session(memory, name).conversation)) for name in selected)
        lines = ({"session": name, "messages": [*messages]} for name, messages in conversations)
        write_lines(lines, output, as_json)


@sessions_app.command("import")
def import_file(
    file: Annotated[Path, typer.Argument(metavar="FILE", readable=False, help="JSON lines, as `export` writes them.")],
    user: UserName = None,
    tenant: TenantName = None,
    as_json: AsJson = False,
    home: Home = HOME,
) -> None:
    """Append the messages of JSON lines to conversations.

    All lines are checked first. The command may be interrupted and restarted at any time: no line is stored twice.

    Example: agentkit sessions import trip.jsonl --user ada
    """
    from rich.progress import DownloadColumn

    with open_memory(home, scope_of(None, tenant, user)) as memory, progress_bar(DownloadColumn()) as bar:
        task = bar.add_task("checking", total=None)

        def progress(now: SessionImport) -> None:
            text = f"storing {now.lines} lines, {now.added} messages"
            bar.update(task, description=text, completed=now.done_bytes, total=now.total_bytes)

        done = memory.admin.import_sessions(file, on_progress=progress)
    if as_json:
        put_json({"lines": done.lines, "added": done.added})
    else:
        note(f"{done.added} messages added from {done.lines} lines")


def _last(info: SessionInfo) -> str:
    if not info.last_at:
        return ""
    return f"{datetime.fromtimestamp(info.last_at, UTC):%Y-%m-%d %H:%M} UTC"


@contextmanager
def _opened(agent: str | None, home: Path, tenant: str | None, user: str | None) -> Iterator[Memory]:
    from agentkit.cli.stored_sessions import first_of

    with ExitStack() as closing:
        if agent is None:
            yield closing.enter_context(open_existing(home, scope_of(None, tenant, user)))
            return
        loaded = loaded_agent(agent, home=home)
        closing.callback(loaded.close)
        # Exits if the folder has no store: `conversation_memory` would create a store.
        if loaded.memory is None:
            closing.enter_context(open_existing(home, scope_of(None, tenant, user)))
        names = earlier_sessions(loaded, tenant, user)
        if names:
            note(
                f"not listed, because stored before {loaded.name} had a memory: {first_of(names)}; "
                "without `memory` in the agent file they are listed"
            )
        yield closing.enter_context(conversation_memory(loaded, home, tenant, user))
