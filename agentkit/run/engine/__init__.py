"""One run from its first step to its end: the loop, what performs its steps, its events."""
