"""Subscripts: the grammar is the one of numpy.einsum, and what it does not allow is refused with the reason."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from feinsum.errors import SubscriptError
from feinsum.subscripts import Subscripts, from_interleaved, parse_subscripts

MEANINGS = {
    "matrix product": ("ij,jk->ik", (2, 2), "ij,jk->ik"),
    "implicit output": ("ij,jk", (2, 2), "ij,jk->ik"),
    "implicit output is sorted, capitals first": ("bA,ac->", (2, 2), "bA,ac->"),
    "implicit output in alphabetical order": ("ba", (2,), "ba->ab"),
    "capitals sort before small letters": ("aB", (2,), "aB->Ba"),
    "trace": ("ii", (2,), "ii->"),
    "diagonal": ("ii->i", (2,), "ii->i"),
    "scalar": ("", (0,), "->"),
    "scalars": (",->", (0, 0), ",->"),
    "white space": (" i j , j k -> i k ", (2, 2), "ij,jk->ik"),
    "ellipsis in front": ("...ij,...jk->...ik", (4, 4), "abij,abjk->abik"),
    "ellipsis behind": ("i...->...", (3,), "iab->ab"),
    "ellipsis inside": ("i...j->j...i", (4,), "iabj->jabi"),
    "ellipsis over axes of different number": ("...,...->...", (1, 3), "c,abc->abc"),
    "ellipsis of no axes": ("...i->i", (1,), "i->i"),
    "ellipsis in the output alone": ("i->...i", (1,), "i->i"),
    "implicit output with ellipsis": ("...ji", (3,), "aji->aij"),
    "letters of the ellipsis are free ones": ("a...->...a", (2,), "ab->ba"),
}

REFUSALS = {
    "index that is no letter": ("i1,jk", None, "'1' in operand 0 of 'i1,jk' is neither an index (a-z, A-Z)"),
    "letter of another alphabet": ("ij->ì", None, "'ì' in the output of 'ij->ì' is neither an index (a-z, A-Z)"),
    "two dots": ("i..,j", None, "'.' in operand 0 of 'i..,j' is neither an index (a-z, A-Z) nor part of one ellipsis"),
    "two ellipses": ("...i...", (3,), "'.' in operand 0 of '...i...' is neither"),
    "arrow in two places": ("i->j->k", None, "'-' in the output of 'i->j->k'"),
    "half an arrow": ("ij>i", None, "'>' in operand 0 of 'ij>i'"),
    "comma in the output": ("i->i,j", None, "',' in the output"),
    "too few operands": ("ij,jk", (2,), "'ij,jk' has 2 operands but 1 were given"),
    "too many operands": ("ij", (2, 2), "'ij' has 1 operands but 2 were given"),
    "rank above the subscripts": ("ij,jk", (2, 3), "operand 1 is 'jk' in 'ij,jk' but has 3 axes"),
    "rank below the ellipsis": ("ij...,jk", (1, 2), "operand 0 is 'ij...' in 'ij...,jk' but has 1 axes"),
    "repeated output index": ("ij->ii", None, "output index 'i' occurs 2 times in 'ij->ii'; an output has each index once"),
    "unknown output index": (
        "ij->ik",
        None,
        "output index 'k' of 'ij->ik' occurs in no operand; drop it or give it to one",
    ),
    "unknown output index beside an ellipsis": ("...i->...a", (2,), "output index 'a' of 'bi->ba' occurs in no operand"),
    "output without the ellipsis": ("...i->i", (3,), "must contain '...', because the operands broadcast over 2 axes"),
    "ellipsis without ranks": ("...i", None, "has an ellipsis, so the number of axes of operand 0 must be known"),
    "more axes than letters": ("...", (53,), "needs more than the 52 indices there are letters for"),
    "no text": (7, None, "subscripts are text such as 'ij,jk->ik', not int"),
}


@pytest.mark.parametrize(("text", "ranks", "meaning"), MEANINGS.values(), ids=MEANINGS)
def test_subscripts_mean_what_they_mean_to_numpy(text: str, ranks: tuple[int, ...], meaning: str) -> None:
    """Every form is expanded to explicit subscripts with one letter an index."""
    assert str(parse_subscripts(text, ranks)) == meaning


@pytest.mark.parametrize(("text", "ranks", "message"), REFUSALS.values(), ids=REFUSALS)
def test_refused_subscripts_say_why(text: Any, ranks: tuple[int, ...] | None, message: str) -> None:
    """The message names the character, operand or index at fault."""
    with pytest.raises(SubscriptError) as error:
        parse_subscripts(text, ranks)
    assert message in str(error.value)


@settings(max_examples=1000, deadline=None)
@given(st.lists(st.sampled_from(["i", "j", "k", "A", "a", "...", "..", ",", "->", "-", "1"]), max_size=8), st.data())
def test_numpy_accepts_the_same_subscripts(pieces: list[str], data: st.DataObject) -> None:
    """Random text means the same to numpy.einsum, or is refused by both."""
    text = "".join(pieces)
    terms = text.partition("->")[0].split(",")
    extra = data.draw(st.lists(st.integers(-1, 2), min_size=len(terms), max_size=len(terms)))
    ranks = [max(0, len(term.replace("...", "")) + more) for term, more in zip(terms, extra, strict=True)]
    operands = [np.full((2,) * rank, 3) for rank in ranks]
    try:
        expected = np.einsum(text, *operands)
    except ValueError:
        with pytest.raises(SubscriptError):
            parse_subscripts(text, ranks)
    else:
        found = np.einsum(str(parse_subscripts(text, ranks)), *operands)
        assert found.shape == expected.shape
        np.testing.assert_array_equal(found, expected)


INTERLEAVED = {
    "matrix product": ([[0, 1], [1, 2]], [0, 2], "ab,bc->ac"),
    "implicit output": ([[0, 1], [1, 2]], None, "ab,bc->ac"),
    "implicit output in order of number": ([[26, 1]], None, "Ab->bA"),
    "ellipsis": ([[..., 0], [..., 0]], [...], "...a,...a->..."),
    "implicit output with ellipsis": ([[1, ..., 0]], None, "b...a->...ab"),
    "numbers of numpy": ([np.arange(2), (np.int8(1),)], (), "ab,b->"),
}


@pytest.mark.parametrize(("axes", "output", "text"), INTERLEAVED.values(), ids=INTERLEAVED)
def test_interleaved_form_as_text(axes: list[Any], output: Any, text: str) -> None:
    """Integers become letters in order."""
    assert from_interleaved(axes, output) == text


@pytest.mark.parametrize(
    ("axes", "output", "message"),
    [
        ([[0, 52]], None, "52 in operand 0 is not an index; the interleaved form takes integers 0 to 51 or '...'"),
        ([[0], [-1]], None, "-1 in operand 1 is not an index"),
        ([[0, "j"]], None, "'j' in operand 0 is not an index"),
        ([[0]], [0.5], "0.5 in the output is not an index"),
        ([0], None, "the indices of operand 0 are 0; the interleaved form takes a list of integers"),
        ([[0], "ij"], None, "the indices of operand 1 are 'ij'; the interleaved form takes a list of integers"),
    ],
)
def test_refused_interleaved_form_says_why(axes: list[Any], output: Any, message: str) -> None:
    """The message names the index and its operand."""
    with pytest.raises(SubscriptError) as error:
        from_interleaved(axes, output)
    assert message in str(error.value)


def test_indices_are_those_of_the_output_then_the_summed_ones() -> None:
    """Order of appearance, each index once."""
    subscripts = Subscripts(("xre", "rij", "ej"), "xei")
    assert subscripts.indices == "xeirj"
    assert subscripts.summed == "rj"
    assert str(subscripts.rename({"x": "a", "r": "b", "e": "c", "i": "d", "j": "e"})) == "abc,bde,ce->acd"


def test_a_letter_outside_the_alphabet_is_refused_wherever_it_comes_from() -> None:
    """The class itself checks, so that no other way in is open."""
    with pytest.raises(
        SubscriptError, match="'_' in operand 1 of 'i,_->i' is not an index; an index is one letter a-z or A-Z"
    ):
        Subscripts(("i", "_"), "i")
