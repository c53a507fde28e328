"""The dense llama family written down once more, in plain numpy and float64, from the definition of a GGUF: an oracle
that shares no code with the engine. llama rotates neighbouring dimensions, the qwen models rotate halves."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ppsmoke.gguf_file import open_gguf

Array = NDArray[np.float64]


def logits_after(path: Path, tokens: Sequence[int]) -> Array:
    """The logits after the last token, (vocabulary,)."""
    with open_gguf(path) as gguf:
        name = gguf.metadata["general.architecture"]
        sizes = {key.removeprefix(f"{name}."): value for key, value in gguf.metadata.items() if key.startswith(name)}
        weights = {key: gguf.dequantize(key).astype(np.float64) for key in gguf.tensors}
    heads, kv_heads = sizes["attention.head_count"], sizes["attention.head_count_kv"]
    head, eps = sizes["attention.key_length"], sizes["attention.layer_norm_rms_epsilon"]
    rotated = sizes["rope.dimension_count"]
    angles = np.outer(np.arange(len(tokens)), sizes["rope.freq_base"] ** (-np.arange(0, rotated, 2) / rotated))
    angles = (angles / weights.get("rope_freqs.weight", 1.0))[:, None, :]

    def norm(rows: Array, weight: Array) -> Array:
        return rows / np.sqrt((rows**2).mean(-1, keepdims=True) + eps) * weight

    def rotate(rows: Array) -> Array:
        first = slice(0, rotated, 2) if name == "llama" else slice(0, rotated // 2)
        second = slice(1, rotated, 2) if name == "llama" else slice(rotated // 2, rotated)
        out = rows.copy()
        out[..., first] = rows[..., first] * np.cos(angles) - rows[..., second] * np.sin(angles)
        out[..., second] = rows[..., first] * np.sin(angles) + rows[..., second] * np.cos(angles)
        return out

    rows = weights["token_embd.weight"][list(tokens)]
    hidden_later = np.triu(np.full((len(tokens), len(tokens)), -np.inf), 1)
    for block in range(sizes["block_count"]):
        part = {key.removeprefix(f"blk.{block}."): value for key, value in weights.items() if f"blk.{block}." in key}
        inner = norm(rows, part["attn_norm.weight"])
        q, k, v = (inner @ part[f"attn_{x}.weight"].T + part.get(f"attn_{x}.bias", 0.0) for x in "qkv")
        q, k, v = (x.reshape(len(tokens), -1, head) for x in (q, k, v))
        if "attn_q_norm.weight" in part:
            q, k = norm(q, part["attn_q_norm.weight"]), norm(k, part["attn_k_norm.weight"])
        k, v = (np.repeat(x, heads // kv_heads, axis=1) for x in (rotate(k), v))
        scores = np.einsum("thd,shd->hts", rotate(q), k) / np.sqrt(head) + hidden_later
        shares = np.exp(scores - scores.max(-1, keepdims=True))
        shares /= shares.sum(-1, keepdims=True)
        rows = rows + np.einsum("hts,shd->thd", shares, v).reshape(len(tokens), -1) @ part["attn_output.weight"].T
        inner = norm(rows, part["ffn_norm.weight"])
        gate = inner @ part["ffn_gate.weight"].T
        rows = rows + (gate / (1 + np.exp(-gate)) * (inner @ part["ffn_up.weight"].T)) @ part["ffn_down.weight"].T
    head_name = "output.weight" if "output.weight" in weights else "token_embd.weight"
    logits: Array = norm(rows[-1], weights["output_norm.weight"]) @ weights[head_name].T
    return logits
