"""A request that waits for its answer, as one run."""
