"""The loops that a person would write by hand for a batched einsum, as source for numba.

One parallel loop over the longest output index; inside it the cheapest order of pairwise contractions, with small
temporaries, the contiguous index innermost, and partial results that several outputs share computed once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from benchmarks.engines.problem import Problem


@dataclass(frozen=True)
class Term:
    """A variable and its indices; `axis` has those that are axes, the others being given by a loop around it."""

    name: str
    letters: str
    axes: str

    def __str__(self) -> str:
        return f"{self.name}[{', '.join(f'{x}_' for x in self.axes) or '0'}]"


@dataclass(frozen=True)
class Step:
    """``result = Σ Π factors``, over the letters that the result lacks."""

    result: Term
    factors: tuple[Term, ...]

    @property
    def letters(self) -> str:
        return "".join(dict.fromkeys("".join(term.letters for term in self.factors)))

    def loops(self, lengths: Mapping[str, int], given: str, indent: str) -> list[str]:
        """The loop nest inside that of the letters `given`; the result is there already and zero."""
        kept = [x for x in self.result.letters if x not in given]
        summed = [x for x in self.letters if x not in given and x not in kept]
        product = " * ".join(map(str, self.factors))
        longest = max((term.letters for term in self.factors), key=len)
        inner = next((x for x in reversed(longest) if x not in given), "")
        lines = []
        for letter in (x for x in [*kept, *summed] if x != inner):
            lines.append(f"{indent}for {letter}_ in range({lengths[letter]}):")
            indent += "    "
        if not inner:
            return [*lines, f"{indent}{self.result} += {product}"]
        loop = f"{indent}for {inner}_ in range({lengths[inner]}):"
        if inner in kept:
            return [*lines, loop, f"{indent}    {self.result} += {product}"]
        # The result may overlap the factors for all that LLVM knows, so only a scalar stays in a register.
        return [*lines, f"{indent}s = zero", loop, f"{indent}    s += {product}", f"{indent}{self.result} += s"]


def loops_source(problem: Problem) -> str:
    """The source of ``run(in_A, in_B, ..., out_0, ...)``, to be compiled with ``parallel=True``."""
    lengths = problem.lengths
    parallel = max(problem.output, key=lambda letter: lengths[letter])
    before: list[str] = []
    inside: list[str] = []
    for step in steps_of(problem, parallel):
        result = step.result
        given = parallel if parallel in step.letters else ""
        block, indent = (inside, "        ") if given else (before, "    ")
        if result.name.startswith("out_"):
            at = ", ".join(f"{parallel}_" if x == parallel else ":" for x in result.axes)
            block.append(f"{indent}{result.name}[{at}] = 0")
        else:
            shape = "".join(f"{lengths[x]}, " for x in result.axes) or "1,"
            block.append(f"{indent}{result.name} = np.zeros(({shape}), np.{problem.dtype})")
        block += step.loops(lengths, given, indent)
    arguments = [f"in_{name}" for name in dict.fromkeys(name for row in problem.rows for name in row)]
    arguments += [f"out_{i}" for i in range(len(problem.rows))]
    head = [
        f"def run({', '.join(arguments)}):",
        f"    zero = np.{problem.dtype}(0)",
        *before,
        f"    for {parallel}_ in prange({lengths[parallel]}):",
    ]
    return "\n".join([*head, *inside]) + "\n"


def steps_of(problem: Problem, parallel: str = "") -> list[Step]:
    """The pairwise contractions of all outputs, equal ones once.

    :param parallel: an index that is no axis of results, as a loop around all steps gives it.
    """
    steps: dict[tuple[object, ...], Step] = {}
    for i, row in enumerate(problem.rows):
        pool = [Term(f"in_{name}", term, term) for name, term in zip(row, problem.terms, strict=True)]
        for positions in problem.path:
            taken = tuple(pool[k] for k in positions)
            pool = [term for k, term in enumerate(pool) if k not in positions]
            if pool:
                needed = set(problem.output).union(*(term.letters for term in pool))
                # As in the factor with most indices, which is likely the one that is read most often.
                longest_first = sorted(taken, key=lambda term: -len(term.letters))
                letters = "".join(x for x in dict.fromkeys("".join(t.letters for t in longest_first)) if x in needed)
                result = Term(f"t{len(steps)}", letters, letters.replace(parallel, ""))
                pool.append(steps.setdefault((taken, letters), Step(result, taken)).result)
            else:
                steps[taken, i] = Step(Term(f"out_{i}", problem.output, problem.output), taken)
    return list(steps.values())
