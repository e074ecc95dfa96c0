"""Recall: from a question to documents, facts and turns, each with why it was recalled."""
