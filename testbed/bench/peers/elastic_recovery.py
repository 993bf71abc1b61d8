"""Peer: torchelastic. SIGKILLs the last rank and waits for the first step of the group that comes after.

    elastic_recovery.py RANKS

Prints one JSON line: {"ms": from the SIGKILL to the end of that step}. Times are CLOCK_MONOTONIC, one for all
processes of the machine.
"""

import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

STEPS_BEFORE = 50
WAIT_S = 60.0
TRAINER = str(Path(__file__).with_name("elastic_trainer.py"))


def steps_told(fifo: int) -> Iterator[tuple[int, int, int, float]]:
    """(restart, rank, pid, time in s) of every step as it is told. Ends when nothing comes for a long time."""
    text = ""
    while select.select([fifo], [], [], WAIT_S)[0]:
        *lines, text = (text + os.read(fifo, 65536).decode()).split("\n")
        for line in lines:
            restart, rank, pid, at_s = line.split()
            yield int(restart), int(rank), int(pid), float(at_s)


def measure(fifo: int, ranks: int) -> float:
    """Milliseconds from the SIGKILL to the next group's first step."""
    killed_s = 0.0
    for seen, (restart, rank, pid, at_s) in enumerate(steps_told(fifo), start=1):
        if killed_s and restart > 0:
            return (at_s - killed_s) * 1e3
        if not killed_s and seen >= STEPS_BEFORE and rank == ranks - 1:
            killed_s = time.monotonic()
            os.kill(pid, signal.SIGKILL)
    raise TimeoutError(f"no step for {WAIT_S:g} s")


def main() -> None:
    """Start torchelastic, measure, end it."""
    ranks = int(sys.argv[1])
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/steps"
        os.mkfifo(path)
        fifo = os.open(path, os.O_RDWR)
        command = [
            sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc_per_node={ranks}",
            "--max_restarts=3", "--monitor_interval=0.1", "--redirects=1", "--tee=1", f"--log_dir={folder}", TRAINER,
        ]  # fmt: skip
        environment = {**os.environ, "GRADSTORM_STEPS_FIFO": path}
        run = subprocess.Popen(
            command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            start_new_session=True,
        )  # fmt: skip
        try:
            sys.stdout.write(json.dumps({"ms": measure(fifo, ranks)}) + "\n")
        finally:
            os.killpg(run.pid, signal.SIGTERM)
            try:
                run.wait(10)
            except subprocess.TimeoutExpired:
                os.killpg(run.pid, signal.SIGKILL)
                run.wait()


if __name__ == "__main__":
    main()
