"""How hard the laws are tried: 350 random cases with `--all`, as in CI, fewer without."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

from tests.effort import tries

law = settings(
    max_examples=tries(25, 350),
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
)
