"""The declarative language: the programs of its document, with numbers, and what is refused, where and in which words."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import declarative_programs as programs
import numpy as np
import pytest

import feinsum as fe
from feinsum.errors import DTypeError, LanguageError, ShapeError, ValidationError
from feinsum.languages.declarative.checking.calls import WRITTEN_OUT
from feinsum.languages.declarative.rules import ALL, RULES

Numbers = Callable[..., Any]


@pytest.fixture
def numbers() -> Numbers:
    """Normal numbers of a shape, the same in every run."""
    rng = np.random.default_rng(1)
    return lambda *shape, dtype=np.float64: rng.standard_normal(shape).astype(dtype)


def read(text: str) -> fe.Program:
    """A program, which its canonical text is too."""
    program = fe.program(text, language="declarative")
    again = fe.program(str(program), language="declarative")
    assert again == program
    assert str(again) == str(program)
    return program


def places(text: str) -> list[tuple[int, int, str]]:
    """Where errors are, and which rules are broken."""
    with pytest.raises(LanguageError) as caught:
        fe.program(text, language="declarative")
    return [(d.line, d.column, d.rule) for d in caught.value.diagnostics]


def softmax(a: Any) -> Any:
    e = np.exp(a - a.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def test_matrix_product(numbers: Numbers) -> None:
    """Of lengths that arrays decide, and of either type."""
    for dtype in (np.float32, np.float64):
        A, B = numbers(5, 7, dtype=dtype), numbers(7, 3, dtype=dtype)
        y = read(programs.MATMUL).interpret(A=A, B=B)
        assert y.dtype == dtype
        np.testing.assert_allclose(y, A @ B, rtol=1e-5)


def test_softmax(numbers: Numbers) -> None:
    """An inner index hides the outer one of its name, which is told."""
    program = read(programs.SOFTMAX)
    assert [d.rule for d in program.diagnostics] == ["name-shadowed"] * 2
    A = numbers(4, 9)
    np.testing.assert_allclose(program.interpret(A=A), softmax(A))


def test_sums_and_scans_by_halves(numbers: Numbers) -> None:
    """For even lengths; odd ones have no half."""
    A = numbers(10)
    for text in (programs.SUM, programs.SUM_BY_HALVES):
        np.testing.assert_allclose(read(text).interpret(A=A), A.sum())
    for text in (programs.SCAN, programs.SCAN_BY_HALVES):
        np.testing.assert_allclose(read(text).interpret(A=A), A.cumsum())
    with pytest.raises(LanguageError, match="9 / 2 is no integer") as caught:
        read(programs.SUM_BY_HALVES).interpret(A=A[:9])
    assert (caught.value.line, caught.value.column, caught.value.rule) == (3, 18, "run-division")
    assert places(programs.SCAN_BY_HALVES_WRONG) == [(10, 24, "bounds")]


def test_functions_are_arguments(numbers: Numbers) -> None:
    """They get slices, and their results are joined."""
    data = numbers(3, 2, 768)
    y = read(programs.MAPPED).interpret(data=data, model=lambda x: 2 * x + x.max())
    np.testing.assert_array_equal(y, np.stack([2 * x + x.max() for x in data]))


def test_staged_reads(numbers: Numbers) -> None:
    """`read` is `compute`; an element has an index for each axis."""
    A, B = numbers(3, 5), numbers(5, 4)
    np.testing.assert_allclose(read(programs.STAGED).interpret(A=A, B=B), A @ B)
    assert places(programs.STAGED_WRONG) == [(4, 35, "rank"), (5, 35, "rank")]


@pytest.mark.parametrize("tiles", [{}, {"tile_n": 4, "tile_k": 3, "tile_m": 5}, {"tile_n": 1, "tile_k": 64, "tile_m": 2}])
def test_tiles_of_a_grid(numbers: Numbers, tiles: dict[str, int]) -> None:
    """Of any lengths, which divide nothing; the result does not depend on them."""
    A, B = numbers(13, 11), numbers(11, 7)
    np.testing.assert_allclose(read(programs.TILED).interpret(A=A, B=B, **tiles), A @ B)
    assert places(programs.TILED_WRONG) == [
        (12, 5, "grid-result"),
        (25, 37, "hole"),
        (27, 4, "operator"),
        (28, 23, "name-undefined"),
        (34, 1, "block-value"),
    ]


def test_threads(numbers: Numbers) -> None:
    """Each with registers of its own, all with what is shared; outside nothing is changed."""
    x1 = numbers(3, 4, dtype=np.float32)
    y = read(programs.THREADS).interpret(x1=x1, blockDim=8)
    np.testing.assert_array_equal(y, 2 * x1)
    assert places(programs.THREADS_WRONG) == [(8, 2, "mutate"), (10, 2, "rank"), (13, 2, "rank")]


RACES = {
    "no sync behind a write": ("s[t] = 1.0\ny[t] = s[n - 1 - t]", (4, 8), "line 3"),
    "no sync before the next write": ("s[t] = 1.0\nsync()\ny[t] = s[n - 1 - t]\ns[t] = 2.0", (6, 1), "line 5"),
    "one element": ("s[0] = 1.0\nsync()\ny[t] = s[0]", (3, 1), "line 3"),
    "in a loop": ("affine_for (end = 2) |k| {\ns[t] = 1.0\nsync()\ny[t] = s[n - 1 - t]\n}", (4, 1), "line 6"),
}


@pytest.mark.parametrize("case", RACES)
def test_races_are_found_with_both_places(case: str) -> None:
    """Whatever order threads would run in."""
    body, place, other = RACES[case]
    text = f"n: int\nthread (threads = n, shared = [y]) |t| {{ s = Shared<n; f32>\n{body}\n}}".replace(
        "thread", "y = empty(shape = [n], dtype = f32); thread", 1
    ).replace("; thread", "\nthread", 1)
    text = text.replace("{ s = Shared<n; f32>\n", "{ s = Shared<n; f32>\n", 1)
    with pytest.raises(LanguageError) as caught:
        read(text).interpret(n=4)
    assert caught.value.rule == "run-race"
    assert (caught.value.line - 1, caught.value.column) == place
    assert other.split()[1] == str(int(str(caught.value).split("in line ")[1].split(",")[0]) - 1)


def test_a_reduction_by_a_tree_of_threads(numbers: Numbers) -> None:
    """With a barrier between levels it has no race, without one it has."""
    text = """
    x: Tensor<64; f64>
    y = zeros([1])
    thread (threads = 64, shared = [y]) |t| {
        s = Shared<64; f64>
        s[t] = x[t]
        sync()
        affine_for (end = 6) |level| {
            width = [32, 16, 8, 4, 2, 1]
            if t < width[level] { s[t] = s[t] + s[t + width[level]] }
            sync()
        }
        if t == 0 { y[0] = s[0] }
    }
    """
    x = numbers(64)
    np.testing.assert_allclose(read(text).interpret(x=x), [x.sum()])
    with pytest.raises(LanguageError, match="between two calls of sync"):
        read(text.replace("sync()\n        }", "}")).interpret(x=x)


REFUSED = {
    "A: Tensor<N; f32>\ny = compute (shape = [N]) |i| A[i] +": (2, 37, "syntax"),
    "A: Tensor<N; f32>\ny = compute (shape = [N]) |i| a[i]": (2, 31, "name-undefined"),
    "A: Tensor<N; f32>\ny = sqroot(A[0])": (2, 5, "name-undefined"),
    "A: Tensor<N; f32>\nA = 3": (2, 1, "name-redefined"),
    "A: Tensor<N; f32>\ny = compute (shape = [N, N]) |i| A[i]": (2, 5, "arity"),
    "A: Tensor<N; f32>\ny = compute (form = [N]) |i| A[i]": (2, 14, "form"),
    "A: Tensor<N; f32>\ny = fold (shape = [N]) |i| A[i]": (2, 5, "form"),
    "A: Tensor<N; f32>\ny = reduce (shape = [N], op = mean) |i| A[i]": (2, 31, "operator"),
    "A: Tensor<N; f32>\ny = scan (shape = [N], op = argmax) |i| A[i]": (2, 29, "operator"),
    "A: Tensor<N, N; f32>\ny = scan (shape = [N, N], op = sum) |i, j| A[i, j]": (2, 5, "arity"),
    "A: Tensor<N; f32>\ny = compute (shape = [N]) |i| A[i + 1]": (2, 31, "bounds"),
    "A: Tensor<N; f32>\ny = compute (shape = [N]) |i| if i > 0 then A[i - 2] else 0.0": (2, 45, "bounds"),
    "A: Tensor<3; f32>\ny = A[3]": (2, 5, "bounds"),
    "A: Tensor<N; f32>\ny = compute (shape = [N]) |i| A[A[i]]": (2, 33, "index"),
    "A: Tensor<N; f32>\ny = compute (shape = [0.5]) |i| A[i]": (2, 23, "index"),
    "A: Tensor<N; f32>\nB: Tensor<N, N; f32>\ny = A + B": (3, 5, "shape"),
    "A: Tensor<N; f32>\ny = if A[0] then 1 else 2": (2, 8, "type"),
    "A: Tensor<N; f32>\ny = if A[0] > 0 then 1 else true": (2, 5, "type"),
    "A: Tensor<N; f32>\ny = true + A[0]": (2, 5, "type"),
    "A: Tensor<N; f16>\ny = A[0]": (1, 4, "type"),
    "A: Tensor<7; f32>\ny = A[7 / 2]": (2, 7, "division"),
    "A: Tensor<N; f32>\nt = tune(N)\ny = compute (shape = [N]) |i| A[i] * t": (3, 31, "tune-value"),
    "A: Tensor<N; f32>\nt = tune(N)\ny = compute (shape = [N]) |i| exp(t)": (3, 31, "tune-value"),
    "A: Tensor<N; f32>\nt = tune(N)\ny = compute (shape = [N]) |i| t": (3, 31, "tune-value"),
    "A: Tensor<N; f32>\nA[0] = 1.0": (2, 1, "mutate"),
    "A: Tensor<N; f32>\nsync()": (2, 1, "nesting"),
    "A: Tensor<N; f32>\ns = Shared<3; f32>": (2, 5, "nesting"),
    "f: Tensor<3; f32> -> Tensor<3; f32>\nA: Tensor<N; f32>\ny = f(A, A)": (3, 5, "function"),
    "A: Tensor<N; f32>\ny = alternative { a = A[0] }": (2, 5, "alternative"),
    "A: Tensor<N; f32>\ny = affine_for (end = N, init = A) |k, r| r[k]": (2, 5, "loop-state"),
    "A: Tensor<N; f32>\ny = A[0]\ny + 1\nz = y": (3, 1, "block-value"),
    "A: Tensor<N; f32>\nthread (threads = 8, shared = [A]) |t| {\nif t < 3 { sync() }\n}": (3, 12, "sync-uniform"),
    "A: Tensor<N; f32>\nthread (threads = 8, shared = [A]) |t| {\ns = reduce (shape = [N], op = sum) |i| A[i]\n}": (
        3, 5, "nesting",
    ),
    "A: Tensor<N; f32>\nthread (threads = 8, shared = [A]) |t| {\nthread (threads = 8) |u| {\n}\n}": (3, 1, "nesting"),
}  # fmt: skip


@pytest.mark.parametrize("text", REFUSED)
def test_what_is_refused(text: str) -> None:
    """By line, column and rule; and nothing else is said of it."""
    assert places(text) == [REFUSED[text]]


def test_every_rule_is_broken_somewhere() -> None:
    """By a test of this page."""
    broken = {rule for *_, rule in REFUSED.values()} | {"block-value", "grid-result", "hole", "rank"}
    assert broken == {rule for rule in RULES if not rule.startswith("run-")}
    assert set(ALL) > set(RULES)


VALUES: dict[str, Callable[..., Any]] = {
    "y = reduce (shape = [N], op = prod) |i| a[i]": lambda a: a.prod(),
    "y = reduce (shape = [N], op = min) |i| a[i]": lambda a: a.min(),
    "y = reduce (shape = [N], op = any) |i| a[i] > 2": lambda a: (a > 2).any(),
    "y = reduce (shape = [N], op = all) |i| a[i] > -9": lambda a: (a > -9).all(),
    "y = reduce (shape = [N], op = argmin) |i| a[i]": lambda a: a.argmin(),
    "y = reduce (shape = [N, N], op = argmax) |i, j| a[i] - a[j]": lambda a: (a[:, None] - a).argmax(),
    "y = reduce (shape = [0], op = max) |i| a[i]": lambda a: -np.inf,
    "y = scan (shape = [N], op = max) |i| a[i]": np.maximum.accumulate,
    "y = scan (shape = [N], op = prod) |i| a[i]": lambda a: a.cumprod(),
    "y = compute (shape = [N]) |i| if i < N - 1 then a[i + 1] else -1.0": lambda a: np.append(a[1:], -1),
    "y = compute (shape = [N]) |i| if i == 0 or a[i - 1] < 0 then 1 else 0": lambda a: np.append(1, a[:-1] < 0),
    "y = compute (shape = [N]) |i| if i > 0 and not a[i - 1] < 0 {\nb = a[i - 1]\nb * b } else if i > 0 { 1 } else { 2.0 }":
        lambda a: np.append(2, np.where(a[:-1] < 0, 1, a[:-1] ** 2)),
    "y = compute (shape = [3]) |k| while (init = a[k], until = |x| x > 10) |x| x * x + 1": lambda a: _collatz(a[:3]),
    "y = while (init = [0, 1], until = |s| s[1] > 100) |s| [s[1], s[0] + s[1]]": lambda a: np.array([89, 144]),
    "y = affine_for (end = 4, init = 0.0) |k, r| r * a[0] + a[k]": lambda a: np.polyval(a[:4], a[0]),
    "y = affine_for (begin = 2, end = 4, init = a) |k, r| r + k": lambda a: a + 5,
    "y = a[1:3]": lambda a: a[1:3],
    "y = compute (shape = [N - 2]) |i| a[i:i + 3]": lambda a: np.stack([a[i : i + 3] for i in range(len(a) - 2)]),
    "b = a * a\ny = max(b, 1.0) / 2": lambda a: np.maximum(a * a, 1) / 2,
    "y = alternative {\n one = a + a\n two = 2 * a\n}": lambda a: 2 * a,
    "y = compute (shape = [floordiv(N, 2)]) |i| a[2 * i] + a[2 * i + 1]": lambda a: a[:-1:2] + a[1::2],
    "y = compute (shape = [cdiv(N, 2)]) |i| a[2 * i]": lambda a: a[::2],
    "y = compute (shape = [N]) |i| i % 3": lambda a: np.arange(len(a)) % 3,
    "y = compute (shape = [N]) |i| f32(i) * 0.5": lambda a: 0.5 * np.arange(len(a)),
    "y = full([2], 3.5) + ones([2]) + zeros([2])": lambda a: np.array([4.5, 4.5]),
    "a[0] - -a[1] * 2": lambda a: a[0] + 2 * a[1],
    "y = if N > 100 then a[100] else a[0]": lambda a: a[0],
    "y: Tensor<N> = grid (dim = [cdiv(N, 4)]) |g| compute (shape = [4]) |i| if 4 * g + i < N then a[4 * g + i] else 0":
        lambda a: a,
}  # fmt: skip


def _collatz(x: Any) -> Any:
    x = x.copy()
    while (x <= 10).any():
        x = np.where(x > 10, x, x * x + 1)
    return x


@pytest.mark.parametrize("text", VALUES)
def test_what_programs_compute(text: str, numbers: Numbers) -> None:
    """Each construct against numpy."""
    a = numbers(7)
    np.testing.assert_allclose(read(f"a: Tensor<N; f64>\n{text}").interpret(a=a), VALUES[text](a), rtol=1e-12)


FAILING = {
    "y = compute (shape = [N]) |i| a[b[i]]": ("index 9 of axis 0, whose length is 3", "run-bounds"),
    "y = a[0:M]": ("index 3 of axis 0, whose length is 3", "run-bounds"),
    "y = reduce (shape = [0], op = min) |i| b[i]": ("min of nothing", "run-empty"),
    "y = reduce (shape = [0], op = argmin) |i| a[i]": ("argmin of nothing", "run-empty"),
    "y = b[0] / (b[1] - 1)": ("0 / 0 is no integer", "run-division"),
    "y = alternative {\n one = a\n two = 2 * a\n}": (r"element \[1\] is 1.0 in one, 2.0 in two", "run-alternative"),
    "c = compute (shape = [M]) |i| 1.0\ny = a + c": (r"shapes differ: \[3\] and \[5\]", "run-shape"),
    "y: Tensor<M> = grid (dim = [2]) |g| compute (shape = [2]) |i| 1.0": (r"tiles cover \[4\], not all", "run-shape"),
    "y = while (init = 1, until = |x| x < 0) |x| x": ("does not end", "run-endless"),
}


@pytest.mark.parametrize("text", FAILING)
def test_what_fails_as_a_program_runs(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the place and the numbers."""
    monkeypatch.setattr("feinsum.languages.declarative.interpreting.forms._MOST_ROUNDS", 50)
    message, rule = FAILING[text]
    with pytest.raises(LanguageError, match=message) as caught:
        read(f"a: Tensor<N; f64>\nb: Tensor<N; i64>\nM: int\n{text}").interpret(
            a=np.arange(3.0), b=np.array([0, 1, 9]), M=5
        )
    assert caught.value.rule == rule


