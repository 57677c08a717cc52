"""The tensor language: kernels of work-groups, written with collective linear algebra and single work-items' code.

Its reference is *Tensor language reference* (Intel, 2023), whose rules have names here (:mod:`.rules`).
"""
