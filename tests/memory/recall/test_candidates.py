"""How the candidates of a question stand to each other."""

from __future__ import annotations

from itertools import permutations

from agentkit_memory.recall.candidates import Pool, ScoredItem
from agentkit_memory.store.item_rows import StoredItem

HOUR = 3600.0


def turn(branch: int, position: int, said_at: float, kind: str = "turn") -> ScoredItem:
    empty = dict.fromkeys(StoredItem._fields, "")
    fields = {"id": f"{branch}-{position}", "kind": kind, "branch_id": branch, "position": position, "said_at": said_at}
    return ScoredItem(StoredItem(**empty | fields | {"document_id": "d" if kind == "chunk" else ""}))  # type: ignore[arg-type]


TURNS = [turn(1, 1, 0.0), turn(1, 2, HOUR), turn(1, 3, 20 * HOUR), turn(1, 4, 21 * HOUR), turn(2, 1, 0.5 * HOUR)]


def test_a_sitting_is_the_turns_of_a_branch_without_hours_between_them_in_whatever_order_they_were_found() -> None:
    for order in permutations(TURNS):
        found: dict[int, list[str]] = {}
        for each, number in zip(order, Pool(order).sittings, strict=True):
            found.setdefault(number, []).append(each.id)
        assert sorted(map(sorted, found.values())) == [["1-1", "1-2"], ["1-3", "1-4"], ["2-1"]]


def test_other_kinds_are_in_no_sitting_of_others() -> None:
    numbers = Pool([turn(1, 1, 0.0), turn(1, 2, 0.0, "chunk"), turn(1, 3, 0.0, "chunk"), turn(1, 2, HOUR)]).sittings
    assert numbers[0] == numbers[3] >= 0 > max(numbers[1], numbers[2]) and numbers[1] != numbers[2]
