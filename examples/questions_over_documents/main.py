"""Answers questions about a folder of notes, and names the chunks that the answer uses.

Prints:

    Q: How hot should green tea be?
    “Steep green tea at 80 degrees for two minutes.”
    from notes/tea.md, line 1, Tea > Green tea
    Q: How long is the warranty of a kettle?
    “A kettle has a warranty of two years, counted from the day it was bought.”
    from notes/warranty.md, line 1, Warranty
"""

import os
import tempfile
from pathlib import Path

from agentkit import Agent, OfflineModel, RecallOptions, model
from agentkit.memory import Memory

QUESTIONS = ["How hot should green tea be?", "How long is the warranty of a kettle?"]
SYSTEM = "Answer from the documents. Name the label of each one you use, as it stands there in brackets."

os.chdir(Path(__file__).parent)
asked = model(os.environ["MODEL"]) if "MODEL" in os.environ else OfflineModel()

with tempfile.TemporaryDirectory() as home, Memory(home, scope="notes") as memory:
    memory.ingest("notes")
    agent = Agent(asked, SYSTEM, memory=memory, recall=RecallOptions(limit=3))
    for question in QUESTIONS:
        result = agent.run_sync(question)
        print("Q:", question)
        print(result.output.partition(" [")[0])
        for citation in result.citations[:1]:
            document = citation.document
            print(f"from {document.source}, line {document.metadata['line']}, {document.title}")
