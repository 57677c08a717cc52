"""feinsum's peers, a class each with one protocol; each runs in a process of its own."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from benchmarks.peers.arrays import Numba, Numpy, OptEinsum, Tblis
from benchmarks.peers.base import Engine
from benchmarks.peers.cuda import Cupy, Cutensor
from benchmarks.peers.frameworks import Jax, Torch, TorchCompile
from benchmarks.peers.matrices import Libxsmm, Onemkl

PEERS: dict[str, type[Engine]] = {
    "numpy": Numpy,
    "opt_einsum": OptEinsum,
    "torch": Torch,
    "torch_compile": TorchCompile,
    "jax": Jax,
    "numba": Numba,
    "tblis": Tblis,
    "onemkl": Onemkl,
    "libxsmm": Libxsmm,
    "cupy": Cupy,
    "cutensor": Cutensor,
}


def peers_for(side: str) -> list[str]:
    """The names of the peers that run on such a device."""
    return [name for name, peer in PEERS.items() if side in peer.sides]


def installed_here(names: Iterable[str]) -> Iterator[tuple[str, Any]]:
    """Those of some peers that this process can import, for what is no einsum; the others are left out with a reason."""
    for name in names:
        try:
            yield name, PEERS[name]()
        except ImportError as error:
            print(f"{name} is left out: {error}", flush=True)


def peer_versions(names: Iterable[str]) -> dict[str, str]:
    """The versions of what some of the peers need."""
    return dict(pair for _, peer in installed_here(names) for pair in peer.versions().items())
