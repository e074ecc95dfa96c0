"""Ready-made tools, few and safe: arithmetic, the time, files below a folder, and pages over HTTP.

The description of each says what it cannot do, because the model reads that too.
"""
