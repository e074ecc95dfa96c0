"""Classification of the names of Jinja and Python that templates can reach; unclassified names are refused."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from datetime import date, datetime, time, timedelta

import pytest
from jinja2.defaults import DEFAULT_FILTERS, DEFAULT_NAMESPACE, DEFAULT_TESTS

from agentkit.prompts import Template, TemplateError
from agentkit.prompts.chat_templates import ChatTemplateError, JinjaChatTemplate
from agentkit_prompts.templates.sandbox import operations
from agentkit_prompts.templates.sandbox.calls import checked_filters, checked_tests
from agentkit_prompts.templates.sandbox.operations import NOT_AVAILABLE, OPERATIONS, Kind, method_row, rows_of

TYPES = (str, bytes, dict, list, tuple, range, int, float, bool, set, frozenset, datetime, date, time, timedelta)


def names_of(kind: Kind) -> Counter[str]:
    """Return the number of rows of each name of Jinja, without rows that only remove it from prompt templates."""
    rows = [row for row in OPERATIONS if row.kind == kind and (row.rule != NOT_AVAILABLE or row.use == "all")]
    return Counter(name for row in rows for name in row.names.split())


def test_each_filter_is_in_one_row() -> None:
    assert names_of("filter") == Counter([*DEFAULT_FILTERS, "mark_generation"])


def test_each_test_is_in_one_row() -> None:
    assert names_of("test") == Counter([*DEFAULT_TESTS])


def test_each_function_is_in_one_row() -> None:
    assert names_of("function") == Counter([*DEFAULT_NAMESPACE])


def methods() -> Iterator[tuple[type, str]]:
    """Yield the public methods of the types of data, by the type that templates see."""
    for kind in TYPES:
        for name in dir(kind):
            if name[:1] != "_" and callable(getattr(kind, name)) and not isinstance(getattr(kind, name), kind):
                yield kind, name


def test_each_method_of_data_is_in_a_row() -> None:
    assert [f"{kind.__name__}.{name}" for kind, name in methods() if method_row(kind, name) is None] == []


def test_each_row_has_existing_names() -> None:
    """A name that Python removes must be removed from the table."""
    newer = {"is_integer"}  # of int, from Python 3.12
    wrong = []
    for row in OPERATIONS:
        for name in row.names.split() if row.kind == "method" else ():
            owners = [*row.owners, *[kind for kind in TYPES if issubclass(kind, row.owners)]]
            if name not in newer and not any(hasattr(owner, name) for owner in owners):
                wrong.append(name)
    assert wrong == []


def test_a_filter_or_test_without_a_row_is_unavailable() -> None:
    assert list(checked_filters({"upper": str.upper, "backwards": str.lower}, None, is_prompt=True)) == ["upper"]
    assert list(checked_tests({"odd": str.isalpha, "backwards": str.islower}, is_prompt=True)) == ["odd"]


def test_chat_templates_have_the_filters_that_prompt_templates_lack() -> None:
    assert rows_of("filter", is_prompt=False).keys() - rows_of("filter", is_prompt=True).keys() == {"pprint"}


def test_a_method_without_a_row_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    source = "{{ 'a'.upper() }}"
    messages = [{"role": "user", "content": "Hi"}]
    assert Template(source).render({}) == JinjaChatTemplate(source, lossy=True).render(messages) == "A"
    monkeypatch.delitem(operations._METHODS, "upper")
    with pytest.raises(TemplateError) as caught:
        Template(source).run({})
    assert (caught.value.line, caught.value.variable) == (1, "upper")
    with pytest.raises(ChatTemplateError):
        JinjaChatTemplate(source, lossy=True).render(messages)
