"""Settings of the laws."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

from tests.effort import tries

law = settings(
    # CI draws the same cases in each run: thousands of cases are useful only with `--fresh`.
    max_examples=tries(25, 35),
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
)
