"""Questions about a folder of notes: the answer, the documents that it cites, and the layers of the prompt.

`MODEL=openai:gpt-5-mini python main.py "your question"` uses a real model.

Prints:

    Q: How hot should green tea be?
    A: “Steep green tea at 80 degrees for two minutes.” [notes/tea.md#0]
       notes/tea.md, line 1, Tea > Green tea
    Q: How long is the warranty of a kettle?
    A: “A kettle has a warranty of two years, counted from the day it was bought.” [notes/warranty.md#0]
       notes/warranty.md, line 1, Warranty
"""

from __future__ import annotations

import sys
import tempfile

from reader import answering_model, open_notes, reader_agent

from agentkit import Agent

QUESTIONS = ["How hot should green tea be?", "How long is the warranty of a kettle?"]


def show(agent: Agent, question: str) -> None:
    """Print the answer to a question and the documents that it cites."""
    result = agent.run_sync(question)
    print("Q:", question)
    print("A:", str(result).splitlines()[0])
    # An answer can cite a document several times: each citation has its place in the answer.
    for document in {citation.document.label: citation.document for citation in result.citations}.values():
        print(f"   {document.source}, line {document.metadata['line']}, {document.title}")
    # A label that no document of the prompt has is an invention of the model.
    for label in result.unknown_labels:
        print(f"   unknown document: {label}")


def main() -> None:
    """Answer the questions of the command line, or two examples."""
    with tempfile.TemporaryDirectory() as home, open_notes(home) as memory:
        agent = reader_agent(memory, answering_model())
        for question in sys.argv[1:] or QUESTIONS:
            show(agent, question)
        if sys.argv[1:]:
            print(agent.compose(sys.argv[-1]).explain())


if __name__ == "__main__":
    main()
