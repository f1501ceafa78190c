"""Admission: what the API server asks before it stores work or a queue.

In:    AdmissionReviews over TLS.   Out: defaults, stamps, and refusals in the words of `kaiwo apply`.
Never: is asked about work that says nothing of Kaiwo, or about the namespaces that a cluster needs to mend itself.
"""
