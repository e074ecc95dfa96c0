"""The SQL database: how it is opened, its tables and their migrations, and what SQLite and PostgreSQL need."""
