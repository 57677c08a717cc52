"""The command line: ``feinsum COMMAND``, or ``python -m feinsum COMMAND``.

A command is a few lines around the public function of its name; heavy modules are imported when a command needs them.
"""

from __future__ import annotations

import errno
import logging
import os
import sys
from collections.abc import Sequence
from typing import NoReturn

import click

from feinsum._version import __version__
from feinsum.cli.kernel_commands import bench, explain, generate
from feinsum.cli.languages import check, format_text, plan, run
from feinsum.cli.listing import devices, spaces
from feinsum.cli.output import StandardErrorHandler, printable, say, show_log
from feinsum.cli.record_commands import db
from feinsum.cli.tuning_commands import query, tune
from feinsum.errors import (
    DatabaseError,
    DeviceError,
    FeinsumError,
    LanguageError,
    UnknownDeviceError,
    UnknownStoreError,
    ValidationError,
)

FAILED, MISTAKE, INTERRUPTED = 1, 2, 130
"""Exit codes besides 0; 130 is what shells give a program that Ctrl-C ended."""


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="feinsum")
@click.option("-v", "--verbose", is_flag=True, help="Report each action, with its time, on the standard error.")
def cli(verbose: bool) -> None:
    """Batched Einstein summations as fast kernels on any OpenCL device.

    \b
    An einsum is written as for numpy, with its operands beside it:
      "ij,jk->ik" --size i=1024,j=1024,k=1024          lengths of indices; operands are A, B, ...
      "ij,ej->ei" --size i=35,j=35,e=100000 --long e   e varies from call to call, 100000 is expected
      "ij,ej->ei" --shape D=35,35 --shape u=E,35       named operands; E is a long axis
      "ij,ej->ei" --row D,u --row D,v --size ...       two outputs, which share D

    \b
    Example:
      feinsum tune "ij,jk->ik" --size i=1024,j=1024,k=1024 --timeout 30

    \b
    Exit codes:
      0    done
      1    nothing found, or what was tried failed: no device, a full disk, a dead server
      2    a mistake in the request; one line on the standard error says which
      130  interrupted by Ctrl-C

    Colours and rules are for terminals only, and NO_COLOR turns colours off.
    """
    logging.basicConfig(level=logging.WARNING, format="%(message)s", handlers=[StandardErrorHandler()])
    if verbose:
        show_log("feinsum")
    if "FEINSUM_HEAT" in os.environ:  # Python hides the DeprecationWarning of a library
        say("FEINSUM_HEAT is deprecated, and release 0.4 ignores it; set FEINSUM_SELECT", err=True)


for command in (devices, spaces, explain, generate, tune, query, bench, db, check, format_text, plan, run):
    cli.add_command(command)


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run a command and exit; errors are told in one line."""
    try:
        code = cli.main(args=arguments, prog_name="feinsum", standalone_mode=False, color=_colour())
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message(), err=True)
        code = MISTAKE
    except click.UsageError as error:
        path = error.ctx.command_path if error.ctx else "feinsum"
        code = _complain(f"{path}: {_usage_advice(error)}  (see {path} --help)", MISTAKE)
    except click.ClickException as error:
        code = _complain(f"feinsum: {error.format_message()}", MISTAKE)
    except LanguageError as error:
        click.echo(str(error), err=True, color=_colour())
        code = FAILED
    except FeinsumError as error:
        code = _complain(f"feinsum: {error}", _code_of(error))
    except MemoryError as error:
        code = _complain(f"feinsum: there is not enough memory for these lengths: {error}", FAILED)
    except OSError as error:
        place = "" if error.filename is None else f" {error.filename}"
        code = _complain(f"feinsum: cannot read or write{place}: {error.strerror or error}", _code_of(error))
        _drop_output()
    except click.Abort:
        code = _complain("feinsum: interrupted", INTERRUPTED)
    sys.exit(code if isinstance(code, int) else 0)


def _code_of(error: FeinsumError | OSError) -> int:
    """Whether a request was mistaken, or what it asked for failed: a full disk and a dead server are no slip of a pen."""
    if isinstance(error, (UnknownDeviceError, UnknownStoreError)):
        return MISTAKE
    if isinstance(error, DeviceError):
        return FAILED
    system = error if isinstance(error, OSError) else error.__cause__ or error.__context__
    if isinstance(system, OSError):
        return MISTAKE if system.errno in _OF_A_PLACE else FAILED
    return FAILED if isinstance(error, (DatabaseError, ValidationError)) else MISTAKE


_OF_A_PLACE = {errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.EACCES, errno.EPERM, errno.EEXIST, errno.ENAMETOOLONG}
"""Errors of the system for which another name of a file is the remedy."""


def _drop_output() -> None:
    """Give up what was not written, if it cannot be; Python would try once more as it ends, and complain."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _usage_advice(error: click.UsageError) -> str:
    """Click's message, with advice on common mistakes: ``--size i=4 j=5``, ``tune -v``."""
    message = error.format_message().rstrip(".")
    if isinstance(error, click.NoSuchOption) and error.option_name in ("-v", "--verbose"):
        return f"{message}; it stands before the command, as in feinsum -v tune"
    extra = message.startswith("Got unexpected extra argument") and "=" in message
    return f"{message}; several lengths are joined by commas, as in --size i=4,j=5" if extra else message


def _complain(message: str, code: int) -> int:
    click.echo(click.style(printable(" ".join(message.split())), fg="red"), err=True, color=_colour())
    return code


def _colour() -> bool | None:
    """Never, if NO_COLOR is set (https://no-color.org); or else on terminals."""
    return False if os.environ.get("NO_COLOR") else None
