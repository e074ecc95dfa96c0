"""The runs of agents, stored: one record, one store in SQL, and what executes them."""
