"""Benchmarks: each module drives shipped code and fails when its number is missed.

`python -m bench.NAME --json` prints one JSON object and exits non-zero when a target is missed.
`make bench` runs them all and keeps what they print in docs/benchmarks/NAME.json.
"""
