"""`MetaTemplate`: conversion of a prompt to the text format of a completion model.

It reads the meta templates of the OpenCompass document. It is also a chat template, so it can write a composition.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

from agentkit_prompts.chat_templates.guard.control_tokens import tokens_and_markers
from agentkit_prompts.context.items import ToolSpec
from agentkit_prompts.context.messages import Message
from agentkit_prompts.errors import ChatTemplateError, InContextError
from agentkit_prompts.evaluation.meta.chat_messages import as_prompt_list
from agentkit_prompts.evaluation.meta.meta_base import (
    MetaParser,
    Mode,
    check_mode,
    media_text,
    runs,
    without_roles,
)
from agentkit_prompts.evaluation.meta.role_config import MetaFormat, Pieces, read_meta
from agentkit_prompts.evaluation.meta.walk import read_prompt
from agentkit_prompts.evaluation.prompt_list import PromptList


class MetaTemplate(MetaParser):
    """Text of a prompt for a completion model (OpenCompass document).

    `config` has the keys `begin`, `round`, `end`, `reserved_roles` and `eos_token_id`. Without a config, the texts of
    the items are joined by line feeds. A marker is text, or a list of texts and token ids. `decode` converts ids to
    text; without it, `pieces` returns ids unchanged, for servers that accept token ids. `parse` returns text, with alt
    text instead of media.

    `stop_words` are the eos token, if its text is known, and bracketed tokens at the end of the roles of the model.

    Raises:
        InContextError: The configuration is invalid; names all problems.
    """

    variables: ClassVar[frozenset[str]] = frozenset()
    """Names of the other keyword arguments that `render` reads: none."""

    def __init__(
        self, config: Mapping[str, Any] | None = None, *, decode: Callable[[Sequence[int]], str] | None = None
    ) -> None:
        if config is not None and not isinstance(config, Mapping):
            kind = type(config).__name__
            text = f"meta template: expected a dict with a 'round', got {kind}"
            if isinstance(config, list):
                text += "; a list of messages belongs to an API: ApiMetaTemplate"
            raise InContextError(text, name="config", value=kind)
        self._meta: MetaFormat | None = read_meta(config, api=False) if config else None
        self._decode = decode
        self.stop_words: Sequence[str] | None = self._stop_words()

    @property
    def control_tokens(self) -> tuple[str, ...]:
        """Texts that only the template may write: stop words, markers of roles, and text between roles."""
        meta = self._meta
        if meta is None:
            return ()
        markers = [marker for role in meta.roles.values() for marker in (role.begin, role.end)]
        loose = [entry for entry in meta.round if isinstance(entry, str)]
        edges = [*_bracketed(self._written(meta.begin)), *_bracketed(self._written(meta.end))]
        return tokens_and_markers([*(self.stop_words or ()), *edges], [*map(self._written, markers), *loose])

    def pieces(self, prompt: str | PromptList, mode: Mode = "gen") -> list[str | int]:
        """Return the result of `parse` as texts and undecoded token ids, with neighbouring texts joined.

        Raises:
            InContextError: As `parse`.
        """
        check_mode(mode)
        if not isinstance(prompt, str | PromptList):
            kind = type(prompt).__name__
            text = f"pieces: expected one prompt, text or PromptList, got {kind}; call it for each prompt"
            raise InContextError(text, name="prompt")
        flat: list[str | int] = [prompt] if isinstance(prompt, str) else self._pieces(prompt, mode)
        pieces: list[str | int] = []
        for run in runs([piece for piece in flat if piece != ""]):
            if isinstance(run, str):
                pieces.append(run)
            else:
                pieces += run
        return pieces

    def render(
        self,
        messages: Sequence[Message | Mapping[str, Any]],
        tools: Sequence[ToolSpec | Mapping[str, Any]] | None = None,
        add_generation_prompt: bool = True,
        **kwargs: Any,
    ) -> str:
        """Return the text of a conversation.

        The role `user` is written as HUMAN, `assistant` as the role that generates, `system` and `tool` as SYSTEM and
        TOOL; without a SYSTEM role, `system` is written as the role of the user. Neighbouring messages of one role are
        joined by a line feed.

        Raises:
            ChatTemplateError: The template has no place for a message or for tools; names all problems.
        """
        if tools:
            raise ChatTemplateError(
                "meta template: it has no place for tools; describe them in the system message (ToolPrompt)",
                name="tools",
            )
        if kwargs:
            names = ", ".join(sorted(kwargs))
            raise ChatTemplateError(f"meta template: takes no variables, got {names}", name=names)
        prompt = as_prompt_list(messages, self._meta, ask=add_generation_prompt)
        try:
            return self._text(self._pieces(prompt, "gen" if add_generation_prompt else "ppl"))
        except InContextError as error:
            raise ChatTemplateError(str(error), problems=error.problems) from error

    def _pieces(self, prompt: PromptList, mode: Mode) -> list[str | int]:
        meta = self._meta
        if meta is None:
            lines = [part if isinstance(part, str) else media_text(part) for part in without_roles(prompt)]
            return ["\n".join(lines)]
        pieces: list[str | int] = [*meta.begin]
        for turn in read_prompt(meta, prompt, gen=mode == "gen"):
            if isinstance(turn, str):
                pieces.append(turn)
            elif turn.opens:
                # The model writes the rest of the conversation, so the end of the template is omitted.
                return [*pieces, *turn.begin]
            else:
                texts = (turn.prompt, *map(media_text, turn.media))
                pieces += (*turn.begin, "\n".join(filter(None, texts)), *turn.end)
        return [*pieces, *meta.end]

    def _parsed(self, prompt: PromptList, mode: Mode) -> str:
        return self._text(self._pieces(prompt, mode))

    def _conversation(self, messages: Sequence[Mapping[str, Any]], mode: Mode) -> str:
        return self.render(messages, add_generation_prompt=mode == "gen")

    def _stop_words(self) -> tuple[str, ...]:
        """Return the texts that end a reply: the eos tokens, and bracketed tokens at the end of the roles of the
        model.
        """
        if self._meta is None:
            return ()
        words = [self._written((token,)) for token in self._meta.eos_tokens]
        for role in self._meta.roles.values():
            # Other text at the end, such as a line feed, can also be inside a reply.
            if role.generate:
                words += _bracketed(_texts(role.end))
        return tuple(dict.fromkeys(filter(str.strip, words)))

    def _written(self, marker: Pieces) -> str:
        """Return a marker as text; if `decode` is None, without its token ids."""
        if self._decode is None:
            return _texts(marker)
        return self._text(marker)


def _texts(marker: Pieces) -> str:
    return "".join([piece for piece in marker if isinstance(piece, str)])


def _bracketed(marker: str) -> list[str]:
    """Return the bracketed tokens in a marker."""
    return [token for token in tokens_and_markers((), [marker]) if token[0] in "<[" and token[-1] in ">]"]
