"""The versions of the libraries that take part in making and timing a kernel."""

from __future__ import annotations

from functools import lru_cache
from importlib.metadata import PackageNotFoundError, version

_LIBRARIES = ("feinsum", "loopy", "islpy", "pymbolic", "pyopencl", "numpy")


@lru_cache(maxsize=1)
def library_versions() -> dict[str, str]:
    """Library -> version; feinsum's own is known in a checkout that is not installed, too."""
    from feinsum._version import __version__

    found = {"feinsum": __version__}
    for name in _LIBRARIES[1:]:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found
