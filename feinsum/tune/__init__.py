"""Tuning: trials in worker processes that cannot hurt the tuner, and their records."""
