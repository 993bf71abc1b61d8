"""What a transformer reads: a text as whole numbers, or a seeded language, and the batches drawn from it.

Training batches come from ONE PCG64 generator, carried through as a value:

    state = batch_generator(seed)
    batch, state = draw_batch(corpus.train, batch_size, context, state)

Duty of the caller: keep the new state only once the step is committed, so that another attempt draws the same batch.
Pure: a text comes in as a string or bytes, whoever has files reads them.
"""

import codecs
import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, get_args

import numpy as np

from training.arrays import IntArray
from training.errors import ConfigurationError, ContractError, DataError
from training.generator import GeneratorState, generator_state, set_generator

Level = Literal["character", "byte"]

BYTE_VALUES = 256
_WIDE_MARKS = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE, codecs.BOM_UTF32_BE)  # that of UTF-32-LE begins as the first
_INSTEAD = "convert it to UTF-8, or read it at byte level"


@dataclass(frozen=True, eq=False)
class Corpus:
    """Tokens to train on and to evaluate on, int64 (n,) in 0 .. vocabulary_size-1, read-only.

    `symbols` spells token i, one text each; empty at byte level and for a synthetic language. Raises DataError when
    there is no token, or one outside of the vocabulary.
    """

    name: str
    vocabulary_size: int
    train: IntArray
    evaluation: IntArray
    symbols: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for part in ("train", "evaluation"):
            tokens = np.ascontiguousarray(getattr(self, part), dtype=np.int64).view()
            if tokens.ndim != 1 or tokens.size == 0:
                raise DataError(f"corpus {self.name} has no tokens for {part}; bring a longer text")
            if tokens.min() < 0 or tokens.max() >= self.vocabulary_size:
                raise DataError(f"corpus {self.name}: a token is outside of 0 .. {self.vocabulary_size - 1}")
            tokens.setflags(write=False)
            object.__setattr__(self, part, tokens)

    @cached_property
    def sha256(self) -> str:
        """SHA-256, hex, over a line of JSON with vocabulary, symbols and lengths, then the tokens as little-endian
        int64, first those to train on. The name is not part of it."""
        sizes = [self.vocabulary_size, list(self.symbols), len(self.train), len(self.evaluation)]
        digest = hashlib.sha256(b"gradstorm corpus 1\n" + json.dumps(sizes).encode() + b"\n")
        for tokens in (self.train, self.evaluation):
            digest.update(tokens.astype("<i8").data)
        return digest.hexdigest()


@dataclass(frozen=True, slots=True, eq=False)
class TokenBatch:
    """Contexts and what follows each of their tokens, int64 (b, t) each; starts int64 (b,), where they begin."""

    inputs: IntArray
    targets: IntArray
    starts: IntArray


def text_corpus(name: str, text: str | bytes, level: Level = "character", held_out: float = 0.0) -> Corpus:
    """A text as tokens. Characters are numbered in the order of their code points; bytes (UTF-8) are 0 .. 255.
    A byte order mark at its beginning is left out at character level, and taken as it is at byte level.

    held_out: share (0 .. 0.5) of the tokens, at the end, that is evaluated on and not trained on; 0 evaluates on all of
    the text, which is what a text too short to part with anything needs. Raises DataError for an empty text, one
    character only, or bytes that are no UTF-8 at character level; ConfigurationError for another level or share.
    """
    if level not in get_args(Level):
        raise ConfigurationError(f"text level is {level!r}; choose one of: {', '.join(get_args(Level))}")
    if not text:
        raise DataError(f"text {name} is empty; bring one that is longer than a context")
    if level == "byte":
        content = text.encode("utf-8", "surrogateescape") if isinstance(text, str) else text
        tokens = np.frombuffer(content, dtype=np.uint8).astype(np.int64)
        return _parted(name, BYTE_VALUES, tokens, (), held_out)
    characters = _characters(name, text)
    symbols = tuple(sorted(set(characters)))
    if len(symbols) < 2:
        raise DataError(f"text {name} has {len(symbols)} different characters; training needs at least 2")
    number = {symbol: index for index, symbol in enumerate(symbols)}
    tokens = np.fromiter((number[character] for character in characters), dtype=np.int64, count=len(characters))
    return _parted(name, len(symbols), tokens, symbols, held_out)


