"""Parts that several skeletons share: drafts of kernels, sums as matrix products, fused indices and their digits."""
