"""The words that only a Jinja chat template may write, found in its literal text and in what it renders."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from jinja2 import nodes

from agentkit_prompts.chat_templates.jinja.environment import compiled
from agentkit_prompts.chat_templates.jinja.probe import WORD, Probe

__all__ = ["literals", "rewrites_text", "tokens_of_texts"]

_MARKER = re.compile(
    r"<[|\uff5c][^\s<>|\uff5c]{1,60}[|\uff5c]?>"  # <|im_start|>, <|turn>, and the same with a wide bar
    r"|<[^\s<>|\uff5c]{1,60}[|\uff5c]>"  # <turn|>
    r"|<<[^\s<>]{1,40}>>"  # <<SYS>>
    r"|</?[A-Za-z_][\w.:-]{0,60}>"  # <s>, <start_of_turn>, <tool_call>
    r"|\[/?[A-Za-z]{0,3}[A-Z]{2}\w{0,40}\]"  # [INST], [gMASK]
    r"|\[\|[^\s|\[\]]{1,40}\|\]"  # [|user|]
    r"|[\[\]][!\w]{0,3}~[!\w]{0,3}[\[\]]"  # ]~b]
)
_BRACKETS = frozenset("<>[]|\uff5c")
_PLAIN = re.compile(
    r"(?:^|\s)("
    r"(?:\#{1,4} ?)?(?:[A-Z]\w{0,30}(?: \w{1,20})?|user|assistant|system|human|bot|tool) ?:"
    r"|\#{1,4} ?[A-Z]\w{0,30}"
    r")\s*$"
)

_KEEPING = frozenset(
    # filters and methods that take text away at its ends, look at it or write it as JSON: no other text comes of it
    (
        *(
            "trim",
            "tojson",
            "fromjson",
            "length",
            "count",
            "first",
            "last",
            "list",
            "items",
            "dictsort",
            "default",
            "d",
        ),
        *("string", "int", "float", "safe", "selectattr", "rejectattr", "select", "reject", "map", "attr", "sort"),
        *("unique", "strip", "lstrip", "rstrip", "startswith", "endswith", "get", "keys", "values", "append", "find"),
        *("index", "removeprefix", "removesuffix", "isdigit", "indent", "sum", "min", "max", "pop", "extend", "update"),
        *("reverse", "batch", "slice", "abs", "round"),
    )
)
_SPLITTING = frozenset(("split", "rsplit", "partition", "rpartition"))
_TAKING = frozenset(("strip", "lstrip", "rstrip", "removeprefix", "removesuffix"))
_FUNCTIONS = frozenset(
    ("raise_exception", "strftime_now", "namespace", "dict", "range", "cycler", "joiner", "caller", "loop")
)


def rewrites_text(source: str) -> bool:
    """Whether a template uses a filter or method that could make a control token of text that holds nothing of one."""
    tree = compiled(source, True).environment.parse(source)
    functions = _FUNCTIONS | {macro.name for macro in tree.find_all(nodes.Macro)}
    for node in tree.find_all((nodes.Filter, nodes.Call, nodes.Mod)):
        if isinstance(node, nodes.Mod):
            if isinstance(node.left, nodes.Const) and isinstance(node.left.value, str):
                return True
        elif isinstance(node, nodes.Filter):
            if not _filter_keeps(node):
                return True
        elif isinstance(node, nodes.Call):
            if isinstance(node.node, nodes.Getattr):
                if not _method_keeps(node.node.attr, node.args):
                    return True
            elif not (isinstance(node.node, nodes.Name) and node.node.name in functions):
                return True  # it may be a method that was looked up in another way
    return False


def _filter_keeps(node: nodes.Filter) -> bool:
    if node.name == "trim":
        return _method_keeps("strip", node.args)
    if node.name == "map" and node.args:
        name = node.args[0]
        return isinstance(name, nodes.Const) and (name.value in _KEEPING or name.value == "join")
    return node.name in _KEEPING or node.name == "join"


def _method_keeps(name: str, args: list[nodes.Expr]) -> bool:
    if name in _SPLITTING or (name in _TAKING and args):
        by = args[0].value if args and isinstance(args[0], nodes.Const) else None
        # text that holds what it is cut at is looked at anyway
        return isinstance(by, str) and (not by.strip() or not _BRACKETS.isdisjoint(by))
    return name in _KEEPING or name == "strftime"


def tokens_of_texts(texts: Iterable[str], tokens: Iterable[str | None], probe: Probe) -> tuple[str, ...]:
    """Return special tokens, then bracketed markers, then role markers that are plain words, each once, in order.

    Args:
        texts: Literal texts of the templates of a model, which are searched for markers.
        tokens: Special tokens that are known.
        probe: Renders small conversations, for markers that the template puts together from a role.
    """
    found = [token for token in tokens if token and not token.isspace()]
    for text in texts:
        found += _MARKER.findall(text)
    plain: list[str] = []
    for glue in _glue(probe):
        found += _MARKER.findall(glue)
        plain += [marker for line in _MARKER.sub("\n", glue).splitlines() for marker in _PLAIN.findall(line)]
    return tuple(dict.fromkeys([*found, *plain]))


def literals(source: str) -> Iterator[str]:
    """Yield the literal texts of a template, and those of its expressions."""
    for node in compiled(source, True).environment.parse(source).find_all((nodes.TemplateData, nodes.Const)):
        text = node.data if isinstance(node, nodes.TemplateData) else node.value if isinstance(node, nodes.Const) else 0
        if isinstance(text, str):
            yield text


def _glue(probe: Probe) -> Iterator[str]:
    """Yield what the template writes around the words of small conversations."""
    turns = [{"role": role, "content": WORD} for role in ("user", "assistant", "user")]
    result = {"role": "tool", "content": WORD, "tool_call_id": "000000000", "name": WORD}
    for messages in ([{"role": "system", "content": WORD}, *turns], turns, [*turns[:2], result]):
        text = probe.outcome(messages, None, True)
        if isinstance(text, str):
            yield from text.split(WORD)
