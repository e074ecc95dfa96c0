"""Drivers: they perform the effects of the loop. One short file each."""
