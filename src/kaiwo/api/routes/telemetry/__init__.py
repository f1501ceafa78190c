"""Routes of what is recorded over time, and of alerts about it."""
