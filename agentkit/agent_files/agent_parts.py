"""Conversion of parts of an agent file to arguments of an agent."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Any

from agentkit.agent_files.agent_file import BudgetPart, CompactionPart, PricePart, RecallPart
from agentkit.errors import AgentDefinitionError
from agentkit.models import model_names
from agentkit.models.model import Model
from agentkit.models.prices import Price, read_price
from agentkit.models.redacting.redacting_model import RedactingModel
from agentkit.run.parts.compaction import Compaction, Summarise, Trim
from agentkit.run.parts.recaller import RecallOptions
from agentkit.run.parts.run_guards import Guard
from agentkit_prompts.tokens.budget import Budget

_VARIABLE = re.compile(r"\$\{(\w+)\}")


def budget_of(part: int | BudgetPart) -> int | Budget:
    """Return a budget of tokens."""
    if isinstance(part, int):
        return part
    return Budget(part.limit, part.reserve)


def recall_options_of(part: RecallPart) -> RecallOptions:
    """Return the options of recall."""
    options = part.model_dump(exclude_none=True)
    if "roles" in options:
        options["roles"] = tuple(options["roles"])
    return RecallOptions(**options)


def compaction_of(part: CompactionPart, model: Model) -> Compaction:
    """Return the compaction. Its summaries are written by the model of the part, or else by `model`."""
    if part.price is not None and part.model is None:
        raise AgentDefinitionError("price is the price of `model`: name the model", name="price")
    if part.kind == "trim":
        if part.model is not None:
            raise AgentDefinitionError(
                "model is only valid with `kind: summarise`; `kind: trim` calls no model", name="model"
            )
        return Trim(tokens=part.tokens, keep=part.keep)
    writer = model
    if part.model is not None:
        writer = model_names.model(part.model, price=price_of(part.price))
        # The other model must not receive personal data either.
        if isinstance(model, RedactingModel):
            writer = model.with_model(writer)
    return Summarise(writer, tokens=part.tokens, keep=part.keep)


def price_of(part: PricePart | None) -> Price | None:
    """Return the price of a model; None without a price."""
    if part is None:
        return None
    return read_price(part.model_dump(exclude_none=True))


def guard_of(guard: Any) -> Guard:
    """Return a guard.

    Raises:
        AgentDefinitionError: The object is not a guard.
    """
    if not isinstance(guard, Guard):
        raise AgentDefinitionError(
            f"expected a function with the decorator @guard, got a {type(guard).__name__}",
            name="guards",
            value=type(guard).__name__,
        )
    return guard


def expanded(values: Mapping[str, str]) -> dict[str, str]:
    """Return a copy of `values` in which each `${NAME}` is replaced by the environment variable.

    Raises:
        AgentDefinitionError: A variable is not set. The message lists all such variables.
    """
    names = {name for value in values.values() for name in _VARIABLE.findall(value)}
    if missing := sorted(name for name in names if name not in os.environ):
        raise AgentDefinitionError(f"not set in the environment: {', '.join(missing)}", name=", ".join(missing))
    return {key: _VARIABLE.sub(lambda match: os.environ[match[1]], value) for key, value in values.items()}
