"""The wide list: einsums that nobody tuned."""
