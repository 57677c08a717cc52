"""Scanning and parsing: a grammar for lark becomes LALR tables, which are kept as data and drive a loop of our own.

lark takes 0.4 s to be imported and to analyse the grammar of the tensor language, its tables 0.03 s to be read; lark's own
loop makes a tree of 115 KB in that language in 0.19 s, the one here in 0.065 s (a core of Zen 3).  So lark is imported only
when the tables of a grammar are not yet remembered.  What is remembered is JSON: reading it executes nothing.

In grammars, rules whose names begin with an underscore are spliced into the rule above, and quoted words are dropped, as
lark itself does; optional parts in brackets are not supported (write an empty alternative).  Blanks are always ignored.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib.metadata import version
from itertools import pairwise
from typing import Any, NamedTuple

from feinsum.devices.json_store import cache_directory, read_json, write_json
from feinsum.languages.source import Span

END, UNKNOWN = "$END", "UNKNOWN"
"""The kinds of the token behind the last one, and of one that no terminal matches."""

IGNORED = r"\s+|;[^\n]*"
"""Blanks, and comments as most of our languages have them."""

MOST_DEEP = 300
"""Rules in rules, which bounds the recursion of what walks through trees."""

_FORMAT = 1
"""Counts up when the stored form of tables changes."""

Action = Callable[[list[Any], int, int], Any]
"""A function that makes the value of a rule from those of its parts, and the offsets of its first and behind its last
character.

