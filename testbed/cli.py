"""The command line. One module per command in `testbed.commands`; this file joins them and turns errors into codes.

Results go to stdout, progress and errors to stderr. An error that a person can meet is one line and a code of
`testbed.exit_codes`; a traceback is our bug. BLAS threads are limited before numpy can load.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import traceback
from collections.abc import Sequence
from typing import Annotated, NoReturn

import typer
from typer.exceptions import TyperException

from testbed.environment import limit_blas_threads, version
from testbed.exit_codes import ExitCode

limit_blas_threads()  # the commands below load numpy when they run, not before

from testbed.commands import (  # noqa: E402
    baseline,
    bench,
    doctor,
    experiments,
    matrix,
    mutations,
    plan,
    report,
    roles,
    run,
    runs,
    scenarios,
    soak,
    standing,
    sweep,
    verify,
)

app = typer.Typer(
    name="gradstorm",
    help="Train on a real cluster, break it on purpose, and prove every step.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
run.add_to(app)
scenarios.add_to(app)
verify.add_to(app)
report.add_to(app)
runs.add_to(app)
doctor.add_to(app)
baseline.add_to(app)
experiments.add_to(app)
bench.add_to(app)
mutations.add_to(app)
matrix.add_to(app)
sweep.add_to(app)
soak.add_to(app)
plan.add_to(app)
roles.add_to(app)
standing.add_to(app)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"gradstorm {version()}")
        raise typer.Exit


@app.callback()
def _top(
    _version: Annotated[
        bool, typer.Option("--version", help="Print the version and end.", callback=_show_version, is_eager=True)
    ] = False,
) -> None:
    """Train on a real cluster, break it on purpose, and prove every step."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Entry point of the `gradstorm` command. SIGTERM and a closed terminal end a run as Ctrl-C does: in order."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.default_int_handler)
    try:
        code = run_command(sys.argv[1:] if arguments is None else list(arguments))
    except Exception:  # noqa: BLE001 - Python's own exit code for it, 1, means here that an invariant was violated
        traceback.print_exc()
        code = _complain("this is an error of Gradstorm's own; please report it with the lines above", ExitCode.CRASHED)
    if code == ExitCode.INTERRUPTED:
        _end_at_once(code)
    sys.exit(code)


def _end_at_once(code: int) -> NoReturn:
    """With this code. Under `python -m` Python ends by the signal, without one, where Ctrl-C came in an `exec`."""
    with contextlib.suppress(OSError):
        sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def run_command(arguments: Sequence[str]) -> int:
    """Run one command line; returns its exit code."""
    from training.errors import GradstormError

    try:
        return _invoked(list(arguments))
    except TyperException as error:
        message = _message_of(error)
        if not message:  # a bare command: its help has been printed
            return ExitCode.USAGE
        return _complain(f"{message} (see {_command_of(error)} --help)", ExitCode.USAGE)
    except GradstormError as error:
        return _complain(str(error), _code_of(error))
    except BrokenPipeError:
        _let_stdout_go()
        return ExitCode.PASS
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        return _complain(f"{where}{error.strerror or error}", ExitCode.ENVIRONMENT)
    except MemoryError as error:
        return _complain(f"not enough memory: {error or 'Python has none left'}", ExitCode.ENVIRONMENT)
    except (KeyboardInterrupt, typer.Abort):
        return _complain("interrupted; no process is left", ExitCode.INTERRUPTED)


def _invoked(arguments: list[str]) -> int:
    """Not by calling `app`, which makes codes of its own of an interruption and of a reader that is gone."""
    command = typer.main.get_command(app)
    try:
        with command.make_context("gradstorm", arguments) as context:
            return int(command.invoke(context) or 0)
    except typer.Exit as ended:
        return int(ended.exit_code)


def _code_of(error: Exception) -> ExitCode:
    from testbed.engines.base import EngineError

    return ExitCode.ENVIRONMENT if isinstance(error, EngineError) else ExitCode.USAGE


def _message_of(error: TyperException) -> str:
    formatted = getattr(error, "format_message", None)
    return str(formatted() if callable(formatted) else error).replace("\n", " ")


def _command_of(error: TyperException) -> str:
    return str(getattr(getattr(error, "ctx", None), "command_path", "gradstorm"))


def _complain(message: str, code: ExitCode) -> int:
    typer.echo(f"gradstorm: {message}", err=True)
    return int(code)


def _let_stdout_go() -> None:
    """Whoever read our output is gone (`gradstorm … | head`); keep Python from complaining when it flushes."""
    with contextlib.suppress(OSError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


if __name__ == "__main__":
    main()
