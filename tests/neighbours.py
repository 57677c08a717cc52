"""What other libraries do with feinsum; prints the names of their packages, each once what it computes is right.

Run by test_installed.py in an environment of its own: ``python tests/neighbours.py``.
"""

from __future__ import annotations

from importlib import metadata

import numpy as np

import feinsum as fe

rng = np.random.default_rng(0)


def use_cotengra() -> None:
    """Its optimizers order contractions of ours, and its trees, sliced too, contract by our kernels."""
    import cotengra

    equation = "ab,bc,cd,de->ae"
    arrays = [rng.random((k, k + 1)) for k in range(8, 12)]
    expected = np.einsum(equation, *arrays, optimize=True)
    optimizer = cotengra.ReusableHyperOptimizer(methods=["greedy"], max_repeats=4, parallel=False)
    np.testing.assert_allclose(fe.contract(equation, *arrays, optimize=optimizer), expected)
    tree = cotengra.einsum_tree(equation, *(x.shape for x in arrays), optimize=optimizer).slice(target_slices=4)
    assert tree.nslices >= 4
    by_us = tree.contract(arrays, prefer_einsum=True, implementation=(fe.contract, None))
    np.testing.assert_allclose(by_us, expected)


def use_fiat() -> None:
    """Mass matrices of an element that UFL names, with tables and rules of FInAT, are those of GEM's interpreter."""
    import finat.ufl
    import gem
    import ufl
    from finat.element_factory import create_element
    from finat.quadrature import make_quadrature
    from gem.interpreter import evaluate

    element = create_element(finat.ufl.FiniteElement("Lagrange", ufl.triangle, 3))
    rule = make_quadrature(element.cell, 6)
    phi = element.basis_evaluation(0, rule.point_set)[0, 0]
    (i,), (j,), q = element.get_indices(), element.get_indices(), rule.point_set.indices
    areas, e = rng.random(5), gem.Index("e", 5)
    product = gem.Product(rule.weight_expression, gem.Product(gem.Indexed(phi, (i,)), gem.Indexed(phi, (j,))))
    mass = gem.Product(gem.Indexed(gem.Literal(areas), (e,)), gem.IndexSum(product, q))

    def values(expression: gem.Node, *indices: gem.Index) -> np.ndarray:
        (result,) = evaluate([gem.ComponentTensor(expression, indices)])
        return result.arr

    weights, table = values(rule.weight_expression, *q), values(gem.Indexed(phi, (i,)), *q, i)
    by_us = fe.contract("e,q,qi,qj->eij", areas, weights, table, table)
    np.testing.assert_allclose(by_us, values(mass, e, i, j), atol=1e-14)


def use_pytato() -> None:
    """An einsum of its expressions is found in the kernel that it emits, and transformed.

    2021.2, the newest on PyPI, emits none, as it gives loopy an argument that loopy 2025.2 does not have.
    """
    import pytato

    n = pytato.make_size_param("n")
    matrix = pytato.make_placeholder(name="D", shape=(20, 20), dtype=np.float64)
    field = pytato.make_placeholder(name="u", shape=(n, 20), dtype=np.float64)
    if metadata.version("pytato") == "2021.2":
        try:
            pytato.generate_loopy({"out": field + 1.0})
        except TypeError as error:
            if "is_output_only" in str(error):
                return
            raise
        raise AssertionError("pytato 2021.2 emits kernels now: for-compilers.rst says that it does not")
    emitted = pytato.generate_loopy({"out": pytato.einsum("ij,ej->ei", matrix, field)}).program
    fast = fe.extract_operands(emitted)
    (match,) = fe.find_einsums(fast)
    device = fe.device()
    fast = fe.transform(fast, device, insn_match=f"id:{match.insn_ids[0]}")
    values = {"D": rng.random((20, 20)), "u": rng.random((100, 20))}
    _, results = fast.executor(device.queue)(device.queue, **values, n=np.int64(100))
    np.testing.assert_allclose(results["out"], values["u"] @ values["D"].T)


if __name__ == "__main__":
    use_cotengra()
    print("cotengra")
    use_fiat()
    print("fenics-ufl\nfiredrake-fiat")
    use_pytato()
    print("pytato")