A rule without one is the list of its parts, or the part itself where there is one.
"""


class Token(NamedTuple):
    """A word of the text: the terminal that it is, its characters, and where they begin."""

    kind: str
    text: str
    start: int

    @property
    def end(self) -> int:
        return self.start + len(self.text)


class UnexpectedTokenError(Exception):
    """A token that continues no sentence of the grammar.

    `expected` are the kinds that would; `values` what was read of the unfinished rules, outermost first.
    """

    def __init__(self, index: int, token: Token, expected: frozenset[str], values: list[Any]) -> None:
        super().__init__(index, token, expected, values)
        self.index, self.token, self.expected, self.values = index, token, expected, values


class TooDeepError(Exception):
    """A text that is nested deeper than Python can walk; `token` is where it gets too deep."""

    def __init__(self, token: Token, most: int) -> None:
        super().__init__(token, most)
        self.token = token
        self.message = f"this is nested more than {most} deep; give parts of it names, or shorten the chain of operators"


class Production(NamedTuple):
    """A production: the name that its action has, the rule it makes, its length, and the parts that its action gets."""

    action: str
    rule: str
    size: int
    kept: tuple[tuple[int, bool], ...]
    """Positions of parts that are not dropped, and whether each is a list to be spliced."""


@dataclass(frozen=True)
class Tables:
    """LALR tables of a grammar.

    `moves[state][kind]` is the state after a shift, or ``~production`` for a reduction; `jumps[state][rule]` that after
    a reduction; terminals are patterns in the order in which they are tried.
    """

    start: int
    final: int
    moves: tuple[Mapping[str, int], ...]
    jumps: tuple[Mapping[str, int], ...]
    productions: tuple[Production, ...]
    patterns: Mapping[str, str]
    literals: Mapping[str, str]
    """Kinds of fixed words, by word."""

    @cached_property
    def steps(self) -> list[tuple[str, str, int, tuple[tuple[int, bool], ...] | None]]:
        """The productions; `kept` is None where actions get all parts as they are."""
        return [
            (p.action, p.rule, p.size, None if p.kept == tuple((k, False) for k in range(p.size)) else p.kept)
            for p in self.productions
        ]

    def accepts(self, states: Sequence[int], kind: str) -> bool:
        """Whether a token can follow; a table of LALR(1) reduces before it finds that out, so the reductions are tried."""
        stack = list(states)
        while (move := self.moves[stack[-1]].get(kind)) is not None:
            if move >= 0:
                return True
            production = self.productions[~move]
            del stack[len(stack) - production.size :]
            stack.append(self.jumps[stack[-1]][production.rule])
            if kind == END and stack[-1] == self.final:
                return True
        return False

    def scanner(self, ignored: str) -> re.Pattern[str]:
        """Matches what is ignored (group 1), a fixed word (2), an unknown word (3), or a pattern (a group of its name)."""
        words = sorted(self.literals, key=lambda word: (-len(word), word))
        named = "|".join(f"(?P<{kind}>{pattern})" for kind, pattern in self.patterns.items())
        unknown = r"[A-Za-z_][\w.]*|."
        return re.compile(rf"({ignored})|{named}|(?P<word>{'|'.join(map(re.escape, words))})|(?P<unknown>{unknown})", re.S)


class Grammar:
    """A grammar in lark's notation, whose tables are made or remembered when they are first needed.

    :param ignored: a regular expression, without groups, for what stands between tokens.
    :param most_deep: rules in rules, of those that have several parts and make no list; lark's lists grow in rules whose
        names begin with an underscore.
    :param flat: rules that do not count, as the canonical text adds them.
    """

    def __init__(
        self, name: str, text: str, start: str, ignored: str = IGNORED, most_deep: int = MOST_DEEP, flat: Sequence[str] = ()
    ) -> None:
        self.most_deep, self.flat = most_deep, frozenset(flat)
        self.name, self.text, self.start, self.ignored = name, text, start, ignored

    @cached_property
    def tables(self) -> Tables:
        """The tables of this grammar."""
        digest = hashlib.sha256(f"{_FORMAT} {version('lark')} {self.start}\n{self.text}".encode()).hexdigest()
        path = cache_directory() / "grammars" / f"{self.name}-{digest[:16]}.json"
        stored = _from_json(read_json(path))
        if stored is None:
            made = analyse(self.text, self.start)
            write_json(path, _to_json(made))
            return made
        return stored

    @cached_property
    def _scanner(self) -> re.Pattern[str]:
        return self.tables.scanner(self.ignored)

    def scan(self, text: str) -> list[Token]:
        """The tokens of a text; what no terminal matches has the kind :data:`UNKNOWN`."""
        literals = self.tables.literals
        tokens = []
        for found in self._scanner.finditer(text):
            kind = found.lastgroup
            if kind is None:
                continue
            word = found.group()
            # a fixed word that a pattern matches too, such as that of names, is the fixed word
            tokens.append(Token(literals.get(word) or (UNKNOWN if kind == "unknown" else kind), word, found.start()))
        return tokens

    def parse(self, tokens: Sequence[Token], actions: Mapping[str, Action]) -> Any:
        """The value of the start rule; `actions` make the values of rules, by alias or name of the rule.

        :raises UnexpectedTokenError: at the first token that fits nowhere.
        :raises TooDeepError: where rules stand in rules more than `most_deep` times.
        """
        tables = self.tables
        moves, jumps = tables.moves, tables.jumps
        steps = [(actions.get(action), rule, size, kept) for action, rule, size, kept in tables.steps]
        states: list[int] = [tables.start]
        values: list[Any] = [None]
        starts, ends = [0], [tokens[0].start if tokens else 0]
        depths = [0]
        after = tokens[-1].end if tokens else 0
        for index, token in enumerate([*tokens, Token(END, "", after)]):
            kind, text, start = token
            while True:
                move = moves[states[-1]].get(kind)
                if move is None:
                    expected = frozenset(name for name in moves[states[-1]] if tables.accepts(states, name))
                    raise UnexpectedTokenError(index, token, expected, values[1:])
                if move >= 0:
                    states.append(move)
                    values.append(token)
                    starts.append(start)
                    ends.append(start + len(text))
                    depths.append(0)
                    break
                action, rule, size, kept = steps[~move]
                if size:
                    begin, end = starts[-size], ends[-1]
                    parts: list[Any] = values[-size:]
                    depth = max(depths[-size:]) + (size > 1 and rule[0] != "_" and rule not in self.flat)
                    if depth > self.most_deep:
                        raise TooDeepError(token, self.most_deep)
                    del states[-size:], values[-size:], starts[-size:], ends[-size:], depths[-size:]
                else:
                    begin = end = ends[-1]
                    parts, depth = [], 0
                depths.append(depth)
                if kept is not None:
                    parts = _kept_parts(parts, kept)
                states.append(jumps[states[-1]][rule])
                if action is not None:
                    values.append(action(parts, begin, end))
                else:
                    values.append(parts[0] if len(parts) == 1 and rule[0] != "_" else parts)
                starts.append(begin)
                ends.append(end)
                if kind == END and states[-1] == tables.final:
                    return values[-1]
        raise AssertionError("the end of the text was not accepted")


def _kept_parts(parts: list[Any], kept: tuple[tuple[int, bool], ...]) -> list[Any]:
    chosen: list[Any] = []
    for position, splice in kept:
        if splice:
            # no other node holds a list that another rule made, so it is extended in place, which avoids quadratic time
            chosen = chosen + parts[position] if chosen else parts[position]
        else:
            chosen.append(parts[position])
    return chosen


def analyse(text: str, start: str) -> Tables:
    """The LALR tables of a grammar; takes about half a second."""
    from lark import Lark
    from lark.grammar import Terminal
    from lark.parsers.lalr_analysis import Shift

    parser = Lark(text, start=start, parser="lalr", lexer="basic", maybe_placeholders=False)
    table = parser.parser.parser._parse_table
    rules = {rule: number for number, rule in enumerate(parser.rules)}
    moves, jumps = [], []
    for state in range(len(table.states)):
        entries = table.states[state]
        goes = {str(name): arg if act is Shift else ~rules[arg] for name, (act, arg) in entries.items()}
        moves.append({name: to for name, to in goes.items() if name.isupper() or name == END})
        jumps.append({name: to for name, to in goes.items() if name not in moves[-1]})
    productions = []
    for rule in parser.rules:
        kept = tuple(
            (position, not isinstance(symbol, Terminal) and symbol.name.startswith("_"))
            for position, symbol in enumerate(rule.expansion)
            if not (isinstance(symbol, Terminal) and symbol.filter_out)
        )
        productions.append(
            Production(str(rule.alias or rule.origin.name), str(rule.origin.name), len(rule.expansion), kept)
        )
    fixed = [t for t in parser.terminals if t.pattern.type == "str"]
    patterns = sorted((t for t in parser.terminals if t.pattern.type == "re"), key=lambda t: (-t.priority, t.name))
    return Tables(
        start=table.start_states[start],
        final=table.end_states[start],
        moves=tuple(moves),
        jumps=tuple(jumps),
        productions=tuple(productions),
        patterns={str(t.name): t.pattern.value for t in patterns},
        literals={t.pattern.value: str(t.name) for t in fixed},
    )


def foreign_token_message(tokens: Sequence[Token], index: int, comment: str) -> tuple[str, int]:
    """The message about a token that only other languages have, and where it ends; an empty one for any other token.

    :param comment: how a comment begins here.
    """
    token = tokens[index] if index < len(tokens) else Token(END, "", 0)
    after = tokens[index + 1] if index + 1 < len(tokens) else token
    before = tokens[index - 1] if index else token
    if token.text == "#" or (token.text == "/" and after.text == "/" and after.start == token.end):
        end = token.end if token.text == "#" else after.end
        return f"no comment begins with '{'#' if token.text == '#' else '//'}' here; it begins with {comment}", end
    if token.text == ";":
        return f"no comment begins with ';' here; it begins with {comment}", token.end
    if token.text == "=" and before.text in tuple("+-*/") and before.end == token.start:
        return f"there is no '{before.text}='", token.end
    if token.text in tuple("+-*/") and after.text == "=" and after.start == token.end:
        return f"there is no '{token.text}='", after.end
    return "", token.end


def split_functions(
    tokens: Sequence[Token], kind: str, report: Callable[[str, Span, str], object]
) -> Iterator[list[Token]]:
    """The tokens of each function.

    :param kind: that of the word with which a function begins, and nothing else.
    :param report: takes the rule, the place and the message of an error.
    """
    starts = [index for index, token in enumerate(tokens) if token.kind == kind]
    first = starts[0] if starts else len(tokens)
    if first:
        token = tokens[0]
        elsewhere, end = foreign_token_message(tokens, 0, "';'")
        message = elsewhere or f"a function begins with '{kind.lower()}', not with '{token.text}'"
        report("syntax", Span(token.start, end), message)
    for start, end in pairwise([*starts, len(tokens)]):
        yield list(tokens[start:end])


def named(kinds: Iterable[str], tables: Tables, words: Mapping[str, str]) -> list[str]:
    """Kinds of tokens in words: fixed ones in quotes, patterns as `words` calls them."""
    spelled = {kind: f"'{word}'" for word, kind in tables.literals.items()}
    return sorted({spelled.get(kind) or words.get(kind, kind.lower()) for kind in kinds})


def _to_json(tables: Tables) -> dict[str, Any]:
    return {
        "start": tables.start,
        "final": tables.final,
        "moves": tables.moves,
        "jumps": tables.jumps,
        "productions": tables.productions,
        # as pairs, since the order in which patterns are tried matters and objects of JSON have none
        "patterns": list(tables.patterns.items()),
        "literals": dict(tables.literals),
    }


def _from_json(value: Any) -> Tables | None:
    """Tables that were stored; None if they are missing or not whole."""
    try:
        return Tables(
            start=value["start"],
            final=value["final"],
            moves=tuple(value["moves"]),
            jumps=tuple(value["jumps"]),
            productions=tuple(
                Production(action, rule, size, tuple((position, splice) for position, splice in kept))
                for action, rule, size, kept in value["productions"]
            ),
            patterns=dict(value["patterns"]),
            literals=dict(value["literals"]),
        )
    except (KeyError, TypeError, ValueError):
        return None
