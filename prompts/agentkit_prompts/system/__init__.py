"""Files, locks between processes and threads of the machine, as all layers use them."""
