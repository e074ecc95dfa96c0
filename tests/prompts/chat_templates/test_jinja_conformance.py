"""Jinja chat templates of real models, rendered as `transformers` renders them."""

from __future__ import annotations

import pytest

from tests.conformance.run import check
from tests.effort import tries
from tests.paths import CONFORMANCE

CASES = CONFORMANCE / "chat_templates.jsonl"


@pytest.mark.skipif(not CASES.is_file(), reason="the cases are not next to this checkout")
def test_each_required_case_is_rendered_exactly() -> None:
    results = list(check("chat_templates", [CASES], every=tries(10, 1)))
    assert results
    assert [(name, problem) for name, problem in results if problem] == []
