"""The commands: what each of them takes and does, a file for each."""
