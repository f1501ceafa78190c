"""One module for each verb, or for a few that belong together."""
