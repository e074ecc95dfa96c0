"""Attacks on the limits, the smallest case of each kind: each is refused quickly, with its place."""

from __future__ import annotations

from time import thread_time
from typing import Any

import pytest

from agentkit.prompts import Template, TemplateError
from agentkit.prompts.chat_templates import ChatTemplateError, JinjaChatTemplate
from tests.effort import thinned

MAX_SECONDS = 2.5
"""CPU time: the limit is 0.7 s, and one operation can take half a second more; coverage takes a multiple."""
LOOP = "{% for i in range(99999) %}BODY{% endfor %}"
GROW = "{% set ns = namespace(x=[0]) %}" + LOOP.replace("BODY", "{% set ns.x = STEP %}") + "{{ ns.x|length }}"


def loop(body: str) -> str:
    return LOOP.replace("BODY", body)


REFUSED = {
    "digits of large numbers in a list": "{{ ([2**8000] * 100000)|string|length }}",
    "many names of arguments": loop("{% set n = namespace(**names) %}"),
    "many arguments": loop("{% set n = cycler(*names) %}"),
    "wide list that is printed": "{{ ('a' * 1000,) * 5000000 }}",
    "output of one long text": loop("{{ text }}"),
    "lists that double": GROW.replace("STEP", "ns.x + ns.x"),
    "lists that nest": GROW.replace("STEP", "[ns.x, ns.x]") + "{{ ns.x }}",
    "lists that are kept": GROW.replace("STEP", "ns.x + [range(99999)|list]"),
    "texts that double": GROW.replace("STEP", "ns.x ~ ns.x"),
    "JSON of JSON": GROW.replace("STEP", "ns.x|tojson|tojson"),
    "slices that are kept": "{% set a = [0] * 1000000 %}" + GROW.replace("STEP", "[a[1:], ns.x]"),
    "recursion of a macro": "{% macro m(n) %}{{ m(n) }}{{ m(n) }}{% endmacro %}{{ m(1) }}",
    "recursion of a call block": (
        "{% macro w() %}{{ caller() }}{% endmacro %}{% macro r() %}{% call w() %}{{ r() }}{% endcall %}{% endmacro %}"
        "{{ r() }}"
    ),
    "recursion of a loop": "{% for i in [1, 1] recursive %}{{ loop([1, 1]) }}{% endfor %}",
    "power of a power": "{{ 2**8000**2 }}",
    "width of a field": "{{ '{:{}}'.format(1, 10**9) }}",
    "keys with one hash": (
        "{% set ns = namespace(x=[]) %}{% for i in range(1200) %}{% set ns.x = ns.x + [i * (2**61 - 1)] %}{% endfor %}"
        "{{ ns.x|unique|list|length }}"
    ),
    "comparison of lists that double, in a chain": (
        "{% set ns = namespace(x=[1], y=[1]) %}{% for i in range(40) %}{% set ns.x = [ns.x, ns.x] %}"
        "{% set ns.y = [ns.y, ns.y] %}{% endfor %}{{ ns.x == ns.y == 1 }}"
    ),
    "width of a field of bytes": "{{ ('%999999999d'.encode() % 1)|length }}",
    "many fields": "{{ ('{0}' * 1300000).format('')|length }}",
    "many elements in a field": "{{ ('{0' ~ '[0]' * 1000000 ~ '}').format('a') }}",
    "many % fields": "{{ ('%s' * 1900000) % () }}",
    "text between the keys of a mapping": "{{ ('a' * 900000).join(dict.fromkeys(names)) }}",
    "text between the values of a mapping": "{{ dict.fromkeys(names, text).values()|join }}",
    "separators of JSON in a mapping": "{{ names|tojson(separators={text: 1, ':': 2})|length }}",
    "comparison of two long texts": (
        "{% set a = 'x' * 3900000 %}{% set b = a ~ '' %}{% for i in range(60) %}"
        + "{% if a != b %}{% endif %}" * 1500
        + "{% endfor %}"
    ),
    "long texts in a set of operands": (
        "{% set a = 'x' * 3900000 %}{% set b = a ~ '' %}{% for i in range(60) %}"
        + "{% if a is in [b] %}{% endif %}" * 1500
        + "{% endfor %}"
    ),
    "numbers that are printed": (
        "{% set n = 2**4000 * 2**4000 %}{% for i in range(63) %}" + "{{ n }}" * 2000 + "{% endfor %}"
    ),
    "text of a list of short values": "{{ ([none] * 190000)|title|length }}",
    "links in a list of short values": "{{ ([none] * 19000)|urlize|length }}",
    "path that is followed for each item": "{{ ([{}] * 90000)|map(attribute='a.b.c.d.e.f.g')|list|length }}",
    "sum of the values of a mapping": "{{ dict.fromkeys(names, [1] * 9).values()|sum(start=[])|length }}",
}
ESCAPED = "{% autoescape true %}" + loop("{{ text }}") + "{% endautoescape %}"


def fault_of(source: str, *, is_chat: bool) -> str | None:
    """Return the fault if an attack is not refused correctly."""
    names = {f"k{number}": number for number in range(50_000)}
    values: dict[str, Any] = {"text": "<" * 1_000_000, "names": names}
    start = thread_time()
    try:
        if is_chat:
            JinjaChatTemplate(source, lossy=True).render([{"role": "user", "content": "Hi"}], **values)
        else:
            Template(source).run(values)
    except TemplateError as error:
        if error.line is None:
            return "the error has no line"
    except ChatTemplateError:
        pass
    else:
        return "it is not refused"
    seconds = thread_time() - start
    return f"it took {seconds:.1f} s" if seconds > MAX_SECONDS else None


@pytest.mark.untraced
def test_attacks_are_refused_quickly() -> None:
    failures = []
    both = [(name, source, is_chat) for name, source in REFUSED.items() for is_chat in (False, True)]
    attacks = thinned(both, 7)  # An odd step covers both kinds of templates.
    for name, source, is_chat in [*attacks, ("escaped output", ESCAPED, True)]:
        fault = fault_of(source, is_chat=is_chat)
        if fault is not None:
            failures.append(f"{name}, {'chat template' if is_chat else 'prompt'}: {fault}")
    assert failures == [], "\n".join(failures)