def test_arguments_that_do_not_fit(numbers: Numbers) -> None:
    """One length for each name, one type for each variable."""
    program = read(programs.MATMUL)
    A, B = numbers(5, 7), numbers(7, 3)
    with pytest.raises(ShapeError, match="axis 0 of argument 'B' is 6 long; line 2 and other arguments say 7"):
        program.interpret(A=A, B=B[:6])
    with pytest.raises(DTypeError, match="argument 'B' is of float32; it is float64"):
        program.interpret(A=A, B=B.astype(np.float32))
    with pytest.raises(ValidationError, match="the program needs an argument for B; its parameters are A, B, K, M, N"):
        program.interpret(A=A)
    with pytest.raises(ValidationError, match="the program has no parameter C; its parameters are A, B, K, M, N"):
        program.interpret(A=A, B=B, C=B)
    with pytest.raises(ShapeError, match="argument 'A' has 1 axes; it is declared with 2"):
        program.interpret(A=A[0], B=B)


def test_undefined_elements_are_not_read() -> None:
    """Of Shared, which begins with nothing."""
    text = "y = zeros([4])\nthread (threads = 4, shared = [y]) |t| {\ns = Shared<4; f64>\ny[t] = s[t]\n}"
    with pytest.raises(LanguageError, match="was not written before it is read"):
        read(text).interpret()


