"""`Agent`, and what is made of one: a tool, a durable run, an extractor of facts."""
