"""Generator of hostile templates: each operation of templates, on operands of each size and type.

`python -m tests.prompts.templates.hostile_grammar` writes the stored corpus again.
"""

# ruff: noqa: E501 (templates are easier to read on one line)

from __future__ import annotations

import json
from datetime import date
from pathlib import Path
from random import Random

from jinja2.filters import FILTERS as JINJA_FILTERS
from jinja2.tests import TESTS as JINJA_TESTS

CORPUS = Path(__file__).parent / "hostile_templates.json"
CASES = 1600


def methods_of(*kinds: type) -> tuple[str, ...]:
    """Return the public methods of some types."""
    return tuple(sorted({name for kind in kinds for name in dir(kind) if name[:1] != "_"}))


SIZES = (0, 1, 3, 50, 99, 101, 999, 2_499, 9_999, 29_999, 100_000, 1_000_000, 3_000_000)
UNITS = (
    "a",
    "ab",
    "\\u00e9",
    "\\u6f22",
    "\\U0001f600",
    " ",
    "\\n",
    "-",
    "a-",
    "a ",
    "<a>",
    "<",
    "<!--",
    "1",
    "f",
    ")",
    "%s",
    "{}",
    "{0}",
    "a,",
    "\\t",
    "http://a.b ",
    "_1",
    "\\u0661",
    "&",
)
NUMBERS = (
    "0",
    "1",
    "-1",
    "2",
    "16",
    "36",
    "79",
    "300",
    "9999",
    "1e300",
    "0.1",
    "10**9",
    "2**61 - 1",
    "2**8000",
    "big",
    "none",
    "true",
)
STR_METHODS = methods_of(str)
OTHER_METHODS = methods_of(bytes, date, dict, float, int, list, range)
FILTERS = tuple(sorted(JINJA_FILTERS))
TESTS = tuple(name for name in sorted(JINJA_TESTS) if name.isalpha())
OPERATORS = ("+", "-", "*", "/", "//", "%", "**", "~", "==", "!=", "<", ">=", "in", "not in", "and", "or")
CODECS = ("utf-8", "ascii", "idna", "punycode", "unicode_escape", "utf-7", "base64", "rot13", "utf-32")
ERRORS = ("strict", "namereplace", "xmlcharrefreplace", "backslashreplace", "ignore")
WRAPS = (
    "[ns.x]",
    "(ns.x,)",
    "{'a': ns.x}",
    "[ns.x, ns.x]",
    "(ns.x, ns.x)",
    "{'a': ns.x, 'b': ns.x}",
    "dict(a=ns.x)",
    "dict([(1, ns.x)])",
    "[ns.x]|batch(1)|list",
    "[ns.x]|slice(1)|list",
    "{'a': ns.x}|dictsort",
    "{'a': ns.x}.items()",
    "[ns.x.items()]",
    "{1: ns.x}|items|list",
    "[[1, ns.x]]|groupby(0)",
    "ns.x|map('string')",
    "ns.x|map('list')|list",
    "ns.x|batch(1)|list",
    "namespace(x=ns.x)",
    "cycler(ns.x)",
    "ns.x ~ ns.x",
    "ns.x + ns.x",
    "ns.x * 2",
    "ns.x|tojson",
    "ns.x|string|e",
    "'%r' % (ns.x,)",
    "f(ns.x)",
    "ns.x|reverse",
    "ns.x|sort",
    "ns.x|unique",
    "ns.x|select",
    "ns.x[:]",
)


