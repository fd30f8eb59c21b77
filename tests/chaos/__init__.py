"""Random failures of all parts, in many rounds: `make chaos`, `make soak`."""
