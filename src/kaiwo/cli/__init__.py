"""The `kaiwo` command: verbs that people type, over the HTTP API."""
