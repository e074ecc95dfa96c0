"""Jinja chat templates of real models, rendered as `transformers` renders them."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parents[1]
CASES = TESTS.parents[1] / "shared" / "conformance" / "chat_templates.jsonl"


@pytest.mark.skipif(not CASES.is_file(), reason="the cases are not beside this checkout")
def test_every_required_case_is_rendered_to_the_byte(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(TESTS))
    monkeypatch.delitem(sys.modules, "conformance.chat_templates", raising=False)
    from conformance.run import check

    results = list(check("chat_templates", [CASES]))
    assert results
    assert [(name, problem) for name, problem in results if problem] == []
