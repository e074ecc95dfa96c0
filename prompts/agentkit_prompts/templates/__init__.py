"""Text with slots, what rendering it gives, and where each character came from."""
