"""Cases of AISBench: the cases of OpenCompass, and dialogues of several turns, media, and messages of chat models."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from agentkit.prompts.evaluation import InContextWarning, MultiTurnPromptTemplate, PromptList, chat_messages
from agentkit_prompts.evaluation.meta.api_meta_template import CHAT_META
from tests.conformance import opencompass
from tests.conformance.icl_cases import decoded, difference, parser_of, without_markers


def check(case: dict[str, Any], folder: Path) -> Iterator[tuple[str, str | None]]:
    """Yield the id of a required case, and the difference of our result."""
    if not case.get("required"):
        return
    try:
        with warnings.catch_warnings(action="ignore", category=InContextWarning):  # tested elsewhere
            got = RUN[case["op"]](case)
    except Exception as error:
        yield case["id"], f"{type(error).__name__}: {error}"
        return
    wanted = decoded(case["expect"]["output"])
    if case["stage"] in ("promptlist", "ice"):
        kind = case.get("output_type")
        problem = difference(type(got).__name__, kind, None) if kind else None
        yield case["id"], problem or difference(without_markers(got), without_markers(wanted), None)
    else:
        yield case["id"], difference(got, wanted, case.get("output_type"))


def parse(case: Mapping[str, Any]) -> Any:
    """Parse a prompt with a meta template alone."""
    return _parts(case, opencompass.parse(case), lambda: decoded(case["prompt"]))


def pipeline(case: Mapping[str, Any]) -> Any:
    """Return the prompt of a row, its examples alone, or the request of a model."""
    return _parts(case, opencompass.pipeline(case), lambda: opencompass.pipeline({**case, "stage": "promptlist"}))


def _parts(case: Mapping[str, Any], sent: Any, prompt: Callable[[], Any]) -> Any:
    """APIs of AISBench accept content parts: empty items are, without a meta template, an empty list."""
    untold = case["stage"] in ("final", "requests") and case["parser"] == "api" and not case["meta_template"]
    return [] if untold and sent == "" and isinstance(prompt(), PromptList) else sent


def requests(case: Mapping[str, Any]) -> list[Any]:
    """Return every request of a dialogue; the model answers `answer1`, `answer2`, ... unless the case has answers."""
    template = MultiTurnPromptTemplate(decoded(case["template"])["template"])
    parser = parser_of(case["parser"], decoded(case["meta_template"]))
    dialogue = template.requests(decoded(case["example"]), case["infer_mode"])
    sent: list[Any] = []
    try:
        prompt = next(dialogue)
        while True:
            sent.append(_parts(case, parser.parse(prompt, case["mode"]), lambda said=prompt: said))
            turn = len(sent)
            if turn in case.get("fail_turns", ()):  # AISBench sends no more requests, in any mode
                return sent
            answers = case.get("model_answers") or ()
            said = answers[turn - 1] if turn <= len(answers) else f"answer{turn}"
            prompt = dialogue.send(said)
    except StopIteration:
        return sent


def messages(case: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the messages of a chat model; without a meta template it has the roles of chat models."""
    return chat_messages(
        opencompass.pipeline(
            {
                **case,
                "stage": "final",
                "parser": "api",
                "meta_template": case["meta_template"] or CHAT_META,
            }
        )
    )


RUN = {**opencompass.RUN, "parse": parse, "pipeline": pipeline, "multiturn": requests, "messages": messages}
