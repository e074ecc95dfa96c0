"""`RunResult`: the answer of a run, with its messages, costs and journal."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic

from agentkit.errors import FailedCall, LimitExceeded
from agentkit.models.model import Usage
from agentkit.run.journal.journal import Journal
from agentkit.run.journal.trace import TraceSpan
from agentkit.run.parts.chain import Output
from agentkit.run.parts.citations import Citation, citations, unknown_labels
from agentkit.run.parts.web_citations import web_citations
from agentkit_prompts.composition.composition import Composition
from agentkit_prompts.context.messages import Message
from agentkit_prompts.context.short_repr import short_repr
from agentkit_prompts.errors import PromptError
from agentkit_prompts.hints import Hinted

if TYPE_CHECKING:
    from agentkit_prompts.chat_templates.template_finder import GivenTemplate
    from agentkit_prompts.tokens.id_tokenizer import GivenTokenizer


@dataclass(slots=True, repr=False)
class RunResult(Generic[Output], metaclass=Hinted):
    """Result of a run; `str(result)` is the answer. Immutable by convention: a frozen class takes longer to create."""

    __repr__ = short_repr

    output: Output
    """The answer. If a limit ended the run: its last text, or None if the output type is not text."""
    messages: tuple[Message, ...]
    """Messages that the run added to the conversation, starting with the user message."""
    composition: Composition
    """The last prompt that was sent. If a limit ended the run before the first request: its prompt without recall."""
    usage: Usage
    """Usage of all model calls, including the calls of agents that ran as tools."""
    steps: int
    """Number of model calls."""
    finish_reason: str
    """`stop`; `length` if the answer was cut, `limit` if a limit ended the run; see `Reply`."""
    run_id: str
    journal: Journal = field(repr=False, compare=False)
    """Record of all steps, from which `Agent.resume` can resume the run."""
    limit: LimitExceeded | None = None
    """The limit that ended the run, if `Limits.on_limit` is `return`."""
    listener_errors: Sequence[BaseException] = ()
    """Errors of `on_event`, if `on_event_error` is `report`; at most the first 16."""

    def __str__(self) -> str:
        """Return the answer as text."""
        return str(self.output)

    @property
    def cost(self) -> float | None:
        """US dollars of all model calls; None if a price is unknown."""
        return self.usage.money

    @property
    def tool_errors(self) -> tuple[FailedCall, ...]:
        """Tool calls that failed, in the order of their ends, with the calls of agents that ran as tools; the model
        received their messages. `Limits(on_tool_error="raise")` ends the run instead.
        """
        return self.journal.tool_errors

    @property
    def trace(self) -> TraceSpan:
        """The run as spans, as JSON data; see `TraceSpan`."""
        return self.journal.trace

    def to_sample(
        self, chat_template: GivenTemplate, *, tokenizer: GivenTokenizer | None = None, **kwargs: Any
    ) -> dict[str, Any]:
        """Return the run as a fine-tuning row whose loss contains the replies of the run.

        With a tokenizer, the row has token ids; a reply of a `CompletionModel` with a tokenizer has the ids and the log
        probabilities that the model sampled. A reply that the chat template changed in the last prompt, such as by
        leaving its thinking out, is outside of the loss.

        Args:
            chat_template: Chat template of the model; see `Composition.to_sample`.
            tokenizer: Tokenizer of the model; see `Composition.to_sample`.
            **kwargs: Other values that the template reads.

        Raises:
            PromptError: The run has no reply, or the tokenizer does not fit; see `Composition.to_sample`.
        """
        from agentkit_prompts.composition.targets.training_row import sample

        reply = next((message for message in reversed(self.messages) if message.role == "assistant"), None)
        if reply is None:
            raise PromptError("to_sample: the run has no reply of a model", name="messages")
        return sample(self.composition, reply, chat_template, trained="turn", tokenizer=tokenizer, **kwargs)

    @property
    def citations(self) -> tuple[Citation, ...]:
        """Labels of documents in the answer, such as `[source#chunk]`, in order, with their documents and positions;
        then the web pages that the provider of the model cited, with their addresses.
        """
        own = citations(self._text, self.composition)
        if self._reply is None:
            return own
        return (*own, *web_citations(self._reply))

    @property
    def unknown_labels(self) -> tuple[str, ...]:
        """Labels in the answer that match no document of the prompt."""
        return unknown_labels(self._text, self.composition)

    @property
    def _reply(self) -> Message | None:
        """The last reply with text."""
        replies = (message for message in reversed(self.messages) if message.role == "assistant" and message.text)
        return next(replies, None)

    @property
    def _text(self) -> str:
        """Text of the last reply; the output can have another type."""
        reply = self._reply
        return "" if reply is None else reply.text
