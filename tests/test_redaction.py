"""What is secret never reaches a file, in whatever spelling; what is public stays readable."""

from __future__ import annotations

import base64
import json
from urllib.parse import quote

import pytest

from ppsmoke.redaction import HIDDEN, Redactor, is_secret_name, secret_values, without_secret_arguments

KEY = bytes(range(100, 132))
WORD = 'p@ss "word"/ü\n1'


@pytest.mark.parametrize(
    "spelling", [KEY.hex(), KEY.hex().upper(), base64.b64encode(KEY).decode(), base64.urlsafe_b64encode(KEY).decode()]
)
def test_a_key_is_hidden_in_every_spelling(spelling: str) -> None:
    for redactor in (Redactor([KEY.hex()]), Redactor()):
        redactor.keep(KEY)
        assert redactor.clean(f"before {spelling} after").startswith(f"before {HIDDEN}")
        assert spelling.rstrip("=") not in redactor.clean(f"x{spelling}y")


@pytest.mark.parametrize(
    "spelling",
    [WORD, json.dumps(WORD)[1:-1], repr(WORD)[1:-1], quote(WORD, safe=""), base64.b64encode(WORD.encode()).decode()],
)
def test_a_text_is_hidden_in_every_spelling(spelling: str) -> None:
    redactor = Redactor([WORD])
    assert redactor.clean(f"a {spelling} b") == f"a {HIDDEN} b"


def test_a_secret_inside_another_goes_with_it() -> None:
    redactor = Redactor(["secret", "secret-and-more"])
    assert redactor.clean("secret-and-more") == HIDDEN


def test_what_is_too_short_to_be_a_secret_hides_nothing() -> None:
    assert Redactor(["1", "abc", ""]).clean("1 abc 12") == "1 abc 12"


@pytest.mark.parametrize(
    "text",
    [
        "PP_NODE_KEY=%s",
        "export VAST_API_KEY='%s'",
        '{"PP_JOIN_TOKEN": "%s"}',
        r"'{\"CONTAINER_API_KEY\": \"%s\"}'",
        "HF_TOKEN: %s",
        "api_key=%s",
        "relay-token: %s",
        "pp-smoke-run --api-key %s --seed",
        "--relay-token=%s",
        "https://relay.example/?token=%s&x=1",
        "GET /api?key=%s",
        "Authorization: Bearer %s",
        "authorization: Basic %s",
        "https://user:%s@host.example/",
        "JUPYTER_TOKEN=%s",
    ],
)
def test_what_is_named_a_secret_is_hidden_unknown(text: str) -> None:
    cleaned = Redactor().clean(text % "q1w2e3r4t5y6")
    assert "q1w2e3r4t5y6" not in cleaned
    assert HIDDEN in cleaned


@pytest.mark.parametrize(
    "text",
    [
        "token 3 arrived on TokenOut, expected token 4",
        "the first token: 0.35 s, then 31.2 tok/s",
        "--max-tokens 100000 --token-timeout 600000",
        f"stage 1: node {'ab' * 32}",
        "https://relay.example:3340/path",
        "finish_reason max_tokens, eos_token_ids: 151643",
        "keyword: something",
    ],
)
def test_what_is_no_secret_stays(text: str) -> None:
    assert Redactor([KEY.hex()]).clean(text) == text


def test_json_is_cleaned_in_names_and_values_and_keeps_its_shape() -> None:
    redactor = Redactor(["topsecret"])
    body = {"a": ["x topsecret", 5, None, {"topsecret": True}], "api_key": "other words", "token": 17, "stage": 1.5}
    assert redactor.clean_json(body) == {
        "a": [f"x {HIDDEN}", 5, None, {HIDDEN: True}],
        "api_key": HIDDEN,
        "token": 17,
        "stage": 1.5,
    }


def test_the_key_of_a_models_source_is_none_and_what_it_is_may_be_secret() -> None:
    source = {"kind": "cache", "key": "smollm2:135m"}
    assert Redactor().clean_json(source) == source
    redactor = Redactor(["hush-hush"])
    assert redactor.clean_json({"key": "hush-hush", "KEY": "q1w2e3r4", "relay_key": "q1w2e3r4"}) == {
        "key": HIDDEN,
        "KEY": HIDDEN,
        "relay_key": HIDDEN,
    }


def test_variables_that_hold_secrets_are_known_by_their_names() -> None:
    environment = {
        "VAST_API_KEY": "one",
        "HF_TOKEN": "two",
        "DB_PASSWORD_FILE": "three",
        "PATH": "/bin",
        "KEYBOARD": "de",
    }
    assert secret_values(environment) == ["one", "two", "three"]
    assert is_secret_name("api_key")
    assert not is_secret_name("max_tokens")


def test_a_command_line_is_shown_without_its_secrets() -> None:
    given = ["--vastai", "--api-key", "abc", "--relay-token=def", "--max-tokens", "5", "--prompt", "a key"]
    assert without_secret_arguments(given) == [
        *("--vastai", "--api-key", HIDDEN, f"--relay-token={HIDDEN}", "--max-tokens", "5", "--prompt", "a key")
    ]
