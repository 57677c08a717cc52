"""The subscripts of an einsum: ``"xre,rij,ej->xei"`` as text, as lists of integers, with or without ellipsis.

The grammar is the one of :func:`numpy.einsum`: an index is one letter, operands are separated by commas, the output
follows ``->``.  Without an output, the indices that occur exactly once are its axes, in alphabetical order, after those
of the ellipsis.

For arrays there may be more indices than letters, as in opt_einsum: every character from U+00C0 on is one.
"""

from __future__ import annotations

import operator
import string
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from feinsum.errors import SubscriptError

INDEX_LETTERS = string.ascii_lowercase + string.ascii_uppercase
_FURTHER = 0xC0
"""The first of the characters that follow the letters where those are not enough."""


@dataclass(frozen=True)
class Subscripts:
    """The indexing expression of an einsum, one letter an index.

    ``Subscripts(("ik", "kj"), "ij")`` is the matrix product; ``str()`` of it reads ``ik,kj->ij``.

    :raises SubscriptError: if an output index repeats, occurs in no operand, or is not a letter.
    """

    inputs: tuple[str, ...]
    output: str

    def __post_init__(self) -> None:
        for where, axes in [*((f"operand {k}", axes) for k, axes in enumerate(self.inputs)), ("the output", self.output)]:
            for letter in axes:
                if letter not in INDEX_LETTERS:
                    raise SubscriptError(
                        f"{letter!r} in {where} of '{self}' is not an index; an index is one letter a-z or A-Z"
                    )
        _check_output(self.inputs, self.output)

    def __str__(self) -> str:
        return f"{','.join(self.inputs)}->{self.output}"

    @cached_property
    def indices(self) -> str:
        """Every index once: those of the output first, then the summed ones in order of appearance."""
        return "".join(dict.fromkeys(self.output + "".join(self.inputs)))

    @cached_property
    def summed(self) -> str:
        """The indices summed over, in order of appearance."""
        return self.indices[len(self.output) :]

    def rename(self, letters: dict[str, str]) -> Subscripts:
        """The same expression with every index replaced by its image in `letters`."""
        table = str.maketrans(letters)
        return Subscripts(tuple(axes.translate(table) for axes in self.inputs), self.output.translate(table))


def parse_subscripts(text: str, ranks: Sequence[int] | None = None) -> Subscripts:
    """Read subscripts in the grammar of :func:`numpy.einsum`.

    :param text: for instance ``"ij,jk"``, ``"ii->i"`` or ``"...i,...i->..."``.
    :param ranks: the number of axes of each operand; needed where `text` has an ellipsis, checked where given.
    :raises SubscriptError: naming the character, operand or rank that does not fit.

    >>> str(parse_subscripts("ij,jk"))
    'ij,jk->ik'
    >>> str(parse_subscripts("...ij,...jk->...ik", ranks=(3, 3)))
    'aij,ajk->aik'
    """
    return Subscripts(*_operand_terms(text, ranks, more=False))


def parse_symbols(text: str, ranks: Sequence[int]) -> tuple[tuple[str, ...], str]:
    """Subscripts with any number of indices: terms and output in letters and the characters that follow them.

    Axes of an ellipsis that the output leaves out are summed, as in opt_einsum, torch and JAX; numpy refuses them.

    >>> parse_symbols("αβ,βγ", (2, 2))
    (('αβ', 'βγ'), 'αγ')
    >>> parse_symbols("i...->i", (3,))
    (('iab',), 'i')
    """
    inputs, output = _operand_terms(text, ranks, more=True)
    _check_output(inputs, output)
    return inputs, output


def _check_output(inputs: Sequence[str], output: str) -> None:
    for letter, count in Counter(output).items():
        if count > 1:
            text = f"{','.join(inputs)}->{output}"
            raise SubscriptError(f"output index {letter!r} occurs {count} times in '{text}'; an output has each index once")
        if not any(letter in axes for axes in inputs):
            text = f"{','.join(inputs)}->{output}"
            raise SubscriptError(f"output index {letter!r} of '{text}' occurs in no operand; drop it or give it to one")


def _operand_terms(text: str, ranks: Sequence[int] | None, more: bool) -> tuple[tuple[str, ...], str]:
    """The terms of the operands and of the output; `more` if there may be more indices than letters."""
    if not isinstance(text, str):
        raise SubscriptError(f"subscripts are text such as 'ij,jk->ik', not {type(text).__name__}")
    compact = "".join(text.split())
    left, arrow, right = compact.partition("->")
    terms = left.split(",")
    if ranks is not None and len(terms) != len(ranks):
        raise SubscriptError(f"'{text}' has {len(terms)} operands but {len(ranks)} were given")
    heads = [_split_ellipsis(term, f"operand {k}", text, more) for k, term in enumerate(terms)]
    output = _split_ellipsis(right, "the output", text, more) if arrow else None

    depths = [0] * len(terms)
    for k, (before, after) in enumerate(heads):
        named = len(before) + len(after or "")
        if after is not None:
            if ranks is None:
                raise SubscriptError(f"'{text}' has an ellipsis, so the number of axes of operand {k} must be known")
            depths[k] = ranks[k] - named
        if ranks is not None and (depths[k] < 0 or named + depths[k] != ranks[k]):
            raise SubscriptError(f"operand {k} is '{terms[k]}' in '{text}' but has {ranks[k]} axes")
    return _expand_ellipsis(text, heads, depths, output, more)