def test_layer_norm_and_attention(numbers: Numbers) -> None:
    """As people write them."""
    x, gamma, beta = numbers(4, 6, dtype=np.float32), numbers(6, dtype=np.float32), numbers(6, dtype=np.float32)
    mean, variance = x.mean(-1, keepdims=True), x.var(-1, keepdims=True)
    y = read(programs.LAYER_NORM).interpret(A=x, gamma=gamma, beta=beta)
    np.testing.assert_allclose(y, (x - mean) / np.sqrt(variance + 1e-5) * gamma + beta, rtol=2e-5, atol=2e-5)
    Q, K, V = numbers(2, 3, 4, dtype=np.float32), numbers(2, 5, 4, dtype=np.float32), numbers(2, 5, 4, dtype=np.float32)
    wanted = softmax(Q @ K.transpose(0, 2, 1)) @ V
    np.testing.assert_allclose(read(programs.ATTENTION).interpret(Q=Q, K=K, V=V), wanted, rtol=1e-4, atol=1e-5)


def test_a_path_says_the_language(tmp_path: Any) -> None:
    """And so does a text that begins with a definition."""
    path = tmp_path / "product.decl"
    path.write_text(programs.MATMUL)
    assert fe.program(path).language == "declarative"
    assert fe.program(f"// a comment\n{programs.MATMUL}").language == "declarative"
    assert fe.program(path) == fe.program(programs.MATMUL)


