"""Operations on a whole store, for all its scopes: check, rebuild, back up, restore, export, count."""
