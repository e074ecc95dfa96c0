"""Code mode: the calls of code are calls of the run, with its rules, pauses and journal."""

from __future__ import annotations

import ast
import asyncio
import re
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from agentkit import Agent, Journal, Limits, Paused, ScriptedModel, ToolCall, ToolContext, tool
from agentkit.errors import JournalError, LimitExceeded
from agentkit.evals import called, not_called
from agentkit.guards import GuardStopped, Replace, Stop, Verdict, guard
from agentkit.sandbox import (
    AnswerCalls,
    MontySandbox,
    SandboxAnswer,
    SandboxCall,
    SandboxJob,
    SandboxResult,
    SandboxUnavailable,
    code_mode,
)
from agentkit.tools import ClearResults, DynamicToolset, Tool, ToolDefinitionError, ToolResult, Toolset

NAMES = ("stock", "price", "buy")
made: list[str] = []


@pytest.fixture(autouse=True)
def no_calls() -> None:
    made.clear()


@tool
async def stock(item: str) -> int:
    """Count an item."""
    made.append(f"stock {item}")
    return {"lamp": 3, "desk": 0}[item]


@tool(max_calls=2)
def price(item: str) -> dict[str, int]:
    """Return the price of an item."""
    made.append(f"price {item}")
    return {"price": 30}


@tool(approval="always")
def buy(item: str, count: int = 1) -> str:
    """Buy an item."""
    made.append(f"buy {count} {item}")
    return "bought"


def agent(
    *codes: str, tools: Any = (stock, price, buy), limits: Limits | None = None, **options: Any
) -> Agent[Any, Any]:
    replies = [ToolCall(name="run_code", arguments={"code": code}) for code in codes]
    toolset = code_mode(tools, sandbox=MontySandbox(), **options)
    return Agent(ScriptedModel([*replies, "Done."]), "x", tools=toolset, limits=limits or Limits())


def result(code: str, **options: Any) -> str:
    return agent(code, **options).run_sync("?").messages[2].text


def paused_journal(outer: Agent[Any, Any]) -> tuple[Journal, list[str]]:
    with pytest.raises(Paused) as paused:
        outer.run_sync("?")
    return Journal.loads(paused.value.journal.dumps()), [call.id for call in paused.value.calls]


CODES = {
    "t = 0\nfor i in ['lamp', 'desk']:\n    t += await stock(item=i) * (await price(i))['price']\nt": "Value: 90",
    "import asyncio\nprint(await asyncio.gather(stock('lamp'), stock('desk')))": "[3, 0]",
    "x = 1": "The code ended, and printed nothing.",
    "print('a')\n1": "a\nValue: 1",
}


def test_code_calls_tools_and_returns_printed_text_and_its_value() -> None:
    assert {code: result(code) for code in CODES} == CODES


PROBLEMS = {
    "await stock(items=1)": "item: is required but missing",
    "await stock(1, 2)": "takes 1 arguments",
    "await stock('lamp', item='desk')": "multiple values",
    "await stock('chair')": "KeyError",
    "await missing()": "NameError",
    "for i in range(3): await price('lamp')": "at most 2 times",
    "await buy('lamp', count='many')": "count",
    "while True: await stock(": "SyntaxError",
}


def test_failed_calls_raise_their_error_in_the_code() -> None:
    wrong = {code: text for code, problem in PROBLEMS.items() if problem not in (text := result(code))}
    assert wrong == {}
    assert result("try:\n    await stock('chair')\nexcept RuntimeError:\n    print('none')") == "none"


def test_results_are_data_and_texts_that_look_like_data_stay_texts() -> None:
    values: list[Any] = [
        None,
        1,
        1.5,
        True,
        "1",
        "null",
        '{"value": 2}',
        '{"error": "x"}',
        "",
        [1, "a"],
        {"a": {"b": None}},
    ]

    def value(number: int) -> Any:
        """Return a value."""
        return values[number]

    code = "\n".join(f"print(repr(await value({number})))" for number in range(len(values)))
    assert result(code, tools=[value]).splitlines() == [repr(each) for each in values]


def test_a_run_pauses_for_a_call_of_code_and_resumes_without_repeating_calls() -> None:
    code = "a = await stock('lamp')\nb = await buy('desk')\nc = await price('desk')\n[a, b, c]"
    journal, waiting = paused_journal(agent(code))
    assert made == ["stock lamp"]
    resumed = agent().resume_sync(journal, approve=dict.fromkeys(waiting, True))
    assert resumed.messages[2].text == 'Value: [3, "bought", {"price": 30}]'
    assert made == ["stock lamp", "buy 1 desk", "price desk"]


