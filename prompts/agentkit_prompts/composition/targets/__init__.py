"""Where a composition goes: one file per target."""
