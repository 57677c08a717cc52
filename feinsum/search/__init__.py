"""Search of transform spaces: samplers of configurations, and the importance of parameters for their times."""

from feinsum.search.sampler import SAMPLERS, Sampler, make_sampler

__all__ = ["SAMPLERS", "Sampler", "make_sampler"]
