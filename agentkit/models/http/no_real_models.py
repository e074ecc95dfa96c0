"""`no_real_models`: refuses requests to models over a network during a test."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from agentkit.models.model import Model
from agentkit.models.model_errors import NetworkRefused

_REFUSED: ContextVar[bool] = ContextVar("agentkit_no_real_models", default=False)


@contextmanager
def no_real_models() -> Iterator[None]:
    """Refuse every request to a model over a network inside of the block, for tests.

    Raises, in the run that sends the request:
        NetworkRefused: Names the model.
    """
    token = _REFUSED.set(True)
    try:
        yield
    finally:
        _REFUSED.reset(token)


def check_real_models(model: Model) -> None:
    """Refuse a request to a model inside of `no_real_models()`.

    Raises:
        NetworkRefused: Names the model.
    """
    if _REFUSED.get():
        raise NetworkRefused(f"{model!r} would send a request: no real model is allowed here", model=model.name)
