"""Which tokens a run of layer-sharded training reads, as a small value that a configuration file can hold."""

from dataclasses import asdict, dataclass
from typing import Any, Literal, get_args

from training.errors import ConfigurationError
from training.sample_text import SAMPLE_TEXT
from training.synthetic_language import synthetic_corpus
from training.tokens import Corpus, Level, text_corpus

CorpusKind = Literal["sample", "synthetic", "text"]


@dataclass(frozen=True, slots=True)
class CorpusSpec:
    """kind sample: `training.sample_text`. synthetic: a language made by `seed`, with `vocabulary_size` tokens.
    text: the user's own, which `load_corpus` is handed.

    `level` and `held_out` (see `training.tokens.text_corpus`) shape a text and mean nothing to a synthetic language,
    which has an evaluation text of its own. Raises ConfigurationError; sizes are checked by `load_corpus`.
    """

    kind: CorpusKind = "sample"
    level: Level = "character"
    held_out: float = 0.0
    seed: int = 0
    vocabulary_size: int = 27

    def __post_init__(self) -> None:
        for name, value, choices in (("kind", self.kind, CorpusKind), ("level", self.level, Level)):
            if value not in get_args(choices):
                raise ConfigurationError(f"corpus.{name} is {value!r}; choose one of: {', '.join(get_args(choices))}")

    def to_json(self) -> dict[str, Any]:
        """A dict that `json.dumps` takes; `CorpusSpec(**that)` is the inverse."""
        return asdict(self)


def load_corpus(spec: CorpusSpec, name: str = "", text: str | bytes = "") -> Corpus:
    """The tokens; `name` and `text` (its whole content) go with kind text only. Raises as `text_corpus` and
    `synthetic_corpus` do, ConfigurationError for a text where none belongs."""
    if spec.kind != "text" and text:
        raise ConfigurationError(f"text {name} is given, but corpus.kind is {spec.kind}; choose kind text")
    if spec.kind == "text":
        return text_corpus(name, text, spec.level, spec.held_out)
    if spec.kind == "sample":
        return text_corpus("sample", SAMPLE_TEXT, spec.level, spec.held_out)
    return synthetic_corpus(spec.seed, spec.vocabulary_size)
