"""`gradstorm worker|coordinator|server|verifier`: one role in this process, as the engines start them."""

from __future__ import annotations

import sys

import typer

_ROLES = ("worker", "coordinator", "server", "verifier")
_FORWARD = {"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []}


def add_to(app: typer.Typer) -> None:
    """Register one command per role; engines use them, people rarely do, so that `--help` leaves them out."""
    for role in _ROLES:
        app.command(role, hidden=True, context_settings=_FORWARD)(_start)


def _start(context: typer.Context) -> None:
    """Run one role until it is over; the arguments are those of `python -m services.shell`."""
    from services.shell.__main__ import main

    role = context.info_name or ""
    arguments = list(context.args)
    if role == "worker":
        number, arguments = (arguments[0], arguments[1:]) if arguments and arguments[0].isdigit() else ("1", arguments)
        role = f"worker-{number}"
    sys.argv = ["gradstorm", role, *arguments]
    raise typer.Exit(main())