def require_context(corpus: Corpus, context: int) -> None:
    """Raise DataError unless both parts hold at least one context and the token that follows it."""
    for part, tokens in (("train", corpus.train), ("evaluation", corpus.evaluation)):
        if len(tokens) <= context:
            raise DataError(
                f"corpus {corpus.name} has {len(tokens)} tokens for {part}; a context of {context} needs at least"
                f" {context + 1}: bring a longer text, hold out another share, or choose a shorter context"
            )


def batch_generator(seed: int) -> GeneratorState:
    """Where the generator of the training batches starts. Raises ConfigurationError for a negative seed."""
    if seed < 0:
        raise ConfigurationError(f"the batches' seed is {seed}; it must be at least 0")
    return generator_state(np.random.Generator(np.random.PCG64(seed)))


def draw_batch(
    tokens: IntArray, batch_size: int, context: int, state: GeneratorState
) -> tuple[TokenBatch, GeneratorState]:
    """The next batch, and the state to draw the one after it from.

    The starts are `Generator.integers(0, n - context, size=batch_size)`, one call: any place where a context and the
    token behind it fit, with repetition. Raises ContractError when none does, DataError for a state that is none.
    """
    if batch_size < 1 or not 1 <= context < len(tokens):
        raise ContractError(
            f"cannot draw {batch_size} contexts of {context} out of {len(tokens)} tokens: needs at least 1 context, and"
            " at least one token more than it is long"
        )
    generator = np.random.Generator(np.random.PCG64(0))
    set_generator(generator, state)
    starts = generator.integers(0, len(tokens) - context, size=batch_size, dtype=np.int64)
    return windows(tokens, starts, context), generator_state(generator)


def windows(tokens: IntArray, starts: IntArray | Sequence[int], context: int) -> TokenBatch:
    """The contexts that begin at `starts`. Raises ContractError when one reaches beyond the tokens."""
    begin = np.asarray(starts, dtype=np.int64)
    if begin.size and (begin.min() < 0 or begin.max() + context >= len(tokens)):
        raise ContractError(f"a context of {context} tokens reaches beyond the {len(tokens)} tokens that there are")
    at = begin[:, None] + np.arange(context)
    return TokenBatch(tokens[at], tokens[at + 1], begin)


def evaluation_batch(tokens: IntArray, count: int, context: int) -> TokenBatch:
    """`count` contexts spread evenly: context i begins at i * (n - context) // count. Always the same ones.

    Raises ContractError as `draw_batch` does.
    """
    if count < 1 or not 1 <= context < len(tokens):
        raise ContractError(f"cannot evaluate {count} contexts of {context} out of {len(tokens)} tokens")
    places = len(tokens) - context
    return windows(tokens, [index * places // count for index in range(count)], context)


def _characters(name: str, text: str | bytes) -> str:
    """Without a byte order mark, which says how a file is written and is no character of its text."""
    if isinstance(text, bytes):
        text = _decoded(name, text)
    text = text.removeprefix("\ufeff")
    if "\0" in text:
        raise DataError(f"text {name} holds zero characters, as UTF-16 read as UTF-8 does; {_INSTEAD}")
    return text


def _decoded(name: str, content: bytes) -> str:
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        if content.startswith(_WIDE_MARKS):
            raise DataError(f"text {name} begins with the byte order mark of UTF-16 or UTF-32; {_INSTEAD}") from error
        raise DataError(f"text {name} is no UTF-8 at byte {error.start}; {_INSTEAD}") from error


def _parted(name: str, vocabulary_size: int, tokens: IntArray, symbols: tuple[str, ...], held_out: float) -> Corpus:
    """Train on the front, evaluate on the end; on everything when nothing is held out."""
    if not isinstance(held_out, int | float) or not 0.0 <= held_out <= 0.5:
        raise ConfigurationError(f"the held-out share is {held_out!r}; it must be in 0 .. 0.5")
    if held_out == 0.0:
        return Corpus(name, vocabulary_size, tokens, tokens, symbols)
    at = len(tokens) - max(1, round(held_out * len(tokens)))
    return Corpus(name, vocabulary_size, tokens[:at], tokens[at:], symbols)
