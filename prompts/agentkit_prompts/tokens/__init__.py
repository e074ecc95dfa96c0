"""How many tokens a text takes, and how many a prompt may take."""
