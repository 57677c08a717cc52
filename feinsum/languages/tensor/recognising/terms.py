"""Terms: what a function of linear algebra writes, as sums of products of its parameters.

    gemm.n.n %one, %K, %Q, %zero, %T          T[m, n] := K[m, k] Q[k, n]
    gemm.n.n %alpha, %T, %A, %one, %D     →   D[m, l] := alpha K[m, k] Q[k, n] A[n, l] + D[m, l]

Modes are numbered by letters; the group id is letter 0.  Local memory that is written as a whole is replaced by what was
written, or becomes an array of all instances where what was written is a sum that several instructions read.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count
from typing import Any, Final, TypeAlias, TypeVar

from feinsum.languages.source import Span
from feinsum.languages.tensor.ir import TensorFunction, TensorOperation, TensorValue
from feinsum.languages.tensor.memory_effects import read_by, roots, written_by
from feinsum.languages.tensor.types import Extent, PointerGroup, TensorMemref, make_tensor_memref

GROUP_ID: Final = 0
_INDEXED: Final = -1
"""Stands for the letter of a mode at a fixed index, which has none."""
_T = TypeVar("_T")
Letters: TypeAlias = tuple[int, ...]
Block: TypeAlias = tuple[tuple[int, int] | None, ...]
"""For each mode of a parameter, offset and size of what is read of it, the size 0 for an index; None for all of it."""
MOST_TERMS: Final = 16
"""Einsums that a function may be; more of them read and write the same arrays too often to be worth it."""


class UnrecognisedError(Exception):
    """Something that is no einsum; says what, and where."""

    def __init__(self, why: str, span: Span) -> None:
        super().__init__(why)
        self.span = span


@dataclass(frozen=True)
class Factor:
    """A parameter at letters, or a block of it: of a group, the first is that of its memrefs.

    :ivar letters: of the modes that are not at an index.
    """

    root: TensorValue
    letters: Letters
    block: Block

    @classmethod
    def whole(cls, root: TensorValue, letters: Letters) -> Factor:
        """The factor that is all of an array."""
        return cls(root, letters, (None,) * len(letters))

    @property
    def modes(self) -> tuple[int, ...]:
        """The mode of each letter."""
        return tuple(mode for mode, part in enumerate(self.block) if part is None or part[1])

    @property
    def transposed(self) -> Letters:
        """The letters of the transposed array."""
        return transposed(self.root, self.letters)


def transposed(root: TensorValue, modes: Sequence[_T]) -> tuple[_T, ...]:
    """Items of modes in the order of the transposed array: the first mode of a group stays, as its memrefs lie one behind
    the other."""
    if isinstance(root.type, PointerGroup):
        return (modes[0], *reversed(modes[1:]))
    return tuple(reversed(modes))


@dataclass(frozen=True)
class ProductTerm:
    """A number, numbers that are given at the call, and factors.

    :ivar block: of what it is added to; empty for all of it.
    """

    number: Any
    scalars: tuple[TensorValue, ...] = ()
    factors: tuple[Factor, ...] = ()
    block: Block = ()

    def times(self, other: ProductTerm) -> ProductTerm:
        scalars, factors = self.scalars + other.scalars, self.factors + other.factors
        return ProductTerm(self.number * other.number, scalars, factors, self.block + other.block)

    def renamed(self, letters: Mapping[int, int]) -> ProductTerm:
        factors = (replace(f, letters=tuple(letters.get(x, x) for x in f.letters)) for f in self.factors)
        return replace(self, factors=tuple(factors))


@dataclass(frozen=True)
class RecognisedUpdate:
    """``root[letters] := Σ terms + scale · root[letters]``, of which terms with a block are added to that.

    :ivar root: a parameter, or local memory as an array of all instances.
    :ivar scale: a term without factors; None where the content is not read.
    :ivar spans: the instructions that it stands for.
    """

    root: TensorValue
    letters: Letters
    terms: tuple[ProductTerm, ...]
    scale: ProductTerm | None
    spans: tuple[Span, ...]


@dataclass(frozen=True)
class _RootAccess:
    """A memref as a part of a parameter or alloca: which letter stands for each of the root's modes; None for its own."""

    root: TensorValue
    fixed: tuple[int | None, ...]
    block: Block

    @classmethod
    def of_all(cls, root: TensorValue, order: int, *fixed: int) -> _RootAccess:
        return cls(root, (*fixed, *[None] * order), (None,) * (len(fixed) + order))


