"""Each name of Jinja and Python that templates can reach is classified; a name that is not is refused."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from datetime import date, datetime, time, timedelta

import pytest
from jinja2.defaults import DEFAULT_FILTERS, DEFAULT_NAMESPACE, DEFAULT_TESTS

from agentkit.prompts import Template, TemplateError
from agentkit.prompts.chat_templates import ChatTemplateError, JinjaChatTemplate
from agentkit_prompts.templates.sandbox import offered
from agentkit_prompts.templates.sandbox.calls import checked_filters, checked_tests
from agentkit_prompts.templates.sandbox.guards import FILTER_GUARDS
from agentkit_prompts.templates.sandbox.restrictions import REMOVED_FILTERS, REMOVED_METHODS, RESTRICTIONS

TYPES = (str, bytes, dict, list, tuple, range, int, float, bool, set, frozenset, datetime, date, time, timedelta)
FORMATTING = {"format", "format_map"}
"""Methods of text that are replaced by functions with limits."""


def classes_of(tables: Mapping[str, object], name: str) -> list[str]:
    return [title for title, table in tables.items() if name in table]  # type: ignore[operator]


def test_each_filter_is_in_one_class() -> None:
    removed = {name for name, row in REMOVED_FILTERS.items() if row.use == "all"}
    tables = {
        "free": offered.FREE_FILTERS,
        "guarded": FILTER_GUARDS,
        "guarded inside": offered.SELF_GUARDED_FILTERS,
        "removed": removed,
    }
    classes = {name: classes_of(tables, name) for name in DEFAULT_FILTERS}
    assert {name: found for name, found in classes.items() if len(found) != 1} == {}


def test_each_test_is_in_one_class() -> None:
    tables = {"free": offered.FREE_TESTS, "guarded": offered.GUARDED_TESTS}
    classes = {name: classes_of(tables, name) for name in DEFAULT_TESTS}
    assert {name: found for name, found in classes.items() if len(found) != 1} == {}


def test_each_function_is_offered_or_restricted() -> None:
    removed = {name for row in RESTRICTIONS if row.kind == "function" for name in row.names} - {"range"}
    assert offered.FUNCTIONS | removed == set(DEFAULT_NAMESPACE)
    assert not offered.FUNCTIONS & removed


def methods() -> Iterator[tuple[type, str]]:
    """Yield the public methods of the types of data, by the type that templates see."""
    for kind in TYPES:
        for name in dir(kind):
            if name[:1] != "_" and callable(getattr(kind, name)) and not isinstance(getattr(kind, name), kind):
                yield kind, name


def test_each_method_of_data_is_in_one_class() -> None:
    wrong: dict[str, list[str]] = {}
    for kind, name in methods():
        base = next((base for base in offered.FREE_METHODS if issubclass(kind, base)), object)
        found = [
            *(["free"] if name in offered.FREE_METHODS.get(base, ()) else []),
            *(["guarded"] if name in offered.GUARDED_METHODS.get(base, ()) else []),
            *(["removed"] if name in REMOVED_METHODS and name not in offered.FREE_METHODS.get(base, ()) else []),
            *(["formatting"] if kind is str and name in FORMATTING else []),
        ]
        if len(found) != 1:
            wrong[f"{kind.__name__}.{name}"] = found
    assert wrong == {}


def test_each_class_names_what_exists() -> None:
    """A name that Python or Jinja removes must leave the tables too."""
    known = Counter(name for _, name in methods())
    named = {name for kind, names in offered.FREE_METHODS.items() if kind in TYPES for name in names}
    newer = {"is_integer"}  # of int, from Python 3.12
    assert named - set(known) - newer == set()
    assert offered.FREE_FILTERS - set(DEFAULT_FILTERS) == {"mark_generation"}
    assert set(FILTER_GUARDS) | offered.SELF_GUARDED_FILTERS <= set(DEFAULT_FILTERS)
    assert set(DEFAULT_TESTS) == offered.FREE_TESTS | offered.GUARDED_TESTS


def test_a_filter_or_test_that_is_in_no_class_is_not_offered() -> None:
    assert list(checked_filters({"upper": str.upper, "backwards": str.lower}, None)) == ["upper"]
    assert list(checked_tests({"odd": str.isalpha, "backwards": str.islower}, strict=True)) == ["odd"]


def test_a_method_that_is_in_no_class_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    without_upper = {**offered.FREE_METHODS, str: offered.FREE_METHODS[str] - {"upper"}}
    source = "{{ 'a'.upper() }}"
    messages = [{"role": "user", "content": "Hi"}]
    assert Template(source).render({}) == JinjaChatTemplate(source, lossy=True).render(messages) == "A"
    monkeypatch.setattr(offered, "FREE_METHODS", without_upper)
    with pytest.raises(TemplateError) as caught:
        Template(source).run({})
    assert (caught.value.line, caught.value.variable) == (1, "upper")
    with pytest.raises(ChatTemplateError):
        JinjaChatTemplate(source, lossy=True).render(messages)
