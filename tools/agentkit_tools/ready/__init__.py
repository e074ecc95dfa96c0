"""Ready-made, safe tools: arithmetic, the time, files below a folder, and pages over HTTP.

The descriptions also list the limits of the tools, because a model needs them to choose a tool.
"""
