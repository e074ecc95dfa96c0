"""One run of an agent: the loop, its events and limits, the runs inside of it, and how code that is not async waits."""
