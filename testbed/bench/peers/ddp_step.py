"""Peer: DistributedDataParallel over gloo, whole steps of softmax regression with momentum, float64.

    ddp_step.py RANKS BATCH '[[FEATURES, CLASSES, STEPS], ...]'

Prints one JSON line per model: {"features": F, "classes": C, "us": [...]}, what each step took on rank 0 after ten to
warm up. A step draws its batch from data at hand, as ours does.
"""

import json
import sys
import tempfile
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

WARM_UP_STEPS = 10
BATCHES_AT_HAND = 4


def train(rank: int, ranks: int, meeting: str, batch: int, plan: "list[list[int]]") -> None:
    """What every rank does."""
    torch.set_num_threads(1)
    torch.manual_seed(rank)
    dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=ranks)
    for feature_count, class_count, steps in plan:
        model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(feature_count, class_count).double())
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        loss_of = torch.nn.CrossEntropyLoss()
        features = torch.randn(BATCHES_AT_HAND * batch, feature_count, dtype=torch.float64)
        labels = torch.randint(class_count, (BATCHES_AT_HAND * batch,))
        took_us = []
        for step in range(WARM_UP_STEPS + steps):
            began_s = time.perf_counter()
            rows = torch.arange(step * batch, (step + 1) * batch) % len(labels)
            optimizer.zero_grad()
            loss_of(model(features[rows]), labels[rows]).backward()
            optimizer.step()
            took_us.append((time.perf_counter() - began_s) * 1e6)
        if rank == 0:
            line = {"features": feature_count, "classes": class_count, "us": took_us[WARM_UP_STEPS:]}
            sys.stdout.write(json.dumps(line) + "\n")
            sys.stdout.flush()
        dist.barrier()
    dist.destroy_process_group()


def main() -> None:
    """Read the arguments and start the ranks."""
    ranks, batch, plan = int(sys.argv[1]), int(sys.argv[2]), json.loads(sys.argv[3])
    with tempfile.TemporaryDirectory() as folder:
        mp.spawn(train, (ranks, f"{folder}/meeting", batch, plan), nprocs=ranks)


if __name__ == "__main__":
    main()
