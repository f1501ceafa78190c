"""The JSON types of the API, from which the OpenAPI document and the page's types are made.

The CLI's `-o json` and the page show exactly these. Integers only: milli-GPU, milli-CPU, MiB, seconds.
"""
