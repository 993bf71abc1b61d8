"""`python -m services.shell ROLE …`: one role in one process. Reads arguments and environment once, here.

BLAS is told to use one thread before numpy loads, unless the environment says otherwise: the number of threads can
change the last digit of a product.
"""

from __future__ import annotations

import os
import sys

for _name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "VECLIB_MAXIMUM_THREADS"):
    os.environ.setdefault(_name, "1")
os.environ.setdefault("GRPC_VERBOSITY", "ERROR")  # the shell logs broken links itself
if __name__ == "__main__":
    sys.modules["rich"] = None  # type: ignore[assignment] # structlog would load it: an eighth of a role's start

import argparse  # noqa: E402
import faulthandler  # noqa: E402

from services.shell.options import TOKEN_VARIABLE, ShellOptions, TransportOptions  # noqa: E402
from services.shell.run import run_role  # noqa: E402
from training.errors import ConfigurationError  # noqa: E402


def _pair(text: str) -> tuple[str, str]:
    role, separator, address = text.partition("=")
    if not separator:
        raise argparse.ArgumentTypeError(f"{text!r} is not ROLE=HOST:PORT")
    return role, address


def read_options(arguments: list[str], environment: dict[str, str]) -> ShellOptions:
    """Options from the command line; the token from the environment."""
    parser = argparse.ArgumentParser(prog="python -m services.shell", description="Run one role of a Gradstorm run.")
    parser.add_argument("role", help="coordinator, server, verifier or worker-N")
    parser.add_argument("--launch", type=int, default=1, help="counts the starts of this role (default: 1)")
    parser.add_argument("--run-id", required=True)
    parser.add_argument("--folder", required=True, help="root of the role's disk")
    parser.add_argument("--driver", default="", help="HOST:PORT of the run's driver")
    parser.add_argument("--peer", dest="peers", type=_pair, action="append", default=[], help="ROLE=HOST:PORT")
    parser.add_argument(
        "--via", type=_pair, action="append", default=[], help="ROLE=HOST:PORT at which to dial it, wherever it listens"
    )
    parser.add_argument("--listen", default="127.0.0.1:0", help="HOST:PORT (default: a free port on loopback)")
    parser.add_argument("--advertise", default="", help="HOST:PORT at which others reach this role")
    parser.add_argument("--factory", default=ShellOptions.__dataclass_fields__["factory"].default)
    parser.add_argument("--settings", dest="settings_json", default="{}", help="JSON for the factory")
    parser.add_argument("--observe", action="store_true", help="tell the driver of every fact")
    parser.add_argument("--no-evidence", dest="evidence", action="store_false", help="the run has no verifier")
    parser.add_argument("--measure-links", action="store_true", help="tell the driver what comes in over each link")
    given = vars(parser.parse_args(arguments))
    transport = TransportOptions(measured=given.pop("measure_links"))
    return ShellOptions(
        transport=transport,
        token=environment.get(TOKEN_VARIABLE, ""),
        **{**given, "peers": tuple(given["peers"]), "via": tuple(given["via"])},
    )


def main() -> int:
    """Returns the exit code."""
    faulthandler.enable()
    try:
        return run_role(read_options(sys.argv[1:], dict(os.environ)))
    except ConfigurationError as error:
        sys.stderr.write(f"{error}\n")
        return 2


if __name__ == "__main__":
    sys.exit(main())
