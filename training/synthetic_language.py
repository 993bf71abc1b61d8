"""A seeded language to train on where no text is at hand: words out of a small lexicon, each word hinting at the next.

Token 0 stands between words, tokens 1 .. v-1 are letters. The seed draws a lexicon of words of 2 to 5 letters and, for
each word, three that may follow it, taken with probability 0.6, 0.3 and 0.1. So there is something to learn at every
range: which letters exist, how a word goes on, which word comes next.
"""

import numpy as np

from training.arrays import IntArray
from training.errors import ConfigurationError
from training.tokens import Corpus

_SHORTEST, _LONGEST = 2, 5  # letters of a word
_FOLLOW = (0.6, 0.9, 1.0)  # cumulative


def synthetic_corpus(
    seed: int, vocabulary_size: int = 27, train_tokens: int = 8192, evaluation_tokens: int = 2048, words: int = 32
) -> Corpus:
    """A corpus in one language, training and evaluation text being told apart by what the speaker draws.

    One PCG64 generator draws, in this order: the words' lengths, their letters, their followers, then the text: the
    first word, and one number in [0, 1) per following word. Raises ConfigurationError for a negative seed, or a count
    that is too small (vocabulary: 3, words: 2, tokens: 1).
    """
    least = {"seed": (seed, 0), "vocabulary_size": (vocabulary_size, 3), "words": (words, 2)}
    least |= {"train_tokens": (train_tokens, 1), "evaluation_tokens": (evaluation_tokens, 1)}
    for name, (value, minimum) in least.items():
        if not isinstance(value, int) or isinstance(value, bool) or value < minimum:
            raise ConfigurationError(
                f"synthetic language: {name} is {value!r}; it must be a whole number of at least {minimum}"
            )
    generator = np.random.Generator(np.random.PCG64(seed))
    lengths = generator.integers(_SHORTEST, _LONGEST + 1, size=words)
    letters = generator.integers(1, vocabulary_size, size=(words, _LONGEST))
    followers = generator.integers(0, words, size=(words, len(_FOLLOW)))
    lexicon = [letters[word, :length].tolist() for word, length in enumerate(lengths.tolist())]
    text = _speak(generator, lexicon, followers, train_tokens + evaluation_tokens)
    return Corpus(f"synthetic-{seed}", vocabulary_size, text[:train_tokens], text[train_tokens:])


def _speak(generator: np.random.Generator, lexicon: list[list[int]], followers: IntArray, count: int) -> IntArray:
    """The first `count` tokens of a text. A word and its gap take at least 3 tokens, which bounds the words."""
    word = int(generator.integers(0, len(lexicon)))
    draws = generator.random(count // (_SHORTEST + 1) + 1)
    choices = np.searchsorted(_FOLLOW, draws, side="right").tolist()
    text: list[int] = []
    for choice in choices:
        text += [*lexicon[word], 0]
        word = int(followers[word, choice])
    return np.array(text[:count], dtype=np.int64)
