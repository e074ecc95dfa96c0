"""The wording of errors: every snippet of the table of errors causes exactly the message next to it.

Other tests check the class of an error and its attributes. To accept a new wording, run
`AGENTKIT_UPDATE_ERRORS=1 ./scripts/test tests/test_error_messages.py`, and read the difference of the table.
"""

from __future__ import annotations

import ast
import asyncio
import importlib
import inspect
import os
import re
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.paths import DOORS, ROOT

sys.path.insert(0, str(ROOT / "docs"))
import error_page

SECTIONS = error_page.sections()
UPDATE = bool(os.environ.get("AGENTKIT_UPDATE_ERRORS"))


def message_of(kind: str, code: str) -> str:
    """Run `code`, in which `await` is allowed, and return the message of the error or warning of class `kind`."""
    compiled = compile(code, "<snippet>", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)
    space: dict[str, Any] = {"__name__": "snippet"}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            result = eval(compiled, space)
            if inspect.iscoroutine(result):
                asyncio.run(result)
        except Exception as error:
            assert type(error).__name__ == kind, f"expected {kind}, got {type(error).__name__}: {error}"
            return str(error)
    messages = [str(one.message) for one in caught if one.category.__name__ == kind]
    assert messages, f"expected {kind}, but nothing was raised"
    return messages[0]


@pytest.mark.parametrize("file", SECTIONS)
def test_each_snippet_causes_the_message_next_to_it(file: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    section = SECTIONS[file]
    wrong: list[str] = []
    for row in section["errors"]:
        for number, example in enumerate(row.get("messages") or []):
            folder = tmp_path / f"{row['class']}-{number}"
            folder.mkdir()
            monkeypatch.chdir(folder)
            code = f"{section.get('prelude', '')}\n{example['snippet']}"
            try:
                message = message_of(row["class"], code)
            except AssertionError as error:
                wrong.append(f"{example['snippet']}{error}")
                continue
            if UPDATE:
                example["text"] = message
            elif message.strip() != example["text"].strip():
                wrong.append(f"{example['snippet']}expected: {example['text'].strip()}\ngot:      {message.strip()}")
    if UPDATE:
        _write(file, section)
    accept = "to accept new texts: AGENTKIT_UPDATE_ERRORS=1 ./scripts/test tests/test_error_messages.py"
    assert not wrong, "\n\n".join([*wrong, accept])


def _write(file: str, section: error_page.Section) -> None:
    class Dumper(yaml.SafeDumper):
        pass

    def as_block(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
        return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)

    Dumper.add_representer(str, as_block)
    text = yaml.dump(section, Dumper=Dumper, sort_keys=False, allow_unicode=True, width=120)
    (ROOT / "docs" / "error_messages" / file).write_text(text, "utf-8")


def test_the_pages_are_written_from_the_table() -> None:
    pages = error_page.pages()
    stored = ROOT / "docs/errors.md"
    assert pages[stored] == stored.read_text("utf-8"), "run: python docs/error_page.py"
    listed = re.findall(r"errors/\S+\.md", (ROOT / "mkdocs.yml").read_text("utf-8"))
    assert {ROOT / "docs" / page for page in listed} == pages.keys() - {stored}


def test_every_public_error_has_a_row() -> None:
    public = set()
    for door in DOORS:
        module = importlib.import_module(door)
        for name in module.__all__:
            value = getattr(module, name)
            if isinstance(value, type) and issubclass(value, Exception):
                public.add(name)
    rows = [
        name for section in SECTIONS.values() for row in section["errors"] for name in re.findall(r"\w+", row["class"])
    ]
    assert set(rows) == public
