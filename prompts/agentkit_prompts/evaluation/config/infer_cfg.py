"""`infer_cfg` and `reader_cfg` as evaluation suites ship them, read into what `InContext` is made of."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from typing import TYPE_CHECKING, Any

from agentkit_prompts.errors import InContextError, PromptError, brief
from agentkit_prompts.evaluation.dataset_reader import DatasetReader
from agentkit_prompts.evaluation.inferencer import Inferencer
from agentkit_prompts.evaluation.multi_turn import MultiTurnPromptTemplate
from agentkit_prompts.evaluation.multimodal import MMPromptTemplate
from agentkit_prompts.evaluation.problems import Problem, problems_of_error, refuse, unknown_names
from agentkit_prompts.evaluation.prompt_template import PromptTemplate
from agentkit_prompts.evaluation.raw_template import RawPromptTemplate
from agentkit_prompts.evaluation.retrievers import BM25Selector, RandomSelector, WindowSelector
from agentkit_prompts.names import nearest
from agentkit_prompts.tree.example_selectors import VectorSelector
from agentkit_prompts.tree.examples import ExampleSelector, StaticSelector

if TYPE_CHECKING:
    from agentkit_prompts.ranking.embedder import Embedder

__all__ = ["read_cfg", "shows_examples"]

_KEYS = ("prompt_template", "ice_template", "retriever", "inferencer")
_LENGTH = "max_out_len"
"""Some configurations have it beside the inferencer."""
_TEMPLATES: dict[str, Any] = {
    kind.__name__: kind for kind in (PromptTemplate, RawPromptTemplate, MultiTurnPromptTemplate, MMPromptTemplate)
}
_Settings = Mapping[str, Any]
_MAX_EXAMPLE = 5
"""Row numbers that an error shows as an example."""


def _fixed(settings: _Settings, _: object) -> ExampleSelector:
    ids = settings.get("fix_id_list")
    if ids is None:
        count = settings.get("ice_num")
        example = [*range(count if type(count) is int and 0 < count <= _MAX_EXAMPLE else _MAX_EXAMPLE)]
        text = f"fix_id_list is missing: the numbers of the training rows to show, such as {example}"
        raise InContextError(text, name="fix_id_list")
    if not isinstance(ids, Sequence) or isinstance(ids, str):
        text = f"fix_id_list must be a list of row numbers, got {ids!r}"[:200]
        raise InContextError(text, name="fix_id_list", value=type(ids).__name__)
    wrong = [brief(number) for number in ids if type(number) is not int]
    if wrong:
        text = f"fix_id_list must contain row numbers, got {', '.join(wrong)}"[:200]
        raise InContextError(text, name="fix_id_list", value=wrong[0])
    return StaticSelector(ids=[str(number) for number in ids])


def _nearest(settings: _Settings, embedder: Embedder | None) -> ExampleSelector:
    if embedder is None:
        raise InContextError("a TopkRetriever compares vectors; pass `embedder`, which makes them", name="embedder")
    return VectorSelector(embedder, settings.get("ice_num", 1))


_COMMON = ("type", "ice_num", "ice_separator", "ice_eos_token", "index_split", "test_split")
_RETRIEVERS: dict[str, tuple[Callable[[_Settings, Embedder | None], ExampleSelector], tuple[str, ...]]] = {
    "ZeroRetriever": (lambda cfg, _: StaticSelector(0), ()),
    "FixKRetriever": (_fixed, ("fix_id_list",)),
    "RandomRetriever": (lambda cfg, _: RandomSelector(cfg.get("ice_num", 1), seed=cfg.get("seed", 43)), ("seed",)),
    "SlidingWindowRetriever": (lambda cfg, _: WindowSelector(cfg.get("k", cfg.get("ice_num", 1))), ("k",)),
    "BM25Retriever": (lambda cfg, _: BM25Selector(cfg.get("ice_num", 1)), ()),
    "TopkRetriever": (_nearest, ("sentence_transformers_model_name", "tokenizer_name", "batch_size")),
}
"""Type in a configuration -> what makes the selector, and the keys that it takes beside the common ones."""


def read_cfg(
    infer_cfg: Mapping[str, Any], reader_cfg: Mapping[str, Any] | DatasetReader, embedder: Embedder | None
) -> dict[str, Any]:
    """Return the arguments of `InContext`; see `InContext.from_cfg`."""
    if not isinstance(infer_cfg, Mapping):
        text = f"infer_cfg must be a dict, got {type(infer_cfg).__name__}"
        raise InContextError(text, name="infer_cfg", value=type(infer_cfg).__name__)
    keys = [key for key in infer_cfg if key != _LENGTH]
    problems = unknown_names("infer_cfg", "infer_cfg: unknown key", keys, _KEYS)
    made: dict[str, Any] = {"reader": _reader(reader_cfg, problems)}
    for key in ("prompt_template", "ice_template"):
        made[key] = _template(infer_cfg.get(key), f"infer_cfg[{key!r}]", problems)
    made |= _retriever(infer_cfg.get("retriever"), embedder, problems)
    made |= _inferencer(infer_cfg.get("inferencer"), infer_cfg.get(_LENGTH), problems)
    if problems:
        raise refuse("", problems)
    return made


def shows_examples(infer_cfg: Mapping[str, Any]) -> bool:
    """Return whether an `infer_cfg` names a retriever that chooses worked examples."""
    retriever = infer_cfg.get("retriever") if isinstance(infer_cfg, Mapping) else None
    return retriever is not None and not (
        isinstance(retriever, Mapping) and _name(retriever.get("type")) == "ZeroRetriever"
    )


def _reader(cfg: Any, problems: list[Problem]) -> Any:
    if isinstance(cfg, DatasetReader):
        return cfg
    if not isinstance(cfg, Mapping):
        problems.append(Problem("reader_cfg", f"reader_cfg must be a dict, got {type(cfg).__name__}"))
        return None
    known = [field.name for field in fields(DatasetReader)]
    problems += unknown_names("reader_cfg", "reader_cfg: unknown key", cfg, known)
    settings = {key: value for key, value in cfg.items() if key in known}
    for key in ("input_template", "output_template"):
        if key in settings:
            settings[key] = _template(settings[key], f"reader_cfg[{key!r}]", problems)
    return _tried("reader_cfg", lambda: DatasetReader(**{"input_columns": (), **settings}), problems)


def _template(cfg: Any, where: str, problems: list[Problem]) -> Any:
    if cfg is None or hasattr(cfg, "ice_item"):
        return cfg
    if not isinstance(cfg, Mapping):
        problems.append(Problem(where, f"{where} must be a dict with type and template, got {type(cfg).__name__}"))
        return None
    kind = cfg.get("type", "PromptTemplate")
    own = isinstance(kind, type) and hasattr(kind, "ice_item")
    made: Any = kind if own else _TEMPLATES.get(_name(kind))
    if made is None:
        problems.append(Problem(f"{where}.type", f"{where}: unknown type {kind!r}{nearest(_name(kind), _TEMPLATES)}"))
        return None
    settings = {key: value for key, value in cfg.items() if key != "type"}
    parameters = inspect.signature(made).parameters
    wrong = unknown_names(where, f"{where}: unknown key", settings, tuple(parameters))
    needed = [key for key, value in parameters.items() if value.default is value.empty and key not in settings]
    wrong += [Problem(f"{where}.{key}", f"{where} has no {key!r}") for key in needed]
    if needed and "type" not in cfg:
        wrong.append(Problem(where, f"{where}: labels and their prompts, or a dialogue, belong under `template`"))
    problems += wrong
    return None if wrong else _tried(where, lambda: made(**settings), problems)


def _retriever(cfg: Any, embedder: Embedder | None, problems: list[Problem]) -> dict[str, Any]:
    where = "infer_cfg['retriever']"
    if cfg is None:
        return {}
    if isinstance(cfg, ExampleSelector) and not isinstance(cfg, Mapping | type):
        return {"retriever": cfg}
    if not isinstance(cfg, Mapping) or "type" not in cfg:
        text = f"{where} must be a dict with a type, or an example selector, got {cfg!r}"[:200]
        problems.append(Problem(where, text))
        return {}
    name = _name(cfg["type"])
    if name not in _RETRIEVERS:
        text = f"{where}: unknown type {cfg['type']!r}{nearest(name, _RETRIEVERS)}"
        problems.append(Problem(f"{where}.type", text))
        return {}
    make, keys = _RETRIEVERS[name]
    problems += unknown_names(where, f"{where}: unknown key", cfg, (*_COMMON, *keys))
    blank = "" if name == "ZeroRetriever" else "\n"
    texts = {"separator": cfg.get("ice_separator", blank), "end": cfg.get("ice_eos_token", blank)}
    problems += [
        Problem(f"{where}.{key}", f"{where}: {key} must be text, got {cfg[key]!r}"[:200])
        for key in ("ice_separator", "ice_eos_token")
        if not isinstance(cfg.get(key, ""), str)
    ]
    return {"retriever": _tried(where, lambda: make(cfg, embedder), problems), **texts}


def _inferencer(cfg: Any, length: Any, problems: list[Problem]) -> dict[str, Any]:
    where = "infer_cfg['inferencer']"
    if cfg is None:
        cfg = {"type": "GenInferencer"}
    if isinstance(cfg, Inferencer):
        return {"inferencer": cfg}
    if not isinstance(cfg, Mapping) or "type" not in cfg:
        problems.append(Problem(where, f"{where} must be a dict with a type, got {cfg!r}"[:200]))
        return {}
    name = _name(cfg["type"])
    given = {"max_out_len": length, **cfg} if length is not None else cfg
    return {"inferencer": _tried(where, lambda: Inferencer.from_cfg(name, given), problems)}


def _name(kind: object) -> str:
    """Return the bare name of a type: of a class, or of its dotted name."""
    return kind.__name__ if isinstance(kind, type) else str(kind).rpartition(".")[2].rpartition(":")[2]


def _tried(where: str, make: Callable[[], Any], problems: list[Problem]) -> Any:
    try:
        return make()
    except PromptError as error:
        problems += problems_of_error(where, error)
        return None
