"""Pauses between the retries of a request to a model."""

from __future__ import annotations

import random

from agentkit.models.model_errors import ModelError, ModelInterrupted, ModelRateLimited, ModelUnavailable

_MAX_PAUSE = 8.0
"""Maximum seconds between two attempts if the endpoint does not name a pause."""
_MAX_NAMED_PAUSE = 60.0
"""Maximum seconds of a pause that the endpoint names."""


def pause_before(error: ModelError, attempt: int) -> float | None:
    """Return the seconds to wait before the next attempt; None if the request must not be retried."""
    # The quota is used up: waiting changes nothing.
    if isinstance(error, ModelRateLimited) and error.is_final:
        return None
    if not isinstance(error, ModelUnavailable | ModelRateLimited | ModelInterrupted):
        return None
    if error.retry_after is not None:
        # The caller decides about longer pauses.
        if error.retry_after > _MAX_NAMED_PAUSE:
            return None
        return error.retry_after
    # A random part of the pause keeps processes that failed together from retrying together.
    return min(_MAX_PAUSE, 0.5 * 2.0 ** (attempt - 1)) * random.uniform(0.75, 1.0)
