"""Models that turn texts into vectors: adapters to a few of them, and what checks and keeps what they return."""
