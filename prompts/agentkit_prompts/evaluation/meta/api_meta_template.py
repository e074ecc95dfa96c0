"""`ApiMetaTemplate`: conversion of a prompt to the messages of an API.

It reads the meta templates of the OpenCompass and AISBench documents: with `api_role`, or as a list of messages.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from typing import Any, cast

from agentkit_prompts.caller_warnings import warn
from agentkit_prompts.errors import InContextError, InContextWarning, Problem, Problems, brief, raise_problems
from agentkit_prompts.evaluation.meta.chat_messages import chat_messages
from agentkit_prompts.evaluation.meta.meta_base import MetaParser, Mode, without_roles
from agentkit_prompts.evaluation.meta.role_config import MetaFormat, read_meta
from agentkit_prompts.evaluation.meta.walk import FormattedTurn, Script, read_prompt
from agentkit_prompts.evaluation.problems import wrong_type
from agentkit_prompts.evaluation.prompt_list import PromptList

CHAT_META: Mapping[str, Any] = {
    "round": [{"role": "HUMAN", "api_role": "HUMAN"}, {"role": "BOT", "api_role": "BOT", "generate": True}],
    "reserved_roles": [{"role": "SYSTEM", "api_role": "SYSTEM"}],
}
"""Meta template of the chat models of the documents."""


class ApiMetaTemplate(MetaParser):
    """Messages of an API for a prompt (OpenCompass document, API models).

    `config` is a meta template, whose roles are sent under their `api_role` or else their name; or a list of messages,
    whose contents are put before the messages of the same role. Without a config, the texts of the items are joined by
    line feeds, and the result is text, or content parts if the prompt has media.

    `parse` returns messages `{"role", "prompt"}`, with neighbouring messages of one role joined by a line feed. A
    conversation (a list of messages with `content`) is returned unchanged.

    OpenCompass drops text without a role, such as worked examples that are text. Here such text becomes text of the
    first role of the round that does not reply. `keep_text=False` drops it with a warning, to reproduce published
    scores.

    Raises:
        InContextError: The configuration is invalid; names all problems.
    """

    def __init__(
        self,
        config: Mapping[str, Any] | Sequence[Mapping[str, Any]] | None = None,
        *,
        decode: Callable[[Sequence[int]], str] | None = None,
        keep_text: bool = True,
    ) -> None:
        self._meta: MetaFormat | None = None
        self._ahead: list[dict[str, Any]] = []
        self._decode = decode
        self._keep_text = keep_text
        if isinstance(config, Mapping) and config:
            self._meta = read_meta(config, api=True)
            self._check_markers(self._meta)
        elif isinstance(config, list | tuple):
            self._ahead = _messages(config)
        elif config is not None and not isinstance(config, Mapping):
            kind = type(config).__name__
            text = f"meta template: expected a dict or a list of messages, got {kind}"
            raise InContextError(text, name="config", value=kind)

    def _check_markers(self, meta: MetaFormat) -> None:
        if meta.ids and self._decode is None:
            raise self._undecoded()
        if meta.end:
            text = "meta template: `end` is not sent to an API, whose messages have no end; remove it"
            warn(InContextWarning(text, name="end"))

    def _parsed(self, prompt: PromptList, mode: Mode) -> Any:
        if self._ahead:
            return self._led(chat_messages(ApiMetaTemplate(CHAT_META).parse(prompt, mode)))
        if self._meta is None:
            return self._without(prompt)
        return self._with_roles(prompt, self._meta, mode)

    def _conversation(self, messages: Sequence[Mapping[str, Any]], mode: Mode) -> list[Any]:
        return self._led(deepcopy(list(messages)))

    def _without(self, prompt: PromptList) -> str | list[Any]:
        content: str | list[Any] = ""
        for part in without_roles(prompt):
            addition: str | list[Any] = part if isinstance(part, str) else [deepcopy(part)]
            content = _join_contents(content, addition)
        return content

    def _with_roles(self, prompt: PromptList, meta: MetaFormat, mode: Mode) -> PromptList:
        script = read_prompt(meta, prompt, gen=mode == "gen")
        if not self._keep_text:
            script = _without_texts(script)
        messages = self._messages(script, meta)
        if not messages:
            text = "prompt: the prompt is empty; add at least one item before the reply of the model"
            raise InContextError(text, name="prompt")
        return self._begin(meta) + messages

    def _begin(self, meta: MetaFormat) -> PromptList:
        if meta.first:
            return PromptList([deepcopy(dict(meta.first))])
        if meta.begin:
            return PromptList([self._text(meta.begin)])
        return PromptList()

    def _messages(self, script: Script, meta: MetaFormat) -> PromptList:
        asker = next((role.api_role for role in meta.speakers or meta.reserved if not role.generate), "HUMAN")
        messages = PromptList()
        for turn in script:
            if isinstance(turn, str):
                # Line feeds that only separate worked examples are not sent as a message.
                if turn.strip():
                    _add(messages, asker, turn)
            # A turn that opens the reply is not sent, because the API starts the reply.
            elif not turn.opens:
                _add(messages, turn.api_role, self._content(turn))
        return messages

    def _content(self, turn: FormattedTurn) -> str | list[Any]:
        """Return the content of a message: text with its markers, or content parts."""
        if not turn.media:
            return f"{self._text(turn.begin)}{turn.prompt}{self._text(turn.end)}"
        media = deepcopy(list(turn.media))
        if turn.prompt:
            return [{"type": "text", "text": turn.prompt}, *media]
        return media

    def _led(self, messages: list[Any]) -> list[Any]:
        """Put the contents of the messages of the meta template before the next messages of the same role, in order.

        A message of the meta template without a message of the same role becomes a message itself.
        """
        result: list[Any] = []
        rest = list(messages)
        for ahead in self._ahead:
            position = next((number for number, message in enumerate(rest) if message["role"] == ahead["role"]), None)
            if position is None:
                result.append(deepcopy(ahead))
                continue
            message = rest[position]
            result += [*rest[:position], {**message, "content": _join_contents(ahead["content"], message["content"])}]
            del rest[: position + 1]
        return [*result, *rest]


def _add(messages: PromptList, api_role: str, content: str | list[Any]) -> None:
    """Append a message, or join it to the last message of the same role."""
    last = messages[-1] if messages else None
    if isinstance(last, dict) and last["role"] == api_role:
        last["prompt"] = _join_contents(last["prompt"], content, "\n")
    else:
        messages.append({"role": api_role, "prompt": content})


def _without_texts(script: Script) -> Script:
    """Return the turns of a prompt, without texts that have no role, and warn of these texts."""
    texts = [turn for turn in script if isinstance(turn, str) and turn.strip()]
    if texts:
        listing = ", ".join(map(brief, texts))
        problem = f"prompt: text without a role is omitted: {listing}; keep_text=True sends it"
        warn(InContextWarning(problem, name=texts[0]))
    return [turn for turn in script if isinstance(turn, FormattedTurn)]


def _join_contents(first: Any, second: Any, separator: str = "") -> Any:
    """Return two contents joined to text, or to content parts if one of them has parts."""
    # The content of a message that only calls tools is None.
    if isinstance(first, str) and isinstance(second, str | None):
        return f"{first}{separator}{second or ''}"
    return [*_as_parts(first), *_as_parts(second)]


def _as_parts(content: str | Sequence[Any] | None) -> Sequence[Any]:
    if not content:
        return ()
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    return content


def _messages(config: Sequence[object]) -> list[dict[str, Any]]:
    """Return copies of the messages of a meta template, after a check."""
    problems: Problems = []
    for index, message in enumerate(config):
        problems += _problems_of_message(f"[{index}]", message)
    raise_problems(InContextError, "meta template", problems)
    return [deepcopy(dict(cast("Mapping[str, Any]", message))) for message in config]


def _problems_of_message(place: str, message: object) -> Problems:
    if not isinstance(message, Mapping):
        return wrong_type(place, message, Mapping, "a dict with role and content")
    if message.get("role") not in ("system", "user", "assistant"):
        return [Problem(f"{place}.role", f"expected system, user or assistant, got {message.get('role')!r}")]
    return wrong_type(f"{place}.content", message.get("content"), str | list, "text or a list of parts")
