"""A model without network access: it quotes recalled texts and calls the tools that the user names."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from agentkit.errors import AgentDefinitionError
from agentkit.models.model import OnDelta, Reply
from agentkit.models.model_errors import ModelRequestError
from agentkit.models.offline.offline_tool_calls import requested_calls
from agentkit.models.offline.scripted_model import send_words
from agentkit.models.prices import Price
from agentkit_prompts.context.messages import Message
from agentkit_prompts.context.prompt_context import Document, RecalledMessage

if TYPE_CHECKING:
    from agentkit.models.completion.completion_model import CompletionModel
    from agentkit.models.settings import ModelSettings
    from agentkit_prompts.chat_templates.guard.control_tokens import Policy
    from agentkit_prompts.chat_templates.template_finder import GivenTemplate
    from agentkit_prompts.composition.call_content import TextTokens
    from agentkit_prompts.composition.composition import Composition

_NOTICE = "(Offline model, not a language model: it can only quote recalled chunks and call tools by their name.)"
_NO_JSON = "the offline model writes no typed answer: try the agent with ScriptedModel(['{...}']), or a language model"
_POINTER = re.compile(r"(documents|recalled)\[(\d+)\](?:\.text)?")
_SENTENCE_END = re.compile(r"(?<=[.!?])(?=\s)|(?<=[。！？])|\n[ \t]*(?=\n)|\n(?=[ \t]*(?:[-*+|#>]|\d+[.)] ))")
_WORD = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]|[^\W_]+")
_ENDING = re.compile(r"(?<=\w{3})(?:ies|ing|ed|es|e|s|y)$")
_FILLERS = frozenset(
    _WORD.findall(
        "a about an and are as at be by can did do does for from has have how i in is it its me of on or our please "
        "show tell that the their them then there these they this to was we were what when where which who why under "
        "will with you your"
    )
)
_MIN_SHARE = 0.3
"""Minimum share of the weight of the question that the words of a quoted sentence must have."""
_QUOTES = 2
_MAX_QUOTE = 400
"""Maximum characters of one quote; truncation is marked."""


class _Sentence(NamedTuple):
    text: str
    words: frozenset[str]
    context: frozenset[str]
    """Words of the title and the heading that are not words of the sentence."""
    source: str


class OfflineModel:
    """A deterministic substitute for a language model that marks its replies.

    - If the user names a tool with its arguments (`use add with a=2, b=3`), the reply is a call of the tool.
    - If the last messages are tool results, the reply is their text.
    - Otherwise the reply quotes the sentences of the chunks and recalled messages of the composition that share the
      most words with the question, chunks with their label `[source#chunk]`. If no sentence is similar, the reply
      contains a notice.
    - The model writes no JSON: use `ScriptedModel` for an agent with a typed output.

    With `chat_template`, `template_kwargs`, `session_len` and `control_tokens`, the options of `CompletionModel`, the
    prompt is written as for a model that completes text, and the errors of that model are raised.

    Raises:
        ChatTemplateError: The chat template is unknown.
        AgentDefinitionError: `session_len` is not a number of tokens; or an option needs a chat template.
    """

    name = "offline"
    price = Price(0, 0)

    def __init__(
        self,
        chat_template: GivenTemplate | None = None,
        *,
        session_len: int | None = None,
        control_tokens: Policy | None = None,
        template_kwargs: Mapping[str, Any] | None = None,
    ) -> None:
        self.writer: CompletionModel | None = None
        """Model that writes the prompt; None without a chat template."""
        if chat_template is not None:
            from agentkit.models.completion.completion_model import CompletionModel

            self.writer = CompletionModel(
                self.name,
                chat_template,
                session_len=session_len,
                control_tokens=control_tokens or "escape",
                template_kwargs=template_kwargs,
            )
            return
        options = {"session_len": session_len, "control_tokens": control_tokens, "template_kwargs": template_kwargs}
        for name, value in options.items():
            if value is not None:
                raise AgentDefinitionError(
                    f"OfflineModel: {name} needs a chat_template: pass chat_template too",
                    name="chat_template",
                    value=name,
                )

    @property
    def text_tokens(self) -> TextTokens | None:
        """Token counter of the text that the chat template writes; None without a chat template."""
        if self.writer is None:
            return None
        return self.writer.text_tokens

    def with_settings(self, settings: ModelSettings) -> OfflineModel:
        """Return this model: settings do not change its replies."""
        return self

    async def request(self, composition: Composition, *, on_delta: OnDelta | None = None) -> Reply:
        """Return tool calls, tool results or quotes.

        Raises:
            ChatTemplateError: The chat template cannot write this prompt.
            ModelRequestError: The prompt is longer than `session_len`, or the output of the agent is typed.
        """
        if self.writer is not None:
            self.writer.request_body(composition)
        message = self._message(composition)
        if message.tool_calls:
            return Reply(message, finish_reason="tool_calls", model=self.name)
        if on_delta is not None:
            await send_words(message.text, on_delta)
        return Reply(message, model=self.name)

    def _message(self, composition: Composition) -> Message:
        results = [message.text for message in composition.context.intermediate if message.role == "tool"]
        if results:
            return Message("assistant", "\n".join(results) + f"\n\n{_NOTICE}")
        calls, problem = requested_calls(composition.context.user_input.text, composition.tools)
        if calls:
            return Message("assistant", tool_calls=calls)
        if composition.output is not None:
            raise ModelRequestError(_NO_JSON, model=self.name, name="output")
        return Message("assistant", f"{problem or _quotes(composition)}\n\n{_NOTICE}")


def _quotes(composition: Composition) -> str:
    sentences = [sentence for source, title, text in _chunks(composition) for sentence in _cut(text, title, source)]
    best = _best(_words(composition.context.user_input.text), sentences)
    if best:
        return "\n\n".join(map(_quote, best))
    if not sentences:
        return "Nothing was recalled for this question, so there is nothing to quote."
    return "None of the recalled chunks answers this question."


def _quote(sentence: _Sentence) -> str:
    quote = f"“{sentence.text}”"
    if len(sentence.text) > _MAX_QUOTE:
        quote = f"“{sentence.text[:_MAX_QUOTE].rsplit(maxsplit=1)[0]}” ..."
    if sentence.source:
        quote += f" [{sentence.source}]"
    return quote


def _chunks(composition: Composition) -> Iterator[tuple[str, str, str]]:
    """Yield label, title and text of every chunk and message of the prompt; messages have no label and no title."""
    items: dict[str, tuple[Document | RecalledMessage, ...]] = {
        "documents": composition.context.view["documents"],
        "recalled": composition.context.recalled,
    }
    for kind, index, text in _shown_texts(composition, items):
        item = items[kind][index]
        if isinstance(item, Document):
            yield item.label, item.title, text
        else:
            yield "", "", text


def _shown_texts(
    composition: Composition, items: Mapping[str, tuple[Document | RecalledMessage, ...]]
) -> list[tuple[str, int, str]]:
    """Return kind, index and text of the items that the prompt contains, without duplicates."""
    texts: dict[tuple[str, int, str], None] = {}
    for span in composition.spans:
        pointer = _POINTER.fullmatch(span.pointer)
        if pointer and int(pointer[2]) < len(items[pointer[1]]):
            text = composition.marked_text(span.message)[span.start : span.end]
            texts[pointer[1], int(pointer[2]), text] = None
    if texts:
        return list(texts)
    # A filter or a macro of a template leaves no span, so the texts of the items are searched.
    prompt = composition.text
    return [
        (kind, index, item.text)
        for kind, values in items.items()
        for index, item in enumerate(values)
        if item.text in prompt
    ]


def _cut(text: str, title: str, source: str) -> Iterator[_Sentence]:
    """Yield the sentences of a text."""
    context = title_words = _words(title)
    for sentence in map(str.strip, _SENTENCE_END.split(text)):
        if sentence.startswith("#"):
            # Text may follow a heading without an empty line.
            heading, _, sentence = sentence.partition("\n")
            context = title_words | _words(heading)
        if words := _words(sentence):
            yield _Sentence(sentence, words, context - words, source)


def _best(question: frozenset[str], sentences: list[_Sentence]) -> list[_Sentence]:
    """Return the sentences with the largest share of the question; rare words count more than common words."""
    counts = Counter(word for sentence in sentences for word in sentence.words)
    # A word without any sentence has the largest weight: no sentence can answer a question about it.
    weights = {word: math.log(1 + len(sentences) / (counts[word] or 1)) for word in question}
    if not sentences or not sum(weights.values()):
        return []
    shares = [(_share(weights, sentence), -position) for position, sentence in enumerate(sentences)]
    ranked = sorted(shares, reverse=True)
    lowest = max(_MIN_SHARE, ranked[0][0] * 0.7)
    return [sentences[-position] for share, position in ranked[:_QUOTES] if share >= lowest]


def _share(weights: Mapping[str, float], sentence: _Sentence) -> float:
    """Return the weighted share of the question in a sentence; long sentences count less."""
    own = sum(weights[word] for word in weights.keys() & sentence.words)
    context = sum(weights[word] for word in weights.keys() & sentence.context)
    return (own + context * 0.7) / sum(weights.values()) / max(1.0, len(sentence.words) / 40)


def _words(text: str) -> frozenset[str]:
    words = (word.casefold() for word in _WORD.findall(text))
    return frozenset(_ENDING.sub("", word) for word in words if word not in _FILLERS)
