from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from fixtures.tiny_gguf import CHATML
from ppsmoke.chat import render_chat
from ppsmoke.errors import ChatTemplateFailed
from ppsmoke.gguf_file import open_gguf
from ppsmoke.models import default_cache_dir, ensure_model, parse_model

RECORDED = Path(__file__).parents[2] / "fixtures" / "chat" / "smollm2.json"
USER = [{"role": "user", "content": "Hi <&> é"}]
SYSTEM = [{"role": "system", "content": "Be brief."}, *USER]


def with_template(template: str | None) -> dict[str, Any]:
    keys = {
        "tokenizer.ggml.tokens": ["<s>", "</s>"],
        "tokenizer.ggml.bos_token_id": 0,
        "tokenizer.ggml.eos_token_id": 1,
    }
    return keys | ({} if template is None else {"tokenizer.chat_template": template})


def test_chatml() -> None:
    assert render_chat(with_template(CHATML), USER) == ("<|im_start|>user\nHi <&> é<|im_end|>\n<|im_start|>assistant\n")
    assert render_chat(with_template(CHATML), USER, add_generation_prompt=False).endswith("<|im_end|>\n")


@pytest.mark.parametrize(
    ("template", "text"),
    [
        ("{{ bos_token }}{{ messages[0]['content'] }}{{ eos_token }}", "<s>Hi <&> é</s>"),
        ("{{ messages[0] | tojson }}", '{"role": "user", "content": "Hi <&> é"}'),
        ("{% for m in messages %}\n    {% if true %}\nx\n    {% endif %}\n{% endfor %}", "x\n"),
        ("{% for i in range(9) %}{% if i == 2 %}{% break %}{% endif %}{{ i }}{% endfor %}", "01"),
        ("a{% generation %}b{{ messages | length }}{% endgeneration %}c", "ab1c"),
        ("{{ strftime_now('%d %b %Y') }}", "05 Mar 2031"),
        ("{% if tools %}tools{% else %}none{% endif %}", "none"),
    ],
)
def test_what_templates_use(template: str, text: str) -> None:
    assert render_chat(with_template(template), USER, now=datetime(2031, 3, 5)) == text


def test_a_model_without_a_template_points_at_raw() -> None:
    with pytest.raises(ChatTemplateFailed, match="no chat template") as caught:
        render_chat(with_template(None), USER)
    assert "--raw" in (caught.value.remedy or "")


def test_a_template_that_refuses_a_system_prompt_says_so() -> None:
    refusing = "{% if messages[0]['role'] == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}ok"
    assert render_chat(with_template(refusing), USER) == "ok"
    with pytest.raises(ChatTemplateFailed, match="takes no system prompt") as caught:
        render_chat(with_template(refusing), SYSTEM)
    assert "--system" in (caught.value.remedy or "")


@pytest.mark.parametrize(
    ("template", "message"),
    [
        ("{{ raise_exception('roles must alternate') }}", "refuses: roles must alternate"),
        ("{% if %}", r"cannot be read \(line 1\)"),
        ("{{ messages[0].nothing.more }}", "UndefinedError"),
        ("{{ 1 / 0 }}", "ZeroDivisionError"),
        ("{{ ''.__class__.__mro__ }}", "SecurityError"),
        ("{% set _ = messages.append(1) %}", "SecurityError"),
    ],
)
def test_a_broken_template_is_one_clear_error(template: str, message: str) -> None:
    with pytest.raises(ChatTemplateFailed, match=message):
        render_chat(with_template(template), USER)


@pytest.mark.real_model
def test_default_model_renders_as_recorded() -> None:
    with open_gguf(ensure_model(parse_model("smollm2:135m"), cache_dir=default_cache_dir())) as gguf:
        for case in json.loads(RECORDED.read_text()):
            text = render_chat(gguf.metadata, case["messages"], add_generation_prompt=case["add_generation_prompt"])
            assert text == case["text"]
