"""Tools that belong together: wrapped, taken from objects and modules, computed for each turn."""
