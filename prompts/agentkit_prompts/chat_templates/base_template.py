"""The class that the LMDeploy document derives templates from: sampling defaults, and three methods to override."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

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
from agentkit_prompts.chat_templates.guard.control_tokens import tokens_and_markers
from agentkit_prompts.chat_templates.protocol import Capability
from agentkit_prompts.errors import ChatTemplateError, Problem
from agentkit_prompts.names import unknown_fields

__all__ = ["BaseTemplate", "check_template_fields"]


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
}
"""Tests of the values of fields, by the name of a type in an annotation. A field of another type contains text."""


class BaseTemplate:
    """A chat template as the LMDeploy document writes it: a subclass defines the text of a prompt and a conversation.

    Fields are class attributes with a type, so a subclass may also just restate them, and every field is a keyword of
    the constructor. `render`, which the rest of agentkit calls, goes through `messages2prompt`.

    Raises:
        ChatTemplateError: A keyword that is no field, or a value that is not of its type; names all of them.
    """

    session_len: int | None = 2048
    """Tokens of context that the model has; None where that differs between models that share the template."""
    top_p: float | None = 0.8
    top_k: int | None = None
    temperature: float | None = 0.8
    repetition_penalty: float | None = 1.0
    capability: Capability | str | None = "chat"
    stop_words: Sequence[str] | None = None
    """Texts that end a reply."""
    tool_call_format: str | None = None
    """Format of the tool calls of the model; see `TOOL_CALL_FORMATS`. None for any of them."""

    label = ""
    """The file that it is from, if any."""
    rewrites_text: ClassVar[bool] = True
    """True if `messages2prompt` may change the text of a message: then the finished text is checked as well."""
    marker_fields: ClassVar[tuple[str, ...]] = (
        *("system", "eosys", "user", "eoh", "assistant", "eoa", "separator", "tool", "eotool"),
    )
    """Attributes that hold text put around messages, where a template has them."""

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
        """Return the fields of this class and the ones it derives from, each with its type."""
        kinds: dict[str, str] = {}
        for base in reversed(cls.__mro__):
            kinds |= {name: str(kind) for name, kind in inspect.get_annotations(base).items()}
        return {name: kind for name, kind in kinds.items() if not kind.startswith("ClassVar")}

    @property
    def control_tokens(self) -> tuple[str, ...]:
        """Texts that only the template may write: stop words, and the markers around messages."""
        markers = [getattr(self, name, None) for name in self.marker_fields]
        return tokens_and_markers(self.stop_words or (), [marker for marker in markers if isinstance(marker, str)])

    def get_prompt(self, prompt: str, sequence_start: bool = True) -> str:
        """Return the text for one prompt of the user: the prompt itself if the model only completes, else decorated.

        `sequence_start` is True if it opens a conversation; a later one is sent to a server that has the earlier
        turns in its cache.
        """
        prompt = read_prompt(prompt, self.title)
        if self.capability == "completion":
            return prompt
        return self.decorate_prompt(prompt, sequence_start)

    def decorate_prompt(self, prompt: str, sequence_start: bool = True) -> str:
        """Return the prompt with the markers of the model around it. To override; here the prompt itself."""
        return prompt

    def messages2prompt(self, messages: str | Messages, sequence_start: bool = True) -> str:
        """Return the text of a conversation that the model replies to. To override; here it takes one prompt as text.

        A model that only completes has no roles: it is given the texts of a conversation, one line after the other.
        """
        if isinstance(messages, str):
            return self.get_prompt(messages, sequence_start)
        if self.capability == "completion":
            return "\n".join(turn["content"] for turn in read_turns(messages, self.title))
        raise ChatTemplateError(
            f"{self.title}: does not say how a list of messages is written; override messages2prompt",
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
        """Return the text that `messages2prompt` makes of the conversation; it gets new plain dicts.

        Tools are passed on where `messages2prompt` has a parameter of that name, and so is every other keyword;
        keywords it has no parameter for are for other templates and are left out. Without a parameter
        `add_generation_prompt` the `assistant` marker at the end is taken off again.

        Raises:
            ChatTemplateError: The template has no place for a part of this conversation; names the reason.
        """
        title = self.title
        # A subclass may accept any subset of these options, as the LMDeploy document shows.
        parameters = inspect.signature(self.messages2prompt).parameters
        turns = read_turns(messages, title)
        if not turns:
            raise no_messages(title)
        if "tools" not in parameters:
            self._refuse_tools(turns, tools)
        functions = read_functions(tools, title) if tools else None
        options = {**kwargs, "tools": functions, "add_generation_prompt": add_generation_prompt}
        options = {key: value for key, value in options.items() if key in parameters}
        text = self._call_messages2prompt(turns, options)
        if add_generation_prompt or "add_generation_prompt" in parameters:
            return text
        return self._without_opening(text, turns[-1])

    def _refuse_tools(self, turns: list[Turn], tools: Tools | None) -> None:
        if tools or any(map(has_tool_traffic, turns)):
            raise ChatTemplateError(
                f"{self.title}: its messages2prompt has no parameter `tools`, so it has no place for them",
                template=self.title,
                problems=[Problem("tools", "no parameter")],
            )

    def _call_messages2prompt(self, turns: list[Turn], options: dict[str, Any]) -> str:
        title = self.title
        try:
            # Copies, because a subclass may change the messages it is given.
            text = self.messages2prompt([{**turn} for turn in turns], **options)
        except ChatTemplateError:
            raise
        except Exception as error:
            problem = f"{type(error).__name__}: {error}"
            raise ChatTemplateError(
                f"{title}: messages2prompt failed with {problem}; it was given {len(turns)} messages", template=title
            ) from error
        if not isinstance(text, str):
            raise ChatTemplateError(
                f"{title}: messages2prompt returned {type(text).__name__}, expected text", template=title
            )
        return text

    def _without_opening(self, text: str, last: Mapping[str, Any]) -> str:
        """Remove the marker after the conversation with which `messages2prompt` opens the reply."""
        opening = getattr(self, "assistant", "")
        # The last message may end in the same text: then it is unknown which of the two the marker is.
        if not opening or not text.endswith(opening) or last["content"].endswith(opening):
            raise ChatTemplateError(
                f"{self.title}: does not know where the conversation ends and the reply starts; "
                f"give messages2prompt a parameter `add_generation_prompt`",
                template=self.title,
                name="add_generation_prompt",
            )
        return text.removesuffix(opening)


def _wrong_types(given: Mapping[str, object], kinds: Mapping[str, str]) -> list[Problem]:
    return [
        Problem(name, f"expected {kinds[name]}, got {value!r:.80}")
        for name, value in given.items()
        if name in kinds and not _fits(value, kinds[name])
    ]


def check_template_fields(
    title: str, given: Mapping[str, object], kinds: Mapping[str, str], elsewhere: Mapping[str, str] | None = None
) -> None:
    """Check the fields of a template.

    Args:
        title: What the fields are called in the error.
        given: The values by name.
        kinds: The annotations of the fields.
        elsewhere: Where other fields belong, by name.

    Raises:
        ChatTemplateError: A field is unknown, or a value is not of its type; names all of them.
    """
    unknown = unknown_fields(title, given, kinds, elsewhere or {})
    wrong = _wrong_types(given, kinds)
    if unknown or wrong:
        problems = [Problem(name, "unknown field") for name in given if name not in kinds]
        raise ChatTemplateError(
            f"{title}: {'; '.join([*unknown, *map(str, wrong)])}", template=title, problems=problems + wrong
        )


def _fits(value: object, kind: str) -> bool:
    """Return True if a value is of the type in the annotation of a field."""
    # Annotations are text here, because of `from __future__ import annotations`.
    return any(_is_of(value, alternative) for alternative in kind.split(" | "))


def _is_of(value: object, name: str) -> bool:
    if name.startswith("Literal"):
        return isinstance(value, str) and repr(value) in name.replace('"', "'")
    return _TYPES.get(name, _is_text)(value)
