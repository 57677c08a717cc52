"""Programs of the immediate language for the tests: one that breaks each rule, the document's snippets, and arguments."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from hypothesis import strategies as st
from tensor_programs import Example

from feinsum.languages.immediate.marks import Marks, marked
from feinsum.languages.immediate.syntax import ImmediateFunction
from feinsum.languages.immediate.types import SCALARS, ImmediateMemref, ImmediateScalar, MemrefGroup, make_immediate_memref

SAMPLE = """define @fused_kernel(%A: group<memref<f32x16x8>,pointers>,
                     %B: memref<f32x8x8>,
                     %C: memref<f32x8x16>,
                     %D: group<memref<f32x16x16>,distance<256>>) {
  %0 = get_work_item %A : group<memref<f32x16x8>,pointers>
  %1 = get_work_item %D : group<memref<f32x16x16>,distance<256>>
  %tmp0 = alloca : memref<f32x16x8>
  log {ik, kj to ij} 1.0, %0, %B, 0.0, %tmp0
     : memref<f32x16x8>, memref<f32x8x8> to ⟦memref<f32x8x16>⟧
  log {ik, kj to ij} 5.0, %tmp0, %C, 1.0, %1
     : memref<f32x16x8>, memref<f32x8x16> to memref<f32x16x16>
}
"""
"""The sample code of the document; its ninth line is wrong."""


def in_function(parameters: str, body: str) -> str:
    """A function of parameters and a body."""
    return f"define @f({parameters}) {{\n{body}\n}}\n"


def _e(rule: str, parameters: str, body: str) -> Example:
    return Example(rule, in_function(parameters, body))


_V = "%a: memref<f32x4>, %b: memref<f32x4>"
_M = "%A: memref<f32x4x5>, %B: memref<f32x5x6>, %C: memref<f32x4x6>"
_MT = ": memref<f32x4x5>, memref<f32x5x6> to memref<f32x4x6>"
_VT = ": memref<f32x4> to memref<f32x4>"
_GROUP = "group<memref<f32x4>,distance<4>>"
_T3 = "memref<f32x2x3x4>"


def _log(map_: str, a: str, b: str, c: str, behind: str = "") -> Example:
    """A log of memrefs with these shapes, packed."""
    types = [f"memref<f32{x}>" for x in (a, b, c)]
    parameters = ", ".join(f"%{name}: {type_}" for name, type_ in zip("ABC", types, strict=True))
    return _e(behind, parameters, f"log {map_} 1.0, %A, %B, 0.0, %C : {types[0]}, {types[1]} to {types[2]}")


ERRORS = [
    _e("syntax", _V,
       f"axpby {{i to i}} 1.0, %a, 0.0, ⟦:⟧ memref<f32x4> to memref<f32x4>\naxpby {{i to i}} 1.0, %a, 0.0, %b {_VT}"),
    _e("integer-range", _V, "for i64 %i = 0 to ⟦9223372036854775808⟧ {\n}"),
    _e("float-range", _V, f"axpby {{i to i}} ⟦1e400⟧, %a, 0.0, %b {_VT}"),
    _e("constant-form", _V, f"axpby {{i to i}} ⟦1⟧, %a, 0.0, %b {_VT}"),
    _e("constant-type", "%a: memref<i32x4>, %b: memref<i32x4>",
       "axpby {i to i} ⟦1.5⟧, %a, 0.0, %b : memref<i32x4> to memref<i32x4>"),
    _e("name-undefined", _V, f"axpby {{i to i}} 1.0, ⟦%c⟧, 0.0, %b {_VT}"),
    _e("name-redefined", _V, "⟦%a⟧ = alloca : memref<f32x4>"),
    Example("function-redefined", in_function(_V, "") + in_function("", "").replace("@f", "⟦@f⟧")),
    _e("nesting-depth", "",
       "".join(f"for i8 %{k} = 0 to 2 {{\n" for k in range(64)) + "for ⟦i8 %64 = 0 to 2⟧ {\n" + "}" * 65),
    _e("type-void", "%a: ⟦void⟧", ""),
    _e("memref-length", "%a: memref<f32x4x⟦0⟧>", ""),
    _e("stride-count", "%a: ⟦memref<f32x4x5,strided<1>>⟧", ""),
    _e("stride-order", "%a: memref<f32x4x5,strided<1,⟦3⟧>>", ""),
    _e("distance", "%a: group<memref<f32x4>,distance<⟦-4⟧>>", ""),
    _e("item-overlap", "%a: group<memref<f32x4>,distance<3>>, %b: memref<f32x4>",
       f"%0 = get_work_item %a : group<memref<f32x4>,distance<3>>\naxpby {{i to i}} 1.0, %b, 0.0, ⟦%0⟧ {_VT}"),
    _e("map-syntax", _V, f"axpby {{i to i⟦1⟧}} 1.0, %a, 0.0, %b {_VT}"),
    _e("map-operands", _V, f"axpby ⟦{{i, i to i}}⟧ 1.0, %a, 0.0, %b {_VT}"),
    _e("map-repeated", "%a: memref<f32x4x4>, %b: memref<f32x4>",
       "sum {⟦ii⟧ to i} 1.0, %a, 0.0, %b : memref<f32x4x4> to memref<f32x4>"),
    _e("map-order", _V, f"axpby {{⟦ij⟧ to i}} 1.0, %a, 0.0, %b {_VT}"),
    _e("map-lengths", "%a: memref<f32x4x5>, %b: memref<f32x4x5>",
       "axpby {ij to ⟦ji⟧} 1.0, %a, 0.0, %b : memref<f32x4x5> to memref<f32x4x5>"),
    _e("map-modifiers", _V, f"axpby {{⟦[i]⟧ to i}} 1.0, %a, 0.0, %b {_VT}"),
    _e("axpby-indices", "%a: memref<f32x4x5>, %b: memref<f32x4>",
       "axpby ⟦{ij to i}⟧ 1.0, %a, 0.0, %b : memref<f32x4x5> to memref<f32x4>"),
    _log("{⟦ikl⟧, kj to ij}", "x4x5x2", "x5x6", "x4x6", "log-lonely"),
    _log("{ik, kj to ⟦ijl⟧}", "x4x5", "x5x6", "x4x6x2", "log-output"),
    _e("product-indices", "%a: memref<f32x4>, %b: memref<f32x5>, %c: memref<f32x4>",
       "product {i, j to ⟦i⟧} 1.0, %a, %b, 0.0, %c : memref<f32x4>, memref<f32x5> to memref<f32x4>"),
    _e("sum-indices", "%a: memref<f32x4>, %b: memref<f32x4x5>",
       "sum {i to ⟦ij⟧} 1.0, %a, 0.0, %b : memref<f32x4> to memref<f32x4x5>"),
    _log("{i[k], ⟦k⟧j to ij}", "x4x5", "x5x6", "x4x6", "loop-everywhere"),
    _log("{(ik)m, mj to ⟦i⟧jk}", "x4x5x2", "x2x6", "x4x6x5", "group-everywhere"),
    _log("{⟦(ik)⟧, (ik)j to ij}", "x4x5", "x4x5x6", "x4x6", "group-class"),
    _e("operand-memref", f"%A: {_GROUP}, %b: memref<f32x4>", f"axpby {{i to i}} 1.0, ⟦%A⟧, 0.0, %b {_VT}"),
    _e("operand-type", _V, "axpby {i to i} 1.0, %a, 0.0, %b : memref<f32x4> to ⟦memref<f32x5>⟧"),
    _e("element-type", "%a: memref<f32x4>, %b: memref<f64x4>",
       "⟦axpby⟧ {i to i} 1.0, %a, 0.0, %b : memref<f32x4> to memref<f64x4>"),
    _e("overlap", "%a: memref<f32x4x4>", "axpby {ij to ji} 1.0, %a, 0.0, ⟦%a⟧ : memref<f32x4x4> to memref<f32x4x4>"),
    _e("shared-write", f"%A: {_GROUP}, %b: memref<f32x4>",
       f"%0 = get_work_item %A : {_GROUP}\naxpby {{i to i}} 1.0, %0, 0.0, ⟦%b⟧ {_VT}"),
    _e("item-race", f"%A: {_GROUP}, %o: i64, %b: memref<f32x4>",
       f"%0 = get_work_item %A : {_GROUP}\n%1 = get_work_item ⟦%A⟧, i64 %o : {_GROUP}\n"
       f"axpby {{i to i}} 1.0, %b, 0.0, %0 {_VT}"),
    _e("alloca-unwritten", _V, f"%c = alloca : memref<f32x4>\naxpby {{i to i}} 1.0, %a, 1.0, ⟦%c⟧ {_VT}"),
    _e("alloca-type", "", "%c = alloca : ⟦f32⟧"),
    _e("work-item-operand", "%a: memref<f32x4>", f"%0 = get_work_item ⟦%a⟧ : {_GROUP}"),
    _e("work-item-offset", f"%A: {_GROUP}, %o: i64", f"%0 = get_work_item %A, i32 ⟦%o⟧ : {_GROUP}"),
    _e("subview-count", "%a: memref<f32x4x5>", "%0 = ⟦subview %a[0] : memref<f32x4x5> to memref<f32x5>⟧"),
    _e("subview-range", "%a: memref<f32x4>", "%0 = subview %a[⟦0:5⟧] : memref<f32x4> to memref<f32x5>"),
    _e("subview-index", "%a: memref<f32x4>",
       "for i8 %i = 0 to 5 {\n%0 = subview %a[⟦i8 %i⟧] : memref<f32x4> to memref<f32>\n}"),
    _e("subview-type", "%a: memref<f32x4x5>", "%0 = subview %a[0, :] : memref<f32x4x5> to ⟦memref<f32x5>⟧"),
    _e("for-type", "", "for ⟦f32 %i = 0 to 2⟧ {\n}"),
    _e("for-range", "", "for ⟦i8 %i = 0 to 129⟧ {\n}"),
    _e("lifetime-alloca", _V, "lifetime_stop ⟦%a⟧"),
    _e("lifetime-use", _V,
       f"%c = alloca : memref<f32x4>\naxpby {{i to i}} 1.0, %a, 0.0, %c {_VT}\nlifetime_stop %c\n"
       f"axpby {{i to i}} 1.0, ⟦%c⟧, 0.0, %b {_VT}"),
]  # fmt: skip
"""A program for each rule, which it breaks where the marks are, and which breaks no other one."""

LENIENT = [
    Example("lenient-type", SAMPLE),
    _e("lenient-axpby", _V, f"axpby {{i to i}}, ⟦2.0⟧, %a, %b {_VT}"),
]

ADVICE = [
    _e("group-layout", "%A: memref<f32x4x5,strided<1,8>>, %B: memref<f32x4x5x6>, %C: memref<f32x6>",
       "log {⟦(kl)⟧, (kl)j to j} 1.0, %A, %B, 0.0, %C : memref<f32x4x5,strided<1,8>>, memref<f32x4x5x6> to memref<f32x6>"),
    _e("parameter-unused", "⟦%alpha⟧: f32", ""),
    _e("loop-empty", "", "for ⟦i32 %i = 3 to 3⟧ {\n}"),
]  # fmt: skip


def arguments_for(function: ImmediateFunction, rng: np.random.Generator, items: int = 5) -> dict[str, Any]:
    """Random arguments of a function: small integers as numbers, which sums of products hold exactly."""
    return {p.name.text: _argument(p.type, rng, items) for p in function.parameters}


def _argument(type_: Any, rng: np.random.Generator, items: int) -> Any:
    if isinstance(type_, ImmediateScalar):
        return int(rng.integers(0, 3)) if items > 2 else 0
    if isinstance(type_, MemrefGroup):
        return rng.integers(-4, 5, (items, *type_.memref.shape)).astype(type_.memref.element.dtype)
    assert isinstance(type_, ImmediateMemref)
    low = 0 if type_.element.name[0] == "u" else -4
    return np.asarray(rng.integers(low, 5, type_.shape).astype(type_.element.dtype))


@dataclass(frozen=True)
class _Tensor:
    """What a random program can read.

    :ivar kind: "shared", "item" or "alloca", of which the first may not be written where there are items.
    :ivar strides: in elements.
    :ivar root: the name of what it is a part of.
    """

    letters: str
    kind: str
    strides: tuple[int, ...]
    root: str


class Writer:
    """Writes a random function, of which it knows what can be seen where; everything it writes is right."""

    SIZES: ClassVar[dict[str, int]] = {"a": 2, "b": 3, "c": 5, "d": 1}

    def __init__(self, draw: Any) -> None:
        self.draw = draw
        self.lines: list[str] = []
        self.count = 0
        self.tensors: dict[str, _Tensor] = {}

    def choose(self, choices: Any) -> Any:
        return self.draw(st.sampled_from(list(choices)))

    def fresh(self, wish: str) -> str:
        self.count += 1
        return f"%{wish}{self.count}"

    def letters(self, least: int = 0) -> str:
        return "".join(self.draw(st.permutations("abcd"))[: self.draw(st.integers(least, 3))])

    def memref(self, letters: str, strides: tuple[int, ...] | None = None) -> ImmediateMemref:
        return make_immediate_memref(SCALARS[self.element], tuple(self.SIZES[x] for x in letters), strides)

    def type(self, name: str) -> ImmediateMemref:
        return self.memref(self.tensors[name].letters, self.tensors[name].strides)

    def function(self) -> str:
        self.element = self.choose(["f64", "f32", "i32"])
        parameters = [self.parameter(k) for k in range(self.draw(st.integers(2, 4)))]
        if any("i64 %o" in line for line in self.lines):
            parameters.append("%o: i64")
        self.is_batched = any(one.kind == "item" for one in self.tensors.values())
        for _ in range(self.draw(st.integers(1, 5))):
            self.choose(
                [self.update, self.update, self.update, self.chain, self.view, self.loop, self.barrier, self.stop]
            )()
        return f"define @random({', '.join(parameters)}) {{\n" + "\n".join(self.lines) + "\n}\n"

    def parameter(self, number: int) -> str:
        """A tensor or a group, with gaps or without."""
        letters, kind = self.letters(), self.choose(["shared", "distance", "pointers"])
        strides, least = [], 1
        for x in letters:
            strides.append(least + self.choose([0, 0, 0, 2]))
            least = strides[-1] * self.SIZES[x]
        type_ = self.memref(letters, tuple(strides))
        if kind == "shared":
            self.tensors[f"%p{number}"] = _Tensor(letters, kind, type_.strides, f"%p{number}")
            return f"%p{number}: {type_}"
        layout = "pointers" if kind == "pointers" else f"distance<{type_.extent + self.choose([0, 3])}>"
        offset = self.choose(["", "", ", i64 %o"])
        self.lines.append(f"%i{number} = get_work_item %p{number}{offset} : group<{type_},{layout}>")
        self.tensors[f"%i{number}"] = _Tensor(letters, "item", type_.strides, f"%i{number}")
        return f"%p{number}: group<{type_},{layout}>"

    def barrier(self) -> None:
        self.lines.append("barrier")

    def stop(self) -> None:
        """End an alloca, if there is one beside something that can still be read."""
        known = [name for name, one in self.tensors.items() if one.kind == "alloca" and one.root == name]
        if known:
            name = self.choose(known)
            self.lines.append(f"lifetime_stop {name}")
            self.tensors = {other: one for other, one in self.tensors.items() if one.root != name}

    def view(self) -> None:
        """A part of a tensor: one of an index, or as many of it as another letter has."""
        source = self.choose(self.tensors)
        one = self.tensors[source]
        if not one.letters:
            return
        axis = self.draw(st.integers(0, len(one.letters) - 1))
        own = self.SIZES[one.letters[axis]]
        entries, letters, strides = [":"] * len(one.letters), list(one.letters), list(one.strides)
        others = [x for x, n in self.SIZES.items() if n < own and x not in letters]
        if others and self.draw(st.booleans()):
            letters[axis] = self.choose(others)
            first = self.draw(st.integers(0, own - self.SIZES[letters[axis]]))
            entries[axis] = f"{first}:{first + self.SIZES[letters[axis]]}"
        else:
            entries[axis] = str(self.draw(st.integers(0, own - 1)))
            del letters[axis], strides[axis]
        name = self.fresh("v")
        made = _Tensor("".join(letters), one.kind, tuple(strides), one.root)
        type_ = self.type(source)
        self.tensors[name] = made
        self.lines.append(f"{name} = subview {source}[{', '.join(entries)}] : {type_} to {self.type(name)}")

    def alloca(self, letters: str) -> tuple[str, _Tensor]:
        """One that is not known before it is written."""
        name = self.fresh("t")
        self.lines.append(f"{name} = alloca : {self.memref(letters)}")
        return name, _Tensor(letters, "alloca", self.memref(letters).strides, name)

    def target(self, letters: str, operands: list[str]) -> tuple[str, _Tensor, float]:
        """A tensor with all of some letters that may be written, and a beta; or a new alloca."""
        read = {self.tensors[name].root for name in operands}
        known = [
            name
            for name, one in self.tensors.items()
            if sorted(one.letters) == sorted(letters)
            and one.root not in read
            and not (one.kind == "shared" and self.is_batched)
        ]
        if known and self.draw(st.booleans()):
            name = self.choose(known)
            return name, self.tensors[name], self.choose([0.0, 1.0, -1.0])
        return *self.alloca("".join(self.draw(st.permutations(letters)))), 0.0

    def update(self, previous: str | None = None) -> str:
        """An update of random tensors; the name of its result."""
        first = previous or self.choose(self.tensors)
        second = self.choose(self.tensors)
        a, b = self.tensors[first].letters, self.tensors[second].letters
        opcode = self.choose(["log", "product", "sum", "axpby"])
        if opcode in ("sum", "axpby"):
            kept = a if opcode == "axpby" else "".join(x for x in a if self.draw(st.booleans()))
            operands, inputs = [first], [a]
        else:
            alone = set(a) ^ set(b)
            shared = [x for x in a if x in b]
            both = [x for x in shared if opcode == "product" or self.draw(st.booleans())]
            kept = "".join([*sorted(alone), *both])
            operands, inputs = [first, second], [a, b]
        name, one, beta = self.target(kept, operands)
        alpha = self.choose([1.0, -2.0, 0.0, 3.0])
        types = ", ".join(str(self.type(operand)) for operand in operands)
        index_map = marked(inputs, one.letters, self.marks() if opcode == "log" else Marks())
        self.tensors[name] = one
        self.lines.append(
            f"{opcode} {index_map} {alpha}, {', '.join(operands)}, {beta}, {name} : {types} to {self.type(name)}"
        )
        return name

    def marks(self) -> Marks:
        """Some, of which an index map takes those that it may have."""
        fused = "".join(self.draw(st.permutations("abcd"))[: self.choose([0, 0, 2, 3])])
        return Marks((fused,) if fused else (), "".join(x for x in "abcd" if self.choose([False, False, True])))

    def chain(self) -> None:
        name = self.update()
        for _ in range(self.draw(st.integers(1, 3))):
            name = self.update(name)

    def loop(self) -> None:
        """An axpby of slices, added to a slice or to something smaller; now and then by way of memory of the trip."""
        source = self.choose(self.tensors)
        letters = self.tensors[source].letters
        if not letters:
            return
        axis = self.draw(st.integers(0, len(letters) - 1))
        rest = letters[:axis] + letters[axis + 1 :]
        variable, size = self.fresh("k"), self.SIZES[letters[axis]]
        name, one, beta = self.target(letters if self.draw(st.booleans()) else rest, [source])
        whole = len(one.letters) == len(letters)
        if not whole and name not in self.tensors:
            zeros = self.fresh("z")
            self.lines.append(f"{zeros} = alloca : {self.memref(rest)}")
            map_ = f"{{{rest or '_'} to {one.letters or '_'}}}"
            self.lines.append(
                f"axpby {map_} 0.0, {zeros}, 0.0, {name} : {self.memref(rest)} to {self.memref(one.letters, one.strides)}"
            )
            beta = 1.0
        self.tensors[name] = one
        self.lines.append(f"for i32 {variable} = 0 to {size} {{")
        from_, type_ = self.slice(source, axis, variable)
        if self.choose([False, False, True]):
            passing = self.fresh("t")
            self.lines.append(f"{passing} = alloca : {self.memref(rest)}")
            same = f"{{{rest or '_'} to {rest or '_'}}}"
            self.lines.append(f"axpby {same} 3.0, {from_}, 0.0, {passing} : {type_} to {self.memref(rest)}")
            from_, type_ = passing, self.memref(rest)
        target, order, to = name, one.letters, self.type(name)
        if whole:
            place = one.letters.index(letters[axis])
            target, to = self.slice(name, place, variable)
            order = one.letters[:place] + one.letters[place + 1 :]
        map_, alpha = f"{{{rest or '_'} to {order or '_'}}}", self.choose([1.0, 2.0])
        self.lines.append(f"axpby {map_} {alpha}, {from_}, {beta}, {target} : {type_} to {to}")
        self.lines.append("}")

    def slice(self, source: str, axis: int, variable: str) -> tuple[str, ImmediateMemref]:
        """A view at the value of a variable, and its type."""
        one = self.tensors[source]
        rest = [k for k in range(len(one.letters)) if k != axis]
        type_ = self.memref("".join(one.letters[k] for k in rest), tuple(one.strides[k] for k in rest))
        entries = ", ".join(f"i32 {variable}" if k == axis else ":" for k in range(len(one.letters)))
        name = self.fresh("s")
        self.lines.append(f"{name} = subview {source}[{entries}] : {self.type(source)} to {type_}")
        return name, type_
