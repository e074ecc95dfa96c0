"""One agent at work on this project's own documentation. Run it with ./scripts/demo.

It ingests README.md and docs/, asks a question about them and a calculation, and shows what it recalled, what it sent,
which tool it called and what it answered. It fails when an answer is missing, or cites a chunk that is in no file.
"""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from agentkit import Agent, Event, OfflineModel, Recalled, RunResult, ToolFinished, ToolStarted
from agentkit.cli.default_agent import choose_model, default_agent
from agentkit.cli.screen import layer_table, library_errors, plain, prepare
from agentkit.memory import Memory
from agentkit.prompts import Document

ROOT = Path(__file__).resolve().parents[1]
FROM_RECALL = "What happens when the vector index is lost?"
WITH_A_TOOL = 'Use calculate with expression="(19 + 23) * 7" and tell me the result.'
RESULT = "294"


def main() -> int:
    prepare()
    model = choose_model()
    print(f"model: {model.name}")
    if isinstance(model, OfflineModel):
        print("No OPENAI_API_KEY or OPENAI_BASE_URL is set: an offline stand-in answers, by quoting what was recalled.")
    with TemporaryDirectory() as home, Memory(home) as memory:
        report = memory.ingest(["README.md", "docs"])
        print(f"ingested: {report.added[0]} and {len(report.added) - 1} files of docs ({report.chunks} chunks)")
        agent = default_agent(model, memory)

        answer, events = ask(agent, FROM_RECALL)
        cited, problems = cited_chunks(answer)

        answer, events = ask(agent, WITH_A_TOOL)
        results = [event.result.message.text for event in events if isinstance(event, ToolFinished)]
        if RESULT not in results:
            problems.append(f"the tool was not called, or did not return {RESULT}")
        if RESULT not in answer.output:
            problems.append(f"the answer does not say {RESULT}")
    heading("checked")
    for document in cited:
        print(f"the chunk cited is in the files: {document.source}, line {document.metadata['line']}")
    for problem in problems:
        print(f"WRONG: {problem}")
    if not problems:
        print(f"the tool returned {RESULT}, and the answer says so")
        print("\nnext: an agent of your own, as `For your own work` in README.md says")
    return 1 if problems else 0


def ask(agent: Agent, question: str) -> tuple[RunResult[str], list[Event]]:
    """Ask, and show everything that happens on the way."""
    heading(f"question: {question}")
    events: list[Event] = []
    result = agent.run_sync(question, on_event=events.append)
    for event in events:
        if isinstance(event, Recalled):
            print("recalled:")
            for document in event.documents:
                print(f"  {document.score:6.2f}  {document.source}:{document.metadata['line']}  {document.title}")
        elif isinstance(event, ToolStarted):
            print(f"tool call: {event.call.name} {plain(event.call.arguments)}")
        elif isinstance(event, ToolFinished):
            print(f"tool result: {event.result.status}: {plain(event.result.message.text)}")
    print("\nwhat was sent:\n", flush=True)
    layer_table(result.composition)
    print(f"\nanswer:\n\n{plain(result.output)}")
    return result, events


def cited_chunks(answer: RunResult[str]) -> tuple[list[Document], list[str]]:
    """Return the chunks that an answer cites as [source#chunk] and that are in the files, and what is wrong."""
    cited = list(dict.fromkeys([citation.document for citation in answer.citations]))
    problems = [] if cited else ["the answer cites no chunk"]
    problems += [f"chunk {label} was cited and never recalled" for label in answer.unknown_labels]
    found = []
    for document in cited:
        if document.text not in Path(document.source).read_text("utf-8"):
            problems.append(f"chunk {document.label} is not in {document.source}")
        else:
            found.append(document)
    return found, problems


def heading(text: str) -> None:
    print(f"\n== {text}\n")


if __name__ == "__main__":
    with contextlib.chdir(ROOT):
        try:
            sys.exit(main())
        except library_errors() as error:
            sys.exit(f"demo: {plain(str(error))}")