A_TYPE = "is a type, and a length stands here"
NO_COMMENT = "no comment begins with ';' here; it begins with '//' or '#'"


@pytest.mark.parametrize(
    ("text", "message", "note"),
    [
        (
            "A = Tensor<N, f32>\ny = A + 1",
            "f32 is a type, and a length stands here",
            "a type is behind ';': Tensor<N; f32>",
        ),
        (
            "A: Tensor<2 * N, M, f64>\ny = A + 1",
            "f64 is a type, and a length stands here",
            "a type is behind ';': Tensor<2 * N, M; f64>",
        ),
        ("A = Tensor<N; f32>\ny = relu(A)", "there is no function relu", "it is max(x, 0)"),
        ("A = Tensor<N; f32>\ny = A\ny += A", "there is no '+='", "a name keeps its value"),
        (
            "A = Tensor<N; f32>\ny = compute (shape = [N]) |i| { s = 1.0\n s *= A[i]\n s }",
            "there is no '*='",
            "a name keeps its value",
        ),
        ("A = Tensor<N; f32>\ny = A + 1 ; and one", NO_COMMENT, ""),
        ("; one more\nA = Tensor<N; f32>\ny = A + 1", NO_COMMENT, ""),
        (
            "A = Tensor<N; f32>\ny = compute (shape = [N]) |i| A[i + 1] - A[i]",
            "index 1 + i reaches out of an axis of length N of A where 0 <= i < N",
            "guard it: `if i + 1 < N then A[i + 1] else 0`",
        ),
        (
            "A = Tensor<N; f32>\ny = compute (shape = [N]) |i| A[i] - A[i - 1]",
            "index -1 + i reaches out of an axis of length N of A where 0 <= i < N",
            "guard it: `if i - 1 >= 0 then A[i - 1] else 0`",
        ),
    ],
)
def test_a_slip_is_named_with_the_way_out(text: str, message: str, note: str) -> None:
    """And it is all that is said."""
    with pytest.raises(LanguageError) as caught:
        fe.program(text)
    (told,) = caught.value.diagnostics
    assert told.message == message
    assert "".join(n.message for n in told.notes).startswith(note)
    assert bool(told.notes) == bool(note)


@pytest.mark.parametrize("name", WRITTEN_OUT)
def test_a_function_of_others_is_written_out(name: str) -> None:
    """In a form that is a program."""
    with pytest.raises(LanguageError) as caught:
        fe.program(f"x = Tensor<N; f64>\ny = {name}(x)")
    (note,) = caught.value.notes
    program = fe.program(f"x = Tensor<N; f64>\ny = {note.message.removeprefix('it is ')}")
    found = program.interpret(x=np.array([-1.5, 0.0, 2.0]))
    wanted = {
        "gelu": [-0.10021080, 0, 1.95449974],
        "gelu_tanh": [-0.10042842, 0, 1.95459769],
        "relu": [0, 0, 2],
        "sigmoid": [0.18242552, 0.5, 0.88079708],
        "silu": [-0.27363828, 0, 1.76159416],
        "softplus": [0.20141328, 0.69314718, 2.12692801],
        "square": [2.25, 0, 4],
    }
    np.testing.assert_allclose(found, wanted[name], atol=1e-7)
