"""Search of transform spaces: which configurations to try, and what their times say about the parameters."""

from feinsum.search.sampler import SAMPLERS, Sampler, make_sampler

__all__ = ["SAMPLERS", "Sampler", "make_sampler"]
