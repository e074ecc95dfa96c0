"""What goes into a prompt: the context, messages, content parts, and what else a turn holds."""
