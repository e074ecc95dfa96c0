"""From layers and a context to what is sent: compose, fit into a budget, explain."""
