"""Durable runs in a database: connections, requests and the store."""
