"""Job files: einsums × types × lengths × devices to tune, as TOML.

::

    database = "night.sqlite"
    devices = ["cpu"]
    timeout = 60                          # seconds for each job; or trials = 200

    [[einsum]]
    subscripts = "xre,rij,ej->xei"
    shapes = {J = [3, 3, "E"], D = [3, "n", "n"], u = ["E", "n"]}
    dtypes = ["float32", "float64"]
    fixed = {n = [4, 10, 20]}             # lengths that are part of the einsum, each combination another one
    sizes = {E = [1000, 100_000]}         # lengths of long axes, each combination another job
    then = "v + out"                      # what is made of each sum, see BatchedEinsum.then; or a list, one for each output
    space = "dg_gradient"                 # the only one to search; without it, all that match
    begin = [{elements = 32}]             # what to try first of it, the rest being that of its default

    [[program]]
    file = "softmax.decl"                 # a program with numbers to tune, beside the job file
    sizes = {R = [1000, 10_000], C = 512} # lengths of its arguments, each combination another job

Keys above the first ``[[einsum]]`` hold for all of them, unless one says otherwise.  Several outputs are ``rows`` of names,
where ``a*b`` is an elementwise product.  Without rows the operands are the arrays of ``shapes`` in their order, but for
those that only ``then`` reads, as ``b`` in ``then = "v + b[j]"``.  A job file is data: it is read by :mod:`tomllib` and
checked key by key.
"""

from __future__ import annotations

import math
import os
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from itertools import product
from pathlib import Path
from typing import Any

from feinsum.einsum import BatchedEinsum, array, batched_einsum
from feinsum.epilogue.text import read_at
from feinsum.errors import FeinsumError, JobError
from feinsum.search import SAMPLERS
from feinsum.space import Value
from feinsum.tune.step_tuning import WHEN
from feinsum.tune.subject import Tunable

_MOST_JOBS = 100_000
"""Jobs of a file; more is a slip of the pen."""
_MOST_BYTES = 1 << 20


@dataclass(frozen=True)
class Job:
    """One tuning run of a job file: an einsum, or a program, lengths of its long axes, a device and a budget.

    :ivar device: a word for :func:`feinsum.device`; None for the best one.
    :ivar trials: configurations to try in all, those of earlier runs included; None for as many as the time allows.
    :ivar timeout: in seconds; None for as long as it takes.
    :ivar steps: whether to tune the steps, too; see :func:`feinsum.autotune`.
    :ivar begin: configurations of `space` to try before all else, or parts of some: the other values are those of the
        default, and for a configuration that the space refuses the nearest accepted one is tried.
    :ivar file: of the program, as the job file names it; nothing for an einsum.
    """

    einsum: BatchedEinsum | Tunable
    sizes: Mapping[str, int]
    device: str | None = None
    trials: int | None = None
    timeout: float | None = None
    space: str | None = None
    sampler: str | None = None
    seed: int | None = None
    steps: str = "auto"
    begin: tuple[Mapping[str, Value], ...] = ()
    file: str = ""

    def __str__(self) -> str:
        lengths = " ".join(f"{name}={length}" for name, length in self.sizes.items())
        what = self.einsum if isinstance(self.einsum, BatchedEinsum) else self.file
        return f"{what}{' at ' if lengths else ''}{lengths}{f' on {self.device}' if self.device else ''}"


@dataclass(frozen=True)
class JobFile:
    """The content of a job file.

    :ivar database: the store it names, a relative path being relative to the file; None if it names none.
    """

    jobs: tuple[Job, ...]
    database: str | None = field(default=None, repr=False)  # a URL may hold a password


