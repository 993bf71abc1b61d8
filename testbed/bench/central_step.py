"""The peer of a pipelined step: the same model, batch and micro-batches trained in one process.

    python -m testbed.bench.central_step SCENARIO.yaml STEPS [one-core]

A process of its own, so that BLAS has the threads that its environment says. Prints one JSON line: microseconds of each
step, by the clock or (one-core) of the processor, and the elements of the model.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

from chaos.scenario import parse_scenario
from chaos.shard_setup import ShardTrainingSetup
from training.baseline import BaselineConfig, baseline_steps
from training.corpora import load_corpus


def main(path: str, steps: int, one_core: bool) -> None:
    """Train, and print how long each step took."""
    setup = parse_scenario(Path(path).read_text(), path).training
    assert isinstance(setup, ShardTrainingSetup)
    corpus = load_corpus(setup.tokens.spec())
    config = BaselineConfig(
        setup.model.config(corpus.vocabulary_size), setup.optimizer.config(), setup.seed, steps, setup.batch,
        setup.micro_batches, evaluate_every=steps + 1, evaluation_contexts=1,
    )  # fmt: skip
    clock = time.process_time if one_core else time.perf_counter
    took_us, before_s, elements = [], 0.0, 0
    for done in baseline_steps(config, corpus):
        now_s = clock()
        if 0 < done.step < steps:  # the last one is evaluated
            took_us.append(1e6 * (now_s - before_s))
        before_s, elements = clock(), len(done.parameters)
    print(json.dumps({"us": took_us, "elements": elements}))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), sys.argv[3:] == ["one-core"])
