"""What several skeletons share: drafts of kernels, sums as matrix products, numbers and indices that stand for several."""
