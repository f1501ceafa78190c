"""The HTTP client of the API."""
