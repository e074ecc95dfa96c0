"""`RawPromptTemplate`: messages of a row for a chat API, without a meta template."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import deepcopy
from typing import Any, TypeAlias

from agentkit_prompts.errors import InContextError, Problem, Problems, raise_problems
from agentkit_prompts.evaluation.columns import safe_format
from agentkit_prompts.evaluation.problems import wrong_type
from agentkit_prompts.evaluation.row_template import RowTemplate

Messages: TypeAlias = list[dict[str, Any]]
"""A list of messages with `role` and `content`, which parsers of prompts return unchanged."""

_ROLES = ("system", "user", "assistant")


class RawPromptTemplate(RowTemplate):
    """Messages with columns of a row in the text of their content (see the OpenCompass document).

    Args:
        messages: Each item is `{"role", "content"}`, `{"expand_column": name}`, which the messages in this column
            replace, or `ice_token`.
        format_variables: True to fill `{column}` in the content if it is text, or in the texts of its parts.
        ice_token: Item that worked examples replace.

    Raises:
        InContextError: Messages are invalid; the error lists all problems.
    """

    def __init__(
        self, messages: Sequence[Mapping[str, Any] | str], format_variables: bool = True, ice_token: str = "</E>"
    ) -> None:
        if isinstance(messages, str) or not isinstance(messages, Sequence):
            text = f"RawPromptTemplate: messages must be a list, got {type(messages).__name__}"
            raise InContextError(text, name="messages")
        problems: Problems = []
        for position, message in enumerate(messages):
            problems += _problems(f"messages[{position}]", message, ice_token)
        raise_problems(InContextError, "RawPromptTemplate", problems)
        self.messages: tuple[Any, ...] = tuple(deepcopy(message) for message in messages)
        self.format_variables = format_variables
        self.ice_token = ice_token

    def places(self, label: Any = None) -> str:
        if self.ice_token in [message for message in self.messages if isinstance(message, str)]:
            return "items"
        return ""

    def item(self, row: Mapping[str, Any], *, ice: object = (), hide: str | None = None, instead: str = "") -> Messages:
        """Return the messages of `row`; `instead` replaces the value of the column `hide`.

        Raises:
            InContextError: A column of `expand_column` is missing or contains no messages, or the examples are text.
        """
        if hide is not None:
            row = {**row, hide: instead}
        return self._render(row, ice)

    def ice_item(self, row: Mapping[str, Any], label: Any = None, *, keep_separator: bool = True) -> Messages:
        return self._render(row, ())

    def _render(self, row: Mapping[str, Any], ice: object) -> Messages:
        examples = list(ice) if isinstance(ice, list | tuple) else []
        if ice and not examples:
            text = "RawPromptTemplate: examples that are text cannot be used among messages; add roles"
            raise InContextError(text, name="ice")
        messages: Messages = []
        for message in self.messages:
            if isinstance(message, str):
                messages += deepcopy(examples)
            elif "expand_column" in message:
                messages += _expanded(row, message["expand_column"])
            else:
                messages.append(self._message(message, row))
        return messages

    def _message(self, message: Mapping[str, Any], row: Mapping[str, Any]) -> dict[str, Any]:
        copy = deepcopy(dict(message))
        if self.format_variables:
            copy["content"] = _filled(message["content"], row)
        return copy


def _filled(content: Any, row: Mapping[str, Any]) -> Any:
    """Return a content with the columns filled in, in its text or in the texts of its parts."""
    if isinstance(content, str):
        return safe_format(content, row)
    if isinstance(content, list):
        return [_filled(part, row) for part in content]
    if isinstance(content, dict) and isinstance(content.get("text"), str):
        return {**content, "text": safe_format(content["text"], row)}
    return content


def _problems(place: str, message: object, ice_token: object) -> Problems:
    if isinstance(message, str) and message == ice_token:
        return []
    if not isinstance(message, Mapping):
        expected = "a dict"
        if ice_token is not None:
            expected = f"a dict or the ice_token {ice_token!r}"
        return wrong_type(place, message, Mapping, expected)
    if "expand_column" in message:
        return wrong_type(f"{place}.expand_column", message["expand_column"], str, "the name of a column")
    problems = [Problem(f"{place}.{key}", "missing") for key in ("role", "content") if key not in message]
    role = message.get("role", "user")
    if role not in _ROLES:
        problems.append(Problem(f"{place}.role", f"expected {', '.join(_ROLES)}, got {role!r}"))
    return problems


def _expanded(row: Mapping[str, Any], name: str) -> Messages:
    if name not in row:
        columns = ", ".join(map(str, row))
        raise InContextError(f"RawPromptTemplate: no column {name!r} to expand; columns: {columns}", name=name)
    messages = row[name]
    if not is_messages(messages):
        raise InContextError(
            f"RawPromptTemplate: column {name!r} must contain a list of messages with roles",
            name=name,
            value=type(messages).__name__,
        )
    return [deepcopy(dict(message)) for message in messages]


def is_messages(value: object) -> bool:
    """True if a value is a list or tuple of messages with roles; also for an empty list."""
    if not isinstance(value, list | tuple):
        return False
    return all(isinstance(item, Mapping) and "role" in item for item in value)
