"""Mutants that no test can notice, each with the reason: they are left out of the count.

The key is the module, the function, its line, and what the mistake makes of what; numbers of lines would not last.
"""

EQUIVALENT: dict[tuple[str, str, str, str, str], str] = {}
