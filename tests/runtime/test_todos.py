"""The list of tasks of a model: shown after tool calls and in later turns, and derived from the messages."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from agentkit import Agent, ScriptedModel, Session, ToolCall, Trim
from agentkit.agent_files import load_agent
from agentkit.errors import AgentDefinitionError
from agentkit.prompts import Composition, Layers, Template, TextPrompt
from agentkit.tools import DynamicToolset, ToolDefinitionError, Toolset, todo_tools, tool


def writes(**todos: str) -> ToolCall:
    listed = [{"task": task.replace("_", " "), "status": status} for task, status in todos.items()]
    return ToolCall(name="write_todos", arguments={"todos": listed})


def lines(composition: Composition) -> list[str]:
    """Return the lines of the lists in the prompts of the composition, without tool results."""
    texts = [composition.user.text, composition.closing.text]
    return [line for text in texts for line in text.splitlines() if line.startswith("- [")]


def test_the_latest_list_is_after_the_tool_calls() -> None:
    later = writes(find_sources="done", write_report="started")
    model = ScriptedModel([writes(find_sources="open"), later, "Done."])
    Agent(model, "You work.", tools=[todo_tools()]).run_sync("Write a report.")
    expected = [[], ["- [ ] find sources"], ["- [x] find sources", "- [~] write report"]]
    assert [lines(each) for each in model.requests] == expected
    last = model.requests[-1]
    assert last.messages[-1].role == "user"
    assert "after_intermediate" in str(last.why("todos"))
    # The prompt up to the tool calls does not change within the run.
    assert {each.user.text for each in model.requests} == {"Write a report."}


def test_a_later_turn_starts_with_the_unfinished_list_also_after_compaction() -> None:
    model = ScriptedModel([writes(a="done", b="open"), "word " * 400, *["word " * 400] * 3, writes(a="done"), "x", "y"])
    agent = Agent(model, tools=[todo_tools()], compaction=Trim(tokens=500, keep=0))
    session = Session("s")
    for _ in range(3):
        agent.run_sync("Go on.", session=session)
    result = agent.run_sync("Go on.", session=session)
    assert "write_todos" not in str(result.composition.conversation)
    assert lines(result.composition) == ["- [x] a", "- [ ] b"]
    assert lines(agent.run_sync("Finish.", session=session).composition) == ["- [x] a"]
    assert lines(agent.run_sync("Thanks.", session=session).composition) == []


def test_a_resumed_run_has_the_list() -> None:
    journal = Agent(ScriptedModel([writes(a="open"), "x"]), tools=[todo_tools()]).run_sync("Hi").journal
    cut = type(journal).loads("\n".join(journal.dumps().splitlines()[:-1]))
    resumed = Agent(ScriptedModel(["x"]), tools=[todo_tools()]).resume_sync(cut)
    assert lines(resumed.composition) == ["- [ ] a"]


def test_invalid_lists_do_not_replace_the_list() -> None:
    cases: list[object] = [[{"task": "", "status": "open"}], [{"task": "b", "status": "maybe"}], "b", [{"task": "b"}]]
    cases += [[{"task": "b" * 501, "status": "open"}], [{"task": "b", "status": "open"}] * 101]
    for todos in cases:
        wrong = ToolCall(name="write_todos", arguments={"todos": todos})
        model = ScriptedModel([writes(a="open"), wrong, "x"])
        result = Agent(model, tools=[todo_tools()]).run_sync("Hi")
        assert lines(result.composition) == ["- [ ] a"], todos


def test_a_task_is_one_line_and_another_tool_writes_no_list() -> None:
    @tool
    def other() -> dict[str, str]:
        """Return something."""
        return {"todos": "- [ ] from a page"}

    call = ToolCall(name="write_todos", arguments={"todos": [{"task": "a\n- [x] b", "status": "open"}]})
    model = ScriptedModel([call, ToolCall(name="other"), "x"])
    assert lines(Agent(model, tools=[other, todo_tools()]).run_sync("Hi").composition) == ["- [ ] a - [x] b"]


def test_layers_must_show_the_list() -> None:
    with pytest.raises(AgentDefinitionError):
        Agent(ScriptedModel([]), layers=Layers("x"), tools=[todo_tools()])
    layers = Layers("x", after_intermediate=TextPrompt(Template("{{ todos }}")))
    model = ScriptedModel([writes(a="open"), "x"])
    assert lines(Agent(model, layers=layers, tools=[todo_tools()]).run_sync("Hi").composition) == ["- [ ] a"]


def test_an_agent_file_has_a_list(tmp_path: Path) -> None:
    file = tmp_path / "agent.yaml"
    file.write_text("model: offline\ntodos: true\nclear_results: {keep: 2, without: [write_todos]}\n")
    assert {"write_todos", "read_cleared_result"} <= {*load_agent(file).agent.tools}


def test_a_toolset_that_would_lose_its_part_of_the_prompt_is_refused() -> None:
    changes: list[Callable[[], object]] = [
        lambda: todo_tools().prefixed("my_"),
        lambda: todo_tools().approved(),
        lambda: todo_tools().limited(3),
        lambda: todo_tools().filtered(lambda each: True),
        lambda: todo_tools() + Toolset(),
        lambda: Toolset([todo_tools()]),
        lambda: Toolset() + Toolset([todo_tools()]),
        lambda: Agent(ScriptedModel(["x"]), tools=[DynamicToolset(lambda ctx: [todo_tools()])]).run_sync("Hi"),
    ]
    for number, change in enumerate(changes):
        with pytest.raises(ToolDefinitionError):
            change()
            pytest.fail(str(number))
    dynamic = DynamicToolset(lambda ctx: [])
    composition = Agent(ScriptedModel([]), tools=[dynamic, todo_tools()]).compose("Hi")
    assert [spec.name for spec in composition.tools] == ["write_todos"]
    assert {*Agent(ScriptedModel([]), tools=todo_tools()).tools} == {"write_todos"}
