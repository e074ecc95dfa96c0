"""Answers to the requests of Play that need the permission to play: ask a model, copy a request, save a test case."""

from __future__ import annotations

import time

from starlette.exceptions import HTTPException

from agentkit.errors import AgentError
from agentkit.evals.run_case import case_line, case_of
from agentkit.ground.threads import in_thread
from agentkit.inspector.answers import Json, model_call_of
from agentkit.inspector.curl_command import curl_command
from agentkit.inspector.journal_view import reply_view, usage_view
from agentkit.inspector.page_requests import CompositionRequest, TestCase
from agentkit.inspector.played_prompt import changed_context
from agentkit.inspector.source import InspectorSource
from agentkit.models.model_errors import ModelError


async def ask_answer(source: InspectorSource, request: CompositionRequest) -> Json:
    """Send a prompt with its changes to a model, and return the reply with its usage and seconds."""
    _check_play(source)
    model_call = await model_call_of(source, request)
    prompt = await in_thread(model_call.played, request)
    start = time.monotonic()
    try:
        reply = await source.ask(model_call.agent, prompt)
    except ModelError as error:
        raise AgentError(f"the model returned no reply: {error}") from error
    except TimeoutError as error:
        seconds = model_call.agent.definition.limits.seconds
        raise AgentError(f"the model returned no reply within {seconds} seconds") from error
    return {
        **reply_view(reply.message),
        "model": reply.model or prompt.model.name,
        "finish": str(reply.finish_reason),
        "usage": usage_view(reply.usage),
        "seconds": time.monotonic() - start,
    }


async def curl_answer(source: InspectorSource, request: CompositionRequest) -> Json:
    """Return the request of a prompt with its changes as a curl command."""
    _check_play(source)
    model_call = await model_call_of(source, request)
    return {"command": await in_thread(lambda: curl_command(model_call.played(request)))}


async def case_answer(source: InspectorSource, request: TestCase) -> Json:
    """Return a test case as a line of JSON, without secrets and personal data.

    The line is added to the file of the operator, if there is a file: the answer then has its name.
    """
    _check_play(source)
    model_call = await model_call_of(source, request)

    def line() -> str:
        context = changed_context(model_call.ctx, request)
        row = case_of(context, expected=request.expected, tags=request.tags, redact=source.redact)
        return case_line(row)

    text = await in_thread(line)
    name = None
    if source.cases_file is not None:
        name = await source.save_case(text)
    return {"line": text, "file": name}


def _check_play(source: InspectorSource) -> None:
    if not source.can_play:
        raise HTTPException(403, "the token does not have the required scope 'play'")
