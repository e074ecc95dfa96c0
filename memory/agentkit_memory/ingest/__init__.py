"""Ingestion of files and texts as chunks in the store."""
