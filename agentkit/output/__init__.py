"""Answers of a type: how a model is asked for one, how it is read, checked and repaired."""
