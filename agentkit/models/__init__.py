"""Models: what a composition is sent to, and what comes back."""
