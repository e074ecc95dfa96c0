"""A memory without a user: shared documents and facts, and conversations of the user `local`."""

from __future__ import annotations

from agentkit.memory import FactDraft, Memory, Scope
from agentkit.prompts import Message
from agentkit_memory.store.records import StoredFact

CARD = "My card number is 5555."


def recalled(memory: Memory, query: str = "What is the card number?") -> list[str]:
    result = memory.recall(query, limit=50)
    return sorted([item.text for item in result] + [fact.text for fact in result.knowledge])


def test_conversations_without_a_user_are_recalled_only_for_the_user_local(either: Memory) -> None:
    either.documents.add("The card number is on the back of the card.", source="help")
    either.facts.add("The shop accepts each card number.")
    either.session("monday").append(Message("user", CARD))
    either.within(Scope("local", agent="a")).session("monday").append(Message("user", "card number of an agent"))
    shared = ["The card number is on the back of the card.", "The shop accepts each card number."]
    for is_indexed in (False, True):
        if is_indexed:
            either.worker().drain()
        readers = {
            either.scope: [CARD, *shared],
            Scope("local", user="local"): [CARD, *shared],
            Scope("local", user="local", session="s"): [CARD, *shared],
            Scope("local", agent="a"): [CARD, *shared, "card number of an agent"],
            Scope("local", user="bob"): shared,
            Scope("local", session="monday"): shared,
            Scope("local", user="bob", agent="a"): shared,
            Scope("local", session="s", agent="a"): shared,
            Scope("acme"): [],
        }
        for scope, texts in readers.items():
            assert recalled(either.within(scope)) == sorted(texts), (scope, is_indexed)
    assert either.session("tuesday").scope == Scope("local", user="local")
    assert [log.query for log in either.recall_logs()][-1:] == ["What is the card number?"]
    assert [info.name for info in either.sessions()] == ["monday", "tuesday"]
    assert either.newest_sessions() == (("local", "tuesday"), ("local", "monday"))
    assert either.delete_session("monday") and CARD not in recalled(either)
    assert either.erase(Scope("local", user="local")).complete and recalled(either) == sorted(shared)


def test_separate_conversations_are_listed_separately(either: Memory) -> None:
    for scope, name in ((either.scope, "a"), (Scope("local", session="b"), "b"), (Scope("local", session="b"), "c")):
        either.within(scope).session(name).append(Message("user", "Hi"))
    assert [info.name for info in either.sessions()] == ["a"]
    assert [info.name for info in either.sessions(separate=True)] == ["b"]
    assert not either.sessions(name="a", separate=True) and either.sessions(name="b", separate=True)


def test_facts_from_a_conversation_without_a_user_belong_to_its_user(either: Memory) -> None:
    """`facts` without a user lists, changes and removes them next to the shared facts, page by page."""
    shared = [either.facts.add(f"The shop opens at {hour}.") for hour in (8, 9)]
    either.session("monday").append(Message("user", CARD))
    with either.worker(lambda turns, known: [FactDraft("Ada has the card 5555.", sources=[turns[-1].id])]) as worker:
        worker.drain()
    (turn,) = either.recall("card number", limit=1).recalled
    private = either.within(Scope("local", user="local"))
    (extracted,) = private.facts.list()
    assert either.facts.list() == (*shared, extracted)
    by_hand = either.facts.add("Ada pays by card.", sources=[turn.id])
    shared.append(either.facts.add("The shop closes at 18."))
    newer = either.facts.add("Ada has the card 6666.", supersedes=extracted.id)
    assert [fact.text for fact in private.facts] == ["Ada pays by card.", "Ada has the card 6666."]
    facts = [*shared[:2], by_hand, shared[2], newer]
    for limit in (1, 2, 9):
        pages: list[StoredFact] = []
        after = 0
        while page := either.facts.list(after=after, limit=limit):
            pages += page
            after = page[-1].number
        assert pages == facts, limit
    assert len(either.facts.list(superseded=True)) == 6 and list(either.facts) == facts
    bob = either.within(Scope("local", user="bob"))
    for fact in (by_hand, newer):
        assert bob.facts.get(fact.id) is None and either.facts.get(fact.id) == fact
    assert not [text for text in recalled(bob, "Ada card shop") if "Ada" in text]
    changed = either.facts.update(newer.id, "Ada has the card 7777.")
    assert private.facts.get(newer.id) == changed and "Ada has the card 7777." in recalled(either)
    assert either.facts.remove(newer.id) and either.facts.remove(shared[0].id)
    either.delete_session("monday")
    assert list(either.facts) == shared[1:] == list(bob.within("local").facts)
