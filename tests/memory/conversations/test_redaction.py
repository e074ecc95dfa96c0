"""Redacted, expired and deleted texts are removed from each place of the store."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import insert

from agentkit.memory import (
    FactDraft,
    HeadMoved,
    InvalidArgument,
    Memory,
    NotFound,
    Scope,
    StoredFact,
    StoredSession,
    Turn,
)
from agentkit.prompts import Message, ToolCall
from agentkit.testing import StoreProbe
from agentkit_memory.database.tables import embeddings
from agentkit_memory.store.item_rows import content_hash
from tests.memory.embedders.word_embedder import Words
from tests.raising import raises

SECRET = "my card is q4929-1111"  # with a letter that is not in numbers, times or ids


def user(*texts: str) -> list[Message]:
    return [Message("user", text) for text in texts]


def all_rows(memory: Memory) -> str:
    """Return each row of each table as text."""
    memory.recall_logs()  # writes the logs now
    return repr(StoreProbe(memory).dump())


def keep_vectors(memory: Memory) -> None:
    """Store a vector of each item, as an embedder does."""
    probe = StoreProbe(memory)
    kept = {"model": "m", "vector": b"\0", "created_at": 0.0}
    hashes = {content_hash(item.text) for item in probe.items()}
    probe.execute(insert(embeddings), *[{**kept, "content_hash": each} for each in hashes])


def count(memory: Memory, table: str) -> int:
    return len(StoreProbe(memory).dump()[table])


def recalled(memory: Memory, query: str) -> list[str]:
    return [found.text for found in memory.recall(query)]


def test_a_redacted_message_is_replaced_at_each_place(either: Memory) -> None:
    StoreProbe(either).pause()  # the recalls below would index the replacement
    session = either.session("s")
    session.append(*user("hello", SECRET), Message("assistant", "noted"))
    either.worker().drain()
    keep_vectors(either)
    turn = next(each for each in items_of(either) if SECRET in each.text)
    either.facts.add(f"They said: {SECRET}", sources=turn.id)
    for query in (SECRET, f"and {SECRET} again?", f"  {SECRET}\n", "hello"):
        either.recall(query, session=session)
    view = session.redact(2)
    assert [message.text for message in view] == ["hello", "[redacted]", "noted"]
    assert [message.text for message in either.session("s").conversation] == ["hello", "[redacted]", "noted"]
    assert "q4929" not in all_rows(either)
    assert [each.text for each in items_of(either)] == ["hello", "noted"] and count(either, "embeddings") == 2
    assert [each.redacted for each in session.page()] == [False, True, False]
    assert [each.query.strip() for each in either.recall_logs()] == [
        "[redacted]",
        "and [redacted] again?",
        "[redacted]",
        "hello",
    ]
    assert either.admin.verify().pending and not either.admin.repair().after.missing
    assert either.admin.verify().orphans == 0


def items_of(memory: Memory) -> list[Any]:
    """Return the items, in order of position."""
    return sorted(StoreProbe(memory).items(), key=lambda each: (each.position, each.kind))


def version_of(memory: Memory, item: str) -> int:
    return int(StoreProbe(memory).values("SELECT version FROM items WHERE id = :id", id=item)[0])


def test_a_replacement_with_text_can_be_recalled(either: Memory) -> None:
    session = either.session("s")
    session.append(*user(SECRET))
    either.worker().drain()
    before = items_of(either)[0]
    version = version_of(either, before.id)
    session.redact(1, "my card is [number]")
    (after,) = items_of(either)
    assert (after.id, after.text) == (before.id, "my card is [number]")
    assert version_of(either, after.id) == version + 1
    session.append(*user("more"))
    either.worker().drain()
    assert [each.text for each in items_of(either)] == ["my card is [number]", "more"]


def test_a_message_that_is_redacted_before_it_is_an_item_does_not_become_an_item(either: Memory) -> None:
    session = either.session("s")
    session.append(*user(SECRET, "hello"))
    session.redact(1)
    either.worker().drain()
    assert [each.text for each in items_of(either)] == ["hello"]


def test_tool_calls_lose_their_arguments_and_the_conversation_stays_valid(either: Memory) -> None:
    session = either.session("s")
    pay = Message("assistant", "I pay.", tool_calls=(ToolCall("a", "pay", '{"card": "q4929-1111"}'),), name="Ann")
    session.append(*user("pay"), pay)
    fork = session.fork("f")
    fork.append(Message("tool", "q4929-1111 paid", tool_call_id="a", name="pay"))
    fork.redact(2, "")
    fork.redact(3)
    kept = either.session("s", branch="f").conversation
    assert kept[1] == Message("assistant", "", tool_calls=(ToolCall("a", "pay", "{}"),), name="Ann")
    assert kept[2].tool_call_id == "a" and kept.complete() is kept
    assert [each.arguments for each in fork.tool_calls()] == ["{}"]
    assert "q4929" not in all_rows(either)


def test_a_fork_with_a_call_of_the_same_number_keeps_its_call(either: Memory) -> None:
    main = either.session("s")
    main.append(*user("a"))
    fork = main.fork("f")
    for session, argument in ((main, "1"), (fork, "2")):
        session.append(Message("assistant", "", tool_calls=(ToolCall("x", "t", argument),)))
    main.redact(2)
    assert [each.arguments for each in fork.tool_calls()] == ["2"]
    assert fork.refresh()[1].tool_calls[0].arguments == "2"


def test_other_views_show_a_redaction_after_their_next_append_or_refresh(either: Memory) -> None:
    mine, theirs, third = either.session("s"), either.session("s"), either.session("s")
    mine.append(*user(SECRET), key="k")
    for each in (theirs, third):
        each.refresh()
    fork = theirs.fork("f")
    cache = theirs.render_cache
    mine.redact(1)
    assert theirs.conversation[0].text == SECRET  # without a refresh
    assert [message.text for message in theirs.append(*user("next"))] == ["[redacted]", "next"]
    assert theirs.render_cache is not cache
    assert fork.refresh()[0].text == "[redacted]"
    assert not third.append_now(*user("late"))
    with pytest.raises(HeadMoved):
        third.append(*user("late"))
    assert [message.text for message in third.conversation] == ["[redacted]", "next"]
    assert len(mine.append(*user(SECRET), key="k")) == 2  # a repeated append of a redacted message adds nothing


def test_a_shared_message_is_redacted_in_the_conversation_and_its_forks(either: Memory) -> None:
    main = either.session("s")
    main.append(*user("a", SECRET, "c"))
    fork = main.fork("f")
    fork.append(*user("d"))
    fork.redact(2)
    assert [message.text for message in main.refresh()] == ["a", "[redacted]", "c"]
    assert [message.text for message in fork.conversation] == ["a", "[redacted]", "c", "d"]


def test_a_redaction_of_a_missing_message_is_refused(either: Memory) -> None:
    session = either.session("s")
    session.append(*user("a"))
    for seq in (0, 2, -1):
        with raises(NotFound, name="seq", value=seq):
            session.redact(seq)


def test_a_replacement_with_a_zero_byte_is_stored(either: Memory) -> None:
    session = either.session("s")
    session.append(*user(SECRET))
    either.recall(SECRET)
    session.redact(1, "cut\0out")
    assert [message.text for message in either.session("s").conversation] == ["cut\0out"]
    assert recalled(either, "cut out") == ["cut\ufffdout"]
    assert either.recall_logs()[0].query == "cut\ufffdout"
    assert recalled(either, SECRET) == []


def test_short_texts_are_not_removed_from_other_questions(either: Memory) -> None:
    session = either.session("s")
    session.append(*user("tea"))
    for query in ("tea", "steam engines"):
        either.recall(query, session=session)
    either.within("other").recall("tea", session=either.within("other").session("s"))
    session.redact(1)
    assert [each.query for each in either.recall_logs()] == ["[redacted]", "steam engines"]
    assert [each.query for each in either.within("other").recall_logs()] == ["tea"]


def test_an_expired_conversation_is_not_recalled_and_then_deleted(either: Memory) -> None:
    now = [1000.0]
    StoreProbe(either).set_clock(lambda: now[0])
    old = either.session("old", expires_at=2000.0)
    old.append(*user("zebras are striped"))
    either.session("kept").append(*user("violins are wooden"))
    either.worker().drain()
    turn = next(each for each in items_of(either) if "zebras" in each.text)
    either.facts.add("Zebras have stripes.", sources=turn.id)
    either.recall("zebras?", session=old)
    either.recall("violins?", session=either.session("kept"))
    assert either.admin.expire() == {} and {each.kind for each in items_of(either)} == {"turn", "fact"}
    now[0] = 2000.0
    assert recalled(either, "striped animals") == []
    removed = either.admin.expire()
    assert {name: removed[name] for name in ("conversations", "messages", "items", "recall_logs")} == {
        "conversations": 1,
        "messages": 1,
        "items": 2,
        "recall_logs": 1,
    }
    assert "ebras" not in all_rows(either)
    assert [each.query for each in either.recall_logs()] == ["violins?", "striped animals"]
    assert either.admin.verify().orphans == 0 and either.admin.expire() == {}
    with raises(NotFound, name="old", value="deleted"):
        old.append(*user("more"))


def test_an_append_to_an_expired_conversation_is_refused_until_it_is_extended(either: Memory) -> None:
    now = [1000.0]
    StoreProbe(either).set_clock(lambda: now[0])
    session = either.session("s", expires_at=2000.0)
    session.append(*user("old"))
    now[0] = 2000.0
    for _ in range(2):
        with raises(NotFound, name="s", value="expired"):
            session.append(*user("lost otherwise"))
    assert not session.append_now(*user("lost otherwise"))
    now[0] = 1500.0
    either.session("s", expires_at=3000.0)
    now[0] = 2000.0
    assert [message.text for message in session.append(*user("kept"))] == ["old", "kept"]


def test_opening_an_expired_conversation_begins_a_new_conversation(either: Memory) -> None:
    now = [1000.0]
    StoreProbe(either).set_clock(lambda: now[0])
    session = either.session("s", expires_at=2000.0)
    session.append(*user("old"))
    session.fork("f")
    now[0] = 1999.0
    assert len(either.session("s").conversation) == 1
    assert len(either.session("s", expires_at=3000.0).conversation) == 1
    now[0] = 2999.0
    assert len(either.session("s", branch="f").conversation) == 1
    now[0] = 3000.0
    with raises(NotFound, name="branch", value="f"):
        either.session("s", branch="f")
    fresh = either.session("s")
    fresh.append(*user("new"))
    now[0] = 1e12
    assert [message.text for message in either.session("s").conversation] == ["new"]


def test_an_invalid_time_and_an_invalid_name_are_refused(either: Memory) -> None:
    wrong: Any
    for wrong in ("soon", math.nan, True):
        with raises(InvalidArgument, name="expire: now"):
            either.admin.expire(wrong)
        with raises(InvalidArgument, name="expires_at"):
            either.session("s", expires_at=wrong)
    with raises(InvalidArgument, name="session id"):
        either.delete_session("a\0b")
    with raises(InvalidArgument, name="branch"):
        either.session("s", branch="a\0b")
    assert count(either, "conversations") == 0


def test_a_time_to_expire_can_be_removed(either: Memory) -> None:
    now = [1000.0]
    StoreProbe(either).set_clock(lambda: now[0])
    either.session("s", expires_at=2000.0).append(*user("zebra"))
    either.worker().drain()
    either.session("s", expires_at=math.inf)
    now[0] = 3000.0
    assert either.admin.expire() == {} and recalled(either, "zebra") == ["zebra"]
    with raises(InvalidArgument, name="expires_at"):
        either.session("s", expires_at=math.nan)


def test_a_deleted_conversation_leaves_no_rows(either: Memory, docs: Path) -> None:
    (docs / "a.md").write_text("zebras live in Africa")
    either.ingest(docs)
    session = either.session("s")
    session.append(*user("zebras are striped"), Message("assistant", "", tool_calls=(ToolCall("1", "t"),)))
    session.fork("f").append(*user("zebras again"))
    either.worker().drain()
    either.recall("zebras")
    assert either.delete_session("s") and not either.delete_session("s")
    for table in ("conversations", "branches", "messages", "tool_calls"):
        assert count(either, table) == 0
    assert recalled(either, "zebras") == ["zebras live in Africa"]
    either.worker().drain()  # a recall spends at most a few milliseconds on indexing
    assert either.admin.verify().orphans == 0
    with pytest.raises(NotFound):
        session.refresh()
    assert len(either.session("s").conversation) == 0


def test_a_conversation_of_another_scope_is_not_deleted(either: Memory) -> None:
    theirs = either.within(Scope("local", user="ada")).session("s")
    theirs.append(*user("mine"))
    assert not either.delete_session("s") and not either.within("other").delete_session("s")
    assert len(theirs.refresh()) == 1


def test_a_session_of_a_deleted_conversation_does_not_write_to_its_successor(either: Memory) -> None:
    old: StoredSession = either.session("s")
    old.append(*user("a"))
    either.delete_session("s")
    new = either.session("s")
    new.append(*user("b"))
    with pytest.raises(NotFound):
        old.append(*user("c"))
    assert [message.text for message in either.session("s").conversation] == ["b"]


def test_the_stored_error_of_a_removed_text_does_not_quote_the_text(either: Memory) -> None:
    def useless(turns: Sequence[Turn], known: Sequence[StoredFact]) -> list[FactDraft]:
        raise InvalidArgument(f"no facts in {turns[-1].text!r}")

    session = either.session("s")
    session.append(Message("user", SECRET), Message("user", f"again: {SECRET}"))
    worker = either.worker(useless)
    for _ in range(6):  # turn by turn, three times, then the worker gives up
        worker.drain()
    assert "no facts in" in all_rows(either)
    session.redact(1)  # no text remains for a recall
    session.redact(2, "something else")
    assert SECRET not in all_rows(either)


def test_the_error_in_the_log_of_a_failed_question_does_not_quote_the_question(either: Memory) -> None:
    session = either.session("s")
    session.append(Message("user", SECRET))
    for question, problem in ((SECRET, f"searched with BM25 only: cannot read {SECRET!r}"), ("tea?", "busy")):
        either.recall(question, session=session)
        number = either.recall_logs()[-1].id
        degraded = json.dumps([problem])
        update = "UPDATE recall_logs SET degraded = :degraded WHERE id = :id"
        StoreProbe(either).execute(update, {"degraded": degraded, "id": number})
    session.redact(1)
    assert SECRET not in all_rows(either)
    assert "errors of this recall were removed" in either.recall_logs()[0].degraded[0]
    assert either.recall_logs()[1].degraded == ("busy",)


def test_an_error_of_a_text_during_its_redaction_is_not_stored(home: Path) -> None:
    def spoil(text: str) -> Sequence[float] | None:
        if SECRET in text:
            session.redact(1, "something else")
            raise RuntimeError(f"no vector for {text!r}")
        return None

    with Memory(home, embedder=Words(wrong=spoil)) as memory:
        session = memory.session("s")
        session.append(Message("user", SECRET))
        memory.worker().drain()
        assert SECRET not in all_rows(memory)
        memory.worker().drain()
        verified = memory.admin.verify()
        assert (verified.ok, verified.pending, verified.failing) == (True, 0, 0)
