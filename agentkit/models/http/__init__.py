"""Requests to models over HTTP: clients, streams, retries and errors."""
