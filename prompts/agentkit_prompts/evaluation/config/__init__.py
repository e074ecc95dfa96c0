"""The configurations that evaluation suites ship: read, bounded, and never run."""
