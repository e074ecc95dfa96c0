"""From files to chunks in the store."""
