"""A corpus as one safetensors file, to be shipped in chunks and proved by its SHA-256."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import numpy.typing as npt
import safetensors.numpy as safetensors_numpy
from safetensors import SafetensorError

from training.errors import DataError
from training.tokens import Corpus


def corpus_to_bytes(corpus: Corpus) -> bytes:
    """The whole corpus; the same bytes for the same corpus."""
    header = {"name": corpus.name, "vocabulary_size": corpus.vocabulary_size, "symbols": list(corpus.symbols)}
    tensors: dict[str, npt.NDArray[Any]] = {
        "header": np.frombuffer(json.dumps(header, sort_keys=True).encode(), dtype=np.uint8),
        "train": np.asarray(corpus.train),
        "evaluation": np.asarray(corpus.evaluation),
    }
    return safetensors_numpy.save(tensors)


def corpus_from_bytes(content: bytes, expected_sha256: str) -> Corpus:
    """Inverse of `corpus_to_bytes`. Raises DataError unless the result has the expected digest."""
    try:
        tensors = safetensors_numpy.load(content)
        header = json.loads(tensors["header"].tobytes())
        corpus = Corpus(
            str(header["name"]), int(header["vocabulary_size"]), tensors["train"], tensors["evaluation"],
            tuple(str(symbol) for symbol in header["symbols"]),
        )  # fmt: skip
    except (SafetensorError, KeyError, ValueError, TypeError, AttributeError) as error:
        raise DataError(f"the received tokens are unreadable ({error}); fetch them again") from error
    if corpus.sha256 != expected_sha256:
        raise DataError(f"the received tokens have SHA-256 {corpus.sha256}, the run's are {expected_sha256}")
    return corpus
