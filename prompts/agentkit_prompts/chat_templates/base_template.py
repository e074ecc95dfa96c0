"""Base class of the templates in the LMDeploy document: sampling defaults, and three methods to override."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any, ClassVar, cast, get_args

from agentkit_prompts.chat_templates.chat_turns import (
    Messages,
    Tools,
    Turn,
    has_tool_traffic,
    no_messages,
    read_functions,
    read_prompt,
    read_turns,
)
from agentkit_prompts.chat_templates.dropped_content import ContentCheck, Conversation
from agentkit_prompts.chat_templates.guard.control_tokens import tokens_and_markers
from agentkit_prompts.chat_templates.protocol import TOOLS_IN_PROMPT, Capability
from agentkit_prompts.errors import ChatTemplateError, Problem
from agentkit_prompts.names import unknown_fields


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _is_texts(value: object) -> bool:
    return isinstance(value, list | tuple) and all(map(_is_text, value))


_TYPES: dict[str, Callable[[object], bool]] = {
    "None": lambda value: value is None,
    "bool": lambda value: isinstance(value, bool),
    "int": lambda value: isinstance(value, int) and not isinstance(value, bool),
    "float": lambda value: isinstance(value, int | float) and not isinstance(value, bool),
    "Sequence[str]": _is_texts,
    "list[str]": _is_texts,
    "Capability": lambda value: value in get_args(Capability),
}
"""Type name in an annotation -> test of a field value. A field of another type contains text."""
_CAPABILITIES = " | ".join(map(repr, get_args(Capability)))

_NAMED = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


class BaseTemplate:
    """Chat template as in the LMDeploy document: a subclass defines the text of a prompt and of a conversation.

    Fields are class attributes with a type. A subclass can redefine them, and every field is a keyword of the
    constructor. The other packages call `render`, which calls `messages2prompt`.

    Raises:
        ChatTemplateError: A keyword is unknown, or a value has the wrong type; names all of them.
    """

    session_len: int | None = 2048
    """Maximum context tokens of the model; None if models with this template differ."""
    top_p: float | None = 0.8
    top_k: int | None = None
    temperature: float | None = 0.8
    repetition_penalty: float | None = 1.0
    capability: Capability | None = "chat"
    stop_words: Sequence[str] | None = None
    """Texts that end a reply."""
    tool_call_format: str | None = None
    """Format of the tool calls of the model; see `TOOL_CALL_FORMATS`. None for any format."""

    label = ""
    """File of the template, if any."""
    rewrites_text: ClassVar[bool] = True
    """True if `messages2prompt` can change the text of a message; the finished text is then checked, too."""
    marker_fields: ClassVar[tuple[str, ...]] = (
        *("system", "eosys", "user", "eoh", "assistant", "eoa", "separator", "tool", "eotool"),
    )
    """Names of the attributes with text around messages."""

    def __init__(self, **fields: Any) -> None:
        check_template_fields(type(self).__name__, fields, self.fields())
        for name, value in fields.items():
            setattr(self, name, value)

    @property
    def title(self) -> str:
        """Name of the template in errors: its file, or its class."""
        return self.label or type(self).__name__

    @classmethod
    def fields(cls) -> dict[str, str]:
        """Return the fields of this class and of its bases, each with its type."""
        kinds: dict[str, str] = {}
        for base in reversed(cls.__mro__):
            kinds |= {name: str(kind) for name, kind in inspect.get_annotations(base).items()}
        return {name: kind for name, kind in kinds.items() if not kind.startswith("ClassVar")}

    @property
    def control_tokens(self) -> tuple[str, ...]:
        """Texts that only the template may write: stop words and message markers."""
        markers = [getattr(self, name, None) for name in self.marker_fields]
        return tokens_and_markers(self.stop_words or (), [marker for marker in markers if isinstance(marker, str)])

    @property
    def variables(self) -> frozenset[str] | None:
        """Names of the other keyword arguments that `render` reads; None if a subclass overrides `render`."""
        if not type(self).render.__module__.startswith("agentkit_prompts."):
            return None
        parameters = inspect.signature(self.messages2prompt).parameters.values()
        names = {parameter.name for parameter in parameters if parameter.kind in _NAMED}
        return frozenset(names - {"messages", "tools", "add_generation_prompt"})

    def get_prompt(self, prompt: str, sequence_start: bool = True) -> str:
        """Return the text for one prompt of the user: unchanged if the model only completes text, else decorated.

        `sequence_start` is True for the first prompt of a conversation; a later prompt is sent to a server that has
        cached the earlier turns.
        """
        prompt = read_prompt(prompt, self.title)
        if self.capability == "completion":
            return prompt
        return self.decorate_prompt(prompt, sequence_start)

    def decorate_prompt(self, prompt: str, sequence_start: bool = True) -> str:
        """Return the prompt between the markers of the model. Subclasses override this method; the default returns the
        prompt.
        """
        return prompt

    def messages2prompt(self, messages: str | Messages, sequence_start: bool = True) -> str:
        """Return the text of a conversation for the model. Subclasses override this method; the default accepts one
        prompt as text.

        A model that only completes text has no roles: its input is the texts of a conversation, one per line.
        """
        if isinstance(messages, str):
            return self.get_prompt(messages, sequence_start)
        if self.capability == "completion":
            return "\n".join(turn["content"] for turn in read_turns(messages, self.title))
        raise ChatTemplateError(
            f"{self.title}: does not support a list of messages; override messages2prompt",
            template=self.title,
            name="messages2prompt",
        )

    def render(
        self,
        messages: Messages,
        tools: Tools | None = None,
        add_generation_prompt: bool = True,
        **kwargs: Any,
    ) -> str:
        """Return the result of `messages2prompt` for the conversation, passed as new plain dicts.

        Tools and other keywords are passed if `messages2prompt` has a parameter of that name; other keywords belong to
        other templates and are ignored. Without a parameter `add_generation_prompt`, the `assistant` marker at the end
        is removed.

        Raises:
            ChatTemplateError: The template has no place for a part of this conversation, or leaves a part out; names
                the reason.
        """
        title = self.title
        # As in the LMDeploy document, a subclass can accept any subset of these options.
        parameters = inspect.signature(self.messages2prompt).parameters
        turns = read_turns(messages, title)
        if not turns:
            raise no_messages(title)
        if "tools" not in parameters and (tools or any(map(has_tool_traffic, turns))):
            raise ChatTemplateError(
                f"{self.title}: its messages2prompt has no parameter `tools`, so it has no place for them",
                template=self.title,
                problems=[Problem("tools", "no parameter")],
            )
        functions = read_functions(tools, title) if tools else None
        options = {**kwargs, "tools": functions, "add_generation_prompt": add_generation_prompt}
        options = {key: value for key, value in options.items() if key in parameters}
        text = self._call_messages2prompt(turns, options)
        self._check_content(turns, options, text)
        if add_generation_prompt or "add_generation_prompt" in parameters:
            return text
        return self._without_opening(text, turns[-1])

    @cached_property
    def _content_check(self) -> ContentCheck:
        return ContentCheck()

    def _check_content(self, turns: list[Turn], options: Mapping[str, Any], text: str) -> None:
        """Reject a text that lacks a part of the conversation."""

        def render_again(changed: Conversation) -> str:
            tools = {"tools": changed.tools} if "tools" in options else {}
            return self._call_messages2prompt(cast("list[Turn]", changed.messages), {**options, **tools})

        conversation = Conversation(cast("list[dict[str, Any]]", turns), options.get("tools"))
        variables = {name: value for name, value in options.items() if name != "tools"}
        lost = self._content_check.lost(conversation, text, render_again, variables)
        if not lost:
            return
        advice = ""
        if any("tool" in problem.text for problem in lost):
            advice = f"; write them (calls are in `tool_calls` of a message), or {TOOLS_IN_PROMPT}"
        raise ChatTemplateError(
            f"{self.title}: its messages2prompt drops {', '.join(map(str, lost))}{advice}",
            template=self.title,
            problems=lost,
        )

    def _call_messages2prompt(self, turns: list[Turn], options: Mapping[str, Any]) -> str:
        title = self.title
        try:
            # Copies, because a subclass can change its messages.
            text = self.messages2prompt([{**turn} for turn in turns], **options)
        except ChatTemplateError:
            raise
        except Exception as error:
            problem = f"{type(error).__name__}: {error}"
            raise ChatTemplateError(
                f"{title}: messages2prompt failed with {problem}; it received {len(turns)} messages", template=title
            ) from error
        if not isinstance(text, str):
            raise ChatTemplateError(
                f"{title}: messages2prompt returned {type(text).__name__}, expected text", template=title
            )
        return text

    def _without_opening(self, text: str, last: Mapping[str, Any]) -> str:
        """Remove the marker after the conversation with which `messages2prompt` opens the reply."""
        opening = getattr(self, "assistant", "")
        # If the last message ends with the same text, the position of the marker is ambiguous.
        if not opening or not text.endswith(opening) or last["content"].endswith(opening):
            raise ChatTemplateError(
                f"{self.title}: cannot find the end of the conversation; add a parameter `add_generation_prompt` to "
                f"messages2prompt",
                template=self.title,
                name="add_generation_prompt",
            )
        return text.removesuffix(opening)


def _wrong_types(given: Mapping[str, object], kinds: Mapping[str, str]) -> list[Problem]:
    return [
        Problem(name, f"expected {kinds[name].replace('Capability', _CAPABILITIES)}, got {value!r:.80}")
        for name, value in given.items()
        if name in kinds and not _fits(value, kinds[name])
    ]


def check_template_fields(
    title: str, given: Mapping[str, object], kinds: Mapping[str, str], elsewhere: Mapping[str, str] | None = None
) -> None:
    """Check the fields of a template.

    Args:
        title: Title of the fields in errors.
        given: Values by name.
        kinds: Annotations of the fields.
        elsewhere: Right place of misplaced fields, by name.

    Raises:
        ChatTemplateError: A field is unknown, or a value has the wrong type; names all of them.
    """
    unknown = unknown_fields(title, given, kinds, elsewhere or {})
    invalid = _wrong_types(given, kinds)
    if unknown or invalid:
        problems = [Problem(name, "unknown field") for name in given if name not in kinds]
        raise ChatTemplateError(
            f"{title}: {'; '.join([*unknown, *map(str, invalid)])}", template=title, problems=problems + invalid
        )


def _fits(value: object, kind: str) -> bool:
    """True if a value has the type in the annotation of a field."""
    # Annotations are text here, because of `from __future__ import annotations`.
    return any(_is_of(value, alternative) for alternative in kind.split(" | "))


def _is_of(value: object, name: str) -> bool:
    if name.startswith("Literal"):
        return isinstance(value, str) and repr(value) in name.replace('"', "'")
    return _TYPES.get(name, _is_text)(value)
