"""What every room may use: threads and event loops, options, JSON of requests."""
