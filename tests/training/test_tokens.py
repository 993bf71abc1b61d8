"""Texts and a synthetic language as tokens; batches from one carried generator; the fixed evaluation batch."""

from __future__ import annotations

import codecs
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from training.corpora import CorpusSpec, load_corpus
from training.errors import ConfigurationError, ContractError, DataError
from training.sample_text import SAMPLE_TEXT
from training.synthetic_language import synthetic_corpus
from training.tokens import (
    Corpus,
    batch_generator,
    draw_batch,
    evaluation_batch,
    require_context,
    text_corpus,
    windows,
)


def test_characters_by_hand() -> None:
    corpus = text_corpus("abba", "abba é")
    assert corpus.symbols == (" ", "a", "b", "é")
    assert corpus.train.tolist() == [1, 2, 2, 1, 0, 3]
    assert corpus.evaluation.tolist() == corpus.train.tolist()
    assert corpus.vocabulary_size == 4
    assert text_corpus("abba", "abba é".encode()).sha256 == corpus.sha256


def test_bytes_by_hand() -> None:
    corpus = text_corpus("é", "é!", "byte")
    assert corpus.train.tolist() == [0xC3, 0xA9, 0x21]
    assert corpus.vocabulary_size == 256
    assert text_corpus("x", b"\xff\x00", "byte").train.tolist() == [255, 0]


@given(
    st.text(st.characters(codec="utf-8", exclude_characters="\0\ufeff"), min_size=2).filter(
        lambda text: len(set(text)) > 1
    )
)
def test_a_text_can_be_read_back(text: str) -> None:
    corpus = text_corpus("any", text)
    assert "".join(corpus.symbols[token] for token in corpus.train) == text


def test_held_out_tokens_are_not_trained_on() -> None:
    corpus = text_corpus("ten", "abcdefghij", held_out=0.2)
    assert corpus.train.tolist() == list(range(8))
    assert corpus.evaluation.tolist() == [8, 9]
    assert len(text_corpus("two", "ab", held_out=0.01).evaluation) == 1


@pytest.mark.parametrize("marked", ["\ufeffto be or not", "\ufeffto be or not".encode()])
def test_a_byte_order_mark_is_no_character(marked: str | bytes) -> None:
    plain = text_corpus("plain", "to be or not")
    assert text_corpus("marked", marked).sha256 == plain.sha256
    assert "\ufeff" in text_corpus("within", "to be\ufeff or not").symbols
    assert text_corpus("marked", marked, "byte").train[:3].tolist() == [0xEF, 0xBB, 0xBF]


@pytest.mark.parametrize("encoding", ["utf-16", "utf-32", "utf-16-le", "utf-16-be", "utf-32-be"])
def test_a_text_in_utf_16_is_refused_by_that_name(encoding: str) -> None:
    content = "to be or not to be".encode(encoding)
    with pytest.raises(DataError, match=r"text own\.txt .*UTF-16.*convert it to UTF-8, or read it at byte level"):
        text_corpus("own.txt", content)
    assert len(text_corpus("own.txt", content, "byte").train) == len(content)
    with pytest.raises(DataError, match="byte order mark"):
        text_corpus("own.txt", codecs.BOM_UTF16_BE + "to be".encode("utf-16-be"))


@pytest.mark.parametrize("level", ["character", "byte"])
@pytest.mark.parametrize("empty", ["", b""])
def test_an_empty_text_is_refused(level: Any, empty: str | bytes) -> None:
    with pytest.raises(DataError, match="nothing"):
        text_corpus("nothing", empty, level)


def test_texts_that_cannot_be_used_are_refused() -> None:
    with pytest.raises(DataError, match="1 different"):
        text_corpus("one", "aaaaaaaa")
    with pytest.raises(DataError, match="no UTF-8 at byte 1"):
        text_corpus("latin", b"a\xe9")
    level: Any = "word"
    with pytest.raises(ConfigurationError, match="level"):
        text_corpus("x", "ab", level)
    for share in (-0.1, 0.6, 1.0):
        with pytest.raises(ConfigurationError, match="held-out"):
            text_corpus("x", "abc", held_out=share)


def test_a_text_shorter_than_a_context_is_refused() -> None:
    corpus = text_corpus("short", "abcde" * 4)
    require_context(corpus, 19)
    with pytest.raises(DataError, match=r"short has 20 tokens for train; a context of 20 needs at least 21"):
        require_context(corpus, 20)
    with pytest.raises(DataError, match="for evaluation"):
        require_context(text_corpus("short", "abcde" * 4, held_out=0.2), 5)


def test_a_corpus_that_contradicts_itself_is_refused() -> None:
    good, wrong = np.arange(3), [np.array([0, 3]), np.array([-1]), np.zeros(0, dtype=int), np.zeros((2, 2), dtype=int)]
    for bad in wrong:
        for parts in ((good, bad), (bad, good)):
            with pytest.raises(DataError):
                Corpus("bad", 3, *parts)