@dataclass(frozen=True)
class _Content:
    """The known content of an alloca."""

    letters: Letters
    terms: tuple[ProductTerm, ...]
    spans: tuple[Span, ...]


def recognise(function: TensorFunction) -> tuple[tuple[RecognisedUpdate, ...], Mapping[int, Extent]]:
    """The updates of a function, in order, and the sizes of letters, None for unknown ones.

    Local memory that is kept for all instances comes first.

    :raises UnrecognisedError: if it does something else.
    """
    return _Walker(function).run()


class _Walker:
    def __init__(self, function: TensorFunction) -> None:
        self.function = function
        self.accesses: dict[TensorValue, _RootAccess] = {}
        self.numbers: dict[TensorValue, ProductTerm] = {}
        self.contents: dict[TensorValue, _Content] = {}
        self.updates: dict[TensorValue, RecognisedUpdate] = {}
        self.temporaries: list[RecognisedUpdate] = []
        self.read: set[TensorValue] = set()
        self.sizes: dict[int, Extent] = {}
        self.whole: dict[TensorValue, tuple[TensorValue, int]] = {}
        self.group_ids: set[TensorValue] = set()
        self._letters = count(1)
        self._last_reads = _last_reads(function)
        self._names = {value.name for value in (*function.parameters, *_written_roots(function))}
        for parameter in function.parameters:
            if isinstance(parameter.type, TensorMemref):
                self.accesses[parameter] = _RootAccess.of_all(parameter, parameter.type.order)
            elif not isinstance(parameter.type, PointerGroup):
                self.numbers[parameter] = ProductTerm(1, (parameter,))

    def run(self) -> tuple[tuple[RecognisedUpdate, ...], Mapping[int, Extent]]:
        for operation in self.function.body.operations:
            visit = getattr(self, f"_{operation.name}", None)
            if visit is None:
                raise UnrecognisedError(f"{operation.name} is no einsum", operation.span)
            visit(operation)
        if not self.updates:
            raise UnrecognisedError("nothing is written", self.function.span)
        return (*self.temporaries, *self.updates.values()), self.sizes

    def fresh(self, size: Extent) -> int:
        letter = next(self._letters)
        self.sizes[letter] = size
        return letter

    # numbers

    def _constant(self, operation: TensorOperation) -> None:
        self.numbers[operation.results[0]] = ProductTerm(operation.attributes["value"])

    def _builtin(self, operation: TensorOperation) -> None:
        if operation.attributes["builtin"] != "group_id":
            raise UnrecognisedError("what is computed depends on how work is spread", operation.span)
        self.group_ids.add(operation.results[0])

    def _size(self, operation: TensorOperation) -> None:
        (source,) = operation.operands
        self.whole[operation.results[0]] = source, operation.attributes["mode"]

    # views

    def _load(self, operation: TensorOperation) -> None:
        source, *indices = operation.operands
        if not isinstance(source.type, PointerGroup):
            raise UnrecognisedError("single elements are loaded", operation.span)
        if indices[0] not in self.group_ids:
            raise UnrecognisedError("the index of a group is not the group id", operation.span)
        self.accesses[operation.results[0]] = _RootAccess.of_all(source, source.type.memref.order, GROUP_ID)

    def _subview(self, operation: TensorOperation) -> None:
        source = operation.operands[0]
        outer = self._access(source, operation)
        own = [mode for mode, letter in enumerate(outer.fixed) if letter is None]
        fixed, block = list(outer.fixed), list(outer.block)
        assert isinstance(source.type, TensorMemref)
        for mode, (start, extent) in enumerate(operation.bounds):
            if isinstance(start, TensorValue) and start in self.group_ids and extent in (0, 1):
                if extent == 1:
                    raise UnrecognisedError("a mode of size 1 at the group id; leave its size out", operation.span)
                if GROUP_ID in fixed:
                    raise UnrecognisedError("two modes are indexed by the group id", operation.span)
                fixed[own[mode]] = GROUP_ID
            elif isinstance(start, int) and extent == 0:
                before = block[own[mode]]
                block[own[mode]] = (start + before[0] if before else start, 0)
                fixed[own[mode]] = _INDEXED
            elif start != 0 or not self._is_whole(extent, source, mode):
                if not isinstance(start, int) or not isinstance(extent, int) or not extent:
                    raise UnrecognisedError("a part of a mode whose place or size depends on the call", operation.span)
                before = block[own[mode]]
                block[own[mode]] = (start + before[0] if before else start, extent)
        self.accesses[operation.results[0]] = _RootAccess(outer.root, tuple(fixed), tuple(block))

    def _is_whole(self, extent: Any, source: TensorValue, mode: int) -> bool:
        assert isinstance(source.type, TensorMemref)
        return extent == source.type.shape[mode] if isinstance(extent, int) else self.whole.get(extent) == (source, mode)

    def _alloca(self, operation: TensorOperation) -> None:
        (result,) = operation.results
        assert isinstance(result.type, TensorMemref)
        self.accesses[result] = _RootAccess.of_all(result, result.type.order)

    def _lifetime_stop(self, operation: TensorOperation) -> None:
        self.contents.pop(operation.operands[0], None)

    def _barrier(self, operation: TensorOperation) -> None:
        """Ignore a barrier: instructions are in order here."""

    def _access(self, value: TensorValue, operation: TensorOperation) -> _RootAccess:
        if value not in self.accesses:
            raise UnrecognisedError(f"%{value.name} is no memref whose elements are known", operation.span)
        return self.accesses[value]

    # linear algebra

    def _axpby(self, operation: TensorOperation) -> None:
        alpha, A, beta, B = operation.operands
        letters = self._new_letters(B)
        turned = operation.attributes["transposes"] == ("t",) and len(letters) == 2
        self._update(operation, alpha, [(A, letters[::-1] if turned else letters)], beta, B, letters)

    def _gemm(self, operation: TensorOperation) -> None:
        alpha, A, B, beta, C = operation.operands
        m, n = self._new_letters(C)
        k = self.fresh(_summed_depth(A, operation.attributes["transposes"][0]))
        a, b = (
            (x[::-1] if turn == "t" else x)
            for x, turn in zip(((m, k), (k, n)), operation.attributes["transposes"], strict=True)
        )
        self._update(operation, alpha, [(A, a), (B, b)], beta, C, (m, n))

    def _gemv(self, operation: TensorOperation) -> None:
        alpha, A, x, beta, y = operation.operands
        (m,) = self._new_letters(y)
        (turn,) = operation.attributes["transposes"]
        k = self.fresh(_summed_depth(A, turn))
        self._update(operation, alpha, [(A, (k, m) if turn == "t" else (m, k)), (x, (k,))], beta, y, (m,))

    def _ger(self, operation: TensorOperation) -> None:
        alpha, x, y, beta, C = operation.operands
        m, n = self._new_letters(C)
        self._update(operation, alpha, [(x, (m,)), (y, (n,))], beta, C, (m, n))

    def _hadamard_product(self, operation: TensorOperation) -> None:
        alpha, A, B, beta, C = operation.operands
        letters = self._new_letters(C)
        self._update(operation, alpha, [(A, letters), (B, letters)], beta, C, letters)

    def _sum(self, operation: TensorOperation) -> None:
        alpha, A, beta, y = operation.operands
        letters = self._new_letters(y)
        turned = operation.attributes["transposes"] == ("t",) and len(letters) == 1
        assert isinstance(A.type, TensorMemref)
        k = self.fresh(A.type.shape[0 if turned or not letters else 1])
        self._update(operation, alpha, [(A, (k, *letters) if turned else (*letters, k))], beta, y, letters)

    def _new_letters(self, memref: TensorValue) -> Letters:
        assert isinstance(memref.type, TensorMemref)
        return tuple(self.fresh(size) for size in memref.type.shape)

    def _update(
        self,
        operation: TensorOperation,
        alpha: TensorValue,
        factors: Sequence[tuple[TensorValue, Letters]],
        beta: TensorValue,
        target: TensorValue,
        letters: Letters,
    ) -> None:
        if operation.attributes.get("atomic"):
            raise UnrecognisedError("the update is atomic", operation.span)
        scale = self._number(alpha, operation)
        terms, in_block = [scale], any(self._access(target, operation).block)
        for factor, own in factors:
            read = self._read(factor, own, operation, in_block)
            terms = [term.times(other) for term in terms for other in read]
        if len(terms) > MOST_TERMS:
            raise UnrecognisedError(f"it is {len(terms)} einsums, more than {MOST_TERMS}", operation.span)
        self._write(operation, terms, self._number(beta, operation), target, letters)

    def _number(self, value: TensorValue, operation: TensorOperation) -> ProductTerm:
        if value not in self.numbers:
            raise UnrecognisedError(f"%{value.name} is neither a constant nor a parameter", operation.span)
        return self.numbers[value]

    def _read(self, read: TensorValue, letters: Letters, operation: TensorOperation, in_block: bool) -> list[ProductTerm]:
        """The terms that are read of a memref at letters.

        :param in_block: whether they are added to a block, which takes no products.
        """
        access = self._access(read, operation)
        full = _mode_letters(access, letters)
        if access.root in self.function.parameters:
            if access.root in self.updates:
                raise UnrecognisedError(f"%{access.root.name} is read after it was written", operation.span)
            self.read.add(access.root)
            return [ProductTerm(1, (), (Factor(access.root, full, access.block),))]
        if any(access.block):
            raise UnrecognisedError(f"a part of %{access.root.name} is read, which is local memory", operation.span)
        content = self.contents.get(access.root)
        if content is None:
            raise UnrecognisedError(f"%{access.root.name} is read before all of it was written", operation.span)
        many = len(content.terms) > 1 and self._last_reads.get(access.root) is not operation
        if many or (in_block and any(len(term.factors) > 1 for term in content.terms)):
            content = self._kept(access.root, content)
        return [self._instance(term, content.letters, full) for term in content.terms]

    def _kept(self, root: TensorValue, content: _Content) -> _Content:
        """The content of an alloca as an array of all instances, which is written before the updates."""
        assert isinstance(root.type, TensorMemref)
        batched = {any(GROUP_ID in factor.letters for factor in term.factors) for term in content.terms}
        if len(batched) > 1 or None in root.type.shape:
            return content
        letters, shape = content.letters, root.type.shape
        if True in batched:
            letters, shape = (*letters, GROUP_ID), (*shape, None)
        value = TensorValue(self._name_of(root), make_tensor_memref(root.type.element, shape), root.span)
        self.temporaries.append(RecognisedUpdate(value, letters, content.terms, None, content.spans))
        read = ProductTerm(1, (), (Factor.whole(value, letters),))
        self.contents[root] = _Content(content.letters, (read,), content.spans)
        return self.contents[root]

    def _name_of(self, root: TensorValue) -> str:
        """A name for the present content of an alloca."""
        if all(update.root.name != root.name for update in self.temporaries):
            return root.name
        found = next(name for k in count(2) if (name := f"{root.name}_{k}") not in self._names)
        self._names.add(found)
        return found

    def _instance(self, term: ProductTerm, before: Letters, after: Letters) -> ProductTerm:
        """A term with other letters: those that are summed over are new."""
        letters = dict(zip(before, after, strict=True))
        for factor in term.factors:
            for letter in factor.letters:
                if letter not in letters and letter != GROUP_ID:
                    letters[letter] = self.fresh(self.sizes[letter])
        return term.renamed(letters)

    def _write(
        self, operation: TensorOperation, terms: list[ProductTerm], beta: ProductTerm, target: TensorValue, letters: Letters
    ) -> None:
        access = self._access(target, operation)
        full = _mode_letters(access, letters)
        root = access.root
        if any(access.block):
            self._add_to_block(operation, terms, beta, access, full)
            return
        fresh = not beta.scalars and beta.number == 0
        if root not in self.function.parameters:
            old: Sequence[ProductTerm] = ()
            spans: tuple[Span, ...] = ()
            if not fresh:
                content = self.contents.get(root)
                if content is None:
                    raise UnrecognisedError(f"%{root.name} is updated before all of it was written", operation.span)
                old = [beta.times(self._instance(term, content.letters, full)) for term in content.terms]
                spans = content.spans
            self.contents[root] = _Content(full, (*old, *terms), (*spans, operation.span))
            return
        self._check_apart(root, terms, operation)
        before = self.updates.get(root)
        if fresh or before is None:
            made = RecognisedUpdate(root, full, tuple(terms), None if fresh else beta, (operation.span,))
        else:
            if (GROUP_ID in before.letters) != (GROUP_ID in full):
                raise UnrecognisedError(f"%{root.name} is written by each instance and by all", operation.span)
            old = [beta.times(self._instance(term, before.letters, full)) for term in before.terms]
            scale = None if before.scale is None else beta.times(before.scale)
            made = RecognisedUpdate(root, full, (*old, *terms), scale, (*before.spans, operation.span))
        self.updates[root] = made

    def _check_apart(self, root: TensorValue, terms: Iterable[ProductTerm], operation: TensorOperation) -> None:
        if root in self.read or any(factor.root is root for term in terms for factor in term.factors):
            raise UnrecognisedError(f"%{root.name} is read and written", operation.span)

    def _add_to_block(
        self, operation: TensorOperation, terms: list[ProductTerm], beta: ProductTerm, access: _RootAccess, letters: Letters
    ) -> None:
        """Add arrays that lie as the block does; what else may be written to one is not recognised."""
        root = access.root
        fits = isinstance(root.type, TensorMemref) and root in self.function.parameters and _INDEXED not in access.fixed
        fits &= all([factor.transposed for factor in term.factors] == [transposed(root, letters)] for term in terms)
        if not fits or beta.scalars or beta.number != 1:
            raise UnrecognisedError(f"a part of %{root.name} is written", operation.span)
        self._check_apart(root, terms, operation)
        assert isinstance(root.type, TensorMemref)
        before = self.updates.get(root)
        if before is None:
            places = zip(access.fixed, root.type.shape, strict=True)
            whole = tuple(self.fresh(size) if letter is None else letter for letter, size in places)
            before = RecognisedUpdate(root, whole, (), ProductTerm(1), ())
        if (GROUP_ID in before.letters) != (GROUP_ID in letters):
            raise UnrecognisedError(f"%{root.name} is written by each instance and by all", operation.span)
        added = (replace(term, block=access.block) for term in terms)
        self.updates[root] = replace(before, terms=(*before.terms, *added), spans=(*before.spans, operation.span))


def _mode_letters(access: _RootAccess, letters: Letters) -> Letters:
    """The letter of each mode of the root that has one."""
    own = iter(letters)
    return tuple(next(own) if letter is None else letter for letter in access.fixed if letter != _INDEXED)


def _last_reads(function: TensorFunction) -> dict[TensorValue, TensorOperation]:
    """The last instruction that reads of each alloca and parameter, other than to update it."""
    root, found = roots(function), dict[TensorValue, TensorOperation]()
    for operation in function.body.operations:
        changed = written_by(operation)
        found.update((root[value], operation) for value in read_by(operation) if value not in changed)
    return found


def _written_roots(function: TensorFunction) -> Iterable[TensorValue]:
    return (result for operation in function.body.walk() for result in operation.results)


def _summed_depth(A: TensorValue, turned: str) -> Extent:
    assert isinstance(A.type, TensorMemref)
    return A.type.shape[0 if turned == "t" else 1]
