"""The sizes of a transformer, refused at construction when they cannot be."""

from dataclasses import asdict, dataclass

from training.errors import ConfigurationError


@dataclass(frozen=True, slots=True)
class TransformerConfig:
    """Sizes (counts, no units); `context` is the most tokens that a context may have.

    The defaults are those of the layer-sharded prototype. Raises ConfigurationError for a size below 1 (vocabulary:
    below 2), or a width that the heads do not divide.
    """

    vocabulary_size: int
    block_count: int = 6
    width: int = 32
    head_count: int = 4
    mlp_width: int = 64
    context: int = 64

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            minimum = 2 if name == "vocabulary_size" else 1
            if not isinstance(value, int) or isinstance(value, bool) or value < minimum:
                raise ConfigurationError(
                    f"transformer.{name} is {value!r}; it must be a whole number of at least {minimum}"
                )
        if self.width % self.head_count:
            raise ConfigurationError(
                f"transformer.width is {self.width}, which {self.head_count} heads do not divide;"
                " choose a multiple of transformer.head_count"
            )
