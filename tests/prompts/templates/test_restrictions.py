"""Restrictions of Jinja: the table of the documentation, removed names, and required parts of Jinja."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from jinja2 import Environment, nodes
from jinja2.compiler import CodeGenerator, Frame
from jinja2.filters import make_attrgetter
from jinja2.nodes import EvalContext
from jinja2.runtime import BlockReference, Context, LoopContext, Macro, StrictUndefined
from jinja2.sandbox import SandboxedEscapeFormatter, SandboxedFormatter, modifies_known_mutable
from jinja2.utils import Cycler, Joiner, Namespace, missing
from jinja2.visitor import NodeTransformer

from agentkit.prompts import Template, TemplateError
from agentkit.prompts.chat_templates import ChatTemplateError, JinjaChatTemplate
from agentkit_prompts.templates.sandbox.operations import NOT_AVAILABLE, OPERATIONS, Operation
from tests.cases import for_cases
from tests.paths import ROOT

DOCS = ROOT / "docs" / "templates.md"
USES = {"all": "all", "prompt": "prompt templates"}


def row_of(row: Operation) -> str:
    names = ", ".join(f"`{name}`" for name in row.names.split())
    return f"| {row.kind} | {names} | {row.restriction} | {row.reason} | {USES[row.use]} |"


def test_the_documentation_shows_each_restriction_with_its_reason() -> None:
    rows = [row_of(row) for row in OPERATIONS if row.restriction]
    table = ["| kind | names | rule | reason | for |", "|---|---|---|---|---|", *rows]
    assert "\n".join(table) in DOCS.read_text(), "\n" + "\n".join(table)


def removed() -> Iterator[tuple[str, str]]:
    """Yield expressions that use removed names, and the kind of templates."""
    for row in OPERATIONS:
        if row.rule != NOT_AVAILABLE:
            continue
        for name in row.names.split():
            if row.kind == "filter":
                yield f"{{{{ [1] | {name} }}}}", row.use
            elif row.kind == "function":
                yield f"{{{{ {name}() }}}}", row.use
            elif row.kind == "statement":
                yield f"{{% {name} 'x' %}}{{% end{name} %}}", row.use
            elif row.kind == "method":
                yield f"{{{{ value.{name}() }}}}", row.use


VALUES = (["a"], {"a": 1}, {1, 2}, "text", 1)


@for_cases(("source", "use"), removed())
def test_a_removed_name_is_an_error(source: str, use: str) -> None:
    for value in VALUES:
        with pytest.raises(TemplateError):
            Template(source).run({"value": value})
        if use == "all" and not isinstance(value, set):
            with pytest.raises(ChatTemplateError):
                JinjaChatTemplate(source, lossy=True).render([{"role": "user", "content": "Hi"}], value=value)


def test_the_required_private_parts_of_jinja_exist() -> None:
    generator = (
        *("_output_child_post", "_output_child_pre", "_output_child_to_const", "blockvisit", "end_write", "indent"),
        *("newline", "outdent", "signature", "start_write", "temporary_identifier", "visit_Add", "visit_Assign"),
        *("visit_AssignBlock", "visit_Call", "visit_Compare", "visit_Concat", "visit_Dict", "visit_For"),
        *("visit_Getattr", "visit_Getitem", "visit_InternalName", "visit_Or", "visit_Output", "visit_With", "write"),
        *("write_commons", "writeline"),
    )
    assert [name for name in generator if not hasattr(CodeGenerator, name)] == []
    assert {"buffer", "eval_ctx", "symbols"} <= vars(Frame(EvalContext(Environment()))).keys()
    undefined = ("_fail_with_undefined_error", "_undefined_hint", "_undefined_name", "_undefined_obj")
    assert [name for name in undefined if not hasattr(StrictUndefined, name)] == []
    assert Namespace(a=1)._Namespace__attrs == {"a": 1}  # type: ignore[attr-defined]
    assert all(map(callable, (make_attrgetter, modifies_known_mutable, NodeTransformer, nodes.InternalName)))
    assert all(map(callable, (BlockReference, Context, LoopContext, Macro, Cycler, Joiner)))
    assert all(map(callable, (SandboxedFormatter, SandboxedEscapeFormatter)))
    assert missing is not None


def test_an_inner_loop_has_its_own_counter_and_the_outer_loop_keeps_its_counter() -> None:
    source = (
        "{% for a in [1, 2] %}{% for b in 'xy' %}{{ loop.index }}{{ loop.last }}{% endfor %}"
        "{{ loop.index }}/{{ loop.length }}{% if loop.last %}.{% endif %}{% endfor %}"
    )
    assert Template(source).render({}) == "1False2True1/21False2True2/2."
