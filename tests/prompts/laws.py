"""How hard the laws are tried."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

from tests.effort import tries

law = settings(
    # What the time allows: CI tries the same cases each time, so thousands are worth it only with `--fresh`.
    max_examples=tries(25, 35),
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
)