def test_a_denied_call_is_an_error_in_the_code() -> None:
    code = "try:\n    await buy('desk')\nexcept RuntimeError as error:\n    print(error)"
    journal, waiting = paused_journal(agent(code))
    text = agent().resume_sync(journal, approve=dict.fromkeys(waiting, False)).messages[2].text
    assert "denied" in text
    assert made == []


def test_a_run_resumed_at_any_entry_makes_each_call_once(tmp_path: Path) -> None:
    code = "import asyncio\na = await asyncio.gather(stock('lamp'), stock('desk'))\nb = await price('lamp')\n[a, b]"
    file = tmp_path / "run.jsonl"
    agent(code).run_sync("?", journal=file)
    lines = file.read_text().splitlines(keepends=True)
    for end in range(1, len(lines)):
        text = "".join(lines[:end])
        made.clear()
        again = agent(*(() if '"CallModel"' in text else (code,))).resume_sync(Journal.loads(text))
        assert again.messages[2].text == 'Value: [[3, 0], {"price": 30}]'
        recorded = sum(f'"name":"{name}"' in line and '"CallTools"' in line for line in lines[:end] for name in NAMES)
        assert len(made) == (0 if '"name":"run_code","content"' in text else 3 - recorded), end


def test_code_whose_calls_differ_in_a_second_execution_ends_the_run() -> None:
    journal, waiting = paused_journal(agent("a = await stock('lamp')\nawait buy('desk')"))
    changed = journal.dumps().replace("stock('lamp')", "stock('desk')")
    with pytest.raises(JournalError, match="executed again"):
        agent().resume_sync(Journal.loads(changed), approve=dict.fromkeys(waiting, True))


def test_calls_of_code_count_in_the_limits_of_the_run() -> None:
    code = "for i in range(5): await stock('lamp')"
    with pytest.raises(LimitExceeded) as error:
        agent(code, limits=Limits(tool_calls=4)).run_sync("?")
    assert (error.value.limit, error.value.value, len(made)) == ("tool_calls", 4, 3)
    made.clear()
    assert agent(code, limits=Limits(tool_calls=6)).run_sync("?").output == "Done."
    with pytest.raises(LimitExceeded):
        agent(code, code, limits=Limits(tool_calls=11)).run_sync("?")
    assert len(made) == 5 + 5 + 4
    assert "at most 2" in agent("await price('a')\nawait price('a')", "await price('a')").run_sync("?").messages[4].text


def test_scores_of_evaluations_count_the_calls_of_code() -> None:
    run: Any = agent("await stock('lamp')\nawait stock('desk')\nawait price('lamp')").run_sync("?")
    scores: list[Any] = [called("stock", times=2), called("stock", order=3), called("run_code", times=1)]
    scores += [not_called("buy"), not_called("price"), called("stock", times=2, arguments={"item": "desk"})]
    values = [score(None, run) for score in scores]
    assert [getattr(value, "value", value) for value in values] == [1, 1, 1, True, False, 0]


def test_tools_have_the_context_and_deps_of_the_run() -> None:
    @tool
    def owner(context: ToolContext[dict[str, str]]) -> list[str]:
        """Return the owner."""
        return [context.deps["db"], context.tenant, context.user, context.additional_kwargs["place"]]

    outer: Any = agent("await owner()", tools=[owner])
    answer = outer.run_sync(
        {"input": "?", "additional_kwargs": {"place": "here"}}, deps={"db": "db1"}, tenant="acme", user="ada"
    )
    assert answer.messages[2].text == 'Value: ["db1", "acme", "ada", "here"]'


def test_the_parameter_shows_typed_functions_with_valid_names() -> None:
    schema = {
        "type": "object",
        "properties": {
            "from": {"type": "string", "description": 'Start """ of\nit'},
            "max-rows": {"type": ["integer", "null"], "default": 5},
            "kind": {"enum": ["a", "b"]},
            "rows": {"type": "array", "items": {"$ref": "#/$defs/Row"}},
        },
        "required": ["from", "rows"],
        "$defs": {"Row": {"type": "object", "properties": {"id": {"type": "number"}}, "required": ["id"]}},
    }

    async def read(**arguments: Any) -> Any:
        return arguments

    tools = [
        Tool.from_json_schema(name, "Read.", schema, read) for name in ("read-rows", "read_rows", "print", "class")
    ]
    shown = agent(tools=tools).compose("?").context.tools[0].parameters["properties"]["code"]["description"]
    head = (
        "(from_: str, rows: list[TypedDict[{'id': float}]], max_rows: int | None = 5, "
        "kind: Literal['a', 'b'] = ...) -> Any:"
    )
    assert [line for line in shown.splitlines() if line.startswith("async def")] == [
        f"async def {name}{head}" for name in ("read_rows", "read_rows_2", "print_", "class_")
    ]
    compile(shown.partition("\n\n")[2], "stubs", "exec")
    text = result("await class_(from_='a', rows=[{'id': 1}], max_rows=None)", tools=tools)
    assert text == 'Value: {"from": "a", "rows": [{"id": 1}], "max-rows": null}'


