"""Alpamayo's token ids: a base Qwen tokenizer, then the trajectory bins, then the special tokens, in this order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

from rsd_planner.errors import CheckpointError, one_line
from rsd_planner.plan import ReasoningPart, TokenOrigin
from rsd_planner.target.config import AlpamayoConfig

SPECIAL_TOKENS = (
    "<|prompt_start|>",
    "<|prompt_end|>",
    "<|image_start|>",
    "<|image_pre_tkn|>",
    "<|image_end|>",
    "<|traj_history_start|>",
    "<|traj_history_pre_tkn|>",
    "<|traj_history_end|>",
    "<|cot_start|>",
    "<|cot_end|>",
    "<|meta_action_start|>",
    "<|meta_action_end|>",
    "<|traj_future_start|>",
    "<|traj_future_pre_tkn|>",
    "<|traj_future_end|>",
    "<|traj_history|>",
    "<|traj_future|>",
    "<|vectorized_wm|>",
    "<|vectorized_wm_start|>",
    "<|vectorized_wm_end|>",
    "<|vectorized_wm_pre_tkn|>",
    "<|route_start|>",
    "<|route_pad|>",
    "<|route_end|>",
    "<|question_start|>",
    "<|question_end|>",
    "<|answer_start|>",
    "<|answer_end|>",
)
_IMAGE_PAD = "<|image_pad|>"


@dataclass(frozen=True)
class Vocabulary:
    """Text to ids and back, and the ids the planner itself must know."""

    tokenizer: Any  # transformers' fast tokenizer with Alpamayo's tokens added
    image_pad: int
    history_placeholder: int
    cot_end: int
    future_start: int
    bins: range  # all trajectory bins: never allowed in the reasoning

    def encode(self, text: str) -> list[int]:
        ids: list[int] = self.tokenizer.encode(text, add_special_tokens=False)
        return ids

    def reasoning(self, token_ids: Sequence[int]) -> str:
        """The text before `<|cot_end|>`, special tokens left out."""
        return self._text(token_ids).strip()

    def parts(self, token_ids: Sequence[int], origins: Sequence[TokenOrigin]) -> tuple[ReasoningPart, ...]:
        """The same text by who wrote it. A character that two tokens share belongs to the later one."""
        parts: list[ReasoningPart] = []
        written, end = 0, 0
        for origin, run in groupby(origins):
            end += len(list(run))
            text = self._text(token_ids[:end]).rstrip("\ufffd")
            if text[written:]:
                parts.append(ReasoningPart(text[written:], origin))
                written = len(text)
        return tuple(parts)

    def _text(self, token_ids: Sequence[int]) -> str:
        ids = list(token_ids)
        end = ids.index(self.cot_end) if self.cot_end in ids else len(ids)
        text: str = self.tokenizer.decode(ids[:end], skip_special_tokens=True)
        return text


def load_vocabulary(config: AlpamayoConfig, processor_dir: Path) -> Vocabulary:
    """Load the base tokenizer from `processor_dir` and add Alpamayo's tokens, in order.

    Raises:
        CheckpointError: No tokenizer there, or its ids disagree with the checkpoint's config.
    """
    from transformers import AutoTokenizer

    try:
        tokenizer = AutoTokenizer.from_pretrained(str(processor_dir), local_files_only=True, trust_remote_code=False)
    except Exception as error:
        raise CheckpointError(f"{processor_dir}: no tokenizer could be loaded from there ({one_line(error)})") from None
    if not tokenizer.is_fast:
        raise CheckpointError(f"{processor_dir}: expected tokenizer.json of a fast tokenizer")
    if tokenizer.convert_tokens_to_ids(_IMAGE_PAD) is None:
        raise CheckpointError(
            f"{processor_dir}: the tokenizer has no {_IMAGE_PAD}, expected tokenizer.json of a Qwen3-VL"
        )

    tokenizer.add_tokens([f"<i{i}>" for i in range(config.trajectory_size)])
    tokenizer.add_special_tokens({"additional_special_tokens": list(SPECIAL_TOKENS)})
    ids = {token: int(tokenizer.convert_tokens_to_ids(token)) for token in ("<i0>", _IMAGE_PAD, *SPECIAL_TOKENS)}
    _check_ids(config, processor_dir, ids, len(tokenizer))
    return Vocabulary(
        tokenizer=tokenizer,
        image_pad=ids[_IMAGE_PAD],
        history_placeholder=ids["<|traj_history|>"],
        cot_end=ids["<|cot_end|>"],
        future_start=ids["<|traj_future_start|>"],
        bins=range(config.trajectory_start, config.trajectory_start + config.trajectory_size),
    )


def _check_ids(config: AlpamayoConfig, processor_dir: Path, ids: dict[str, int], size: int) -> None:
    expected = {"<i0>": ("traj_token_start_idx", config.trajectory_start)}
    for name, token_id in config.trajectory_token_ids.items():
        token = f"<|traj_{name}|>"
        expected[token] = (f"traj_token_ids.{name}", token_id)
    for token, (field, wanted) in expected.items():
        found = ids.get(token)
        if found != wanted:
            raise CheckpointError(
                f"{processor_dir}: the tokenizer gives {token} the id {found}, but {config.path} says {wanted} "
                f"({field}): this is not the tokenizer the model was trained with"
            )
    if size > config.vocab_size:
        raise CheckpointError(
            f"{processor_dir}: the tokenizer has {size} tokens, expected at most {config.vocab_size} "
            f"(vocab_size of {config.path})"
        )
