"""Models without network access: the offline model and the scripted model."""
