"""The committed files of the baseline, bytes in and bytes out: configuration, frozen evaluation artifact, loss curves.

    baseline_config.json    what decides the run, the corpus it reads, and the SHA-256 of corpus and artifact
    evaluation_batch.json   the evaluation contexts, token by token, under their own SHA-256
    baseline_curve.csv      step, loss of the batch, evaluation loss; as many digits as bring the same float64 back

Duty of the caller: read and write the files. A changed artifact is refused by its digest, here.
"""

import csv
import hashlib
import io
import json
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from training.adamw import AdamWConfig
from training.arrays import IntArray
from training.baseline import BaselineConfig, BaselineResult
from training.config import OptimizerConfig
from training.corpora import CorpusSpec
from training.errors import DataError
from training.tokens import Corpus, TokenBatch, evaluation_batch
from training.transformer.config import TransformerConfig

CONFIG_FILE = "baseline_config.json"
EVALUATION_FILE = "evaluation_batch.json"
CURVE_FILE = "baseline_curve.csv"
FORMAT = 1

_OPTIMIZERS = {"sgd": OptimizerConfig, "adamw": AdamWConfig}


@dataclass(frozen=True, slots=True)
class CommittedBaseline:
    """What `baseline_config.json` says."""

    config: BaselineConfig
    corpus: CorpusSpec
    corpus_sha256: str
    evaluation_sha256: str


def baseline_files(
    config: BaselineConfig, spec: CorpusSpec, corpus: Corpus, result: BaselineResult
) -> dict[str, bytes]:
    """File name -> content. The same run gives the same bytes."""
    batch = evaluation_batch(corpus.evaluation, config.evaluation_contexts, config.model.context)
    return {
        CONFIG_FILE: config_bytes(config, spec, corpus.sha256, evaluation_digest(batch)),
        EVALUATION_FILE: evaluation_bytes(batch, corpus),
        CURVE_FILE: curve_bytes(result),
    }


def config_bytes(config: BaselineConfig, spec: CorpusSpec, corpus_sha256: str, evaluation_sha256: str) -> bytes:
    """`baseline_config.json`."""
    kind = "sgd" if isinstance(config.optimizer, OptimizerConfig) else "adamw"
    settings = asdict(config)
    settings["optimizer"] = {"kind": kind, **settings["optimizer"]}
    corpus = {**spec.to_json(), "sha256": corpus_sha256}
    return _json({"format": FORMAT, **settings, "corpus": corpus, "evaluation_sha256": evaluation_sha256})


def read_config(content: bytes) -> CommittedBaseline:
    """Inverse of `config_bytes`. Raises DataError, or ConfigurationError for a setting that cannot be."""
    body = _body(CONFIG_FILE, content)
    try:
        corpus, optimizer = dict(body.pop("corpus")), dict(body.pop("optimizer"))
        corpus_sha256, evaluation_sha256 = str(corpus.pop("sha256")), str(body.pop("evaluation_sha256"))
        settings = _OPTIMIZERS[optimizer.pop("kind")](**optimizer)
        model = TransformerConfig(**body.pop("model"))
        config = BaselineConfig(model=model, optimizer=settings, **body)
        return CommittedBaseline(config, CorpusSpec(**corpus), corpus_sha256, evaluation_sha256)
    except (KeyError, TypeError, ValueError) as error:
        raise DataError(f"{CONFIG_FILE} does not hold a baseline's configuration ({error!r}); restore it") from error


def evaluation_digest(batch: TokenBatch) -> str:
    """SHA-256, hex, over the line `gradstorm evaluation 1 B T` and the (b, t + 1) tokens, context by context, as
    little-endian int64."""
    tokens = _whole_contexts(batch)
    digest = hashlib.sha256(f"gradstorm evaluation 1 {tokens.shape[0]} {tokens.shape[1] - 1}\n".encode())
    digest.update(np.ascontiguousarray(tokens, dtype="<i8").reshape(-1).data)
    return digest.hexdigest()


def evaluation_bytes(batch: TokenBatch, corpus: Corpus) -> bytes:
    """`evaluation_batch.json`: one row of t + 1 tokens per context; the symbols are for a reader's eyes."""
    rows = ",\n  ".join(json.dumps(row, separators=(",", ":")) for row in _whole_contexts(batch).tolist())
    head = {"format": FORMAT, "sha256": evaluation_digest(batch), "symbols": "".join(corpus.symbols)}
    text = json.dumps(head, indent=1)[:-2] + f',\n "starts": {batch.starts.tolist()},\n "tokens": [\n  {rows}\n ]\n}}\n'
    return text.encode()


def read_evaluation(content: bytes, expected_sha256: str) -> TokenBatch:
    """The frozen batch. Raises DataError unless its tokens have the digest that it claims and the expected one."""
    body = _body(EVALUATION_FILE, content)
    try:
        tokens = np.array(body["tokens"], dtype=np.int64)
        batch = TokenBatch(tokens[:, :-1].copy(), tokens[:, 1:].copy(), np.array(body["starts"], dtype=np.int64))
        digest, claimed = evaluation_digest(batch), body["sha256"]
    except (KeyError, TypeError, ValueError, IndexError) as error:
        raise DataError(f"{EVALUATION_FILE} does not hold an evaluation batch ({error!r}); restore it") from error
    if digest != claimed or digest != expected_sha256:
        raise DataError(
            f"{EVALUATION_FILE} was changed: its tokens have SHA-256 {digest}, the file claims {claimed}, the baseline"
            f" was measured with {expected_sha256}; restore it, or measure a new baseline"
        )
    return batch


def curve_bytes(result: BaselineResult) -> bytes:
    """`baseline_curve.csv`; an empty field where nothing was measured."""
    losses, evaluations = dict(result.loss_curve), dict(result.evaluation_curve)
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(("step", "loss", "evaluation_loss"))
    for step in sorted(losses | evaluations):
        writer.writerow((step, repr(losses[step]) if step in losses else "", _field(evaluations.get(step))))
    return text.getvalue().encode()


def read_curve(content: bytes) -> tuple[dict[int, float], dict[int, float]]:
    """Inverse of `curve_bytes`: loss by step, evaluation loss by step. Raises DataError."""
    losses: dict[int, float] = {}
    evaluations: dict[int, float] = {}
    try:
        for row in csv.DictReader(io.StringIO(content.decode())):
            for column, target in (("loss", losses), ("evaluation_loss", evaluations)):
                if row[column]:
                    target[int(row["step"])] = float(row[column])
    except (KeyError, TypeError, ValueError) as error:
        raise DataError(f"{CURVE_FILE} is no loss curve ({error!r}); restore it") from error
    return losses, evaluations


def _whole_contexts(batch: TokenBatch) -> IntArray:
    """(b, t + 1): a context and the token behind it."""
    return np.concatenate([batch.inputs, batch.targets[:, -1:]], axis=1)


def _field(value: float | None) -> str:
    return "" if value is None else repr(value)


def _json(body: dict[str, Any]) -> bytes:
    return json.dumps(body, indent=1).encode() + b"\n"


def _body(name: str, content: bytes) -> dict[str, Any]:
    try:
        body = dict(json.loads(content))
        form = body.pop("format")
    except (ValueError, TypeError, KeyError) as error:
        raise DataError(f"{name} is unreadable ({error!r}); restore it") from error
    if form != FORMAT:
        raise DataError(f"{name} has format {form!r}, this version reads format {FORMAT}")
    return body
