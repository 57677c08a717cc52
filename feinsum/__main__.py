"""``python -m feinsum``: the same as the command ``feinsum``."""

from feinsum.cli import main

if __name__ == "__main__":
    main()
