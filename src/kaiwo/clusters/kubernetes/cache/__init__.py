"""The cluster as the API server shows it, and what is published of it to the scheduler."""
