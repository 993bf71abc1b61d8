"""Can this machine run Gradstorm, and if not, what to do about it.

Each check is a function that returns one `Finding`; `examine` runs them all. A missing tool that only one engine
needs is `absent`, not a failure.
"""

from __future__ import annotations

import os
import platform
import resource
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable

from testbed.doctor_containers import examine_containers
from testbed.doctor_finding import Finding
from testbed.environment import blas, installed
from testbed.run_folder import runs_home

_DISK_MIN_BYTES = 1 << 30
_MEMORY_MIN_BYTES = 1 << 30
_DESCRIPTORS_MIN = 512
_GIB = 1 << 30


def examine() -> list[Finding]:
    """Run every check. A check that cannot be made is a finding too, never an exception."""
    return [*(_made(check) for check in CHECKS), *examine_containers(os.environ)]


def _made(check: Callable[[], Finding]) -> Finding:
    try:
        return check()
    except (OSError, ImportError, ValueError, subprocess.SubprocessError) as error:
        name = check.__name__.strip("_").replace("_", " ")
        return Finding(name, "warning", f"could not be checked: {error}", "run `make setup` again if this stays")


def _python() -> Finding:
    return Finding("python", "ok", f"{platform.python_version()} at {sys.executable}")


def _system() -> Finding:
    value = platform.platform()
    if sys.platform not in ("linux", "darwin"):
        return Finding("system", "failure", value, "use Linux, macOS or WSL2")
    return Finding("system", "ok", value)


def _cores() -> Finding:
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else (os.cpu_count() or 1)
    if usable < 2:
        return Finding("cores", "warning", str(usable), "local runs of four workers want 2 cores or more")
    return Finding("cores", "ok", str(usable))


def _memory() -> Finding:
    import psutil

    available = psutil.virtual_memory().available
    value = f"{available / _GIB:.1f} GiB available"
    if available < _MEMORY_MIN_BYTES:
        return Finding("memory", "warning", value, "close something: a role takes about 100 MB")
    return Finding("memory", "ok", value)


def _disk() -> Finding:
    place = runs_home().absolute()
    while not place.exists():
        place = place.parent
    free = shutil.disk_usage(place).free
    value = f"{free / _GIB:.1f} GiB free at {place}"
    if not os.access(place, os.W_OK):
        return Finding("disk", "failure", f"{place} is not writable", "set GRADSTORM_HOME to a folder that is")
    if free < _DISK_MIN_BYTES:
        return Finding(
            "disk", "warning", value, "free some, or set GRADSTORM_HOME; `gradstorm runs prune` removes old runs"
        )
    return Finding("disk", "ok", value)


def _blas() -> Finding:
    libraries = blas()
    if not libraries:
        return Finding(
            "BLAS", "warning", "none that threadpoolctl knows", "results may differ in the last digit elsewhere"
        )
    parts = [
        f"{lib['internal_api']} {lib['version']}, kernel {lib['architecture']}, {lib['num_threads']} thread(s)"
        for lib in libraries
    ]
    many = any((library["num_threads"] or 1) > 1 for library in libraries)
    advice = "set OPENBLAS_NUM_THREADS=1 (roles do it unless your environment says otherwise)" if many else ""
    return Finding("BLAS", "warning" if many else "ok", "; ".join(parts), advice)


def _numerics() -> Finding:
    from training.numerics import fingerprint

    return Finding("numerics", "ok", fingerprint()[:16])


def _loopback() -> Finding:
    try:
        with socket.socket() as listener, socket.socket() as caller:
            listener.bind(("127.0.0.1", 0))
            listener.listen(1)
            caller.settimeout(2)
            caller.connect(listener.getsockname())
    except OSError as error:
        return Finding("ports", "failure", f"no connection on loopback: {error}", "allow TCP on 127.0.0.1")
    return Finding("ports", "ok", "loopback connects, ports are given by the system")


def _descriptors() -> Finding:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    value = f"{soft} open files (hard limit {hard})"
    if soft < _DESCRIPTORS_MIN:
        return Finding("file descriptors", "warning", value, f"ulimit -n {_DESCRIPTORS_MIN}")
    return Finding("file descriptors", "ok", value)


def _grpc() -> Finding:
    grpc, protobuf = installed("grpcio"), installed("protobuf")
    if not grpc or not protobuf:
        return Finding("gRPC", "failure", "not installed", "run `make setup`")
    import grpc as _  # noqa: F401 - that it loads is what is checked

    return Finding("gRPC", "ok", f"grpcio {grpc}, protobuf {protobuf}")


CHECKS: tuple[Callable[[], Finding], ...] = (
    _python, _system, _cores, _memory, _disk, _blas, _numerics, _loopback, _descriptors, _grpc,
)  # fmt: skip
