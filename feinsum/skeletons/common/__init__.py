"""What several skeletons share: drafts of kernels, sums as matrix products, numbers that stand for several indices."""
