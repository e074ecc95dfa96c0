"""Sandbox of templates: a template reads only data, and known escapes from a Jinja sandbox fail."""

# ruff: noqa: E501 (templates are easier to read on one line)

from __future__ import annotations

import asyncio
import os
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest
from pydantic import BaseModel, PrivateAttr

from agentkit.prompts import Template, TemplateError
from tests.cases import for_cases


class Account(BaseModel):
    owner: str = "Ada"
    _secret: str = PrivateAttr("s3cret")

    def delete(self) -> str:
        raise AssertionError("a template called a method")

    @property
    def shout(self) -> str:
        return self.owner.upper()


@dataclass
class Job:
    name: str = "job"
    run: Callable[[], str] = field(default=lambda: "ran")
    secret_key = "class level"

    def start(self) -> None:
        raise AssertionError("a template called a method")

    def __call__(self) -> str:
        raise AssertionError("a template called an object")

    def __getitem__(self, key: object) -> object:
        return {"key": key}


def handler(event: str = "x") -> str:
    raise AssertionError("a template called a function")


def generator() -> Iterator[int]:
    yield 1


async def coroutine() -> None:
    return None


def hostile() -> dict[str, Any]:
    waiting = coroutine()
    waiting.close()
    try:
        raise ValueError("oops")
    except ValueError as caught:
        error = caught
    return {
        "account": Account(),
        "job": Job(),
        "handler": handler,
        "generator": generator(),
        "coroutine": waiting,
        "error": error,
        "frame": sys._getframe(),
        "code": handler.__code__,
        "trace": error.__traceback__,
        "module": os,
        "kind": Account,
        "method": Account().delete,
        "builtin": len,
        "loop_": asyncio,
        "bag": SimpleNamespace(os=os, name="bag", run=handler),
        "data": {"a": 1, "nested": {"b": [1, 2, 3]}},
        "items": [1, 2, 3],
        "grown": defaultdict(list),
        "text": "plain",
        "template": "{0.__class__.__mro__}",
        "private": "__class__",
    }


