"""Rows of examples in the formats of trainers.

- OpenAI: https://developers.openai.com/api/docs/guides/supervised-fine-tuning and
  https://developers.openai.com/api/docs/guides/direct-preference-optimization
- TRL: https://huggingface.co/docs/trl/dataset_formats
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, get_args

from agentkit.models.http.restored_text import guarded
from agentkit.training.training_errors import ExportError
from agentkit.training.training_example import TrainingExample
from agentkit_prompts.chat_templates.template_finder import GivenTemplate
from agentkit_prompts.composition.targets.training_row import sample
from agentkit_prompts.context.conversation import Conversation
from agentkit_prompts.context.wire.write_openai_chat import openai_message
from agentkit_prompts.names import nearest
from agentkit_prompts.tokens.id_tokenizer import IdTokenizer

RowFormat: TypeAlias = Literal["messages", "openai", "trl", "openai-preference", "trl-preference"]
"""Format of rows. `messages`: messages and tools as in a chat request, and their text with a chat template."""
FORMATS: tuple[RowFormat, ...] = get_args(RowFormat)
PREFERENCES: frozenset[RowFormat] = frozenset({"openai-preference", "trl-preference"})
"""Formats whose rows have two answers."""
_TOKENS = ("input_ids", "labels", "log_probabilities", "weights")
_OPENAI_KEYS = ("role", "content", "name", "tool_calls", "tool_call_id", "refusal")
"""Keys of a message that OpenAI documents for fine-tuning, besides `weight`."""

Row: TypeAlias = dict[str, Any]


@dataclass(frozen=True, slots=True)
class RowWriter:
    """Writer of rows in one format.

    Raises:
        ExportError: The format is unknown, or an option has no effect in it.
    """

    format: RowFormat
    chat_template: GivenTemplate | None = None
    """Chat template of the text of a row; None for rows without text."""
    tokenizer: IdTokenizer | None = None
    """Tokenizer of the ids of a row; None for rows without ids."""

    def __post_init__(self) -> None:
        if self.format not in FORMATS:
            raise ExportError(
                f"format: unknown format {self.format!r:.60}{nearest(str(self.format), FORMATS)}", name="format"
            )
        if self.tokenizer is not None and self.chat_template is None:
            raise ExportError("tokenizer: needs the chat template of the model; pass template too", name="tokenizer")
        if self.chat_template is not None and self.format not in ("messages", "trl"):
            raise ExportError(
                f"template: the format {self.format} has no text; omit the template, or choose messages or trl",
                name="template",
            )
        if self.format == "trl" and self.chat_template is not None and self.tokenizer is None:
            raise ExportError(
                "template: rows for TRL have ids instead of text, which need a tokenizer; pass tokenizer too, or omit "
                "the template",
                name="template",
            )

    def row(self, example: TrainingExample) -> Row:
        """Return the row of an example, without its origin.

        Raises:
            PromptError: The chat template or the tokenizer refuses the example.
        """
        row = self._sample(example)
        messages = [_plain(message) for message in row["messages"]]
        first = len(messages) - _run_length(example)
        if self.format == "openai":
            return {"messages": _weighted(messages, first), **_tools(row)}
        if self.format == "messages":
            row["messages"] = messages
            return row
        columns: Row = {"messages": _with_objects(messages), **_tools(row)}
        if self.tokenizer is not None:
            columns.update(
                input_ids=row["input_ids"],
                labels=row["labels"],
                assistant_masks=[int(weight > 0) for weight in row["weights"]],
            )
        return columns

    def pair(self, better: TrainingExample, worse: TrainingExample) -> Row | str:
        """Return the row of two answers, or the reason why they are no pair."""
        rows = [self._sample(example) for example in (better, worse)]
        prompts: list[list[Row]] = []
        answers: list[list[Row]] = []
        for row, example in zip(rows, (better, worse), strict=True):
            messages = [_plain(message) for message in row["messages"]]
            first = len(messages) - _run_length(example)
            prompts.append(messages[:first])
            answers.append(messages[first:])
        if prompts[0] != prompts[1] or rows[0].get("tools") != rows[1].get("tools"):
            return "the two runs have different prompts or tools"
        if answers[0] == answers[1]:
            return "the two runs have the same answer"
        if self.format == "openai-preference":
            # The service accepts one message of the assistant per answer.
            if any(len(answer) > 1 for answer in answers):
                return "a run has tool calls, and OpenAI accepts one message per answer; choose trl-preference"
            preferred, other = [[_only_documented(message) for message in answer] for answer in answers]
            content = {"messages": [_only_documented(message) for message in prompts[0]], **_tools(rows[0])}
            return {"input": content, "preferred_output": preferred, "non_preferred_output": other}
        chosen, rejected = [_with_objects(answer) for answer in answers]
        return {"prompt": _with_objects(prompts[0]), "chosen": chosen, "rejected": rejected, **_tools(rows[0])}

    def _sample(self, example: TrainingExample) -> Row:
        composition, reply = example.composition, example.reply
        row = sample(composition, reply, self.chat_template, trained="turn", tokenizer=self.tokenizer)
        if self.chat_template is None:
            # The text with plain roles is for people.
            row = {name: value for name, value in row.items() if name in ("messages", "tools")}
        # A trainer that applies a chat template would read control tokens in untrusted text as tokens.
        whole = composition.evolve(intermediate=Conversation([*composition.intermediate, reply]))
        marked, _ = guarded(whole, "", "")
        if marked is not whole:
            *traffic, reply = marked.intermediate
            prompt = marked.evolve(intermediate=Conversation(traffic))
            row["messages"] = [*prompt.to_openai()["messages"], openai_message(reply)]
        return row


def _run_length(example: TrainingExample) -> int:
    """Return the number of messages of the run: its tool calls, their results and its answer."""
    composition = example.composition
    return len(composition.intermediate) + (1 if composition.closing.text else 0) + 1


def _plain(message: Mapping[str, Any]) -> Row:
    """Return a message as plain JSON data."""
    data: Row = json.loads(json.dumps(message))
    return data


def _tools(row: Row) -> Row:
    return {"tools": json.loads(json.dumps(row["tools"]))} if row.get("tools") else {}


def _only_documented(message: Row) -> Row:
    return {name: message[name] for name in _OPENAI_KEYS if name in message}


def _weighted(messages: Sequence[Row], first: int) -> list[Row]:
    """Return messages for OpenAI, in which only the replies of the run have the weight 1."""
    weighted: list[Row] = []
    for at, message in enumerate(messages):
        row = _only_documented(message)
        if message["role"] == "assistant":
            row["weight"] = int(at >= first)
        weighted.append(row)
    return weighted


def _with_objects(messages: Sequence[Row]) -> list[Row]:
    """Return messages whose arguments of tool calls are objects, as chat templates expect them."""
    changed: list[Row] = []
    for message in messages:
        if not message.get("tool_calls"):
            changed.append(message)
            continue
        calls = []
        for call in message["tool_calls"]:
            function = call["function"]
            calls.append({**call, "function": {**function, "arguments": _object(function["arguments"])}})
        changed.append({**message, "tool_calls": calls})
    return changed


def _object(arguments: str) -> Any:
    try:
        return json.loads(arguments)
    except ValueError:
        # The model wrote no JSON: its text is kept.
        return arguments
