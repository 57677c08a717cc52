"""Complex parts: contractions of complex numbers as contractions of pairs of reals, which vectors can multiply."""
