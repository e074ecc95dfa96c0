"""Templates and their renderings, with the origin of each character."""
