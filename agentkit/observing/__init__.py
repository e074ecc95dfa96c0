"""OpenTelemetry for all runs of a process: `observe`."""
