"""Reader of the configuration dicts `infer_cfg` and `reader_cfg`, which returns the arguments of an `InContext`."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from functools import partial
from typing import TYPE_CHECKING, Any

from agentkit_prompts.errors import InContextError, Problem, Problems, PromptError, brief, raise_problems
from agentkit_prompts.evaluation.dataset_reader import DatasetReader
from agentkit_prompts.evaluation.inferencer import Inferencer
from agentkit_prompts.evaluation.multi_turn import MultiTurnPromptTemplate
from agentkit_prompts.evaluation.multimodal import MMPromptTemplate
from agentkit_prompts.evaluation.problems import problems_of_error, some, unknown_names, wrong_type
from agentkit_prompts.evaluation.prompt_template import PromptTemplate
from agentkit_prompts.evaluation.raw_template import RawPromptTemplate
from agentkit_prompts.evaluation.retrievers import BM25Selector, RandomSelector, WindowSelector
from agentkit_prompts.names import nearest
from agentkit_prompts.tree.example_selectors import VectorSelector
from agentkit_prompts.tree.examples import ExampleSelector, StaticSelector

if TYPE_CHECKING:
    from agentkit_prompts.ranking.embedder import Embedder

_KEYS = ("prompt_template", "ice_template", "retriever", "inferencer")
_LENGTH = "max_out_len"
"""Key of the inferencer. Some configurations have this key next to the inferencer."""
_TEMPLATES: dict[str, Any] = {
    kind.__name__: kind for kind in (PromptTemplate, RawPromptTemplate, MultiTurnPromptTemplate, MMPromptTemplate)
}
_Settings = Mapping[str, Any]
_EXAMPLES = 5
"""Number of row numbers in the example of an error message."""


def _fixed(settings: _Settings, _: object) -> ExampleSelector:
    ids = settings.get("fix_id_list")
    if ids is None:
        example = [*range(_EXAMPLES)]
        text = f"fix_id_list is missing: the numbers of the training rows to show, such as {example}"
        raise InContextError(text, name="fix_id_list")
    if not isinstance(ids, Sequence) or isinstance(ids, str):
        text = f"fix_id_list must be a list of row numbers, got {brief(ids)}"
        raise InContextError(text, name="fix_id_list", value=type(ids).__name__)
    invalid = [brief(number) for number in ids if type(number) is not int]
    if invalid:
        text = f"fix_id_list must contain row numbers, got {some(invalid, ', ')}"
        raise InContextError(text, name="fix_id_list", value=some(invalid, ", "))
    return StaticSelector(ids=[*map(str, ids)])


def _nearest(settings: _Settings, embedder: Embedder | None) -> ExampleSelector:
    if embedder is None:
        raise InContextError("a TopkRetriever compares vectors; pass `embedder`", name="embedder")
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
"""Function that creates the selector, and its additional keys, by the type in a configuration."""


def read_cfg(
    infer_cfg: Mapping[str, Any], reader_cfg: Mapping[str, Any] | DatasetReader, embedder: Embedder | None
) -> dict[str, Any]:
    """Return the arguments of `InContext`; see `InContext.from_cfg`."""
    if not isinstance(infer_cfg, Mapping):
        kind = type(infer_cfg).__name__
        raise InContextError(f"infer_cfg must be a dict, got {kind}", name="infer_cfg", value=kind)
    problems = unknown_names("infer_cfg", infer_cfg, (*_KEYS, _LENGTH))
    arguments: dict[str, Any] = {"reader": _reader(reader_cfg, problems)}
    for key in ("prompt_template", "ice_template"):
        arguments[key] = _template(infer_cfg.get(key), f"infer_cfg[{key!r}]", problems)
    arguments |= _retriever(infer_cfg.get("retriever"), embedder, problems)
    arguments |= _inferencer(infer_cfg.get("inferencer"), infer_cfg.get(_LENGTH), problems)
    raise_problems(InContextError, "", problems)
    return arguments


def shows_examples(infer_cfg: Mapping[str, Any]) -> bool:
    """True if an `infer_cfg` names a retriever that chooses worked examples."""
    retriever = infer_cfg.get("retriever") if isinstance(infer_cfg, Mapping) else None
    if isinstance(retriever, Mapping):
        return _name(retriever.get("type")) != "ZeroRetriever"
    return retriever is not None


def _reader(cfg: Any, problems: Problems) -> Any:
    if isinstance(cfg, DatasetReader):
        return cfg
    if not isinstance(cfg, Mapping):
        problems += wrong_type("reader_cfg", cfg, Mapping, "a dict")
        return None
    names = [field.name for field in fields(DatasetReader)]
    problems += unknown_names("reader_cfg", cfg, names)
    settings = {"input_columns": (), **{key: value for key, value in cfg.items() if key in names}}
    for key in ("input_template", "output_template"):
        settings[key] = _template(cfg.get(key), f"reader_cfg[{key!r}]", problems)
    return _created("reader_cfg", lambda: DatasetReader(**settings), problems)


def _template(cfg: Any, place: str, problems: Problems) -> Any:
    if cfg is None or hasattr(cfg, "ice_item"):
        return cfg
    if not isinstance(cfg, Mapping):
        problems += wrong_type(place, cfg, Mapping, "a dict with type and template")
        return None
    settings = {key: value for key, value in cfg.items() if key != "type"}
    kind = cfg.get("type", "PromptTemplate")
    cls = _template_class(kind)
    if cls is None:
        problems.append(Problem(f"{place}.type", f"unknown type {kind!r}{nearest(_name(kind), _TEMPLATES)}"))
        return None
    own_problems = _problems_of_settings(cls, settings, place)
    # Without these keys, the configuration is often the value of `template` itself.
    if not {"type", "template"} & cfg.keys():
        own_problems.append(Problem(place, "labels and their prompts, or a dialogue, belong under `template`"))
    # The class is not called, because it would report the same keys again, in less detail.
    if own_problems:
        problems += own_problems
        return None
    return _created(place, partial(cls, **settings), problems)


def _problems_of_settings(cls: Any, settings: _Settings, place: str) -> Problems:
    """Return the unknown and the missing keys of a template."""
    # From the signature, because the class can be a class of the caller.
    parameters = inspect.signature(cls).parameters
    required = [key for key, parameter in parameters.items() if parameter.default is parameter.empty]
    problems = unknown_names(place, settings, tuple(parameters))
    problems += [Problem(f"{place}.{key}", "missing") for key in required if key not in settings]
    return problems


def _template_class(kind: object) -> Any:
    """Return the class of a template for a class or a name; None if unknown.

    A template class of the caller is returned; any other class or name selects the class of this package with the same
    name.
    """
    if isinstance(kind, type) and hasattr(kind, "ice_item"):
        return kind
    return _TEMPLATES.get(_name(kind))


def _retriever(cfg: Any, embedder: Embedder | None, problems: Problems) -> dict[str, Any]:
    place = "infer_cfg['retriever']"
    if cfg is None:
        return {}
    if isinstance(cfg, ExampleSelector) and not isinstance(cfg, Mapping | type):
        return {"retriever": cfg}
    if not isinstance(cfg, Mapping) or "type" not in cfg:
        problems.append(Problem(place, f"must be a dict with a type, or an example selector, got {brief(cfg)}"))
        return {}
    name = _name(cfg["type"])
    if name not in _RETRIEVERS:
        problems.append(Problem(f"{place}.type", f"unknown type {cfg['type']!r}{nearest(name, _RETRIEVERS)}"))
        return {}
    create, keys = _RETRIEVERS[name]
    problems += unknown_names(place, cfg, (*_COMMON, *keys))
    return {
        "retriever": _created(place, lambda: create(cfg, embedder), problems),
        "separator": _separator(cfg, "ice_separator", place, problems),
        "end": _separator(cfg, "ice_eos_token", place, problems),
    }


def _separator(cfg: _Settings, key: str, place: str, problems: Problems) -> Any:
    default = "\n"
    # Without examples, no separator is necessary.
    if _name(cfg["type"]) == "ZeroRetriever":
        default = ""
    separator = cfg.get(key, default)
    problems += wrong_type(f"{place}.{key}", separator, str, "text")
    return separator


def _inferencer(cfg: Any, length: Any, problems: Problems) -> dict[str, Any]:
    place = "infer_cfg['inferencer']"
    if cfg is None:
        cfg = {"type": "GenInferencer"}
    if isinstance(cfg, Inferencer):
        return {"inferencer": cfg}
    if not isinstance(cfg, Mapping) or "type" not in cfg:
        problems.append(Problem(place, f"must be a dict with a type, got {brief(cfg)}"))
        return {}
    settings = {**cfg}
    # A length inside the inferencer has precedence over a length next to it.
    if length is not None:
        settings.setdefault(_LENGTH, length)
    return {"inferencer": _created(place, lambda: Inferencer.from_cfg(_name(cfg["type"]), settings), problems)}


def _name(kind: object) -> str:
    """Return the name of a class, without the module; `kind` is the class or its dotted name."""
    if isinstance(kind, type):
        return kind.__name__
    return str(kind).rpartition(".")[2].rpartition(":")[2]


def _created(place: str, create: Callable[[], Any], problems: Problems) -> Any:
    """Return the result of `create`; None if it raises an error, whose problems are added to `problems`."""
    try:
        return create()
    except PromptError as error:
        problems += problems_of_error(place, error)
        return None
