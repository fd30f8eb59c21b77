"""The worker process: one client's executor and backend, started by vgpud's supervisor."""
