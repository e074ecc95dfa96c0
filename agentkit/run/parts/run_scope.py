"""`run_scope`: the scope of a run, which names its tenant and its user, and the memory in this scope."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from agentkit.errors import AgentError, ScopeMismatch
from agentkit.run.parts.recaller import RecallSource, name_of

if TYPE_CHECKING:
    from agentkit.run.parts.run_guards import Guards
    from agentkit.run.parts.session import SessionProtocol
    from agentkit_memory import Scope
    from agentkit_tools.tool_context import RunState


class OuterRun(NamedTuple):
    """Scope, memory, locale, permissions and state of a run that calls another agent as a tool."""

    scope: Scope
    memory: RecallSource | None
    locale: str | None
    permissions: frozenset[str]
    state: RunState
    counts: dict[str, int] | None = None
    """Counts of tool calls that the inner run shares, see `ToolContext.calls`; None if it counts its calls itself."""
    guards: Guards | None = None
    """Guards of the run, for code whose calls they check; None without guards."""


def run_scope(memory: RecallSource | None, session: SessionProtocol | None, options: Mapping[str, Any]) -> Scope | None:
    """Return the scope of a run; None if neither the memory, the session nor the caller names a scope.

    Args:
        memory: The memory of the agent.
        session: The session of the run.
        options: The options of the run: `scope`, `tenant` and `user`.

    Raises:
        ScopeMismatch: The session, `scope`, `tenant` and `user` do not match.
        AgentError: `scope` is set, but the memory has no scopes.
        InvalidArgument: A name cannot be stored.
    """
    scope, session_scope = _scope_option(memory, options.get("scope")), getattr(session, "scope", None)
    if scope is not None and session_scope is not None and session_scope not in (scope, scope.with_default_user()):
        raise ScopeMismatch(
            f"the session belongs to {session_scope}, but scope= is {scope}: pass one of them", name="session"
        )
    source, owner = "scope=", scope
    if session_scope is not None:
        source, owner = "the session", session_scope
    names = {name: options[name] for name in ("tenant", "user") if options.get(name)}
    if not names:
        return _of_conversations(memory, owner)
    if owner is None:
        return _of_conversations(memory, _named_scope(getattr(memory, "scope", None), names))
    for name, value in names.items():
        if getattr(owner, name) != value:
            raise ScopeMismatch(
                f"{source} belongs to {owner}, but {name}= is {value!r:.80}: pass one of them", name=name, value=value
            )
    return _of_conversations(memory, owner)


def resumed_scope(
    memory: RecallSource | None, session: SessionProtocol | None, names: tuple[str, ...] | None
) -> Scope | None:
    """Return the scope of a run that is resumed.

    Args:
        memory: The memory of the agent.
        session: The session of the run.
        names: The names of the scope in the journal; None if the journal has no scope.

    Raises:
        ScopeMismatch: The session belongs to another scope than the run.
    """
    session_scope = getattr(session, "scope", None)
    if names is None:
        return _of_conversations(memory, session_scope)
    from agentkit_memory import Scope

    scope = Scope(*names)
    if session_scope is not None and session_scope != scope:
        raise ScopeMismatch(
            f"the run belongs to {scope}, but the session belongs to {session_scope}: pass the session of the run",
            name="session",
        )
    return scope


def within_scope(memory: RecallSource | None, scope: Scope | None) -> RecallSource | None:
    """Return a memory in the scope of a run; a memory without scopes is returned unchanged.

    Raises:
        ScopeMismatch: The scope of the memory does not cover the scope of the run.
    """
    memory_scope, within = getattr(memory, "scope", None), getattr(memory, "within", None)
    if scope is None or memory_scope is None or within is None or scope == memory_scope:
        return memory
    if not memory_scope.covers(scope):
        remedy = f"use a memory that covers both, such as the memory of {scope.tenant!r}, or one agent per scope"
        if scope.tenant != memory_scope.tenant:
            remedy = (
                f"pass Memory(..., scope={scope.tenant!r}) to the agent, or load_agent(..., tenant={scope.tenant!r})"
            )
        raise ScopeMismatch(
            f"the agent has a memory of {memory_scope}, but the run belongs to {scope}: {remedy}",
            name="memory",
        )
    scoped: RecallSource = within(scope)
    return scoped


def inner_memory(memory: RecallSource | None, scope: Scope, outer: RecallSource | None) -> RecallSource | None:
    """Return the memory of an agent that runs as a tool, in the scope of the outer run if the memory covers this scope.

    A memory of the default tenant in the same store is read as the tenant of the outer run, as the memory of the outer
    agent is. A memory of another named tenant, such as a memory of manuals, is returned unchanged.

    Args:
        memory: The memory of the inner agent.
        scope: The scope of the outer run.
        outer: The memory of the outer run.
    """
    memory_scope, within = getattr(memory, "scope", None), getattr(memory, "within", None)
    if memory_scope is None or within is None:
        return memory
    store = getattr(memory, "_store", None)
    is_same_store = store is not None and store is getattr(outer, "_store", None)
    if memory_scope.covers(scope) or (is_same_store and memory_scope == type(memory_scope)()):
        scoped: RecallSource = within(scope)
        return scoped
    return memory


def _scope_option(memory: RecallSource | None, scope: object) -> Scope | None:
    """Return the option `scope` of a run: a scope, the name of a tenant, or the names of a stored scope."""
    if scope is None:
        return None
    from agentkit_memory import Scope

    if memory is not None and not has_scopes(memory):
        raise AgentError(
            f"scope={scope!r}: {name_of(memory)} has no scopes, so the scope would be ignored", name="scope"
        )
    if isinstance(scope, tuple):
        return Scope(*scope)
    return Scope.of(scope)  # type: ignore[arg-type]  # it refuses other types


def _of_conversations(memory: RecallSource | None, scope: Scope | None) -> Scope | None:
    """Return a scope, by default the scope of the memory, as the memory reads it: without a user, for `local`."""
    memory_scope: Scope | None = getattr(memory, "scope", None)
    if memory_scope is None:
        return scope
    return (scope or memory_scope).with_default_user()


def has_scopes(memory: RecallSource | None) -> bool:
    """Return True if a memory can be read in the scope of a run."""
    return getattr(memory, "scope", None) is not None and getattr(memory, "within", None) is not None


def _named_scope(base: Scope | None, names: Mapping[str, str]) -> Scope:
    """Return the scope of a tenant and a user, within the scope of a memory if the tenant has the memory."""
    from agentkit_memory import Scope

    if base is None or names.get("tenant", base.tenant) != base.tenant:
        return Scope(**names)
    return base.narrow(user=names.get("user", ""))
