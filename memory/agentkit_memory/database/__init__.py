"""The SQL database: opening, tables, migrations, decoding of rows, and adaptations to SQLite and PostgreSQL."""
