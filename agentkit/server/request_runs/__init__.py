"""Execution of requests that wait for their answer, each as a run."""
