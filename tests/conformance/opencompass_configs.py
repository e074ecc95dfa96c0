"""Dataset configurations of OpenCompass, each for a few rows and three models; one result is one final text."""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from agentkit.prompts.evaluation import InContext, InContextWarning
from tests.conformance.icl_cases import decoded, difference, parser_of, without_markers

_GIVEN = Path(__file__).resolve().parents[2].parent / "shared" / "conformance"


def check(case: dict[str, Any], folder: Path) -> Iterator[tuple[str, str | None]]:
    """Yield the name of every final of a required configuration, and the difference of our result."""
    if case.get("required"):
        with warnings.catch_warnings(action="ignore", category=InContextWarning):
            yield from finals(case, folder)


def finals(case: Mapping[str, Any], folder: Path) -> Iterator[tuple[str, str | None]]:
    """Yield the finals one by one, and prompts only if they differ: those are not counted."""
    rows = decoded(case["rows"])
    for result in case["results"]:
        label = result.get("label")
        name = f"{case['id']}#{result['row']}:{label}"
        expected = {
            model: wanted
            for model, wanted in result.get("final", {}).items()
            if "output" in wanted or wanted.get("same_as_promptlist")  # elsewhere the original raised an error
        }
        try:
            prompt = evaluation(case).prompt(rows[result["row"]], case["ice_ids"], label)
        except Exception as error:
            for model in expected:
                yield f"{name}:{model}", f"{type(error).__name__}: {error}"
            continue
        if "promptlist" in result and (problem := not_that_prompt(prompt, result)):
            yield f"{name}:promptlist", problem
        for model, wanted in expected.items():
            key, _, mode = model.rpartition(":")
            meta = meta_templates(folder)[key]
            try:
                # The parser does not depend on the inferencer: a prompt for scores can be sent as a request too.
                got = parser_of(meta["parser"], decoded(meta["meta_template"])).parse(prompt, mode)
            except Exception as error:
                yield f"{name}:{model}", f"{type(error).__name__}: {error}"
                continue
            if "output" in wanted:
                yield f"{name}:{model}", difference(got, decoded(wanted["output"]), wanted.get("output_type"))
            elif got != prompt:
                yield f"{name}:{model}", f"expected the prompt itself, {prompt!r}, got {got!r}"


def evaluation(case: Mapping[str, Any]) -> InContext:
    """Create the evaluation of a configuration, from its original dicts."""
    infer_cfg = {
        "prompt_template": decoded(case["template"]),
        "ice_template": decoded(case["ice_template"]),
        "retriever": case["retriever"],
        "inferencer": case["inferencer"],
    }
    return InContext.from_cfg(infer_cfg, case["reader"], train=decoded(case["train_examples"]))


def not_that_prompt(prompt: Any, result: Mapping[str, Any]) -> str | None:
    """Return the difference of a prompt from the prompt for no model, or None."""
    kind = difference(prompt, prompt, result.get("promptlist_type"))
    return kind or difference(without_markers(prompt), without_markers(decoded(result["promptlist"])), None)


@cache
def meta_templates(folder: Path) -> Any:
    """Read the meta templates next to the cases, or the shared meta templates."""
    places = [place / "meta_templates.json" for place in (folder, folder.parent, _GIVEN)]
    found = next((place for place in places if place.is_file()), None)
    if found is None:
        raise SystemExit(f"no meta_templates.json beside the cases; looked for {', '.join(map(str, places))}")
    return json.loads(found.read_text("utf-8"))
