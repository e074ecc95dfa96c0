"""One run of an agent: the loop that decides, the effects it asks for, and the drivers that perform them."""
