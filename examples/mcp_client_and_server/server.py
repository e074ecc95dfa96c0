"""A shop as an MCP server: `python server.py` serves the protocol on stdin and stdout."""

from agentkit.tools import serve_mcp, tool

PRICES = {"lamp": 20, "desk": 120}


@tool
def price(item: str, count: int = 1) -> dict[str, int]:
    """Return the price of an item, in euros."""
    return {"total": PRICES[item] * count}


if __name__ == "__main__":
    serve_mcp([price], name="shop")
