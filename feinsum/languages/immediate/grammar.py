"""The grammar of the immediate language, for :mod:`feinsum.languages.scanning`.

An index map is one token, which :mod:`.maps` takes apart, since its letters are words elsewhere.  The grammar is a little
wider than the document's where a wider sentence gets a better message or the document contradicts itself: a comma may
follow a map, alpha and beta may be written as integers (an error says ``1.0``), and `axpby` may have one constant or two.
"""

from __future__ import annotations

from typing import Final

from feinsum.languages.scanning import Grammar

TEXT: Final = r"""
function: "define" GLOBAL "(" parameters ")" region
parameters: (parameter ("," parameter)*)?
parameter: LOCAL ":" type
region: "{" instruction* "}"

type: memref | group | SCALAR -> scalar_type | VOID -> void_type
memref: MEMREF "<" scalar shape memref_layout ">"
scalar: SCALAR
shape: ("x" INTEGER)*
memref_layout: -> nothing
    | "," "strided" "<" integers ">" -> strides
integers: (INTEGER ("," INTEGER)*)?
group: GROUP "<" memref "," group_layout ">"
group_layout: "distance" "<" INTEGER ">" -> distance
    | "pointers" -> nothing

instruction: LOCAL "=" value -> assigned
    | update
    | "for" SCALAR LOCAL "=" INTEGER "to" INTEGER region -> for_loop
    | BARRIER -> barrier
    | "lifetime_stop" LOCAL -> lifetime_stop
value: "alloca" ":" type -> alloca
    | "get_work_item" LOCAL offset ":" type -> get_work_item
    | "subview" LOCAL "[" entries "]" ":" type "to" type -> subview
offset: -> nothing
    | "," SCALAR LOCAL -> typed
entries: (entry ("," entry)*)?
entry: SCALAR LOCAL -> dynamic
    | INTEGER -> fixed
    | INTEGER ":" INTEGER -> slice_both
    | INTEGER ":" -> slice_from
    | ":" INTEGER -> slice_to
    | ":" -> slice_all

update: (LOG | PRODUCT) MAP comma number "," LOCAL "," LOCAL "," number "," LOCAL ":" type "," type "to" type -> binary
    | SUM MAP comma number "," LOCAL "," number "," LOCAL ":" type "to" type -> unary
    | AXPBY MAP comma number "," LOCAL "," number "," LOCAL ":" type "to" type -> unary
    | AXPBY MAP comma number "," LOCAL "," LOCAL ":" type "to" type -> short
comma: | ","
number: INTEGER | FLOATING

LOCAL: /%(?:[0-9]+|[A-Za-z][A-Za-z0-9_]*)/
GLOBAL: /@(?:[0-9]+|[A-Za-z][A-Za-z0-9_]*)/
MAP.3: /\{(?:[^{}%@:=;]|;[^\n]*\n)*?\bto\b(?:[^{}%@:=;]|;[^\n]*\n)*\}/
FLOATING.2: /[+-]?(?:0[xX](?:[0-9a-fA-F]*\.[0-9a-fA-F]+(?:[pP][+-]?[0-9]+)?|[0-9a-fA-F]+\.(?:[pP][+-]?[0-9]+)?|[0-9a-fA-F]+[pP][+-]?[0-9]+)|(?:[0-9]*\.[0-9]+|[0-9]+\.)(?:[eE][+-]?[0-9]+)?|[0-9]+[eE][+-]?[0-9]+)/
INTEGER.1: /[+-]?[0-9]+/
SCALAR: /[iu](?:8|16|32|64)|f(?:32|64)/
VOID: "void"
MEMREF: "memref"
GROUP: "group"
SUM: "sum"
AXPBY: "axpby"
LOG: "log"
PRODUCT: "product"
BARRIER: "barrier"
"""  # noqa: E501  a terminal is one line

GRAMMAR: Final = Grammar("immediate", TEXT, "function")

WORDS: Final = {
    "$END": "the end of the text",
    "LOCAL": "a name such as %a",
    "GLOBAL": "a name such as @f",
    "INTEGER": "an integer",
    "FLOATING": "a number such as 1.0",
    "MAP": "an index map such as {ik, kj to ij}",
    "SCALAR": "a scalar type",
}
"""The names in messages of terminals that are patterns."""

OPCODES: Final = ("LOG", "PRODUCT", "SUM", "AXPBY", "FOR", "BARRIER", "LIFETIME_STOP")
"""The kinds of the tokens with which instructions begin that have no result."""
