"""MCP servers as toolsets, and tools as an MCP server."""
