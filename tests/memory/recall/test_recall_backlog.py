"""Cost of a recall: bounded for messages that wait to become items, and for items that wait for the index."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine, event, insert

from agentkit.memory import Memory, Scope
from agentkit.prompts import Message
from agentkit.testing import StoreProbe
from agentkit_memory.conversations.message_rows import dump
from agentkit_memory.conversations.turns import itemise
from agentkit_memory.database.engine import Database
from agentkit_memory.database.tables import branches, conversations, embeddings, messages, scopes
from agentkit_memory.recall.recall_rows import MAX_ROWS
from agentkit_memory.store.item_rows import read_newest
from agentkit_memory.store.read_view import MAX_BEHIND
from agentkit_memory.store.stored_item import StoredItem
from agentkit_prompts.context.messages import MESSAGE_FORMAT
from tests.memory.recall.queued_facts import queue_facts

STEP = 100
"""Instructions of the virtual machine of SQLite that are counted as a step."""


@pytest.fixture
def steps() -> Iterator[list[int]]:
    """Yield the number of steps of SQLite, on connections that are opened later."""
    taken = [0]

    def count() -> int:
        taken[0] += 1
        return 0

    def listen(connection: Any, _: object) -> None:
        connection.set_progress_handler(count, STEP)

    event.listen(Engine, "connect", listen)
    yield taken
    event.remove(Engine, "connect", listen)


def cost(steps: list[int], act: Callable[[], object]) -> int:
    """Return the smallest number of steps of three calls, as other threads can add steps."""
    found = []
    for _ in range(3):
        before = steps[0]
        act()
        found.append(steps[0] - before)
    return min(found)


@pytest.fixture
def memory(home: Path, steps: list[int]) -> Iterator[Memory]:
    with Memory(home, scope=Scope("local", user="local"), keep_recalls=0) as opened:
        opened.session("s").append(Message("user", "The heron eats eels."))
        opened.worker().drain()
        opened.recall("heron")
        StoreProbe(opened).pause()  # the backlog stays in the queue
        yield opened


def new_conversations(memory: Memory, count: int, each: int = 1, first: int = 0) -> None:
    """Store conversations of the scope of a memory, with messages that are not items yet."""
    probe = StoreProbe(memory)
    scope = probe.scope_number
    with probe.transaction() as connection:
        for number in range(first, first + count):
            row = {"scope_id": scope, "name": f"c{number}", "created_at": 1.0}
            conversation = connection.scalar(insert(conversations).values(row).returning(conversations.c.id))
            row = {"conversation_id": conversation, "name": "main", "head_seq": each}
            branch = connection.scalar(insert(branches).values(row).returning(branches.c.id))
            rows = [
                {
                    "branch_id": branch,
                    "seq": seq,
                    "format": MESSAGE_FORMAT,
                    "body": dump("c", Message("user", f"A stork stands there, {number} {seq}.")),
                    "created_at": 1e6 + 1000 * number + seq,
                }
                for seq in range(1, each + 1)
            ]
            connection.execute(insert(messages), rows)


def test_the_cost_of_a_recall_does_not_depend_on_scopes_of_other_users(memory: Memory, steps: list[int]) -> None:
    reader = memory.within(Scope("local", user="local", session="s", agent="a"))
    some = cost(steps, lambda: memory.recall("heron")), cost(steps, lambda: reader.recall("heron"))
    rows = [
        {"id": number, "tenant": "local", "user": f"u{number}", "session": "", "agent": ""} for number in range(5000)
    ]
    StoreProbe(memory).execute(insert(scopes), *rows)
    assert cost(steps, lambda: memory.recall("heron")) <= some[0] + 1
    assert cost(steps, lambda: reader.recall("heron")) <= some[1] + 1
    assert len(reader.recall("heron")) == 1  # of the user


def test_the_cost_of_a_worker_does_not_depend_on_conversations_without_new_messages(
    memory: Memory, database: Database, steps: list[int]
) -> None:
    some = cost(steps, lambda: itemise(database, None, 10))
    probe, numbers = StoreProbe(memory), range(100, 5100)
    own = {"scope_id": probe.scope_number, "created_at": 1.0}
    probe.execute(insert(conversations), *[{"id": number, "name": f"c{number}", **own} for number in numbers])
    read = {"name": "main", "head_seq": 1, "itemised_seq": 1}
    probe.execute(insert(branches), *[{"conversation_id": number, **read} for number in numbers])
    assert cost(steps, lambda: itemise(database, None, 10)) <= some + 1


@pytest.mark.long
def test_the_erasure_of_many_conversations_takes_linear_time(memory: Memory, steps: list[int]) -> None:
    spent = []
    for user, count in (("few", 300), ("many", 1200)):
        subject = memory.within(Scope("local", user=user))
        new_conversations(subject, count)
        before = steps[0]
        assert memory.erase(subject.scope).complete
        spent.append(steps[0] - before)
    assert spent[1] < 5 * spent[0]


def test_the_removal_of_a_fact_reads_no_other_vector(memory: Memory, steps: list[int]) -> None:
    spent = []
    for first, last in ((0, 10), (10, 10_000)):
        rows = [{"model": "m", "content_hash": str(at), "vector": b"", "created_at": 1.0} for at in range(first, last)]
        with StoreProbe(memory).transaction() as connection:
            connection.execute(insert(embeddings), rows)
        facts = iter([memory.facts.add(f"heron {number}").id for number in range(3)])
        spent.append(cost(steps, lambda facts=facts: memory.facts.remove(next(facts))))  # type: ignore[misc]
    assert spent[1] <= spent[0] + 1


def test_the_cost_of_reading_the_newest_items_is_bounded(memory: Memory, database: Database, steps: list[int]) -> None:
    own, most = StoreProbe(memory).scope_number, 100

    def newest() -> list[StoredItem]:
        with database.read() as connection:
            return read_newest(connection, [own], 1e10, most)

    queue_facts(memory, "stork", 3 * most)
    some = cost(steps, newest)
    queue_facts(memory, "stork", 30 * most, first=3 * most)
    assert cost(steps, newest) <= some + 10
    own_turn, *facts = newest()  # the time of the turn is now, the time of the facts is in 1970
    assert own_turn.text == "The heron eats eels."
    assert [fact.position for fact in facts] == [*range(33 * most - 1, 32 * most, -1)]


@pytest.mark.long
def test_the_cost_of_a_recall_is_bounded_for_new_conversations_of_other_tenants(
    memory: Memory, steps: list[int]
) -> None:
    other = memory.within("other")
    new_conversations(other, MAX_BEHIND)
    some = cost(steps, lambda: memory.recall("heron"))
    new_conversations(other, 4 * MAX_BEHIND, first=MAX_BEHIND)
    assert cost(steps, lambda: memory.recall("heron")) <= some + 10
    recall = memory.recall("heron")
    assert len(recall) == 1 and "conversations of all tenants have new messages" in recall.degraded[0]


@pytest.mark.parametrize(("count", "each"), [(1, MAX_ROWS), pytest.param(400, 10, marks=pytest.mark.long)])
def test_the_cost_of_a_recall_is_bounded_for_new_messages(
    memory: Memory, steps: list[int], count: int, each: int
) -> None:
    new_conversations(memory, count, each)
    some = cost(steps, lambda: memory.recall("stork"))
    new_conversations(memory, count, 5 * each, first=count)
    assert cost(steps, lambda: memory.recall("stork")) <= 1.5 * some + 10
    recall = memory.recall("stork 999 1", limit=3)
    assert len(recall) == 3 and any("searched" in each for each in recall.degraded)


def test_the_newest_messages_of_each_conversation_are_searched(memory: Memory) -> None:
    new_conversations(memory, 1, 3 * MAX_ROWS)
    memory.session("c0").append(Message("user", "The osprey fishes."))
    memory.session("small").append(Message("user", "The kite soars."))
    assert [each.text for each in memory.recall("osprey")] == ["The osprey fishes."]
    assert [each.text for each in memory.recall("kite")] == ["The kite soars."]


def test_the_cost_of_a_recall_is_bounded_for_items_that_wait_for_the_index(memory: Memory, steps: list[int]) -> None:
    queue_facts(memory, "stork", 2 * MAX_ROWS)
    some = cost(steps, lambda: memory.recall("stork"))
    queue_facts(memory, "stork", 6 * MAX_ROWS, first=2 * MAX_ROWS)
    assert cost(steps, lambda: memory.recall("stork")) <= 1.2 * some + 10
    recall = memory.recall("stork")
    assert recall.knowledge and any("items are not indexed yet" in each for each in recall.degraded)
