"""The cluster cache: objects as the API server shows them, and what is published to the scheduler."""
