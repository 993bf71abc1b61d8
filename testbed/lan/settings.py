"""What a person says about the hosts of a run: `--attach FILE|addresses`, `--at`, `--run-id`, and the run's token."""

from __future__ import annotations

import os
import re
from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path

from chaos.fault_kinds.base import is_member
from testbed.places import read_file
from training.errors import ConfigurationError

_ADDRESS = re.compile(r"(\[[0-9A-Fa-f:]+\]|[A-Za-z0-9_.-]+):([0-9]{1,5})")


def is_address(text: str, least_port: int = 1) -> bool:
    """Whether this is HOST:PORT; an IPv6 host stands in brackets."""
    found = _ADDRESS.fullmatch(text)
    return found is not None and least_port <= int(found[2]) <= 65535


@dataclass(frozen=True, slots=True)
class LanSettings:
    """Where the hosts of a run listen. `attach` has (role, address); a role is "" when the host itself must say it.

    `at` is the address of this machine at which the hosts reach the roles that live here; "" for the one that the way
    to the first host starts from. `run_id` is "" for a new one.
    """

    attach: tuple[tuple[str, str], ...]
    token: str = field(repr=False)
    at: str = ""
    run_id: str = ""

    def require(self, cast: Collection[str]) -> None:
        """Raise ConfigurationError unless every member has an address, and every address somebody of the run."""
        wanted, may = [role for role in cast if is_member(role)], set(cast)
        named = [role for role, _ in self.attach if role]
        strangers = sorted(set(named) - may)
        if strangers:
            raise ConfigurationError(f"--attach names {', '.join(strangers)}; this run has {', '.join(sorted(may))}")
        missing = [role for role in wanted if role not in named]
        unnamed = len(self.attach) - len(named)
        if len(missing) > unnamed:
            raise ConfigurationError(f"--attach has no address for {', '.join(missing[unnamed:])}")


def read_settings(attach: str, token: str, at: str = "", run_id: str = "") -> LanSettings:
    """From the command line. `attach` is a file (one entry a line, # starts a comment) or entries with commas.

    An entry is ROLE=HOST:PORT, or HOST:PORT alone. Raises ConfigurationError.
    """
    if not token:
        raise ConfigurationError("engine lan needs the token that the hosts were started with: set GRADSTORM_TOKEN")
    entries = tuple(_entry(text) for text in _texts(attach))
    if not entries:
        raise ConfigurationError(f"--attach {attach!r} names no address")
    _refuse_twice("address", [address for _, address in entries])
    _refuse_twice("role", [role for role, _ in entries if role])
    if run_id and not re.fullmatch(r"[A-Za-z0-9_.-]+", run_id):
        raise ConfigurationError(f"--run-id {run_id!r}: use letters, digits, and . _ -")
    return LanSettings(entries, token, at, run_id)


def _texts(attach: str) -> list[str]:
    path = Path(attach)
    if ("=" not in attach and ":" not in attach) or os.path.isfile(path):
        try:
            lines = read_file(path, "--attach").decode("utf-8-sig").splitlines()
        except UnicodeDecodeError as error:
            raise ConfigurationError(f"cannot read --attach {attach}: {error}") from error
        return [text for line in lines if (text := line.partition("#")[0].strip())]
    return [text for part in attach.split(",") if (text := part.strip())]


def _entry(text: str) -> tuple[str, str]:
    role, separator, address = text.rpartition("=")
    if not is_address(address.strip()) or (separator and not role.strip()):
        raise ConfigurationError(f"--attach: {text!r} is neither ROLE=HOST:PORT nor HOST:PORT")
    return role.strip(), address.strip()


def _refuse_twice(what: str, given: list[str]) -> None:
    twice = sorted({one for one in given if given.count(one) > 1})
    if twice:
        raise ConfigurationError(f"--attach gives {what} {', '.join(twice)} twice")
