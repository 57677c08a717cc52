"""The grammar of the tensor language, for :mod:`feinsum.languages.scanning`.

It is a little wider than the reference where a wider sentence gets a better message: how many operands, transposes and
flags an instruction has is compared with its definition as the program is put together (:mod:`.reading`).
"""

from __future__ import annotations

from typing import Final

from feinsum.languages.scanning import Grammar
from feinsum.languages.tensor.definitions import LINEAR_ALGEBRA

TEXT: Final = (
    r"""
function: "func" GLOBAL "(" parameters ")" function_attributes region
parameters: (parameter ("," parameter)*)?
parameter: LOCAL ":" type maybe_dictionary
function_attributes: "attributes" dictionary | -> nothing
region: "{" instruction* "}"

maybe_dictionary: dictionary | -> nothing
dictionary: "{" (attribute ("," attribute)*)? "}"
attribute: attribute_name "=" value
attribute_name: ATTRIBUTE | SUBGROUP_SIZE | STRING
value: boolean | integer | string | array | dictionary
array: "[" (value ("," value)*)? "]"
string: STRING

constant: boolean | integer | floating | complex
boolean: TRUE | FALSE
integer: INTEGER
floating: FLOATING
complex: "[" FLOATING "," FLOATING "]"

type: VOID -> plain_type
    | BOOL -> plain_type
    | SCALAR -> scalar_type
    | memref
    | "group" "<" memref "x" extent group_offset ">" -> group_type
    | "coopmatrix" "<" scalar "x" integer "x" integer "," USE ">" -> coopmatrix_type
scalar: SCALAR
memref: "memref" "<" scalar shape memref_options ">"
shape: ("x" extent)*
memref_options: -> no_options
    | "," strides -> strided_option
    | "," SPACE -> space_option
    | "," strides "," SPACE -> both_options
strides: "strided" "<" (extent ("," extent)*)? ">"
group_offset: -> no_offset
    | "," "offset" ":" extent -> only
extent: integer | "?" -> nothing

instruction: names "=" body -> assigned
    | body -> unassigned
names: LOCAL ("," LOCAL)*

body: "alloca" maybe_dictionary ":" type -> alloca
    | LINEAR modifiers operands -> linear
    | COMPUTE operands annotation -> compute
    | (BUILTIN | SUBGROUP_SIZE) annotation -> builtin
    | "constant" constant annotation -> constant_body
    | "expand" LOCAL "[" integer "->" bound ("x" bound)+ "]" annotation -> expand
    | "fuse" LOCAL "[" integer "," integer "]" annotation -> fuse
    | "subview" LOCAL "[" (slice ("," slice)*)? "]" annotation -> subview
    | LOAD modifiers LOCAL "[" indices "]" annotation -> load
    | STORE modifiers operand "," LOCAL "[" indices "]" -> store
    | "size" LOCAL "[" integer "]" annotation -> size
    | "barrier" modifiers -> barrier
    | "lifetime_stop" LOCAL -> lifetime_stop
    | "parallel" region -> parallel
    | foreach_head region -> foreach
    | for_head region maybe_dictionary -> for_body
    | if_head region -> if_body
    | if_head region "else" region -> if_body
    | "yield" "(" indices ")" -> yield_body

annotation: (COLON | ARROW) type
modifiers: MODIFIER*
operands: operand ("," operand)*
indices: (operand ("," operand)*)?
operand: LOCAL | constant -> immediate
bound: integer -> immediate_bound
    | LOCAL
slice: bound -> single
    | bound ":" bound -> part
    | ":" -> whole

foreach_head: "foreach" "(" names ")" loop_type "=" "(" operands ")" "," "(" operands ")"
for_head: "for" LOCAL loop_type "=" operands for_init
loop_type: ":" type -> only
    | -> nothing
for_init: "init" "(" carried ("," carried)* ")" "->" types -> init
    | -> nothing
carried: LOCAL "=" LOCAL
if_head: "if" operand if_types
if_types: "->" types -> only
    | -> nothing
types: "(" (type ("," type)*)? ")"

LOCAL: /%(?:[0-9]+|[A-Za-z][A-Za-z0-9_]*)/
GLOBAL: /@(?:[0-9]+|[A-Za-z][A-Za-z0-9_]*)/
STRING: /"[ !#-~]*"/
FLOATING.2: /[+-]?(?:0[xX](?:[0-9a-fA-F]*\.[0-9a-fA-F]+(?:[pP][+-]?[0-9]+)?|[0-9a-fA-F]+\.(?:[pP][+-]?[0-9]+)?|[0-9a-fA-F]+[pP][+-]?[0-9]+)|(?:[0-9]*\.[0-9]+|[0-9]+\.)(?:[eE][+-]?[0-9]+)?|[0-9]+[eE][+-]?[0-9]+)/
INTEGER.1: /[+-]?[0-9]+/
MODIFIER.1: /\.(?:atomic_add|atomic|rows_checked|cols_checked|both_checked|global|local|n|t)(?![A-Za-z0-9_])/
COMPUTE: /arith\.[a-z]+|cmp\.[a-z]+|math\.[a-z_]+|cast|cooperative_matrix_mul_add|cooperative_matrix_scale|subgroup_broadcast|subgroup_(?:add|max|min)\.[a-z_]+/
BUILTIN: /(?:builtin\.)?(?:group_id|group_size|num_subgroups|subgroup_id|subgroup_local_id)|builtin\.subgroup_size/
SUBGROUP_SIZE: "subgroup_size"
LOAD: /cooperative_matrix_load|load/
STORE: /cooperative_matrix_store|store/
ATTRIBUTE: /alignment|shape_gcd|stride_gcd|unroll|work_group_size/
SCALAR: /i8|i16|i32|i64|index|bf16|f16|f32|f64|c32|c64/
SPACE: /global|local/
USE: /matrix_acc|matrix_a|matrix_b/
VOID: "void"
BOOL: "bool"
TRUE: "true"
FALSE: "false"
COLON: ":"
ARROW: "->"
"""  # noqa: E501  a terminal is one line
    f"LINEAR: /{'|'.join(sorted((*LINEAR_ALGEBRA, 'hadamard'), key=len, reverse=True))}/\n"
)

GRAMMAR: Final = Grammar("tensor", TEXT, "function")

WORDS: Final = {
    "$END": "the end of the text",
    "LOCAL": "a name such as %a",
    "GLOBAL": "a name such as @f",
    "INTEGER": "an integer",
    "FLOATING": "a floating-point number",
    "STRING": "a string",
    "MODIFIER": "a modifier such as .n",
    "SCALAR": "a scalar type",
    "SPACE": "'global' or 'local'",
    "USE": "'matrix_a', 'matrix_b' or 'matrix_acc'",
    "ATTRIBUTE": "the name of an attribute",
}
"""The words by which messages call the terminals that are patterns."""

INSTRUCTION_STARTS: Final = frozenset({"LINEAR", "COMPUTE", "BUILTIN", "LOAD", "STORE"})
"""Patterns with which only instructions begin; messages call them so."""
