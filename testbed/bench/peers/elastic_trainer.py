"""What torchelastic runs on every rank for `elastic_recovery.py`: steps without end, each told through a FIFO."""

import os
import time

import torch
import torch.distributed as dist


def main() -> None:
    """Train, and write "restart rank pid time" after every step."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(8, 4).double())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    loss_of = torch.nn.CrossEntropyLoss()
    who = f"{os.environ['TORCHELASTIC_RESTART_COUNT']} {dist.get_rank()} {os.getpid()}"
    fifo = os.open(os.environ["GRADSTORM_STEPS_FIFO"], os.O_WRONLY)
    while True:
        optimizer.zero_grad()
        loss_of(model(torch.randn(32, 8, dtype=torch.float64)), torch.randint(4, (32,))).backward()
        optimizer.step()
        os.write(fifo, f"{who} {time.monotonic()}\n".encode())


if __name__ == "__main__":
    main()
