"""How hard the laws are tried: 500 random cases with `--all`, as in CI, fewer without."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

law = settings(
    max_examples=500 if os.environ.get("AGENTKIT_ALL_TESTS") else 40,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
)