def test_digest_sees_every_part() -> None:
    base = text_corpus("base", "abcabc", held_out=0.5)
    others = (
        text_corpus("base", "abcabc"),
        text_corpus("base", "abdabd", held_out=0.5),
        Corpus("base", 4, base.train, base.evaluation, base.symbols),
        Corpus("base", 3, base.train[::-1], base.evaluation, base.symbols),
        Corpus("base", 3, base.train, base.evaluation[::-1], base.symbols),
    )
    assert len({corpus.sha256 for corpus in (base, *others)}) == 6
    assert Corpus("other", 3, base.train, base.evaluation, base.symbols).sha256 == base.sha256


def test_batches_follow_one_carried_generator() -> None:
    tokens = text_corpus("sample", SAMPLE_TEXT).train
    generator = np.random.Generator(np.random.PCG64(4))
    state = batch_generator(4)
    for _ in range(5):
        before = state
        batch, state = draw_batch(tokens, 8, 64, before)
        starts = generator.integers(0, len(tokens) - 64, size=8)
        assert batch.starts.tolist() == starts.tolist()
        assert batch.inputs.tolist() == [tokens[at : at + 64].tolist() for at in starts]
        assert batch.targets.tolist() == [tokens[at + 1 : at + 65].tolist() for at in starts]
        again, after = draw_batch(tokens, 8, 64, before)
        assert (again.starts.tolist(), after) == (starts.tolist(), state)
    assert draw_batch(tokens, 8, 64, replace(state, state=state.state ^ 1))[0].starts.tolist() != starts.tolist()


def test_every_place_can_be_drawn_and_none_beyond_the_end() -> None:
    tokens, state, seen = np.arange(7), batch_generator(0), set()
    for _ in range(40):
        batch, state = draw_batch(tokens, 3, 4, state)
        seen |= set(batch.starts.tolist())
    assert seen == {0, 1, 2}
    only, _ = draw_batch(tokens, 2, 6, state)
    assert only.starts.tolist() == [0, 0]
    for batch_size, context in ((0, 4), (3, 7), (3, 0)):
        with pytest.raises(ContractError):
            draw_batch(tokens, batch_size, context, state)
    with pytest.raises(ConfigurationError, match="seed"):
        batch_generator(-1)


def test_the_evaluation_batch_is_spread_evenly() -> None:
    tokens = np.arange(14)
    assert evaluation_batch(tokens, 5, 4).starts.tolist() == [0, 2, 4, 6, 8]
    assert evaluation_batch(tokens, 1, 13).inputs.tolist() == [list(range(13))]
    assert evaluation_batch(tokens, 3, 13).starts.tolist() == [0, 0, 0]
    for count, context in ((0, 4), (5, 14), (5, 0)):
        with pytest.raises(ContractError):
            evaluation_batch(tokens, count, context)
    for starts in ([-1], [10], [0, 11]):
        with pytest.raises(ContractError, match="beyond"):
            windows(tokens, starts, 4)


def test_a_synthetic_language_is_seeded_and_made_of_words() -> None:
    corpus = synthetic_corpus(3)
    assert corpus.sha256 == synthetic_corpus(3).sha256
    assert corpus.sha256 != synthetic_corpus(4).sha256
    assert (len(corpus.train), len(corpus.evaluation)) == (8192, 2048)
    words = {tuple(word) for word in np.split(corpus.train, np.flatnonzero(corpus.train == 0))[1:-1]}
    assert 2 <= len(words) <= 32
    assert {len(word) - 1 for word in words} <= {2, 3, 4, 5}
    small = synthetic_corpus(0, vocabulary_size=3, train_tokens=1, evaluation_tokens=1, words=2)
    assert len(small.train) == len(small.evaluation) == 1


@pytest.mark.parametrize(
    "settings",
    [{"seed": -1}, {"vocabulary_size": 2}, {"words": 1}, {"train_tokens": 0}, {"evaluation_tokens": 0}, {"seed": 1.0}],
)
def test_languages_that_cannot_be_are_refused(settings: Any) -> None:
    with pytest.raises(ConfigurationError, match="synthetic"):
        synthetic_corpus(**{"seed": 0, **settings})


def test_corpora_by_specification() -> None:
    assert load_corpus(CorpusSpec()).sha256 == text_corpus("sample", SAMPLE_TEXT).sha256
    assert load_corpus(CorpusSpec("synthetic", seed=3, vocabulary_size=9)).vocabulary_size == 9
    own = load_corpus(CorpusSpec("text", level="byte", held_out=0.5), "own.txt", b"abcd")
    assert (own.name, own.train.tolist(), own.evaluation.tolist()) == ("own.txt", [97, 98], [99, 100])
    with pytest.raises(DataError, match=r"own\.txt is empty"):
        load_corpus(CorpusSpec("text"), "own.txt", "")
    with pytest.raises(ConfigurationError, match="choose kind text"):
        load_corpus(CorpusSpec("sample"), "own.txt", "abc")
    wrong: list[Any] = [{"kind": "verse"}, {"level": "word"}]
    for settings in wrong:
        with pytest.raises(ConfigurationError, match="choose one of"):
            CorpusSpec(**settings)
