"""The driver API, described once: `spec` says what each function is, `gen` makes everything that derives from it."""