def read_jobs(path: str | os.PathLike[str]) -> JobFile:
    """Read a job file.

    :raises JobError: if it cannot be read or is malformed; the message names the file, the place and what is wrong.
    """
    try:
        with open(path, "rb") as file:
            text = file.read(_MOST_BYTES + 1)
        if len(text) > _MOST_BYTES:
            raise JobError(f"it is longer than {_MOST_BYTES} bytes")
        return _job_file(tomllib.loads(text.decode()), Path(path).parent)
    except OSError as error:
        raise JobError(f"cannot read {path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise JobError(f"{path}: it is no text in UTF-8") from None
    except RecursionError:
        raise JobError(f"{path}: its values are nested too deeply") from None
    except (JobError, tomllib.TOMLDecodeError) as error:
        raise JobError(f"{path}: {error}") from None


def _job_file(data: Mapping[str, Any], directory: Path) -> JobFile:
    top = {key: value for key, value in data.items() if key not in ("einsum", "program")}
    _check_keys(top, {"database", *_COMMON}, "the top of the file", "; each einsum is a table [[einsum]]")
    common = {key: value for key, value in top.items() if key != "database"}
    database = _job_text("database", data["database"]) if "database" in data else None
    if database is not None and "://" not in database:
        database = str(directory / Path(database).expanduser())
    jobs: list[Job] = []
    for kind, own in (("einsum", _OWN), ("program", _OF_PROGRAMS)):
        tables = data.get(kind, [])
        if not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables):
            raise JobError(f"there is no [[{kind}]]; write one for each {kind}")
        for number, table in enumerate(tables, 1):
            _check_keys(table, _COMMON | own, f"[[{kind}]] {number}")
            try:
                for job in _jobs({**common, **table}, directory):
                    jobs.append(job)
                    if len(jobs) > _MOST_JOBS:
                        raise JobError(f"these are more than {_MOST_JOBS} jobs; split the file")
            except FeinsumError as error:
                raise JobError(f"[[{kind}]] {number}: {error}") from None
    if not jobs:
        raise JobError("there is no [[einsum]]; write one for each einsum")
    return JobFile(tuple(jobs), database)


_COMMON = {"devices", "dtypes", "trials", "timeout", "space", "sampler", "seed", "steps"}
_OWN = {"subscripts", "shapes", "rows", "then", "fixed", "sizes", "begin"}
_OF_PROGRAMS = {"file", "sizes"}


def _check_keys(table: Mapping[str, Any], known: set[str], where: str, hint: str = "") -> None:
    for key in table:
        if key not in known:
            raise JobError(f"{where} has the key {key[:80]!r}; known are {', '.join(sorted(known))}{hint}")


def _jobs(table: Mapping[str, Any], directory: Path) -> Iterator[Job]:
    """Every combination of the choices in a table."""
    budget: dict[str, Any] = {
        "trials": _job_number("trials", table["trials"], int, 1) if "trials" in table else None,
        "timeout": _job_number("timeout", table["timeout"], float, 0) if "timeout" in table else None,
        "space": _job_text("space", table["space"]) if "space" in table else None,
        "sampler": _job_word("sampler", table["sampler"], SAMPLERS) if "sampler" in table else None,
        "seed": _job_number("seed", table["seed"], int, 0) if "seed" in table else None,
        "steps": _job_word("steps", table.get("steps", "auto"), WHEN),
        "begin": tuple(_job_list("begin", table["begin"], _configuration)) if "begin" in table else (),
    }
    if budget["begin"] and budget["space"] is None:
        raise JobError("begin has values of parameters, so it needs the key 'space'")
    if budget["trials"] is None and budget["timeout"] is None:
        budget["timeout"] = 60.0
    devices = _job_list("devices", table["devices"], _job_text) if "devices" in table else [None]
    if "file" in table:
        file = _job_text("file", table["file"])
        program = import_module("feinsum.languages.program").program(directory / file)
        for sizes, device in product(_combinations("sizes", table.get("sizes", {})), devices):
            yield Job(program, sizes, device, **budget, file=file)
        return
    dtypes = _job_list("dtypes", table.get("dtypes", ["float64"]), _job_text)
    for dtype, fixed in product(dtypes, _combinations("fixed", table.get("fixed", {}))):
        e = _job_einsum(table, dtype, fixed)
        for sizes, device in product(_combinations("sizes", table.get("sizes", {})), devices):
            e.resolve(sizes)  # says which length is missing
            yield Job(e, sizes, device, **budget)


