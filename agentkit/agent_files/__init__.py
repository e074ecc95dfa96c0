"""Agents in files: `agent.yaml`, its checks and its schema; a Python module `module:agent` in its place."""
