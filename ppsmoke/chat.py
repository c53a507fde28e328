"""A conversation as the model's own chat template (jinja2, in the GGUF) writes it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, NoReturn

import jinja2
from jinja2.ext import Extension
from jinja2.nodes import Node
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from ppsmoke.errors import ChatTemplateFailed

_USE_RAW = "use --raw to feed the prompt without a chat template"


def render_chat(
    metadata: Mapping[str, Any],
    messages: Sequence[Mapping[str, str]],
    *,
    add_generation_prompt: bool = True,
    now: datetime | None = None,
) -> str:
    """The text to tokenise for `messages` (each with `role` and `content`), with special tokens written out.

    `now` is the clock of templates that state the date; without it they get an undefined `strftime_now` and use
    their own fixed date. Raises ChatTemplateFailed: no template, one that fails, or one that refuses the messages.
    """
    source = metadata.get("tokenizer.chat_template")
    if not isinstance(source, str) or not source.strip():
        raise ChatTemplateFailed("the model has no chat template", remedy=_USE_RAW)
    try:
        template = _environment(now).from_string(source)
        return template.render(
            messages=[dict(message) for message in messages],
            add_generation_prompt=add_generation_prompt,
            bos_token=_token_text(metadata, "bos"),
            eos_token=_token_text(metadata, "eos"),
            tools=None,
            documents=None,
        )
    except _Refused as refusal:
        if any(message["role"] == "system" for message in messages) and "system" in str(refusal).lower():
            raise ChatTemplateFailed(
                f"the model's chat template takes no system prompt: {refusal}", remedy="leave --system out"
            ) from None
        raise ChatTemplateFailed(f"the model's chat template refuses: {refusal}", remedy=_USE_RAW) from None
    except jinja2.TemplateSyntaxError as error:
        raise ChatTemplateFailed(
            f"the model's chat template cannot be read (line {error.lineno}): {error.message}", remedy=_USE_RAW
        ) from error
    except Exception as error:  # a template is a program: whatever it does wrong is the same to the user
        raise ChatTemplateFailed(
            f"the model's chat template failed: {type(error).__name__}: {error}", remedy=_USE_RAW
        ) from error


class _Refused(Exception):
    """The template called raise_exception."""


class _GenerationTag(Extension):
    """`{% generation %}` marks the assistant's text for training; here its body is simply rendered."""

    tags = {"generation"}  # noqa: RUF012 - the name and the shape are jinja2's

    def parse(self, parser: Parser) -> list[Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def _environment(now: datetime | None) -> ImmutableSandboxedEnvironment:
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols", _GenerationTag]
    )
    environment.globals["raise_exception"] = _raise_exception
    if now is not None:
        environment.globals["strftime_now"] = now.strftime
    environment.filters["tojson"] = _to_json
    return environment


def _raise_exception(message: str) -> NoReturn:
    raise _Refused(message)


def _to_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    # jinja2's own filter escapes for HTML, which would change the prompt.
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def _token_text(metadata: Mapping[str, Any], name: str) -> str:
    tokens = metadata.get("tokenizer.ggml.tokens") or []
    token = metadata.get(f"tokenizer.ggml.{name}_token_id")
    return tokens[token] if isinstance(token, int) and 0 <= token < len(tokens) else ""
