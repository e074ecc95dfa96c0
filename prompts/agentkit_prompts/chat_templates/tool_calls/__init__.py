"""How models write tool calls into their text: the formats, and what reads each."""
