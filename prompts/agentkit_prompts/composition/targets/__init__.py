"""Output formats of a composition, one per file."""
