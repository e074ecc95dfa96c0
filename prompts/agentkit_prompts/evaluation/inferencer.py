"""`Inferencer`: settings of the requests and replies of an evaluation, as in configurations."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Literal, TypeAlias, get_args

from agentkit_prompts.caller_warnings import warn
from agentkit_prompts.context.frozen import FrozenDict
from agentkit_prompts.errors import InContextError, InContextWarning, Problem, Problems, brief, raise_problems
from agentkit_prompts.evaluation.multi_turn import InferMode
from agentkit_prompts.evaluation.problems import unknown_names
from agentkit_prompts.names import nearest

Asks: TypeAlias = Literal["gen", "dialogue", "ppl", "ll"]
"""`gen`: one request per row. `dialogue`: one request per turn. `ppl`: one text per label, which is scored as a whole.
`ll`: one text per label, of which only the text of the column `cont` is scored."""

ASKED: Mapping[str, Asks] = {
    "GenInferencer": "gen",
    "ParallelGenInferencer": "gen",
    "ChatInferencer": "dialogue",
    "ParallelChatInferencer": "dialogue",
    "MultiTurnGenInferencer": "dialogue",
    "PPLInferencer": "ppl",
    "LLInferencer": "ll",
}
"""Kinds of the requests of the inferencers that can be run here, by the name of the class."""

BUILT = (
    *("AgentInferencer", "AttackInferencer", "BFCLV3FunctionCallInferencer", "CLPInferencer", "ChatMLInferencer"),
    *("GLMChoiceInferencer", "InferencePPLOnlyInferencer", "LMMGenInferencer", "MinKPercentInferencer"),
    *("PPLOnlyInferencer", "ParallelChatMLInferencer", "SCInferencer", "SWCELossInferencer", "ToTInferencer"),
)
"""Names of inferencers that cannot be run here, but whose prompts can be created."""

_DEFAULT_MODES: Mapping[str, InferMode] = {
    "ChatInferencer": "last",
    "ParallelChatInferencer": "last",
    "MultiTurnGenInferencer": "every",
}
_GENERATION: Mapping[str, str] = {
    "do_sample": "True or False",
    "temperature": "a number",
    "top_p": "a number",
    "top_k": "a whole number",
}
_FILES = ("output_json_filepath", "output_json_filename")
_OUT = "the answers go to the file that `run(..., out=)` names"
_MEANINGLESS = ("save_every",)
"""Keys of the original classes that have no effect here, because every answer is stored when it arrives."""


def _is_count(value: object) -> bool:
    return type(value) is int and value > 0


def _is_counts(value: object) -> bool:
    return _is_count(value) or (isinstance(value, list | tuple) and bool(value) and all(map(_is_count, value)))


def _is_texts(value: object) -> bool:
    return isinstance(value, list | tuple) and all(isinstance(text, str) and text for text in value)


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
    """Settings of the requests for rows (`inferencer` of the OpenCompass and AISBench documents).

    A field that is None uses the default of the model.

    Raises:
        InContextError: The inferencer is unknown, or a field is invalid or not for this inferencer; names all problems.
    """

    name: str = "GenInferencer"
    """Name of the original class; see `ASKED` for classes that can be run."""
    infer_mode: InferMode | None = None
    """Requested turns of a dialogue, and the source of earlier answers; by default `last` for
    `ChatInferencer` and `every` for `MultiTurnGenInferencer`."""
    max_out_len: int | Sequence[int] | None = None
    """Maximum tokens of a reply; or a list with one number per turn."""
    min_out_len: int | None = None
    """Minimum tokens of a reply."""
    stopping_criteria: Sequence[str] = ()
    """Texts at which a reply ends."""
    batch_size: int | None = None
    """Maximum concurrent requests."""
    max_seq_len: int | None = None
    """Maximum tokens of a prompt. Worked examples are removed, the last first, until the prompt fits."""
    gen_field_replace_token: str = ""
    """Text that replaces the answer in a prompt."""
    labels: Sequence[Any] | None = None
    """Labels that are scored instead of the labels of the template."""
    normalizing_str: str | None = None
    """Text that replaces the text before the `sep_token` in a second scored prompt, whose score is subtracted."""
    generation_kwargs: Mapping[str, Any] = field(default_factory=FrozenDict)
    """`temperature`, `top_p`, `top_k`, `do_sample`."""

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or self.name not in (*ASKED, *BUILT):
            text = f"unknown inferencer {self.name!r:.80}{nearest(str(self.name), ASKED)}"
            raise InContextError(text, name="name", value=brief(self.name))
        problems = self._problems_of_values() + self._problems_of_use() + _generation_problems(self.generation_kwargs)
        raise_problems(InContextError, f"inferencer {self.name}", problems)

    def _problems_of_values(self) -> Problems:
        """Return a problem for each field with a wrong value."""
        problems: Problems = []
        for name, (is_valid, expected) in _CHECKS.items():
            value = getattr(self, name)
            if (value is not None or name not in _OPTIONAL) and not is_valid(value):
                problems.append(Problem(name, f"must be {expected}, got {brief(value)}"))
        return problems

    def _problems_of_use(self) -> Problems:
        """Return a problem for each field that has no meaning for this inferencer."""
        # None for an inferencer that cannot be run here; its prompts can have any settings.
        asks: Asks | None = ASKED.get(self.name)
        has_lengths = isinstance(self.max_out_len, list | tuple) and len(self.max_out_len) > 1
        misuses = (
            ("infer_mode", self.infer_mode is not None, ("dialogue", None), f"is for {', '.join(_DEFAULT_MODES)}"),
            ("max_out_len", has_lengths, ("dialogue",), "has a number for each turn, but only one turn is requested"),
            ("labels", self.labels is not None, ("ppl", "ll", None), "is for PPLInferencer and LLInferencer"),
            ("normalizing_str", self.normalizing_str is not None, ("ppl",), "is for PPLInferencer"),
        )
        return [Problem(name, text) for name, is_set, users, text in misuses if is_set and asks not in users]

    @property
    def asks(self) -> Asks:
        """Kind of the requests; `gen` for inferencers that cannot be run here."""
        return ASKED.get(self.name, "gen")

    @property
    def mode(self) -> InferMode | None:
        """Requested turns of a dialogue; None if each row is one request."""
        if self.asks != "dialogue":
            return None
        return self.infer_mode or _DEFAULT_MODES.get(self.name)

    @classmethod
    def from_cfg(cls, name: str, cfg: Mapping[str, Any]) -> Inferencer:
        """Read the dict of a configuration. The dict of an inferencer that cannot be run here can have any keys.

        Raises:
            InContextError: A key is unknown, or a value is invalid; see the class.
        """
        if name not in ASKED:
            return cls(name=name, gen_field_replace_token=cfg.get("gen_field_replace_token", ""))
        own = {field.name for field in fields(cls)} - {"name", "generation_kwargs"}
        problems = unknown_names("", cfg, ("type", *own, "generation_kwargs", *_GENERATION, *_MEANINGLESS, *_FILES))
        problems += [Problem(key, _OUT) for key in _FILES if key in cfg]
        raise_problems(InContextError, f"inferencer {name}", problems)
        options = {key: cfg[key] for key in own & cfg.keys()}
        # Some shipped files set labels for a GenInferencer, which scores nothing.
        if name == "GenInferencer" and options.pop("labels", None) is not None:
            text = "inferencer GenInferencer: labels have no effect and are ignored"
            warn(InContextWarning(text, name="labels"))
        return cls(name=name, **options, generation_kwargs=_sampling(cfg))


def _sampling(cfg: Mapping[str, Any]) -> Any:
    """Return the sampling settings of a configuration; settings next to `generation_kwargs` have precedence."""
    sampling = cfg.get("generation_kwargs", {})
    outer = {key: value for key, value in cfg.items() if key in _GENERATION}
    # A `generation_kwargs` that is not a dict is returned unchanged, because the class checks it.
    if outer:
        return {**sampling, **outer}
    return sampling


def _generation_problems(sampling: object) -> Problems:
    if not isinstance(sampling, Mapping):
        return []
    problems = unknown_names("generation_kwargs", sampling, _GENERATION)
    for key, expected in _GENERATION.items():
        value = sampling.get(key)
        is_bool = type(value) is bool
        if key in sampling and (is_bool != (key == "do_sample") or not isinstance(value, int | float)):
            problems.append(Problem(key, f"must be {expected}, got {brief(value)}"))
    return problems
