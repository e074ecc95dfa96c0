"""Readers of the configurations of evaluation suites. They interpret Python code within limits, and import nothing."""
