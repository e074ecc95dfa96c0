"""Journals of runs, their files and their traces."""
