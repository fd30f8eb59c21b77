"""The answers of libnvidia-ml in a guest: the snapshot, live questions, and which processes and memory a client may
see."""
