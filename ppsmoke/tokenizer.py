"""The tokenizer of a GGUF model: byte-level BPE with the pre-tokenizer, special tokens and BOS rule it names.

The ids are those of llama.cpp, which is what the GGUF keys were made for: special tokens are cut out longest first,
some are known by their text whatever type the file gives them, and the rest goes through the BPE of `tokenizers`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Self

import tokenizers
from tokenizers import models, pre_tokenizers

from ppsmoke.byte_level import CHAR_TO_BYTE
from ppsmoke.errors import GgufMalformed, UnsupportedModel, UsageError
from ppsmoke.gguf_header import TextArray


class _TokenType(IntEnum):
    NORMAL = 1
    UNKNOWN = 2
    CONTROL = 3
    USER_DEFINED = 4
    UNUSED = 5
    BYTE = 6


@dataclass(frozen=True, slots=True)
class _PreTokenizer:
    patterns: tuple[str, ...]  # applied one after the other
    ignore_merges: bool = False  # a piece that is a token as it stands is taken without merging
    add_bos: bool = False  # where the file does not say


_GPT2_PATTERN = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)"
_LLAMA3_PATTERN = (
    r"(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])|[^\r\n\p{L}\p{N}]?\p{L}+|%s"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_SMOLLM = _PreTokenizer((r"\p{N}", _GPT2_PATTERN))
_GPT2 = _PreTokenizer((_GPT2_PATTERN,))
_LLAMA3 = _PreTokenizer((_LLAMA3_PATTERN % r"\p{N}{1,3}",), ignore_merges=True, add_bos=True)
_QWEN2 = _PreTokenizer((_LLAMA3_PATTERN % r"\p{N}",))
# The further names in a row are exact synonyms: other names of the same rules.
_PRE_TOKENIZERS: dict[str, _PreTokenizer] = {
    "smollm": _SMOLLM,
    **dict.fromkeys(("llama-bpe", "llama3", "llama-v3", "falcon3", "pixtral", "midm-2.0", "lfm2"), _LLAMA3),
    **dict.fromkeys(("qwen2", "deepseek-r1-qwen", "kormo", "f2llmv2"), _QWEN2),
    **dict.fromkeys(("gpt-2", "phi-2", "gigachat", "a.x-4.0", "mellum"), _GPT2),
}
SUPPORTED_PRE_TOKENIZERS = tuple(_PRE_TOKENIZERS)

# Tokens that end a generation whatever the file's ids say, and that are control tokens whatever type it gives them.
_END_TEXTS = (
    "<|eot_id|>", "<|im_end|>", "<|end|>", "<|return|>", "<|call|>", "<|flush|>", "<|calls|>", "<end_of_turn>",
    "<|endoftext|>", "</s>", "<|eom_id|>", "<EOT>", "_<EOT>", "[EOT]", "[EOS]", "<|end_of_text|>",
    "<end_of_utterance>", "<eos>", "<turn|>", "<|tool_response>", "<｜end▁of▁sentence｜>", "[e~[",
)  # fmt: skip
# Fill-in-the-middle padding, repository and file separators: nothing of an answer follows them either.
_SEPARATOR_TEXTS: dict[str, tuple[str, ...]] = {
    "tokenizer.ggml.fim_pad_token_id": ("<|fim_pad|>", "<fim-pad>", "<fim_pad>", "<PAD>", "[PAD]"),
    "tokenizer.ggml.fim_rep_token_id": ("<|fim_repo|>", "<|repo_name|>", "<fim-repo>", "<REPO>", "<reponame>"),
    "tokenizer.ggml.fim_sep_token_id": ("<|file_sep|>",),
}
_HARMONY_TEXTS = ("<|channel|>", "<|message|>", "<|start|>", "<|constrain|>")


class Tokenizer:
    """Text to token ids and back. Immutable after `from_gguf`; safe to share between threads."""

    def __init__(
        self,
        tokens: Sequence[str],
        types: Sequence[int],
        bpe: tokenizers.Tokenizer,
        *,
        stop_token_ids: frozenset[int],
        bos_token_id: int | None,
        eos_token_id: int | None,
        add_bos: bool,
    ) -> None:
        self.stop_token_ids = stop_token_ids
        self.bos_token_id = bos_token_id
        self.eos_token_id = eos_token_id
        self.add_bos = add_bos and bos_token_id is not None
        self._tokens = tokens
        self._types = types
        self._bpe = bpe
        special = [
            (text, token)
            for token, (text, type_) in enumerate(zip(tokens, types, strict=True))
            if type_ in (_TokenType.CONTROL, _TokenType.USER_DEFINED, _TokenType.UNKNOWN) and text
        ]
        self._special = sorted(special, key=lambda entry: -len(entry[0].encode()))

    @classmethod
    def from_gguf(cls, metadata: Mapping[str, Any]) -> Self:
        """Build from the metadata of a model.

        Raises UnsupportedModel for a tokenizer model or a pre-tokenizer outside the table (never a guess),
        GgufMalformed for a vocabulary that is missing or inconsistent.
        """
        pre = _pre_tokenizer(metadata)
        tokens = [text or f"[EMPTY_{token}]" for token, text in enumerate(_list_of(metadata, "tokens", str))]
        types = list(metadata.get("tokenizer.ggml.token_type") or [_TokenType.NORMAL] * len(tokens))
        if len(types) != len(tokens):
            raise GgufMalformed(f"the model has {len(tokens)} tokens and {len(types)} token types")
        ids = {text: token for token, text in enumerate(tokens)}
        stops = _stop_tokens(metadata, tokens, ids, types)
        return cls(
            tokens,
            types,
            _build_bpe(ids, _list_of(metadata, "merges", str), pre),
            stop_token_ids=stops,
            bos_token_id=_token_id(metadata, "tokenizer.ggml.bos_token_id", len(tokens)),
            eos_token_id=_token_id(metadata, "tokenizer.ggml.eos_token_id", len(tokens)),
            add_bos=bool(metadata.get("tokenizer.ggml.add_bos_token", pre.add_bos)),
        )

    @property
    def vocab_size(self) -> int:
        return len(self._tokens)

    def encode(self, text: str, *, parse_special: bool = True, add_bos: bool | None = None) -> list[int]:
        """The token ids of `text`.

        `parse_special`: control tokens written in the text become those tokens (as chat templates need); user-defined
        ones always do. `add_bos` None follows the model, and adds none where the text already begins with it.
        Raises UsageError for text that is not valid Unicode.
        """
        try:
            text.encode()
        except UnicodeEncodeError:
            raise UsageError("the prompt is not valid UTF-8") from None
        ids: list[int] = []
        for fragment in self._cut_out_special(text, parse_special):
            if isinstance(fragment, int):
                ids.append(fragment)
            else:
                ids.extend(self._bpe.encode(fragment, add_special_tokens=False).ids)
        wanted = self.add_bos and ids[:1] != [self.bos_token_id] if add_bos is None else add_bos
        if wanted and self.bos_token_id is not None:
            ids.insert(0, self.bos_token_id)
        return ids

    def decode(self, tokens: Iterable[int], *, skip_special: bool = False) -> str:
        """The text of tokens; invalid UTF-8 becomes U+FFFD. `skip_special` leaves control and stop tokens out."""
        parts = (self.token_bytes(token) for token in tokens if not (skip_special and self.is_special(token)))
        return b"".join(parts).decode("utf-8", "replace")

    def is_special(self, token: int) -> bool:
        """Whether a token is not part of the text: control, unknown, or one that ends a generation."""
        self._check(token)
        return token in self.stop_token_ids or self._types[token] in (_TokenType.CONTROL, _TokenType.UNKNOWN)

    def token_bytes(self, token: int) -> bytes:
        """What one token adds to the text, which need not be whole UTF-8. UsageError for an id that is none."""
        self._check(token)
        text = self._tokens[token]
        match self._types[token]:
            case _TokenType.CONTROL | _TokenType.USER_DEFINED | _TokenType.UNKNOWN:
                return text.encode()
            case _TokenType.NORMAL:
                return b"".join(
                    bytes((CHAR_TO_BYTE[char],)) if char in CHAR_TO_BYTE else char.encode() for char in text
                )
            case _:
                return b""

    def _check(self, token: int) -> None:
        if not 0 <= token < len(self._tokens):
            raise UsageError(f"there is no token {token}: the vocabulary has ids 0 to {len(self._tokens) - 1}")

    def _cut_out_special(self, text: str, parse_special: bool) -> list[str | int]:
        fragments: list[str | int] = [text] if text else []
        for special, token in self._special:
            if special not in text or not (parse_special or self._types[token] == _TokenType.USER_DEFINED):
                continue
            cut: list[str | int] = []
            for fragment in fragments:
                if isinstance(fragment, int):
                    cut.append(fragment)
                    continue
                for index, piece in enumerate(fragment.split(special)):
                    if index:
                        cut.append(token)
                    if piece:
                        cut.append(piece)
            fragments = cut
        return fragments


def _pre_tokenizer(metadata: Mapping[str, Any]) -> _PreTokenizer:
    kind = metadata.get("tokenizer.ggml.model")
    if kind is None:
        raise GgufMalformed("the model has no tokenizer (tokenizer.ggml.model)")
    if kind != "gpt2":
        raise UnsupportedModel(f"the model has a {kind!r} tokenizer; supported is byte-level BPE ('gpt2')")
    name = metadata.get("tokenizer.ggml.pre")
    if name is None or name not in _PRE_TOKENIZERS:
        said = "does not name its pre-tokenizer" if name is None else f"has the pre-tokenizer {name!r}"
        raise UnsupportedModel(f"the model {said}; supported are {', '.join(SUPPORTED_PRE_TOKENIZERS)}")
    return _PRE_TOKENIZERS[name]


def _list_of(metadata: Mapping[str, Any], key: str, kind: type) -> list[Any]:
    values = metadata.get(f"tokenizer.ggml.{key}")
    if isinstance(values, TextArray) and kind is str:
        return list(values)
    if not isinstance(values, list) or not all(isinstance(value, kind) for value in values):
        raise GgufMalformed(f"the model has no proper list tokenizer.ggml.{key}")
    return values


def _token_id(metadata: Mapping[str, Any], key: str, vocab_size: int) -> int | None:
    value = metadata.get(key)
    return value if type(value) is int and 0 <= value < vocab_size else None


def _build_bpe(ids: dict[str, int], merges: list[str], pre: _PreTokenizer) -> tokenizers.Tokenizer:
    pairs = []
    for merge in merges:
        # A part may itself begin with a space, so the separator is looked for from the second character on.
        at = merge.find(" ", 1)
        if at < 0:
            raise GgufMalformed(f"the merge {merge!r} of the model's tokenizer has no two parts")
        pairs.append((merge[:at], merge[at + 1 :]))
    try:
        bpe = tokenizers.Tokenizer(models.BPE(ids, pairs, ignore_merges=pre.ignore_merges))
    except Exception as error:  # the library raises bare Exception for a merge of unknown tokens
        raise GgufMalformed(f"the merges of the model's tokenizer do not fit its tokens: {error}") from error
    splits = [pre_tokenizers.Split(tokenizers.Regex(pattern), "isolated") for pattern in pre.patterns]
    to_alphabet = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    bpe.pre_tokenizer = pre_tokenizers.Sequence([*splits, to_alphabet])
    return bpe


def _stop_tokens(
    metadata: Mapping[str, Any], tokens: Sequence[str], ids: Mapping[str, int], types: list[int]
) -> frozenset[int]:
    """The tokens that end a generation; corrects `types` where a token's text says more than its type."""
    stops = {ids[text] for text in _END_TEXTS if text in ids}
    control = set(stops)
    for key, texts in _SEPARATOR_TEXTS.items():
        named = _token_id(metadata, key, len(tokens))
        by_text = [ids[text] for text in texts if text in ids]
        if named is None and by_text:
            named = by_text[0]
            control.add(named)
        if named is not None:
            stops.add(named)
    for token in control:
        types[token] = _TokenType.CONTROL
    for text in _HARMONY_TEXTS:
        if text in ids:
            types[ids[text]] = _TokenType.USER_DEFINED
    for key in ("eos", "eot", "eom"):
        named = _token_id(metadata, f"tokenizer.ggml.{key}_token_id", len(tokens))
        if named is not None:
            stops.add(named)
    return frozenset(stops - _not_ends_here(ids, types))


def _not_ends_here(ids: Mapping[str, int], types: list[int]) -> set[int]:
    """Texts that end a generation in most vocabularies and are something else in a few, told by their company."""
    removed = set()
    if "<|end|>" in ids and "<|call|>" in ids and "<|return|>" in ids:
        types[ids["<|end|>"]] = _TokenType.USER_DEFINED
        removed.add(ids["<|end|>"])
    if "</s>" in ids and "<|tool_response>" in ids:
        types[ids["</s>"]] = _TokenType.NORMAL
        removed.add(ids["</s>"])
    return removed