def _split_ellipsis(term: str, where: str, text: str, more: bool) -> tuple[str, str | None]:
    """Split ``ab...c`` into ``("ab", "c")``; without an ellipsis the second part is None."""
    before, dots, after = term.partition("...")
    for letter in before + after:
        if letter not in INDEX_LETTERS and not (more and ord(letter) >= _FURTHER):
            raise SubscriptError(
                f"{letter!r} in {where} of '{text}' is neither an index (a-z, A-Z) nor part of one ellipsis '...'"
            )
    return before, (after if dots else None)


def _expand_ellipsis(
    text: str, heads: list[tuple[str, str | None]], depths: list[int], output: tuple[str, str | None] | None, more: bool
) -> tuple[tuple[str, ...], str]:
    """Give the axes of the ellipsis letters of their own, aligned at the right as broadcasting does."""
    named = Counter("".join(before + (after or "") for before, after in heads))
    used = {*named, *(output[0] + (output[1] or "") if output else "")}
    depth = max(depths, default=0)
    letters = map(_symbol, range(len(used) + depth)) if more else INDEX_LETTERS
    spare = [letter for letter in letters if letter not in used]
    if depth > len(spare):
        raise SubscriptError(f"'{text}' needs more than the {len(INDEX_LETTERS)} indices there are letters for")
    broadcast = "".join(spare[:depth])
    inputs = tuple(
        before + (broadcast[depth - own :] + after if after is not None else "")
        for (before, after), own in zip(heads, depths, strict=True)
    )
    if output is None:
        return inputs, broadcast + "".join(sorted(letter for letter, count in named.items() if count == 1))
    before, after = output
    if after is None and depth and not more:
        raise SubscriptError(f"the output of '{text}' must contain '...', because the operands broadcast over {depth} axes")
    return inputs, before + (broadcast + after if after is not None else "")


def _symbol(k: int) -> str:
    """The `k`-th index: a letter, or beyond them what opt_einsum takes."""
    return INDEX_LETTERS[k] if k < len(INDEX_LETTERS) else chr(_FURTHER + k - len(INDEX_LETTERS))


def from_interleaved(axes: Sequence[Iterable[object]], output: Iterable[object] | None) -> str:
    """The text of the interleaved form, in which every operand is followed by a list of its indices.

    Indices are integers from 0 to 51 (0 is ``a``, 26 is ``A``) or Ellipsis.  Without `output`, the integers that occur
    once are the output, in increasing order.

    :raises SubscriptError: if a list of indices is none, or holds something else.

    >>> from_interleaved([[0, 1], [1, 2]], None)
    'ab,bc->ac'
    """
    terms = [_term_letters(term, f"operand {k}") for k, term in enumerate(axes)]
    if output is None:
        counts = Counter("".join(terms).replace(".", ""))
        dots = "..." if any("..." in term for term in terms) else ""
        target = dots + "".join(letter for letter in INDEX_LETTERS if counts[letter] == 1)
    else:
        target = _term_letters(output, "the output")
    return f"{','.join(terms)}->{target}"


def from_names(axes: Sequence[Iterable[object]], output: Iterable[object] | None) -> str:
    """Subscripts from indices that are all integers of any size, or all names, as opt_einsum takes them.

    >>> from_names([["row", "sum"], ["sum", "column"]], ["row", "column"])
    'bc,ca->ba'
    """
    try:
        terms = [list(term) for term in (*axes, () if output is None else output)]
        counts = Counter(x for term in terms for x in term if x is not Ellipsis)
        indices = sorted(counts)  # type: ignore[type-var]
    except TypeError:  # what is no list, or no index, is named there
        return from_interleaved(axes, output)
    further = all(isinstance(x, str) for x in indices) or any(_index_number(x) >= len(INDEX_LETTERS) for x in indices)
    if not further or any(_index_number(x) < 0 and not isinstance(x, str) for x in indices):
        return from_interleaved(axes, output)
    names = {x: _symbol(rank) for rank, x in enumerate(indices)} | {Ellipsis: "..."}
    if output is None:
        dots = [Ellipsis] if any(Ellipsis in term for term in terms) else []
        terms[-1] = [*dots, *(x for x in indices if counts[x] == 1)]
    *inputs, target = ("".join(names[x] for x in term) for term in terms)
    return f"{','.join(inputs)}->{target}"


def _index_number(index: object) -> int:
    """An index of the interleaved form as a number; -1 if it is none."""
    try:
        return operator.index(index)  # type: ignore[arg-type]
    except TypeError:
        return -1


def _term_letters(term: Iterable[object], where: str) -> str:
    if not isinstance(term, Iterable) or isinstance(term, str):
        raise SubscriptError(f"the indices of {where} are {term!r}; the interleaved form takes a list of integers")
    letters = []
    for index in term:
        if index is Ellipsis:
            letters.append("...")
        elif 0 <= _index_number(index) < len(INDEX_LETTERS):
            letters.append(INDEX_LETTERS[_index_number(index)])
        else:
            array = hasattr(index, "shape")
            found = f"an array in {where}" if array else f"{index!r} in {where}"
            order = "; where subscripts are text, they come before the arrays" if array else ""
            raise SubscriptError(f"{found} is not an index; the interleaved form takes integers 0 to 51 or '...'{order}")
    return "".join(letters)


def extended_bijection(ours: Sequence[str], theirs: Sequence[str], known: Mapping[str, str]) -> dict[str, str] | None:
    """The one-to-one map `known` extended so that `ours` reads `theirs`; None where it cannot be.

    >>> extended_bijection("ij", "ab", {"i": "a"}), extended_bijection("ij", "ab", {"j": "a"})
    ({'i': 'a', 'j': 'b'}, None)
    """
    if len(ours) != len(theirs):
        return None
    extended = dict(known)
    for a, b in zip(ours, theirs, strict=True):
        if extended.setdefault(a, b) != b:
            return None
    return extended if len(set(extended.values())) == len(extended) else None