class Grammar:
    """Generator of random templates."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.choice = random.choice

    def text(self) -> str:
        size, unit = self.choice(SIZES), self.choice(UNITS)
        repeated = f"'{unit}' * {size // max(1, len(unit) - 5 * unit.count(chr(92)))}"
        ends = (f"({repeated})", f"({repeated} + 'b')", f"('b' + {repeated})", f"('a' + 'b' + {repeated})")
        return self.choice((*ends, f"({repeated} + 'b' + 'a' * {size // 2})", "text", f"'{unit}'", f"'{unit}b'"))

    def items(self) -> str:
        size = self.choice(SIZES)
        item = self.choice(("0", "'a'", "[1]", "(1, 2)", "{'a': 1}", "1e300", "none", "text[:1000]"))
        step = self.choice(("1", "-1", "2**61 - 1", "10**6"))
        made = (
            f"range({size})",
            f"range({size})|list",
            f"range(0, {size} * ({step}), {step})|list",
            f"[{item}] * {size}",
        )
        more = (f"({item},) * {size}", f"('a ' * {size}).split()", "rows", "rows|map(attribute='n')|list", "mapping")
        return f"({self.choice((*made, *more, 'deep', 'deep_tuple', 'mapping.keys()', 'messages', 'ns.x', 'ns'))})"

    def operand(self, depth: int = 0) -> str:
        kind = self.random.random()
        if depth < 3 and kind < 0.25:
            return self.expression(depth + 1)
        if kind < 0.55:
            return self.text()
        if kind < 0.75:
            return self.items()
        if kind < 0.8:
            return f"'{self.choice((*CODECS, *ERRORS, 'a', 'n', 'a.b', 'upper', 'odd', 'eq', 'batch'))}'"
        return f"({self.choice(NUMBERS)})"

    def arguments(self, depth: int) -> str:
        return ", ".join(self.operand(depth) for _ in range(self.choice((0, 1, 1, 2, 3))))

    def expression(self, depth: int = 0) -> str:
        match self.random.randrange(9):
            case 0 | 1:
                return f"{self.text()}.{self.choice(STR_METHODS)}({self.arguments(depth)})"
            case 2 | 3:
                given = self.arguments(depth)
                return f"({self.operand(depth)}|{self.choice(FILTERS)}{f'({given})' if given else ''})"
            case 4:
                return f"({self.operand(depth)} {self.choice(OPERATORS)} {self.operand(depth)})"
            case 5:
                return f"({self.operand(depth)} is {self.choice(TESTS)}({self.arguments(depth)}))"
            case 6:
                return f"{self.operand(depth)}.{self.choice(OTHER_METHODS)}({self.arguments(depth)})"
            case 7:
                one, two = self.operand(depth), self.operand(depth)
                return self.choice(
                    (
                        f"{{{one}: {two}}}[{one}]",
                        f"{one}[{two}]",
                        f"{one}[::{two}]",
                        f"[{one}, {two}]",
                        f"({one} if {two} else 1)",
                    )
                )
            case _:
                call = self.choice(("dict", "range", "cycler", "namespace", "joiner", "f", "dict.fromkeys"))
                return f"{call}({self.choice(('', '*', '**'))}{self.operand(depth)})"

    def statement(self, depth: int = 0) -> str:
        inner = (
            self.statement(depth + 1) if depth < 2 and self.random.random() < 0.3 else f"{{{{ {self.expression()} }}}}"
        )
        rounds = self.choice((2, 99, 40_000, 99_999))
        match self.random.randrange(10):
            case 0 | 1 | 2:
                return inner
            case 3:
                return f"{{% set v = {self.expression()} %}}{{{{ v|length }}}}{inner}"
            case 4:
                return f"{{% for i in range({rounds}) %}}{{% if {self.expression()} %}}{{% endif %}}{{% endfor %}}"
            case 5:
                return f"{{% for i in range({rounds}) %}}{inner}{{% endfor %}}"
            case 6:
                return f"{{% for i in {self.items()} if {self.expression()} %}}{{{{ i }}}}{{% endfor %}}"
            case 7:
                used = self.choice(
                    (
                        "{{ ns.x|length }}",
                        "{{ ns.x }}",
                        "{{ ns.x|tojson }}",
                        "{{ {ns.x: 1}|length }}",
                        "{{ ns.x == [ns.x] }}",
                        "{{ [ns.x, ns.x]|unique|list|length }}",
                        "{{ {}.get(ns.x) }}",
                        "{{ ns.x in [ns.x] }}",
                        "{{ ns.x|list|length }}",
                        "{{ [ns.x, ns.x]|sort }}",
                        "{{ ns.x|tojson(indent=2) }}",
                        inner,
                    )
                )
                wrapped = f"{{% for i in range({rounds}) %}}{{% set ns.x = {self.choice(WRAPS)} %}}{{% endfor %}}"
                return f"{{% set ns = namespace(x={self.choice(('(1,)', '[1]', '{}'))}) %}}{wrapped}{used}"
            case 8:
                return f"{{% set v %}}{inner}{{% endset %}}{{% filter {self.choice(('upper', 'title', 'wordwrap(3)'))} %}}{{{{ v }}}}{{% endfilter %}}"
            case _:
                macro = f"{{% macro g(n) %}}{inner}{{{{ g(n - 1) if n }}}}{{% endmacro %}}{{{{ g({self.choice((1, 50, 98, 200))}) }}}}"
                loop = f"{{% for i in [[[]]] recursive %}}{{{{ loop(i) }}}}{inner}{{% endfor %}}"
                return self.choice((macro, loop))

    def template(self) -> str:
        """Return a template that reads the values of `hostile_values`, and its local names `ns` and `f`."""
        return "{% macro f(x=1) %}{{ x }}{% endmacro %}{% set ns = namespace(x=[1]) %}" + self.statement()


def hostile_values() -> dict[str, object]:
    """Return the values of hostile templates: texts, lists, mappings and numbers that are large or deep."""
    deep: object = [1]
    deep_tuple: object = (1,)
    for _ in range(50):
        deep = [deep]
    for _ in range(20_000):
        deep_tuple = (deep_tuple,)
    rows = [{"a": f"row {at % 7}", "n": at, "b": [at]} for at in range(5_000)]
    mapping = {str(at): at for at in range(40_000)}
    return {
        "text": "some words, and more. " * 5_000,
        "deep": deep,
        "deep_tuple": deep_tuple,
        "rows": rows,
        "mapping": mapping,
        "big": 1 << 200_000,
        "messages": [{"role": "user", "content": "Hi"}],
    }


def with_every_name() -> list[str]:
    """Return templates that call each filter, test and method with a deeply nested value and with long names."""
    owners = {"text": STR_METHODS, "mapping": methods_of(dict), "rows": methods_of(list)}
    made: list[str] = []
    for value, argument in (("deep_tuple", ""), ("rows", "deep_tuple"), ("rows", "'a' * 3000000")):
        given = f"({argument})" if argument else ""
        made += [f"{{{{ {value}|{name}{given} }}}}" for name in FILTERS]
        made += [f"{{{{ {value} is {name}{given} }}}}" for name in TESTS]
        made += [f"{{{{ {value} {sign} ({argument or value}) }}}}" for sign in OPERATORS]
        made += [f"{{{{ {owner}.{name}({argument or value}) }}}}" for owner, names in owners.items() for name in names]
    return list(dict.fromkeys(made))


if __name__ == "__main__":
    kept = with_every_name()
    kept += [Grammar(Random(seed)).template() for seed in range(CASES - len(kept))]
    CORPUS.write_text(json.dumps(kept, indent=0) + "\n")
