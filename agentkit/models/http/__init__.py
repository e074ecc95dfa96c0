"""What every model over HTTP shares: clients, requests, replies that are read as they come, errors."""