ESCAPES = [
    # classes, bases, globals
    "{{ ''.__class__ }}",
    "{{ ''.__class__.__mro__[1].__subclasses__() }}",
    "{{ ''['__class__'] }}",
    "{{ ''['__cla' ~ 'ss__'] }}",
    "{{ ''[private] }}",
    "{{ ()['__class__']['__bases__'] }}",
    "{{ [].__class__.__base__ }}",
    "{{ {}.__class__ }}",
    "{{ (1).__class__ }}",
    "{{ ''|attr('__class__') }}",
    "{{ ''|attr('__cla' ~ 'ss__') }}",
    "{{ [account]|map(attribute='__class__')|list }}",
    "{{ [account]|map(attribute='owner.__class__')|list }}",
    "{{ [account]|map(attribute=private)|list }}",
    "{{ [account]|map('attr', '__class__')|list }}",
    "{{ [account]|selectattr('__class__')|list }}",
    "{{ [account]|selectattr('__class__', 'defined')|list }}",
    "{{ [account]|rejectattr('__dict__')|list }}",
    "{{ [account]|groupby('__class__') }}",
    "{{ [account]|sort(attribute='__class__') }}",
    "{{ [account]|sum(attribute='__class__') }}",
    "{{ [account]|join(attribute='__class__') }}",
    "{{ [account]|unique(attribute='_secret')|list }}",
    "{{ [account]|min(attribute='__hash__') }}",
    "{{ account.__dict__ }}",
    "{{ account._secret }}",
    "{{ account['_secret'] }}",
    "{{ account.__pydantic_private__ }}",
    "{{ account.model_config }}",
    "{{ account.model_fields }}",
    "{{ account.model_dump() }}",
    "{{ account.model_construct() }}",
    "{{ account.delete() }}",
    "{{ account.delete }}",
    "{{ account['delete'] }}",
    "{{ account.copy() }}",
    "{{ job.start() }}",
    "{{ job.run() }}",
    "{{ (job.run)() }}",
    "{{ job() }}",
    "{{ job.run.__globals__ }}",
    "{{ handler() }}",
    "{{ handler }}",
    "{{ handler.__globals__ }}",
    "{{ handler.func_globals }}",
    "{{ handler['__globals__'] }}",
    "{% set f = handler %}{{ f('x') }}",
    "{% call handler() %}{% endcall %}",
    "{% call(x) job.start() %}{% endcall %}",
    "{{ kind }}",
    "{{ kind() }}",
    "{{ kind.mro() }}",
    "{{ kind.owner }}",
    "{{ kind['mro'] }}",
    "{{ method() }}",
    "{{ method.__self__ }}",
    "{{ method.__func__ }}",
    "{{ builtin('x') }}",
    "{{ module.environ }}",
    "{{ module.system('true') }}",
    "{{ module.path }}",
    "{{ bag.os.environ }}",
    "{{ bag.os.system('true') }}",
    "{{ bag.run() }}",
    # frames, code, generators, coroutines, exceptions
    "{{ generator.gi_frame }}",
    "{{ generator.gi_code }}",
    "{{ generator.gi_frame.f_back.f_globals }}",
    "{{ generator.send(1) }}",
    "{{ generator.throw(error) }}",
    "{{ coroutine.cr_frame }}",
    "{{ coroutine.cr_code }}",
    "{{ coroutine.send(None) }}",
    "{{ error.__traceback__.tb_frame }}",
    "{{ error.with_traceback(trace) }}",
    "{{ error.args }}",
    "{{ frame.f_globals }}",
    "{{ frame.f_builtins }}",
    "{{ frame.f_back }}",
    "{{ code.co_code }}",
    "{{ code.replace() }}",
    "{{ trace.tb_frame }}",
    "{{ trace.tb_next }}",
    # formats
    "{{ '{0.__class__}'.format(account) }}",
    "{{ '{0[__class__]}'.format(account) }}",
    "{{ '{a.__class__}'.format(a=account) }}",
    "{{ template.format(account) }}",
    "{{ '{0.__class__}'|format(account) ~ template.format(account) }}",
    "{{ '{a.__class__}'.format_map({'a': account}) }}",
    "{{ [template]|map('format', account)|join ~ template.format_map({}) }}",
    "{{ '{:{0.__class__}}'.format(account) }}",
    "{{ '{0!r}'.format(account) }}",
    "{{ '%(a.__class__)s' % {'a': account} }}",
    "{% set f = ''.format %}{{ f }}",
    "{{ [''.format] }}",
    "{{ ''['format'] }}",
    "{{ (''.format)(account) ~ ('{0.__class__}'.format)(account) }}",
    # the engine's own objects
    "{{ self }}",
    "{{ self.__init__ }}",
    "{{ self._TemplateReference__context }}",
    "{{ loop }}",
    "{{ cycler.__init__.__globals__.os }}",
    "{{ joiner.__init__ }}",
    "{{ namespace.__init__ }}",
    "{{ range.__self__ }}",
    "{{ dict.__base__ }}",
    "{{ dict.mro() }}",
    "{{ cycler.run }}",
    "{{ cycler.name }}",
    "{{ cycler }}",
    "{{ lipsum() }}",
    "{{ lipsum.__globals__.os.popen('id').read() }}",
    "{{ url_for.__globals__ }}",
    "{{ get_flashed_messages.__globals__ }}",
    "{{ request.application.__globals__ }}",
    "{{ config.items() }}",
    "{{ environment }}",
    "{{ context }}",
    "{{ meter }}",
    "{{ trace.meter }}",
    "{{ get }}",
    "{{ extend }}",
    "{{ mark }}",
    "{{ undefined.fail }}",
    "{{ l_0_text }}",
    "{{ g_range }}",
    "{{ UNSET }}",
    "{{ __builtins__ }}",
    "{{ __import__('os') }}",
    "{% macro m() %}{% endmacro %}{{ m.body }}",
    "{% macro m() %}{% endmacro %}{{ m.__init__ }}",
    "{% macro m() %}{% endmacro %}{{ m }}",
    "{% macro m() %}{{ caller.body }}{% endmacro %}{% call m() %}{% endcall %}",
    "{% macro m() %}{{ varargs.append(1) }}{% endmacro %}{{ m(1) }}",
    "{% for i in items %}{{ loop._items }}{% endfor %}",
    "{% for i in items %}{{ loop.__init__ }}{% endfor %}",
    "{% for i in items %}{{ loop.recurse }}{% endfor %}",
    "{% for i in items %}{{ loop.recurse(items) }}{% endfor %}",
    "{% for i in items %}{{ loop.cycle }}{% endfor %}",
    "{% set ns = namespace() %}{{ ns.names }}",
    "{% set ns = namespace() %}{{ ns.__class__ }}",
    "{% set ns = namespace() %}{% set ns.__class__ = 1 %}",
    "{% set ns = namespace() %}{{ ns }}",
    "{% set ns = namespace(f=handler) %}{{ ns.f() }}",
    "{% set c = cycler(1) %}{{ c._values }}",
    "{% set j = joiner() %}{{ j._used }}",
    "{% set account.owner = 'x' %}",
    "{% set data.a = 2 %}",
    # changes of values of the caller
    "{{ items.append(4) }}",
    "{{ items.clear() }}",
    "{{ items.pop() }}",
    "{{ items.sort() }}",
    "{{ items.__setitem__(0, 9) }}",
    "{{ data.update({'a': 2}) }}",
    "{{ data.pop('a') }}",
    "{{ data.setdefault('z', 1) }}",
    "{{ data.clear() }}",
    "{{ data.__setitem__('a', 2) }}",
    "{{ grown.missing }}",
    "{{ grown['missing'] }}",
    "{% do items.append(4) %}",
    # other files, other code
    "{% include 'other' %}",
    "{% import 'os' as os %}",
    "{% from 'os' import system %}",
    "{% extends 'base' %}",
    "{% block b %}{% endblock %}",
    "{% autoescape true %}{% endautoescape %}",
    "{% debug %}",
    "{% trans %}x{% endtrans %}",
    "{% macro __init__() %}{% endmacro %}{{ __init__.x }}",
    "{{ text.encode('utf-8') }}",
    "{{ text.translate({}) }}",
    "{{ text.maketrans('a', 'b') }}",
    "{{ now().timestamp() }}",
    "{{ items|random }}",
    "{{ items|pprint }}",
    "{{ items|map('random')|list }}",
    "{{ items|map('attr', 'real')|list }}",
    "{{ items|map(attribute='real')|list }}",
    "{{ (1).real }}",
    "{{ (1).to_bytes(9, 'big') }}",
    "{{ text|xmlattr }}",
    "{{ items.__len__() }}",
    "{{ items|map(attribute='__doc__')|list }}",
    "{{ loop_ }}",
    "{{ job['x']['key'].__class__ }}",
]


