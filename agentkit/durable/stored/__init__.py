"""What a database stores of durable runs, and how it is read and written."""
