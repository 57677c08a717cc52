"""The pages of the languages: their examples execute every instruction, and name every rule."""

from __future__ import annotations

import doctest
from pathlib import Path
from typing import Any, get_args

import pytest

from feinsum.languages.declarative import interpreting as interpreting_declarative
from feinsum.languages.declarative.forms import FORMS, REDUCTIONS
from feinsum.languages.declarative.syntax import FormCall, walk_nodes
from feinsum.languages.immediate import interpreting as interpreting_immediate
from feinsum.languages.immediate.syntax import INPUTS, Instruction
from feinsum.languages.tensor.definitions import DEFINITIONS
from feinsum.languages.tensor.running.kernel_route import GeneralKernel

DOC = Path(__file__).parents[1] / "doc"


def test_every_instruction_is_executed_on_the_page(monkeypatch: pytest.MonkeyPatch) -> None:
    """An instruction that is added needs an example, which runs on a device."""
    executed: set[str] = set()
    call = GeneralKernel.call

    def note(kernel: GeneralKernel, *arguments: Any) -> Any:
        executed.update(operation.name for operation in kernel.function.body.walk())
        return call(kernel, *arguments)

    monkeypatch.setattr(GeneralKernel, "call", note)
    failures, _ = doctest.testfile(str(DOC / "reference" / "tensor-language.rst"), module_relative=False, encoding="utf-8")
    assert not failures
    assert executed == set(DEFINITIONS)


def test_every_instruction_is_listed_on_the_page() -> None:
    """Once, by the directive that writes its form and formula."""
    text = (DOC / "reference" / "tensor-language.rst").read_text(encoding="utf-8")
    listed: list[str] = []
    for part in text.split(".. tensor-instructions:: ")[1:]:
        listed += part.partition("\n\n")[0].split()
    assert sorted(listed) == sorted(DEFINITIONS)


def test_the_page_of_the_immediate_language(monkeypatch: pytest.MonkeyPatch) -> None:
    """All of its instructions are executed by its examples."""
    executed: set[str] = set()
    execute = interpreting_immediate.execute_function

    def note(function: Any, *arguments: Any) -> Any:
        executed.update(getattr(i, "opcode", type(i).__name__) for i in function.walk())
        return execute(function, *arguments)

    monkeypatch.setattr(interpreting_immediate, "execute_function", note)
    page = str(DOC / "reference" / "immediate-language.rst")
    failures, _ = doctest.testfile(page, module_relative=False, encoding="utf-8")
    assert not failures
    others = {kind.__name__ for kind in get_args(Instruction)} - {"ImmediateUpdate"}
    assert executed == set(INPUTS) | others


def test_the_page_of_the_declarative_language(monkeypatch: pytest.MonkeyPatch) -> None:
    """All of its forms, reductions and statements are executed by its examples."""
    executed: set[str] = set()
    execute = interpreting_declarative.execute_program

    def note(function: Any, *arguments: Any, **tunes: Any) -> Any:
        for node in walk_nodes(function.body):
            executed.add(node.kind if isinstance(node, FormCall) else type(node).__name__)
            if isinstance(node, FormCall) and node.kind == "reduce":
                executed.update(argument.value.name for argument in node.arguments if argument.name == "op")
        return execute(function, *arguments, **tunes)

    monkeypatch.setattr(interpreting_declarative, "execute_program", note)
    page = str(DOC / "reference" / "declarative-language.rst")
    failures, _ = doctest.testfile(page, module_relative=False, encoding="utf-8")
    assert not failures
    assert executed >= {*FORMS, *REDUCTIONS, "Conditional", "DeclarativeSlice", "GuardedBlock", "Assignment", "ListOf"}
