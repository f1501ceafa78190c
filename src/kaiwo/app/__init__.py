"""Compose the programs that run as servers: `kaiwo up` and `kaiwo scheduler`."""
