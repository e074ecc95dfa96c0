"""What a run asked for and was answered: its journal, the file of it, its trace."""
