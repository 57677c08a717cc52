"""Whether this checkout is slower than the last release: paired measurements of both, and a verdict."""
