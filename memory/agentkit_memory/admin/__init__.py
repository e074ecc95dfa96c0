"""What the operator of a store does, for all its scopes: check, rebuild, back up, restore, export, count."""
