"""The grammar of the declarative language, for :mod:`feinsum.languages.scanning`.

Lines end statements, save inside of parentheses and where what stands before or behind cannot begin or end one: such ends
are tokens (`SEP`) by the time the grammar sees them, see :mod:`.reading`.  What a form such as `compute` takes is checked
later (:mod:`.checking`), so that a mistake there is told in words of the language.
"""

from __future__ import annotations

from typing import Final

from feinsum.languages.scanning import Grammar

TEXT: Final = r"""
program: statements
statements: (statement (SEP statement)*)?
block: "{" statements "}"

statement: NAME "=" expression -> let
    | NAME ":" type "=" expression -> typed_let
    | NAME ":" type -> declaration
    | postfix "=" expression -> assignment
    | "if" expression block -> guarded
    | expression -> value

type: scalar_type
    | tensor_type
    | scalar_type _ARROW type -> function_type
    | tensor_type _ARROW type -> function_type
    | "(" (type ("," type)*)? ")" _ARROW type -> function_type
scalar_type: NAME
tensor_type: TENSOR "<" extents ">"
    | TENSOR "<" extents ";" NAME ">"
extents: (sum ("," sum)*)?

expression: disjunction
    | "if" expression "then" expression "else" expression -> choice
    | "if" expression block "else" block -> choice
    | "if" expression block "else" nested -> choice
nested: "if" expression block "else" block -> choice
    | "if" expression block "else" nested -> choice
disjunction: conjunction
    | disjunction "or" conjunction -> disjunction_of
conjunction: negation
    | conjunction "and" negation -> conjunction_of
negation: comparison
    | "not" negation -> negation_of
comparison: sum
    | sum COMPARISON sum -> binary
    | sum "<" sum -> less
    | sum ">" sum -> greater
sum: product
    | sum SIGN product -> binary
product: unary
    | product FACTOR unary -> binary
unary: postfix
    | SIGN unary -> signed
postfix: atom
    | postfix "[" indices "]" -> element
    | postfix "." INTEGER -> member
indices: (index ("," index)*)?
index: expression
    | ":" -> whole
    | expression ":" expression -> part

atom: NAME -> name
    | INTEGER -> integer
    | FLOATING -> floating
    | SPECIAL -> special
    | "true" -> true
    | "false" -> false
    | "..." -> hole
    | "(" expression ")" -> grouped
    | "[" (expression ("," expression)*)? "]" -> list
    | NAME "(" arguments ")" -> call
    | NAME "(" arguments ")" binder body -> form
    | "alternative" block -> alternative
    | tensor_type -> allocated
arguments: (argument ("," argument)*)?
argument: expression -> positional
    | NAME "=" expression -> named
    | NAME ":" type -> parameter_argument
    | NAME "=" binder expression -> condition
binder: "|" (parameter ("," parameter)*)? "|"
parameter: NAME -> untyped
    | NAME ":" type -> typed
body: block
    | expression -> bare

SPECIAL.2: /(?:inf|nan)\b/
TENSOR.2: /(?:Tensor|Shared|Register)\b/
NAME: /[A-Za-z_][A-Za-z_0-9]*/
FLOATING.1: /[0-9]+(?:\.[0-9]+(?:[eE][+-]?[0-9]+)?|\.(?![.0-9])(?:[eE][+-]?[0-9]+)?|[eE][+-]?[0-9]+)/
INTEGER: /[0-9]+/
COMPARISON: /<=|>=|==|!=/
SIGN: /[+-]/
FACTOR: /[*\/%]/
SEP: /\n;/
_ARROW.2: /->/
"""

COMMENTS: Final = r"\s+|//[^\n]*|#[^\n]*"
"""Both kinds are used in the language's document; so `//` is no division."""

GRAMMAR: Final = Grammar("declarative", TEXT, "program", COMMENTS, most_deep=100, flat=("block", "statements"))

WORDS: Final = {
    "$END": "the end of the text",
    "SEP": "the end of the line",
    "_ARROW": "'->'",
    "NAME": "a name",
    "INTEGER": "an integer",
    "FLOATING": "a floating-point number",
    "SPECIAL": "'inf' or 'nan'",
    "TENSOR": "'Tensor'",
    "COMPARISON": "a comparison",
    "SIGN": "'+' or '-'",
    "FACTOR": "'*', '/' or '%'",
}
"""The names in messages of terminals that are patterns."""
