"""Programs of the tensor language by both routes."""
