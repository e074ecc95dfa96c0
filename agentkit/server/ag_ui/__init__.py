"""The AG-UI endpoint."""
