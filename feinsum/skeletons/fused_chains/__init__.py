"""Fused chains: contractions one after the other by one work-group, partial results in local memory."""
