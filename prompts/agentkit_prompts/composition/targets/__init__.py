"""The targets of a composition, one file each."""
