"""Deep research: a lead plans, lets researchers read pages, and writes a report to a file.

The list of tasks is a layer of the lead's prompt (`todo_tools`). A researcher is an agent with its own context: old
pages leave its prompt (`ClearResults`), and a long answer becomes a file that the lead reads (`ScratchFiles.saving`).
With OPENAI_API_KEY a hosted model does the work, otherwise scripted replies.

Prints:

    {"question": "heat pumps"}: 218 characters, in a file
    {"question": "gas boilers"}: 26 characters
    - [x] compare heating
    - [x] write report.md
    report.md: Heat pumps need a third of the energy of gas boilers [page 1] [page 3].
"""

import os
from collections.abc import Sequence

from agentkit import Agent, Limits, ScriptedModel, ToolCall, model
from agentkit.models import Model
from agentkit.tools import ClearResults, ScratchFiles, todo_tools, tool

PAGES = {
    1: "A heat pump moves heat: 1 kWh of electricity becomes 3 kWh of heat. " + "More about pumps. " * 400,
    2: "A heat pump is quiet if it is installed well. " + "More about noise. " * 400,
    3: "A gas boiler burns gas: 1 kWh of gas becomes 0.95 kWh of heat. " + "More about gas. " * 400,
}


@tool
def search(word: str) -> list[str]:
    """Find the pages that contain a word."""
    return [f"page {number}: {text[:60]}" for number, text in PAGES.items() if word.lower() in text.lower()]


@tool
def read_page(number: int) -> str:
    """Read a page."""
    return PAGES.get(number, "no such page")


def call(name: str, **arguments: object) -> ToolCall:
    return ToolCall(name=name, arguments=arguments)


def tasks(*statuses: str) -> ToolCall:
    names = ("compare heating", "write report.md")
    todos = [{"task": name, "status": status} for name, status in zip(names, statuses, strict=True)]
    return call("write_todos", todos=todos)


def choose_model(replies: Sequence[str | ToolCall]) -> Model:
    """Return a hosted model if its key is set, else a model with scripted replies."""
    if os.environ.get("OPENAI_API_KEY"):
        return model(os.environ.get("RESEARCH_MODEL") or "openai:gpt-5-mini")
    return ScriptedModel(replies)


files = ScratchFiles()  # in memory; ScratchFiles("research") for a folder
pumps = [call("search", word="pump"), call("read_page", number=1), call("read_page", number=2)]
boilers = [call("search", word="boiler"), call("read_page", number=3)]
researcher = Agent(
    choose_model([*pumps, "1 kWh becomes 3 kWh of heat [page 1]. " * 23, *boilers, "0.95 kWh of heat [page 3]."]),
    "Answer one question from pages. Cite the page after each statement, such as [page 1].",
    tools=[search, read_page, ClearResults(keep=1, batch=1_000), files],
    limits=Limits(steps=12),
    name="researcher",
)
research = researcher.as_tool(name="research", description="Answer one question.", argument="question")
report = "Heat pumps need a third of the energy of gas boilers [page 1] [page 3]."
delegated = [call("research", question="heat pumps"), call("research", question="gas boilers")]
written = [call("write_file", path="report.md", content=report), tasks("done", "done")]
lead = Agent(
    choose_model([tasks("started", "open"), *delegated, tasks("done", "started"), *written, "See report.md."]),
    "Plan with write_todos, delegate each question with research, and write the answer to report.md with write_file.",
    tools=[todo_tools(), files, files.saving([research], over=500, start=100)],
    limits=Limits(steps=30),
    name="lead",
)

result = lead.run_sync("Which heating needs less energy, a heat pump or a gas boiler?")
questions = {each.id: each.arguments for message in result.messages for each in message.tool_calls}
for message in result.messages:
    if message.name == "research" and message.tool_call_id:
        place = ", in a file" * ("read_file" in message.text)
        print(f"{questions[message.tool_call_id]}: {len(message.text)} characters{place}")
print(result.composition.context.todos)
print(f"report.md: {files.text('report.md')}")
