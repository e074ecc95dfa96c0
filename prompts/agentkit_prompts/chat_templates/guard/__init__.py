"""Which tokens only a chat template may write, and how untrusted text is kept from writing them."""
