"""Random programs of the tensor language that are right, for tests; and some whose results are exact on every device."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from feinsum.languages.tensor.types import SCALARS


class Writer:
    """Writes a random function, of which it knows what can be seen where; everything it writes is right."""

    def __init__(self, draw: st.DrawFn) -> None:
        self.draw = draw
        self.lines: list[str] = []
        self.count = 0

    def number(self, low: int, high: int) -> int:
        return self.draw(st.integers(low, high))

    def choose(self, choices: Any) -> Any:
        return self.draw(st.sampled_from(list(choices)))

    def fresh(self) -> str:
        self.count += 1
        return f"%{self.count}" if self.number(0, 1) else f"%v{self.count}"

    def assign(self, text: str) -> str:
        name = self.fresh()
        self.lines.append(f"{name} = {text}")
        return name

    def constant(self, type_: str) -> str:
        scalar = SCALARS[type_]
        number = self.draw(st.floats(-4, 4, width=16))
        if scalar.is_integer:
            return self.assign(f"constant {self.number(1, 7)} : {type_}")
        return self.assign(f"constant {f'[{number!r},{-number!r}]' if scalar.is_complex else repr(number)} : {type_}")

    def function(self) -> str:
        names = self.draw(st.lists(st.sampled_from([*SCALARS]), min_size=1, max_size=3))
        parameters = [f"%p{k}: {name}" for k, name in enumerate(names)]
        scalars = {f"%p{k}": name for k, name in enumerate(names)}
        memrefs: dict[str, tuple[str, list[int | None]]] = {}
        for k in range(self.number(1, 3)):
            type_ = self.choose(SCALARS)
            shape = self.draw(st.lists(st.sampled_from([1, 2, 3, None]), max_size=3))
            memrefs[f"%A{k}"] = type_, shape
            parameters.append(f"%A{k}: memref<{'x'.join([type_, *('?' if s is None else str(s) for s in shape)])}>")
        self.block(dict(scalars), memrefs, "collective", 2)
        body = "\n".join(self.lines)
        return f"func @random({', '.join(parameters)}) {{\n{body}\n}}\n"

    def block(self, scalars: dict[str, str], memrefs: dict[str, Any], kind: str, depth: int) -> None:
        """Some instructions; `scalars` and `memrefs` grow by what they define."""
        choices = [self.arithmetic, self.conversion, self.loading, self.storing]
        if kind == "collective":
            choices += [self.update, self.update]
        else:
            choices += [self.sub_group]
        if depth:
            choices += [self.branch, self.loop]
            if kind == "collective":
                choices += [self.work_items]
        for _ in range(self.number(1, 5)):
            self.choose(choices)(scalars, memrefs, kind, depth)

    def arithmetic(self, scalars: dict[str, str], *_: Any) -> None:
        a = self.choose(scalars)
        type_ = scalars[a]
        same = self.choose([name for name, other in scalars.items() if other == type_])
        scalar = SCALARS[type_]
        names = ["add", "sub", "mul", "neg"]
        if scalar.is_integer:
            names += ["and", "or", "xor", "not", "abs", "min", "max"]
        else:
            names += ["conj"] if scalar.is_complex else ["rem", "min", "max", "abs", "div"]
        name = self.choose(names)
        operands = a if name in ("neg", "not", "abs", "conj") else f"{a}, {same}"
        scalars[self.assign(f"arith.{name} {operands} : {type_}")] = type_

    def conversion(self, scalars: dict[str, str], *_: Any) -> None:
        a = self.choose(scalars)
        targets = [name for name in SCALARS if name[0] == "c" or scalars[a][0] != "c"]
        target = self.choose(targets)
        scalars[self.assign(f"cast {a} : {target}")] = target

    def indices(self, shape: list[int | None]) -> str:
        # an unknown size is 2 at least, as arguments_for makes it
        return ", ".join(self.assign(f"constant {self.number(0, (2 if s is None else s) - 1)} : index") for s in shape)

    def loading(self, scalars: dict[str, str], memrefs: dict[str, Any], *_: Any) -> None:
        memref = self.choose(memrefs)
        type_, shape = memrefs[memref]
        scalars[self.assign(f"load {memref}[{self.indices(shape)}] : {type_}")] = type_

    def storing(self, scalars: dict[str, str], memrefs: dict[str, Any], *_: Any) -> None:
        memref = self.choose(memrefs)
        type_, shape = memrefs[memref]
        values = [name for name, other in scalars.items() if other == type_] or [self.constant(type_)]
        flag = self.choose(["", ".atomic", ".atomic_add"])
        value, indices = self.choose(values), self.indices(shape)
        self.lines.append(f"store{flag} {value}, {memref}[{indices}]")

    def update(self, scalars: dict[str, str], memrefs: dict[str, Any], *_: Any) -> None:
        memref = self.choose(memrefs)
        type_, shape = memrefs[memref]
        alpha, beta = self.constant(type_), self.constant(type_)
        if not shape:
            self.lines.append(f"axpby.n {alpha}, {memref}, {beta}, {memref}")
        elif None in shape:
            self.lines.append(f"cumsum {alpha}, {memref}, {self.number(0, len(shape) - 1)}, {beta}, {memref}")
        else:
            text = "x".join(map(str, [type_, *shape]))
            local = self.assign(f"alloca : memref<{text},local>")
            zero = self.assign(
                f"constant {'0' if type_[0] == 'i' else '[0.0,0.0]' if type_[0] == 'c' else '0.0'} : {type_}"
            )
            mode = self.number(0, len(shape) - 1)
            self.lines.append(f"cumsum {alpha}, {memref}, {mode}, {zero}, {local}")
            if len(shape) < 3:
                self.lines.append(f"hadamard_product {alpha}, {local}, {memref}, {beta}, {memref}")

    def sub_group(self, scalars: dict[str, str], *_: Any) -> None:
        a = self.choose(scalars)
        name = self.choose(["add"] if scalars[a][0] == "c" else ["add", "min", "max"])
        scan = self.choose(["reduce", "inclusive_scan", "exclusive_scan"])
        scalars[self.assign(f"subgroup_{name}.{scan} {a} : {scalars[a]}")] = scalars[a]

    def condition(self, scalars: dict[str, str]) -> str:
        a = self.choose(scalars)
        same = self.choose([name for name, other in scalars.items() if other == scalars[a]])
        test = self.choose(["eq", "ne"] if scalars[a][0] == "c" else ["lt", "ge", "ne"])
        return self.assign(f"cmp.{test} {a}, {same} : bool")

    def branch(self, scalars: dict[str, str], memrefs: dict[str, Any], kind: str, depth: int) -> None:
        condition, result = self.condition(scalars), self.fresh()
        outcomes = []
        type_ = self.choose(scalars.values())
        lines, self.lines = self.lines, []
        for _ in range(2):
            inside = dict(scalars)
            self.block(inside, dict(memrefs), kind, depth - 1)
            value = self.choose([name for name, other in inside.items() if other == type_])
            outcomes.append("\n".join([*self.lines, f"yield ({value})"]))
            self.lines = []
        self.lines = [*lines, f"{result} = if {condition} -> ({type_}) {{\n{outcomes[0]}\n}} else {{\n{outcomes[1]}\n}}"]
        scalars[result] = type_

    def loop(self, scalars: dict[str, str], memrefs: dict[str, Any], kind: str, depth: int) -> None:
        type_ = self.choose(["i8", "i32", "index"])
        begin, end = (self.assign(f"constant {self.number(0, 3)} : {type_}") for _ in range(2))
        variable, carried, result = self.fresh(), self.fresh(), self.fresh()
        start = self.choose(scalars)
        lines, self.lines = self.lines, []
        inside = {**scalars, variable: type_, carried: scalars[start]}
        self.block(inside, dict(memrefs), kind, depth - 1)
        value = self.choose([name for name, other in inside.items() if other == scalars[start]])
        head = f"{result} = for {variable}: {type_} = {begin}, {end} init({carried} = {start}) -> ({scalars[start]})"
        self.lines = [*lines, "\n".join([f"{head} {{", *self.lines, f"yield ({value})", "}"])]
        scalars[result] = scalars[start]

    def work_items(self, scalars: dict[str, str], memrefs: dict[str, Any], kind: str, depth: int) -> None:
        if self.number(0, 1):
            head, inside = "parallel", dict(scalars)
        else:
            begin, end = (self.assign(f"constant {self.number(0, 5)} : index") for _ in range(2))
            variable = self.fresh()
            head, inside = f"foreach ({variable}) = ({begin}), ({end})", {**scalars, variable: "index"}
        lines, self.lines = self.lines, []
        if head == "parallel":
            item = self.assign("builtin.subgroup_local_id : i32")
            inside[item] = "i32"
        self.block(inside, dict(memrefs), "spmd", depth - 1)
        self.lines = [*lines, "\n".join([f"{head} {{", *self.lines, "}"])]


class ExactWriter(Writer):
    """Writes functions of small whole numbers that no order of work-items can change.

    In a region of work-items each memref is either read or added to, for all work-items run at the same time.
    """

    added: tuple[str, ...] = ()
    read: tuple[str, ...] = ()

    def constant(self, type_: str) -> str:
        scalar = SCALARS[type_]
        number = self.number(-2, 2)
        if scalar.is_integer:
            return self.assign(f"constant {number} : {type_}")
        return self.assign(f"constant {f'[{number}.0,{-number}.0]' if scalar.is_complex else f'{number}.0'} : {type_}")

    def arithmetic(self, scalars: dict[str, str], *_: Any) -> None:
        a = self.choose(scalars)
        type_ = scalars[a]
        same = self.choose([name for name, other in scalars.items() if other == type_])
        scalar = SCALARS[type_]
        names = ["add", "sub", "mul", "neg"]
        names += ["conj"] if scalar.is_complex else ["abs", "min", "max"]
        names += ["and", "or", "xor", "not"] if scalar.is_integer else []
        name = self.choose(names)
        operands = a if name in ("neg", "not", "abs", "conj") else f"{a}, {same}"
        scalars[self.assign(f"arith.{name} {operands} : {type_}")] = type_

    def work_items(self, scalars: dict[str, str], memrefs: dict[str, Any], kind: str, depth: int) -> None:
        added = {name for name in memrefs if self.number(0, 1)}
        before = self.read, self.added
        self.read = tuple(name for name in memrefs if name not in added)
        self.added = tuple(name for name in memrefs if name in added)
        super().work_items(scalars, memrefs, kind, depth)
        self.read, self.added = before

    def loading(self, scalars: dict[str, str], memrefs: dict[str, Any], kind: str = "", *_: Any) -> None:
        known = {name: memrefs[name] for name in self.read} if kind == "spmd" else memrefs
        if known:
            super().loading(scalars, known)

    def storing(self, scalars: dict[str, str], memrefs: dict[str, Any], kind: str = "", *_: Any) -> None:
        if kind != "spmd":
            super().storing(scalars, memrefs)
        elif self.added:
            memref = self.choose(self.added)
            type_, shape = memrefs[memref]
            values = [name for name, other in scalars.items() if other == type_] or [self.constant(type_)]
            value, indices = self.choose(values), self.indices(shape)
            self.lines.append(f"store.atomic_add {value}, {memref}[{indices}]")


@st.composite
def programs(draw: st.DrawFn) -> str:
    """Texts of functions in which nothing is wrong."""
    return Writer(draw).function()


@st.composite
def exact_programs(draw: st.DrawFn) -> str:
    """Texts of functions whose results are whole numbers, and the same whoever is first."""
    return ExactWriter(draw).function()
