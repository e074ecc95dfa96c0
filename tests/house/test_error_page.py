"""Every public error and warning has a row on the page of errors, and every row is one."""

from __future__ import annotations

import importlib
import re

from tests.paths import DOORS, ROOT


def test_every_error_can_be_looked_up() -> None:
    public = set()
    for door in DOORS:
        module = importlib.import_module(door)
        for name in module.__all__:
            value = getattr(module, name)
            if isinstance(value, type) and issubclass(value, Exception):
                public.add(name)
    page = (ROOT / "docs" / "errors.md").read_text("utf-8")
    rows = re.findall(r"^\| (`\w+`(?:, `\w+`)*) \|", page, re.MULTILINE)
    assert {name for row in rows for name in re.findall(r"\w+", row)} == public
