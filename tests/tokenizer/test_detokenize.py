from __future__ import annotations

import pytest

from fixtures.boundary_vocabulary import boundary_metadata
from fixtures.hard_strings import HARD_STRINGS
from ppsmoke.detokenize import StreamingDetokenizer
from ppsmoke.tokenizer import Tokenizer


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer.from_gguf(boundary_metadata("smollm"))


def test_pieces_joined_equal_the_whole_and_no_character_is_split(tokenizer: Tokenizer) -> None:
    for text in HARD_STRINGS:
        ids = tokenizer.encode(text)
        stream = StreamingDetokenizer(tokenizer)
        pieces = [stream.push(token) for token in ids]
        rest = stream.finish()
        assert rest == ""
        assert "".join(pieces) == tokenizer.decode(ids, skip_special=True)
        assert "\ufffd" not in "".join(pieces) or "\ufffd" in text


def test_a_character_is_held_back_until_it_is_whole(tokenizer: Tokenizer) -> None:
    by_bytes = {tokenizer.token_bytes(token): token for token in range(tokenizer.vocab_size)}
    stream = StreamingDetokenizer(tokenizer)
    pieces = [stream.push(by_bytes[bytes((byte,))]) for byte in "a🙂b".encode()]
    assert pieces == ["a", "", "", "", "🙂", "b"]


def test_a_character_that_never_becomes_whole_is_replaced(tokenizer: Tokenizer) -> None:
    by_bytes = {tokenizer.token_bytes(token): token for token in range(tokenizer.vocab_size)}
    cut = [by_bytes[bytes((byte,))] for byte in "é🙂".encode()[:-1]]
    stream = StreamingDetokenizer(tokenizer)
    pieces = [stream.push(token) for token in cut] + [stream.finish()]
    assert "".join(pieces) == "é\ufffd" == tokenizer.decode(cut)


def test_control_tokens_yield_nothing_even_inside_a_character(tokenizer: Tokenizer) -> None:
    by_bytes = {tokenizer.token_bytes(token): token for token in range(tokenizer.vocab_size)}
    first, second = (by_bytes[bytes((byte,))] for byte in "é".encode())
    stream = StreamingDetokenizer(tokenizer)
    assert [stream.push(token) for token in (first, by_bytes[b"<|im_start|>"], second)] == ["", "", "é"]
