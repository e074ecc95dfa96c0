"""A stand-in for trying agentkit without a key: it quotes what was recalled and calls the tools that the user names."""

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
    from agentkit_prompts.composition.composition import Composition
    from agentkit_prompts.composition.contents import TextTokens

__all__ = ["OfflineModel"]

_WHO = "(Offline stand-in, not a language model: it can only quote recalled chunks and call tools by their name.)"
_NO_JSON = "the stand-in quotes and writes no typed answer: try the agent with ScriptedModel(['{...}']), or a model"
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
"""Of the weight of the question's words, the part a sentence must share: below it a quote answers something else."""
_QUOTES = 2
_MAX_QUOTE = 400
"""Characters of one quote; what is cut off is marked."""


class _Sentence(NamedTuple):
    text: str
    words: frozenset[str]
    around: frozenset[str]
    """Words of the title and of the heading it stands under."""
    source: str


class OfflineModel:
    """Answers without a language model, the same way every time, and marks its answers.

    - When the user asks for a tool by its name and gives the arguments (`use add with a=2, b=3`), it is called.
    - When tools have answered, the reply is what they answered.
    - Otherwise the reply is the sentences, out of the chunks and recalled messages that are in the composition, that
      share most with the question, those of chunks with their label, `[source#chunk]`. When none fits, it says so.
    - It writes no JSON, so an agent with a typed output is tried with `ScriptedModel`.

    In place of a model that completes text it takes the `chat_template`, its `template_kwargs`, the `session_len` and
    what happens to `control_tokens` of that one: the prompt is written with them, and what they refuse is refused.

    Raises:
        ChatTemplateError: There is no such chat template.
        AgentDefinitionError: `session_len` is no number of tokens; or there is no chat template for what is given.
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
        """Writes the prompt; None where nothing is written."""
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
        given = {"session_len": session_len, "control_tokens": control_tokens, "template_kwargs": template_kwargs}
        for what in [name for name, value in given.items() if value is not None]:
            raise AgentDefinitionError(
                f"OfflineModel: {what} needs a chat_template: give that too", name="chat_template", value=what
            )

    @property
    def text_tokens(self) -> TextTokens | None:
        """What counts the text that its chat template writes; None without one."""
        if self.writer is None:
            return None
        return self.writer.text_tokens

    def with_settings(self, settings: ModelSettings) -> OfflineModel:
        """Return this model: it stands in for one that has settings, and quotes whatever they are."""
        return self

    async def request(self, composition: Composition, *, on_delta: OnDelta | None = None) -> Reply:
        """Return tool calls, tool results or quotes.

        Raises:
            ChatTemplateError: The chat template cannot write this prompt.
            ModelRequestError: It is longer than `session_len`, or the answer is to have a type.
        """
        if self.writer is not None:
            self.writer.request_body(composition)
        results = [message for message in composition.context.intermediate if message.role == "tool"]
        if results:
            text = "\n".join(message.text for message in results)
        else:
            calls, missing = requested_calls(composition.context.user_input.text, composition.tools)
            if calls:
                return Reply(Message("assistant", tool_calls=calls), finish_reason="tool_calls", model=self.name)
            if composition.output is not None:
                raise ModelRequestError(_NO_JSON, model=self.name, name="output")
            text = missing or _quotes(composition)
        text = f"{text}\n\n{_WHO}"
        if on_delta is not None:
            await send_words(text, on_delta)
        return Reply(Message("assistant", text), model=self.name)


def _quotes(composition: Composition) -> str:
    sentences = [sentence for source, title, text in _chunks(composition) for sentence in _cut(text, title, source)]
    best = _best(_words(composition.context.user_input.text), sentences)
    if best:
        return "\n\n".join([_quoted(one) for one in best])
    if not sentences:
        return "Nothing was recalled for this question, so there is nothing to quote."
    return "None of the recalled chunks answers this question."


def _quoted(sentence: _Sentence) -> str:
    text, label = sentence.text, f" [{sentence.source}]" if sentence.source else ""
    short = f"{text}”" if len(text) <= _MAX_QUOTE else f"{text[:_MAX_QUOTE].rsplit(maxsplit=1)[0]}” ..."
    return f"“{short}{label}"


def _chunks(composition: Composition) -> Iterator[tuple[str, str, str]]:
    """Yield label, title and text of every chunk and message that the prompt really shows; messages have no label."""
    found: dict[str, tuple[Document | RecalledMessage, ...]] = {
        "documents": composition.context.view["documents"],
        "recalled": composition.context.recalled,
    }
    shown: dict[tuple[str, int, str], None] = {}
    for span in composition.spans:
        place = _POINTER.fullmatch(span.pointer)
        if place and int(place[2]) < len(found[place[1]]):
            shown[place[1], int(place[2]), composition.marked_text(span.message)[span.start : span.end]] = None
    # A filter or a macro of a template leaves no span, so their text is looked for.
    if not shown:
        text = composition.text
        shown = {
            (kind, index, item.text): None
            for kind, items in found.items()
            for index, item in enumerate(items)
            if item.text in text
        }
    for kind, index, text in shown:
        item = found[kind][index]
        if isinstance(item, Document):
            yield item.label, item.title, text
        else:
            yield "", "", text


def _cut(text: str, title: str, source: str) -> Iterator[_Sentence]:
    around = named = _words(title)
    for sentence in map(str.strip, _SENTENCE_END.split(text)):
        if sentence.startswith("#"):
            # Text may follow a heading without an empty line.
            heading, _, sentence = sentence.partition("\n")
            around = named | _words(heading)
        if words := _words(sentence):
            yield _Sentence(sentence, words, around - words, source)


def _best(question: frozenset[str], sentences: list[_Sentence]) -> list[_Sentence]:
    """Return the sentences that share most with the question; rare words count more than common ones."""
    known = Counter(word for sentence in sentences for word in sentence.words)
    # A word that no sentence has weighs most: a question about it has no answer here.
    weights = {word: math.log(1 + len(sentences) / (known[word] or 1)) for word in question}
    total = sum(weights.values())

    def share(sentence: _Sentence) -> float:
        own = sum(weights[word] for word in question & sentence.words)
        near = sum(weights[word] for word in question & sentence.around)
        return (own + near * 0.7) / total / max(1.0, len(sentence.words) / 40)

    ranked = []
    if total:
        ranked = sorted(((share(sentence), -place) for place, sentence in enumerate(sentences)), reverse=True)
    lowest = 0.0
    if ranked:
        lowest = max(_MIN_SHARE, ranked[0][0] * 0.7)
    return [sentences[-place] for score, place in ranked[:_QUOTES] if score >= lowest]


def _words(text: str) -> frozenset[str]:
    words = (word.casefold() for word in _WORD.findall(text))
    return frozenset(_ENDING.sub("", word) for word in words if word not in _FILLERS)