def _job_einsum(table: Mapping[str, Any], dtype: str, fixed: Mapping[str, int]) -> BatchedEinsum:
    for key in ("subscripts", "shapes"):
        if key not in table:
            raise JobError(f"the key {key!r} is missing")
    shapes = table["shapes"]
    if not isinstance(shapes, dict) or not shapes:
        raise JobError("shapes is no table like {A = [3, 'N'], x = ['N']}")
    arrays = {name: array(name, _job_shape(name, axes, fixed), dtype) for name, axes in shapes.items()}
    if used := fixed.keys() - {axis for axes in shapes.values() for axis in axes if isinstance(axis, str)}:
        raise JobError(f"fixed has {min(used)!r}, which is no axis of shapes")
    then = _job_list("then", table["then"], _job_text) if "then" in table else []
    read = {name for text in then for name in read_at(text)}
    matrix = []
    for row in table.get("rows", [[name for name in arrays if name not in read]]):
        entries = _job_list("rows", row, _job_text)
        unknown = [name for entry in entries for name in entry.split("*") if name not in arrays]
        if unknown:
            raise JobError(f"rows has {unknown[0]!r}, but shapes has {', '.join(arrays)}")
        matrix.append([tuple(arrays[name] for name in entry.split("*")) for entry in entries])
    e = batched_einsum(_job_text("subscripts", table["subscripts"]), matrix)
    if not then:
        return e
    if missing := sorted(read - arrays.keys()):
        raise JobError(f"then reads {missing[0]!r}, but shapes has {', '.join(arrays)}")
    operands = {a.name for a in e.arrays}
    own = {name: arrays[name] for name in read if name not in operands}
    return e.then(then[0] if len(then) == 1 else then, **own)


def _job_shape(name: str, axes: object, fixed: Mapping[str, int]) -> tuple[int | str | float, ...]:
    if not isinstance(axes, list):
        raise JobError(f"the shape of {name!r} is no list of lengths and names")
    for axis in axes:
        if isinstance(axis, bool) or not (isinstance(axis, (int, str)) or axis == math.inf):
            raise JobError(f"the shape of {name!r} has {axis!r}, which is neither a length nor a name")
    return tuple(fixed.get(axis, axis) if isinstance(axis, str) else axis for axis in axes)


def _combinations(key: str, table: object) -> list[dict[str, int]]:
    """``{n = [4, 10], m = 2}`` as every choice of one length for each name."""
    if not isinstance(table, dict):
        raise JobError(f"{key} is no table like {{N = [1000, 100_000]}}")
    choices = {
        name: [_job_number(f"{key}.{name}", n, int, 0) for n in (value if isinstance(value, list) else [value])]
        for name, value in table.items()
    }
    if math.prod(map(len, choices.values())) > _MOST_JOBS:
        raise JobError(f"{key} has more than {_MOST_JOBS} combinations; split the file")
    return [dict(zip(choices, lengths, strict=True)) for lengths in product(*choices.values())]


def _job_number(key: str, value: object, kind: type, least: int) -> Any:
    if isinstance(value, bool) or not isinstance(value, int if kind is int else (int, float)):
        raise JobError(f"{key} is {value!r}, not a number")
    if not least <= value < 2**63:
        raise JobError(f"{key} is {value!r}; it is a number from {least} on")
    return kind(value)


def _job_text(key: str, value: object) -> str:
    if not isinstance(value, str) or not value:
        raise JobError(f"{key} is {value!r}, not a text")
    return value


def _configuration(key: str, value: object) -> dict[str, Value]:
    if not isinstance(value, dict) or not all(isinstance(choice, (bool, int, float, str)) for choice in value.values()):
        raise JobError(f"{key} is {value!r}, not a table of parameters and values")
    return value


def _job_word(key: str, value: object, known: tuple[str, ...]) -> str:
    if value not in known:
        raise JobError(f"{key} is {value!r}, not one of {', '.join(known)}")
    return str(value)


def _job_list(key: str, value: object, convert: Any) -> list[Any]:
    values = value if isinstance(value, list) else [value]
    if not values:
        raise JobError(f"{key} is empty")
    return [convert(key, item) for item in values]
