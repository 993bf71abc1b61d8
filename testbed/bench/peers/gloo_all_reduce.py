"""Peer: torch.distributed's all_reduce over gloo, float64.

    gloo_all_reduce.py RANKS '[[BYTES, TURNS], ...]'

Prints one JSON line per payload: {"bytes": B, "us": [...]}, what each turn took on rank 0 after three to warm up.
"""

import json
import sys
import tempfile
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

WARM_UP_TURNS = 3


def reduce_all(rank: int, ranks: int, meeting: str, plan: "list[list[int]]") -> None:
    """What every rank does."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=ranks)
    for size_bytes, turns in plan:
        array = torch.full((size_bytes // 8,), 1.0 / ranks, dtype=torch.float64)
        took_us = []
        for _ in range(WARM_UP_TURNS + turns):
            began_s = time.perf_counter()
            dist.all_reduce(array)
            took_us.append((time.perf_counter() - began_s) * 1e6)
        if rank == 0:
            sys.stdout.write(json.dumps({"bytes": size_bytes, "us": took_us[WARM_UP_TURNS:]}) + "\n")
            sys.stdout.flush()
        dist.barrier()
    dist.destroy_process_group()


def main() -> None:
    """Read the arguments and start the ranks."""
    ranks, plan = int(sys.argv[1]), json.loads(sys.argv[2])
    with tempfile.TemporaryDirectory() as folder:
        mp.spawn(reduce_all, (ranks, f"{folder}/meeting", plan), nprocs=ranks)


if __name__ == "__main__":
    main()
