"""Does Kaiwo do what users of another scheduler rely on? Cases as data, played through the shipped code.

`python -m tests.conformance.kai DIR [--json]` takes any folder of such cases.
"""
