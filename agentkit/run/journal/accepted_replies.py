"""Replies and tool results of a journal as guards have accepted them: the journal contains the original values."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from agentkit.models.model import Reply
from agentkit.run.journal.journal import Journal
from agentkit.run.journal.journal_steps import JournalStep
from agentkit.run.parts.decisions import Approved
from agentkit_prompts.context.messages import Message
from agentkit_tools.calling.tool_result import ToolResult


def accepted(step: JournalStep, steps: list[JournalStep]) -> Iterator[Reply | ToolResult]:
    """Yield the reply and the results that a step stored in the conversation, as the guards have accepted them.

    Args:
        step: A step that appended messages.
        steps: The steps of the run.
    """
    reply: Reply | None = None
    results: dict[str, ToolResult] = {}
    number = step.number - 1
    while number >= 0 and steps[number].kind != "append":
        earlier = steps[number]
        if earlier.kind == "model" and reply is None:
            reply = earlier.answer
        elif earlier.kind == "tool":
            results[earlier.answer[0].call_id] = earlier.answer[0]
        number -= 1
    for message in step.answer:
        if message.role == "assistant" and reply is not None:
            yield replace(reply, message=message)
            # A further message of the model is the result of a final tool, which has its own event.
            reply = None
        elif message.role == "tool" and message.tool_call_id in results:
            yield replace(results[message.tool_call_id], content=message.content, whole=None)


def last_reply(journal: Journal) -> Message:
    """Return the message of the last reply, with the text that guards, or a person whom they asked, have accepted."""
    steps = journal.steps()
    number = max(at for at, step in enumerate(steps) if step.kind == "model")
    message: Message = steps[number].answer.message
    if not journal.is_guarded:
        return message
    from agentkit.run.parts.run_guards import with_text
    from agentkit.run.parts.verdicts import Replace

    decisions = journal.decisions
    for step in steps[number:]:
        # The subject of an answer of a final tool is the id of its call.
        if step.kind != "guard" or step.answer.stage != "output" or not step.answer.subject.isdigit():
            continue
        check = step.answer
        if isinstance(check.verdict, Replace):
            message = with_text(message, str(check.verdict.value))
        call = check.waiting_call
        decision = None if call is None else decisions.get(call.id)
        if isinstance(decision, Approved) and decision.arguments is not None:
            message = with_text(message, str(decision.arguments.get("text", message.text)))
    return message
