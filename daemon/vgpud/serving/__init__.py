"""The running daemon: its sockets, the front door, readiness, and handing a client to a worker."""
