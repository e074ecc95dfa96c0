"""How hard the laws are tried: 500 random cases in CI, fewer at a developer's desk."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

law = settings(
    max_examples=500 if os.environ.get("CI") == "true" else 60,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
)
