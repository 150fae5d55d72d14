"""Routine or deliberative, token by token.

A token is deliberative when ego history and the text so far leave the sentences of the world more than one way to go
on: only the image can decide. Otherwise it is routine.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any

from rsd_planner.demo.world.facts import EgoMotion, Facts
from rsd_planner.demo.world.sentences import all_causes, say
from rsd_planner.demo.world.tokenizer import load_tokenizer

_END = -1
_WORDS = re.compile(r"[^A-Za-z0-9]?[A-Za-z]+|[0-9]| ?[^\sA-Za-z0-9]+|\s+")  # Qwen's pattern, for the letters we use


def deliberative(facts: Facts) -> list[bool]:
    """For each token of the sentence of these facts, whether it takes the image to know it."""
    return [bool(flag) for flag in _masks(facts.ego)[say(facts)]]


@lru_cache(maxsize=1024)
def _masks(ego: EgoMotion) -> dict[str, bytes]:
    """Every sentence that fits an ego motion, with the mask of its tokens."""
    texts = sorted({say(Facts(ego, cause)) for cause in all_causes()})
    encodings = [_encode(text) for text in texts]
    root: dict[int, Any] = {}
    for ids in encodings:
        node = root
        for token in (*ids, _END):
            node = node.setdefault(token, {})
    return {text: _mask(root, ids) for text, ids in zip(texts, encodings, strict=True)}


def _encode(text: str) -> list[int]:
    return [token for word in _WORDS.findall(text) for token in _encode_word(word)]


@lru_cache(maxsize=4096)
def _encode_word(word: str) -> list[int]:
    ids: list[int] = load_tokenizer().encode(word, add_special_tokens=False).ids
    return ids


def _mask(node: dict[int, Any], ids: list[int]) -> bytes:
    flags = bytearray()
    for token in ids:
        flags.append(len(node) > 1)
        node = node[token]
    return bytes(flags)
