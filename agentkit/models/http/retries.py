"""Whether a request to a model is made again, and after how long."""

from __future__ import annotations

import random

from agentkit.models.model_errors import ModelError, ModelInterrupted, ModelRateLimited, ModelUnavailable

__all__ = ["pause_before"]

_MAX_PAUSE = 8.0
"""Seconds between two attempts, where the endpoint does not name them."""
_MAX_ASKED_PAUSE = 60.0
"""Seconds that are waited because the endpoint asks for them."""


def pause_before(error: ModelError, attempt: int) -> float | None:
    """Return how long to wait before another attempt; None where there is to be none."""
    # The quota is used up: waiting changes nothing.
    if isinstance(error, ModelRateLimited) and error.is_final:
        return None
    if not isinstance(error, ModelUnavailable | ModelRateLimited | ModelInterrupted):
        return None
    if isinstance(error, ModelRateLimited) and error.retry_after is not None:
        # A longer wait is the decision of the caller.
        if error.retry_after > _MAX_ASKED_PAUSE:
            return None
        return error.retry_after
    # Random parts of a second keep processes that failed together from returning together.
    return min(_MAX_PAUSE, 0.5 * 2.0 ** (attempt - 1)) * random.uniform(0.75, 1.0)
