"""The lengths of inames whose domain is a hypercube from zero: ``0 <= i < n`` for each iname by itself."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from itertools import combinations
from typing import Any

import islpy as isl
from loopy.diagnostic import LoopyError
from pymbolic import evaluate, parse

from feinsum.errors import MatchError, ShapeError
from feinsum.match.kernel_source import SourceKernel

Length = int | str
"""A number, or an affine expression of parameters as text: ``n``, ``2*n + m - 1``."""

SET, PARAM = isl.dim_type.set, isl.dim_type.param


def find_lengths(source: SourceKernel, inames: Iterable[str]) -> dict[str, Length]:
    """The length of each iname, if their domain is a hypercube from zero.

    :raises MatchError: saying which iname is triangular, offset, strided, empty or bounded by data.
    """
    wanted = frozenset(inames)
    if not wanted:
        return {}
    whole = _assumed_domain(source, wanted)
    domain = whole.project_out_except(sorted(wanted), [SET])
    if domain.is_empty():
        raise MatchError(f"the domain of {_listed_inames(wanted)} is empty")
    lengths = _domain_lengths(source, domain)
    # Projecting away an iname of length m leaves the condition m >= 1 behind, which is no condition on the others.
    if not (_is_cube(source, domain) or _is_cube(source, whole)):
        raise MatchError(_irregularity(domain, lengths))
    return lengths


def find_parameters(length: Length) -> frozenset[str]:
    """The parameters in a length: n and m in ``2*n + m - 1``."""
    return frozenset(re.findall(r"[A-Za-z_]\w*", str(length)))


def evaluate_lengths(lengths: Mapping[str, str], sizes: Mapping[str, int]) -> dict[str, int]:
    """The lengths that follow from those of parameters: ``{"E": "2*n - 1", "F": "m"}`` and n = 3 give E = 5.

    :raises ShapeError: if `sizes` names what is in no length.
    """
    needed = {axis: find_parameters(length) for axis, length in lengths.items()}
    known = frozenset[str]().union(*needed.values())
    for name in sizes:
        if name not in known:
            raise ShapeError(f"sizes has '{name}', which is in no length of the einsum; these have {sorted(known)}")
    return {axis: evaluate(parse(lengths[axis]), sizes) for axis in needed if needed[axis] <= sizes.keys()}


def write_cube(lengths: Mapping[str, Length]) -> str:
    """A hypercube in the syntax of isl: ``[n] -> { [i, j] : 0 <= i < n and 0 <= j < 4 }``."""
    parameters = sorted(frozenset[str]().union(*map(find_parameters, lengths.values())))
    bounds = " and ".join(f"0 <= {iname} < {length}" for iname, length in lengths.items())
    return f"[{', '.join(parameters)}] -> {{ [{', '.join(lengths)}] : {bounds} }}"


def _assumed_domain(source: SourceKernel, inames: frozenset[str]) -> Any:
    """The values of the inames, and of others in the same domains, under the assumptions of the kernel."""
    try:
        domain = source.kernel.get_inames_domain(inames).to_set()
    except LoopyError as error:
        raise MatchError(f"{_listed_inames(inames)} have no domain in common: {error}") from None
    for home in sorted({source.kernel.get_home_domain_index(iname) for iname in inames}):
        for name in source.kernel.domains[home].get_var_names(PARAM):
            if name not in inames and not source.is_parameter(name):
                raise MatchError(
                    f"the domain of {_listed_inames(inames)} is bounded by '{name}', which is known only inside the kernel;"
                    " a length is a number or an affine expression of value arguments"
                )
    return domain.intersect_params(source.kernel.assumptions.to_set())


def _is_cube(source: SourceKernel, domain: Any) -> bool:
    try:
        cube = isl.Set(write_cube(_domain_lengths(source, domain)))
    except MatchError:
        return False
    return bool(domain.is_equal(cube.intersect_params(source.kernel.assumptions.to_set())))


def _domain_lengths(source: SourceKernel, domain: Any) -> dict[str, Length]:
    assumed = source.kernel.assumptions.to_set()
    return {iname: _dimension_length(domain, k, iname, assumed) for k, iname in enumerate(domain.get_var_names(SET))}


def _dimension_length(domain: Any, k: int, iname: str, assumed: Any) -> Length:
    """One more than the largest value of dimension k, as short as what is assumed of the parameters lets it be."""
    try:
        # Where n is assumed to be a multiple of 16, isl says n - n mod 16 for n.
        pieces = domain.dim_max(k).coalesce().gist_params(assumed).get_pieces()
    except isl.Error:
        raise MatchError(f"iname '{iname}' has no upper bound") from None
    if len(pieces) != 1:
        raise MatchError(f"iname '{iname}' ends at the smaller of several bounds; bound it by one")
    ((_, last),) = pieces
    if last.dim(isl.dim_type.div) or last.get_denominator_val().to_python() != 1:
        raise MatchError(f"the length of iname '{iname}' is a quotient ({last}); make it a parameter of its own")
    terms = {last.get_dim_name(PARAM, p): last.get_coefficient_val(PARAM, p).to_python() for p in range(last.dim(PARAM))}
    return write_affine({name: c for name, c in terms.items() if c}, last.get_constant_val().to_python() + 1)


def write_affine(coefficients: Mapping[str, int], constant: int) -> Length:
    """``2*n + m - 1``, names in alphabetical order; a number where there are none."""
    if not coefficients:
        return constant
    terms = [(c, name if abs(c) == 1 else f"{abs(c)}*{name}") for name, c in sorted(coefficients.items())]
    if constant:
        terms.append((constant, str(abs(constant))))
    (first, head), *rest = terms
    return ("-" if first < 0 else "") + head + "".join(f" {'-' if c < 0 else '+'} {term}" for c, term in rest)


def _irregularity(domain: Any, lengths: Mapping[str, Length]) -> str:
    """The reason why a domain is not the hypercube of its lengths."""
    for k, (iname, length) in enumerate(lengths.items()):
        first = domain.dim_min(k).coalesce().get_pieces()
        if any(not start.is_cst() or start.get_constant_val().to_python() != 0 for _, start in first):
            starts = " or ".join(_plain_affine(start) for _, start in first)
            return f"iname '{iname}' starts at {starts}, not at 0; shift it with loopy.affine_map_inames"
        if not _covers(domain, {iname: length}):
            return f"iname '{iname}' skips values between 0 and {length}; give its loop the stride one"
    for pair in combinations(lengths, 2):
        if not _covers(domain, {iname: lengths[iname] for iname in pair}):
            return f"the bounds of inames '{pair[0]}' and '{pair[1]}' depend on each other, so they span no rectangle"
    return (
        f"the domain of {_listed_inames(lengths)} holds for some values of the parameters only; "
        "state the condition as an assumption of the kernel (loopy.assume)"
    )


def _covers(domain: Any, lengths: Mapping[str, Length]) -> bool:
    """Whether some inames together take every value below their lengths."""
    projected = domain.project_out_except(list(lengths), [SET])
    return bool(isl.Set(write_cube(lengths)).intersect_params(domain.params()).is_subset(projected))


def _plain_affine(aff: Any) -> str:
    return re.sub(r".*\[\((.*)\)\].*", r"\1", str(aff))


def _listed_inames(inames: Iterable[str]) -> str:
    return ", ".join(f"'{iname}'" for iname in sorted(inames))
