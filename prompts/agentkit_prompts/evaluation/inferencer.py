"""`Inferencer`: how the rows of an evaluation are asked, and what the model may answer, as configurations say it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Literal, TypeAlias, get_args

from agentkit_prompts.caller_warnings import warn
from agentkit_prompts.context.frozen import FrozenDict
from agentkit_prompts.errors import InContextError, InContextWarning, brief
from agentkit_prompts.evaluation.multi_turn import InferMode
from agentkit_prompts.evaluation.problems import Problem, refuse, unknown_names
from agentkit_prompts.names import nearest

__all__ = ["ASKED", "Asks", "Inferencer"]

Asks: TypeAlias = Literal["gen", "dialogue", "ppl", "ll"]
"""`gen`: one request per row. `dialogue`: turn by turn. `ppl`: one text per label, scored as a whole. `ll`: likewise,
of which the text of the column `cont` alone is scored."""

ASKED: Mapping[str, Asks] = {
    "GenInferencer": "gen",
    "ParallelGenInferencer": "gen",
    "ChatInferencer": "dialogue",
    "ParallelChatInferencer": "dialogue",
    "MultiTurnGenInferencer": "dialogue",
    "PPLInferencer": "ppl",
    "LLInferencer": "ll",
}
"""Name of an inferencer that can be run -> how it asks."""

BUILT = (
    *("AgentInferencer", "AttackInferencer", "BFCLV3FunctionCallInferencer", "CLPInferencer", "ChatMLInferencer"),
    *("GLMChoiceInferencer", "InferencePPLOnlyInferencer", "LMMGenInferencer", "MinKPercentInferencer"),
    *("PPLOnlyInferencer", "ParallelChatMLInferencer", "SCInferencer", "SWCELossInferencer", "ToTInferencer"),
)
"""Names of inferencers whose prompts are built and which nothing here runs."""

_DEFAULT_MODES: Mapping[str, InferMode] = {
    "ChatInferencer": "last",
    "ParallelChatInferencer": "last",
    "MultiTurnGenInferencer": "every",
}
_GENERATION: Mapping[str, str] = {"do_sample": "", "temperature": "number", "top_p": "number", "top_k": "whole number"}
_MEANINGLESS = ("save_every",)
"""Keys of the originals that change nothing here: every answer is written when it arrives."""


def _is_count(value: object) -> bool:
    return type(value) is int and value > 0


def _is_counts(value: object) -> bool:
    return _is_count(value) or (isinstance(value, list | tuple) and bool(value) and all(map(_is_count, value)))


def _is_texts(value: object) -> bool:
    return isinstance(value, list | tuple) and all(isinstance(one, str) and one for one in value)


_CHECKS: Mapping[str, tuple[Callable[[Any], bool], str]] = {
    "max_out_len": (_is_counts, "a number of tokens, 1 or more, or a list with one for each turn"),
    "min_out_len": (_is_count, "a number of tokens, 1 or more"),
    "stopping_criteria": (_is_texts, "a list of texts that are not empty"),
    "batch_size": (_is_count, "a number of requests, 1 or more"),
    "max_seq_len": (_is_count, "a number of tokens, 1 or more"),
    "gen_field_replace_token": (lambda value: isinstance(value, str), "text"),
    "infer_mode": (lambda value: value in get_args(InferMode), f"one of {', '.join(get_args(InferMode))}"),
    "labels": (lambda value: isinstance(value, list | tuple) and bool(value), "a list that is not empty"),
    "normalizing_str": (lambda value: isinstance(value, str), "text"),
    "generation_kwargs": (lambda value: isinstance(value, Mapping), "a dict of sampling settings"),
}

_OPTIONAL = frozenset(_CHECKS) - {"stopping_criteria", "gen_field_replace_token", "generation_kwargs"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Inferencer:
    """How rows are asked (`inferencer` of the OpenCompass and AISBench documents). None leaves a thing to the model.

    Raises:
        InContextError: There is no inferencer of that name, or a field has the wrong value or no meaning for it; names
            everything at once.
    """

    name: str = "GenInferencer"
    """The class of the original; see `ASKED` for those that can be run."""
    infer_mode: InferMode | None = None
    """Which turns of a dialogue are asked, and after whose answers; `last` for `ChatInferencer` and `every` for
    `MultiTurnGenInferencer` when not given."""
    max_out_len: int | Sequence[int] | None = None
    """Tokens of a reply at most; a list has one number for each turn."""
    min_out_len: int | None = None
    """Tokens of a reply at least."""
    stopping_criteria: Sequence[str] = ()
    """Texts at which a reply ends."""
    batch_size: int | None = None
    """Requests at once."""
    max_seq_len: int | None = None
    """Tokens of a prompt at most: worked examples are left out, the last one first, until it fits."""
    gen_field_replace_token: str = ""
    """What stands where the answer would."""
    labels: Sequence[Any] | None = None
    """What is scored, in the place of the labels of the template."""
    normalizing_str: str | None = None
    """Scored in the place of what stands before the `sep_token`; its score is taken off."""
    generation_kwargs: Mapping[str, Any] = field(default_factory=FrozenDict)
    """`temperature`, `top_p`, `top_k`, `do_sample`."""

    def __post_init__(self) -> None:
        known = (*ASKED, *BUILT)
        if not isinstance(self.name, str) or self.name not in known:
            raise InContextError(
                f"unknown inferencer {self.name!r:.80}{nearest(str(self.name), known)}; run are {', '.join(ASKED)}",
                name="name",
                value=brief(self.name),
            )
        problems: list[Problem] = []
        for name, (is_right, expected) in _CHECKS.items():
            value = getattr(self, name)
            if not (value is None and name in _OPTIONAL) and not is_right(value):
                near = nearest(str(value), get_args(InferMode)) if name == "infer_mode" else ""
                problems.append(Problem(name, f"{name} must be {expected}, got {brief(value)}{near}"))
        asks = self.asks
        if self.infer_mode is not None and self.name in ASKED and asks != "dialogue":
            problems.append(Problem("infer_mode", f"infer_mode is for dialogues: {', '.join(_DEFAULT_MODES)}"))
        if isinstance(self.max_out_len, list | tuple) and asks in ("gen", "ppl", "ll") and len(self.max_out_len) > 1:
            text = "max_out_len has a number for each turn, and there is one turn; give one number"
            problems.append(Problem("max_out_len", text))
        if self.labels is not None and asks in ("gen", "dialogue") and self.name in ASKED:
            problems.append(Problem("labels", "labels are for inferencers that score: PPLInferencer, LLInferencer"))
        if self.normalizing_str is not None and asks != "ppl":
            problems.append(Problem("normalizing_str", "normalizing_str is for PPLInferencer"))
        if isinstance(self.generation_kwargs, Mapping):
            problems += _generation_problems(self.generation_kwargs)
        if problems:
            raise refuse(f"inferencer {self.name}", problems)

    @property
    def asks(self) -> Asks:
        """How it asks; those that nothing here runs are built like `gen`."""
        return ASKED.get(self.name, "gen")

    @property
    def mode(self) -> InferMode | None:
        """Which turns of a dialogue are asked; None where each row is one request."""
        return self.infer_mode or _DEFAULT_MODES.get(self.name) if self.asks == "dialogue" else None

    @classmethod
    def from_cfg(cls, name: str, cfg: Mapping[str, Any]) -> Inferencer:
        """Read the dict of a configuration; of inferencers that are not run here any key is taken.

        Raises:
            InContextError: A key is unknown; otherwise as the class.
        """
        own = [field.name for field in fields(cls) if field.name not in ("name", "generation_kwargs")]
        sampling = {key: value for key, value in cfg.items() if key in _GENERATION}
        given = {key: value for key, value in cfg.items() if key in own}
        if name in ASKED:
            known = ("type", *own, "generation_kwargs", *_GENERATION, *_MEANINGLESS)
            unknown = unknown_names("", "unknown key", cfg, known)
            unknown += [
                Problem(key, f"{key}: the answers go to the file that `run(..., out=)` names")
                for key in ("output_json_filepath", "output_json_filename")
                if key in cfg
            ]
            if unknown:
                raise refuse(f"inferencer {name}", unknown)
            if name == "GenInferencer" and given.pop("labels", None) is not None:  # some shipped files have it
                text = "inferencer GenInferencer: labels have no meaning for it and are left out"
                warn(InContextWarning(text, name="labels"))
            inner = cfg.get("generation_kwargs", {})
            return cls(name=name, **given, generation_kwargs={**inner, **sampling} if sampling else inner)
        return cls(name=name, gen_field_replace_token=cfg.get("gen_field_replace_token", ""))


def _generation_problems(given: Mapping[str, Any]) -> list[Problem]:
    problems = unknown_names("generation_kwargs", "generation_kwargs: unknown key", given, _GENERATION)
    for key, kind in _GENERATION.items():
        value = given.get(key, 0)
        is_right = isinstance(value, bool) if key == "do_sample" and key in given else type(value) in (int, float)
        if not is_right:
            problems.append(Problem(key, f"{key} must be a {kind or 'bool'}, got {brief(value)}"))
    return problems