def test_functions_over_the_budget_are_found_by_the_code() -> None:
    def named(number: int) -> Tool[..., Any]:
        return tool(name=f"tool_{number}", description=f"Answer question {number} about zebra{number}.")(lambda: number)

    many = [named(number) for number in range(100)]
    outer = agent("print((await search_functions('zebra97'))[0])\nawait tool_97()", tools=many, stub_tokens=500)
    answer = outer.run_sync("?")
    assert "async def tool_97() -> Any:" in answer.messages[2].text
    assert answer.messages[2].text.endswith("Value: 97")
    (spec,) = answer.composition.context.tools
    assert "tool_97" not in spec.json
    assert "search_functions" in spec.json
    assert next(row.tokens for row in answer.composition.explain() if row.layer == "tools") < 900


def test_names_of_the_program_are_free_for_tools() -> None:
    names = ["__builtins__", "search_functions", "search_functions_", "asyncio"]
    tools = [tool(name=name, description=f"Return {name}.")(lambda name=name: name) for name in names]
    many = [tool(name=f"t{number}", description="Return 1. " * 30)(lambda: 1) for number in range(9)]
    shown = agent(tools=[*tools, *many], stub_tokens=300).compose("?").context.tools[0].parameters
    functions = re.findall(r"async def (\w+)", shown["properties"]["code"]["description"])
    assert functions[:4] == ["__builtins___", "search_functions_2", "search_functions_", "asyncio_"]
    assert functions[-1] == "search_functions"
    code = "[await search_functions_2(), await search_functions_(), len(await search_functions('Return 1'))]"
    assert result(code, tools=[*tools, *many], stub_tokens=300) == 'Value: ["search_functions", "search_functions_", 5]'


def test_schemas_that_refer_to_each_other_have_short_stubs() -> None:
    async def read(**arguments: Any) -> Any:
        return arguments

    rows = {f"k{number}": {"$ref": "#/properties/p0"} for number in range(20)}
    wide = {f"p{number}": {"anyOf": [{"type": "object", "properties": rows}] * 10} for number in range(20)}
    tools = [Tool.from_json_schema("wide", "Read.", {"type": "object", "properties": wide}, read)]
    began = time.process_time()
    shown = agent(tools=tools, stub_tokens=100_000).compose("?").context.tools[0].parameters
    assert time.process_time() - began < 1.5
    compile(shown["properties"]["code"]["description"].partition("\n\n")[2], "stubs", "exec")


def test_stubs_contain_the_exact_values_of_a_schema() -> None:
    values = ["it's", 'say """', "back\\slash", "two\nlines"]
    properties = {
        "choice": {"enum": values},
        "row": {"type": "object", "properties": {"it's": {"type": "string"}}},
        "text": {"type": "string", "default": "it's \\d"},
    }

    async def read(**arguments: Any) -> Any:
        return arguments

    texts = ['Say ""', 'Say "Hi"', 'Say """', "C:\\"]
    schema = {"type": "object", "properties": properties, "required": ["choice"]}
    tools = [Tool.from_json_schema(f"t{number}", text, schema, read) for number, text in enumerate(texts)]
    shown = agent(tools=tools).compose("?").context.tools[0].parameters["properties"]["code"]["description"]
    functions = [each for each in ast.parse(shown.partition("\n\n")[2]).body if isinstance(each, ast.AsyncFunctionDef)]
    assert [ast.get_docstring(function) for function in functions] == ['Say ""', 'Say "Hi"', "Say '''", "C:\\"]
    for function in functions:
        strings = [node.value for node in ast.walk(function.args) if isinstance(node, ast.Constant)]
        assert sorted(value for value in strings if isinstance(value, str)) == sorted([*values, "it's", "it's \\d"])


def test_toolsets_that_create_tools_for_each_run_are_functions_too() -> None:
    outer = agent("await stock('lamp')", tools=[DynamicToolset(lambda context: [stock]), price])
    assert outer.run_sync("?").messages[2].text == "Value: 3"


def test_invalid_tools_and_sandboxes_are_refused() -> None:
    final = stock.with_changes(final=True)
    with pytest.raises(ToolDefinitionError, match="ClearResults: these toolsets"):
        code_mode([stock, ClearResults()], sandbox=MontySandbox())
    wrong: list[Any] = [
        [final, {"type": "web_search"}],
        [stock, stock.with_changes(description="Other.")],
    ]
    for tools in wrong:
        with pytest.raises(ToolDefinitionError) as error:
            code_mode(tools, sandbox=MontySandbox())
        assert error.value.names
    with pytest.raises(ToolDefinitionError, match="SandboxLimits"):
        code_mode([stock], sandbox=MontySandbox(), limits={"seconds": 1})  # type: ignore[arg-type]
    for sandbox in (None, MontySandbox, "monty"):
        with pytest.raises(ToolDefinitionError):
            code_mode([stock], sandbox=sandbox)  # type: ignore[arg-type]


