"""The messages of a list with their places; messages of other libraries in the chat form."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from agentkit_prompts.context.messages import Message
from agentkit_prompts.errors import MessageError, Problem, Problems, kind_of
from agentkit_prompts.lists import is_list


def items_of(value: object, where: str) -> list[object]:
    """Return the items of a list of messages.

    Raises:
        MessageError: The value is not a list.
    """
    if isinstance(value, Message) or not is_list(value):
        problem = Problem(where, f"expected a list of messages, got {kind_of(value)}")
        raise MessageError(str(problem), problems=[problem])
    return list(value)


def placed_messages(items: Sequence[object], where: str, problems: Problems) -> Iterator[tuple[str, object]]:
    """Yield the place and the mapping of each message; a message of another library can become several messages."""
    for index, item in enumerate(items):
        place = f"{where}[{index}]"
        messages = None
        is_wire = isinstance(item, Mapping) and "role" in item and "blocks" not in item
        if not is_wire and not isinstance(item, Message | type):
            # Imported when it is used: most programs have no such messages.
            from agentkit_prompts.context.wire.foreign_messages import read_foreign

            messages = read_foreign(item, place, problems)
        if messages is None:
            yield place, _as_mapping(item)
        else:
            yield from [(message.where, message) for message in messages]


def _as_mapping(item: object) -> object:
    """Return an object of an SDK as a mapping, any other value unchanged."""
    if isinstance(item, Message | type | Mapping):
        return item
    dump = getattr(item, "model_dump", None)
    if callable(dump):
        return dump()
    return item
