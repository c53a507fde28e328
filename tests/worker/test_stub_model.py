from __future__ import annotations

import pytest

from ppsmoke.errors import UsageError
from ppsmoke.stub_model import STUB_EOS_TOKEN, StubModel, parse_stub_model, stub_decode, stub_encode, stub_tokens


def test_a_model_string_names_shape_and_faults_and_comes_back_as_it_was() -> None:
    stub = parse_stub_model("stub:layers=5,hidden=16,vocab=300,eos_after=12,fail_at=3")
    assert stub == StubModel(layers=5, hidden=16, vocab=300, eos_after=12, fail_at=3)
    assert parse_stub_model(str(stub)) == stub


@pytest.mark.parametrize("model", ["m.gguf", "stub:colour=1", "stub:layers=x", "stub:layers=0", "stub:hidden=3"])
def test_a_wrong_model_string_is_a_usage_error(model: str) -> None:
    with pytest.raises(UsageError):
        parse_stub_model(model)


def test_the_text_is_printable_and_every_byte_of_the_prefix_matters() -> None:
    stub = StubModel()
    text = stub_decode(stub_tokens(stub_encode("hello"), 40, stub))
    assert len(text) == 40
    assert text.isprintable()
    assert text != stub_decode(stub_tokens(stub_encode("hellp"), 40, stub))
    assert text != stub_decode(stub_tokens(stub_encode("ehllo"), 40, stub))


def test_the_end_of_the_text_comes_where_it_was_asked_for() -> None:
    tokens = stub_tokens([1, 2], 100, StubModel(eos_after=12))
    assert (len(tokens), tokens[-1]) == (13, STUB_EOS_TOKEN)