class Fails:
    """A sandbox that makes one call, then raises."""

    def __init__(self, error: BaseException) -> None:
        self.error = error

    async def run(self, job: SandboxJob, answer: AnswerCalls) -> SandboxResult:
        await answer([SandboxCall("stock", ("lamp",))])
        raise self.error


def test_a_sandbox_that_fails_is_an_error_for_the_model_and_a_missing_sandbox_ends_the_run() -> None:
    def outer(error: BaseException) -> Agent[Any, Any]:
        toolset = code_mode([stock], sandbox=Fails(error))
        return Agent(ScriptedModel([ToolCall(name="run_code", arguments={"code": "1"}), "Done."]), "x", tools=toolset)

    assert "OSError: broken" in outer(OSError("broken")).run_sync("?").messages[2].text
    with pytest.raises(SandboxUnavailable):
        outer(SandboxUnavailable("no kernel")).run_sync("?")


class Returns:
    """A sandbox that makes calls at once, then returns a value."""

    def __init__(self, value: Any) -> None:
        self.value = value

    async def run(self, job: SandboxJob, answer: AnswerCalls) -> SandboxResult:
        groups = await asyncio.gather(*[answer([SandboxCall("stock", (item,))]) for item in ("lamp", "desk")])
        assert [each.value for (each,) in groups] == [3, 0]
        return self.value  # type: ignore[no-any-return]


def test_a_sandbox_can_make_simultaneous_calls_and_must_return_a_result_of_texts() -> None:
    values: list[Any] = [SandboxResult("ok"), SandboxResult(value=None), "ok", None]  # type: ignore[arg-type]
    texts: list[str] = []
    for value in values:
        toolset = code_mode([stock], sandbox=Returns(value), timeout=5)
        model = ScriptedModel([ToolCall(name="run_code", arguments={"code": "1"}), "Done."])
        texts.append(Agent(model, "x", tools=toolset).run_sync("?").messages[2].text)
    assert texts[0] == "ok"
    assert ["Returns.run: expected a SandboxResult" in text for text in texts[1:]] == [True] * 3


class Hangs:
    """A sandbox that never ends."""

    ended = False

    async def run(self, job: SandboxJob, answer: AnswerCalls) -> SandboxResult:
        try:
            answers: Sequence[SandboxAnswer] = await answer([SandboxCall("unknown")])
            assert answers[0].error
            await asyncio.sleep(1000)
        finally:
            self.ended = True
        raise AssertionError


def test_a_sandbox_that_hangs_ends_at_the_timeout_of_the_tool() -> None:
    sandbox = Hangs()
    toolset = code_mode([stock], sandbox=sandbox, timeout=0.3)
    model = ScriptedModel([ToolCall(name="run_code", arguments={"code": "1"}), "Done."])
    answer = Agent(model, "x", tools=[toolset] if isinstance(toolset, Toolset) else toolset).run_sync("?")
    assert "did not end within 0.3 seconds" in answer.messages[2].text
    assert sandbox.ended


def test_guards_of_tools_check_the_calls_of_code() -> None:
    @guard("tool_call")
    def no_desks(call: ToolCall) -> Verdict | None:
        if "desk" in call.arguments and call.name == "stock":
            return Stop("no desks")
        if call.name == "price":
            return Replace("prices are secret")
        return None

    @guard("tool_result")
    def hidden(result: ToolResult) -> Verdict | None:
        return Replace("[hidden]") if result.name == "stock" else None

    def guarded(code: str) -> Agent[Any, Any]:
        return agent(code).with_changes(guards=[no_desks, hidden])

    codes = {
        "await stock('lamp')": 'Value: "[hidden]"',
        "try:\n    await price('a')\nexcept RuntimeError as error:\n    print(error)": "price was not called: it was "
        "denied: prices are secret",
    }
    assert {code: guarded(code).run_sync("?").messages[2].text for code in codes} == codes
    made.clear()
    with pytest.raises(GuardStopped) as stopped:
        guarded("await stock('lamp')\nawait stock('desk')").run_sync("?")
    assert (stopped.value.guard, made) == ("no_desks", ["stock lamp"])
    with pytest.raises(GuardStopped):
        agent().with_changes(guards=[no_desks, hidden]).resume_sync(Journal.loads(stopped.value.journal.dumps()))
    assert made == ["stock lamp"]
