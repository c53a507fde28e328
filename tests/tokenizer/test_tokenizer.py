from __future__ import annotations

from typing import Any

import pytest

from fixtures.boundary_vocabulary import boundary_metadata
from fixtures.tiny_gguf import MERGES, TOKENS
from ppsmoke.errors import GgufMalformed, UnsupportedModel, UsageError
from ppsmoke.tokenizer import Tokenizer


def metadata(**changes: Any) -> dict[str, Any]:
    keys = {
        "model": "gpt2",
        "pre": "smollm",
        "tokens": list(TOKENS),
        "token_type": [3, 3, 3] + [1] * (len(TOKENS) - 3),
        "merges": list(MERGES),
        "bos_token_id": 1,
        "eos_token_id": 2,
        **changes,
    }
    return {f"tokenizer.ggml.{key}": value for key, value in keys.items() if value is not None}


def test_control_tokens_in_text_are_parsed_only_when_asked() -> None:
    tokenizer = Tokenizer.from_gguf(metadata())
    assert tokenizer.encode("<|im_start|>hello<|im_end|>")[0] == 1
    plain = tokenizer.encode("<|im_start|>", parse_special=False)
    assert len(plain) > 1
    assert tokenizer.decode(plain) == "<|im_start|>"


def test_user_defined_tokens_are_always_parsed_and_shown() -> None:
    tokenizer = Tokenizer.from_gguf(boundary_metadata("qwen2"))
    ids = tokenizer.encode("<think>x", parse_special=False)
    assert tokenizer.token_bytes(ids[0]) == b"<think>"
    assert tokenizer.decode(ids, skip_special=True) == "<think>x"


def test_of_special_tokens_that_overlap_the_longest_is_cut_out_first() -> None:
    longer = "<|im_end|>!"
    tokenizer = Tokenizer.from_gguf(
        metadata(tokens=[*TOKENS, longer], token_type=[3, 3, 3] + [1] * (len(TOKENS) - 3) + [3])
    )
    assert tokenizer.encode("<|im_end|><|im_end|>!") == [2, len(TOKENS)]


@pytest.mark.parametrize(
    ("pre", "add_bos_token", "expected"),
    [("smollm", None, False), ("qwen2", None, False), ("llama-bpe", None, True), ("llama-bpe", False, False)],
)
def test_bos_rule(pre: str, add_bos_token: bool | None, expected: bool) -> None:
    tokenizer = Tokenizer.from_gguf(metadata(pre=pre, add_bos_token=add_bos_token))
    assert (tokenizer.encode("hello")[0] == 1) is expected
    assert tokenizer.encode("hello", add_bos=True)[0] == 1
    assert tokenizer.encode("hello", add_bos=False)[0] != 1


def test_bos_is_not_doubled_when_the_text_begins_with_it() -> None:
    tokenizer = Tokenizer.from_gguf(metadata(add_bos_token=True))
    assert tokenizer.encode("<|im_start|>hello").count(1) == 1
    assert tokenizer.encode("<|im_start|>hello", add_bos=True).count(1) == 2
    assert tokenizer.encode("") == [1]


def test_no_bos_without_a_bos_token() -> None:
    tokenizer = Tokenizer.from_gguf(metadata(add_bos_token=True, bos_token_id=None))
    assert 1 not in tokenizer.encode("hello", add_bos=True)


def test_stop_tokens_come_from_ids_and_from_well_known_texts() -> None:
    stops = Tokenizer.from_gguf(metadata(eos_token_id=50, eot_token_id=51, eom_token_id=52)).stop_token_ids
    # <|endoftext|> and <|im_end|> by their text, the rest by their keys.
    assert stops == {0, 2, 50, 51, 52}


def test_a_stop_token_listed_as_normal_is_still_a_control_token() -> None:
    tokenizer = Tokenizer.from_gguf(metadata(token_type=[1] * len(TOKENS)))
    assert tokenizer.encode("a<|im_end|>")[-1] == 2
    assert tokenizer.decode([2], skip_special=True) == ""


@pytest.mark.parametrize("token", [-1, len(TOKENS)])
def test_ids_outside_the_vocabulary_are_refused(token: int) -> None:
    with pytest.raises(UsageError, match="there is no token"):
        Tokenizer.from_gguf(metadata()).decode([token])


def test_text_with_lone_surrogates_is_refused() -> None:
    with pytest.raises(UsageError, match="not valid UTF-8"):
        Tokenizer.from_gguf(metadata()).encode("a\udcff")


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"pre": "tekken"}, UnsupportedModel, "'tekken'; supported are smollm"),
        ({"pre": "default"}, UnsupportedModel, "'default'"),
        ({"pre": None}, UnsupportedModel, "does not name its pre-tokenizer"),
        ({"model": "llama"}, UnsupportedModel, "'llama' tokenizer; supported is byte-level BPE"),
        ({"model": None}, GgufMalformed, "no tokenizer"),
        ({"tokens": None}, GgufMalformed, "tokenizer.ggml.tokens"),
        ({"merges": ["ab"]}, GgufMalformed, "'ab'"),
        ({"merges": ["nope nada"]}, GgufMalformed, "do not fit"),
        ({"token_type": [1]}, GgufMalformed, "1 token types"),
    ],
)
def test_other_tokenizers_are_an_error_not_a_guess(
    changes: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        Tokenizer.from_gguf(metadata(**changes))