@for_cases("source", ESCAPES)
def test_each_known_escape_is_a_template_error(source: str) -> None:
    with pytest.raises(TemplateError):
        Template(source).run(hostile())


def test_a_template_changes_no_value_of_the_caller() -> None:
    values = hostile()
    for source in ESCAPES:
        with pytest.raises(TemplateError):
            Template(source).run(values)
    assert values["items"] == [1, 2, 3]
    assert values["data"] == {"a": 1, "nested": {"b": [1, 2, 3]}}
    assert dict(values["grown"]) == {}
    assert values["account"].owner == "Ada"


def test_fields_and_properties_are_read() -> None:
    template = Template("{{ account.owner }} {{ account.shout }} {{ job.name }} {{ bag.name }} {{ data.nested.b[1] }}")
    for _ in range(2):
        assert template.run(hostile()).text == "Ada ADA job bag 2"


def test_a_field_precedes_a_method_of_the_same_name() -> None:
    @dataclass
    class Row:
        items: str = "a field"

    class Model(BaseModel):
        copy: str = "a field"  # type: ignore[assignment]

    values = {"row": Row(), "model": Model(), "data": {"items": "an item", "keys": "another", "get": "third"}}
    source = "{{ row.items }}, {{ model.copy }}, {{ data.items }}, {{ data.keys }}, {{ data['get'] }}, {{ data.get('keys') }}"
    assert Template(source).run(values).text == "a field, a field, an item, another, third, another"


def test_a_macro_in_a_mapping_can_have_the_name_of_a_method_of_lists_and_sets() -> None:
    source = "{% macro m(a) %}<{{ a }}>{% endmacro %}{% set d = {'add': m, 'sort': m} %}{{ d.add(1) }}{{ d.sort(2) }}"
    assert Template(source).run({}).text == "<1><2>"


class Handle:
    def name(self) -> str:
        raise AssertionError("a template called a method")

    secret_key = name


@for_cases(
    "source",
    [
        "{% for v in one + other %}{{ v.name }}{{ v.secret_key }}{% endfor %}",
        "{% for v in one %}{% if v.name %}{{ v.secret_key }}{% endif %}{% endfor %}"
        "{% for v in other %}{% if v.name %}{{ v.secret_key }}{% endif %}{% endfor %}",
        "{% set ns = namespace() %}{% for v in one %}{{ v.name }}"
        "{% macro key() %}{{ v.name }}{% endmacro %}{% set ns.key = key %}{% endfor %}"
        "{% for v in other %}{{ ns.key() }}{% endfor %}",
        "{% set ns = namespace() %}{% for v in one %}{{ v.name }}{% for _ in [1] recursive %}{{ v.name }}"
        "{% set ns.loop = loop %}{% endfor %}{% endfor %}{% for v in other %}{{ ns.loop([1]) }}{% endfor %}",
        "{% for v in one %}{{ v.name }}{% set v = other[0] %}{{ v.name }}{% endfor %}",
    ],
)
def test_the_readable_names_of_a_class_do_not_apply_to_another_class(source: str) -> None:
    template = Template(source)
    for _ in range(2):  # The cache of the first run applies only to its class.
        with pytest.raises(TemplateError) as caught:
            template.run({"one": [Job()], "other": [Handle()]})
        assert caught.value.variable in ("name", "secret_key")
