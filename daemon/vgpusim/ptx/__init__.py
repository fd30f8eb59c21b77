"""The PTX front end: text to typed instructions."""
