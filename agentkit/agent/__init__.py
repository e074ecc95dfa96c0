"""`Agent`, and objects made from an agent: a tool, a durable run, an extractor of facts."""
