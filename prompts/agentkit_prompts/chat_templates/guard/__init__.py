"""Control tokens of chat templates, and the guard that keeps untrusted text from forming them."""
