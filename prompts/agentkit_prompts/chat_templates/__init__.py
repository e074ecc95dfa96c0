"""Chat templates: how one model wants to hear a conversation."""
