"""Bad days, many of them: `make chaos`, `make soak`."""
