"""What each card answers: attributes, limits and sizes, as data."""
