"""What libnvidia-ml answers in a guest: the snapshot, live questions, whose processes and memory are shown to whom."""
