"""Files, locks between processes, and threads, for all packages."""
