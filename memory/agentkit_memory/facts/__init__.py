"""Facts, and their extraction from turns in the background."""
