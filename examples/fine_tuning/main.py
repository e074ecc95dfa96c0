"""Finished conversations as rows for fine-tuning: the text a model would see, and the spans it learns from.

Prints:

    2 rows in rows.jsonl
    learns: ['Use git revert.<|im_end|>']
    learns: ['Use git log.<|im_end|>']
"""

import json
import sys
from pathlib import Path

from agentkit import PromptContext
from agentkit.prompts import Layers, compose

LAYERS = Layers("You help with git.")
TURNS = [("How do I undo a commit?", "Use git revert."), ("Where is the history?", "Use git log.")]

rows = [compose(LAYERS, PromptContext(user_input=asked)).to_sample(reply, "qwen") for asked, reply in TURNS]
path = Path(sys.argv[1] if len(sys.argv) > 1 else "rows.jsonl")
path.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
print(f"{len(rows)} rows in {path}")

for row in rows:
    print("learns:", [row["text"][start:end] for start, end in row["loss_spans"]])
