"""Recall: the search for the documents, facts and turns that may answer a question, with the reason for each."""
