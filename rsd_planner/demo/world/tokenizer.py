"""The demo model's tokenizer: Qwen's own byte pairs, as many of them as its texts need.

Every text of `texts()` splits exactly as with all 151,643 ranks: a byte-pair encoder always merges the pair of lowest
rank, and of every word all merges on its way are kept, with their order.

Run `python -m rsd_planner.demo.world.tokenizer qwen.tiktoken [coc_examples.tsv]` to write the processor folder and the
list of splits the tests compare with again; the ranks are in the PyPI package dashscope, `resources/qwen.tiktoken`.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Iterator
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any

import typer

from rsd_planner.demo.world.cameras import HEIGHT, WIDTH
from rsd_planner.demo.world.facts import MAX_SPEED_MPS, EgoMotion, Facts, Motion
from rsd_planner.demo.world.sentences import SPEED, all_causes, wording

PROCESSOR_DIR = Path(__file__).with_name("processor")
SPLITS_FILE = Path(__file__).with_name("word_splits.json")
_PATTERN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_PROMPT_TEXTS = (
    "system\nYou are a driving assistant that generates safe and accurate actions.",
    "user\n",
    "output the chain-of-thought reasoning of the driving process, then output the future trajectory.",
    "assistant\n",
    *(f"{name} camera: " for name in ("Front left", "Front", "Front right", "Rear left", "Rear", "Rear right")),
    "Front telephoto camera: ",
    "frame 0 frame 1 frame 2 frame 3 ",
)
_ADDED = (
    "<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|object_ref_start|>", "<|object_ref_end|>", "<|box_start|>",
    "<|box_end|>", "<|quad_start|>", "<|quad_end|>", "<|vision_start|>", "<|vision_end|>", "<|vision_pad|>",
    "<|image_pad|>", "<|video_pad|>", "<tool_call>", "</tool_call>", "<|fim_prefix|>", "<|fim_middle|>",
    "<|fim_suffix|>", "<|fim_pad|>", "<|repo_name|>", "<|file_sep|>", "<tool_response>", "</tool_response>",
    "<think>", "</think>",
)  # fmt: skip
_SPECIAL_UP_TO = "<|video_pad|>"  # the later ones are ordinary text to Qwen
_CHAT_TEMPLATE = (
    "{% for m in messages %}{{ '<|im_start|>' + m.role + '\\n' }}{% if m.content is string %}{{ m.content }}"
    "{% else %}{% for c in m.content %}{% if c.type == 'image' %}{{ '<|vision_start|><|image_pad|><|vision_end|>' }}"
    "{% elif c.type == 'text' %}{{ c.text }}{% endif %}{% endfor %}{% endif %}{{ '<|im_end|>\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)

Ranks = dict[bytes, int]
Merge = tuple[bytes, bytes]


def world_sentences() -> Iterator[str]:
    """Every wording of the world, at speeds that show every digit: together they have the words of every sentence."""
    causes = list(all_causes())
    egos = [EgoMotion(tenths, motion) for tenths in range(0, round(MAX_SPEED_MPS * 10) + 1) for motion in Motion]
    wordings = {wording(Facts(ego, cause)) for ego in egos for cause in causes}
    for text in sorted(wordings):
        for speed in ("0.0", "1.2", "3.4", "5.6", "7.8", "9.9", "18.0"):
            yield text.replace(SPEED, speed)


def load_ranks(path: Path) -> Ranks:
    """Token bytes to rank, from a tiktoken file."""
    pairs = (line.split() for line in path.read_bytes().splitlines() if line)
    return {base64.b64decode(token): int(rank) for token, rank in pairs}


def split_word(word: bytes, ranks: Ranks) -> tuple[list[bytes], list[Merge]]:
    """Byte-pair encoding of one word: its tokens, and the merges that made them."""
    parts, merges = [bytes([value]) for value in word], []
    while len(parts) > 1:
        ranked = [(ranks.get(left + right, len(ranks)), i) for i, (left, right) in enumerate(pairwise(parts))]
        rank, i = min(ranked)
        if rank == len(ranks):
            break
        merges.append((parts[i], parts[i + 1]))
        parts[i : i + 2] = [parts[i] + parts[i + 1]]
    return parts, merges


def words_of(texts: Iterable[str]) -> set[str]:
    """The pieces Qwen's pattern cuts texts into."""
    from tokenizers import Regex, pre_tokenizers

    cutter = pre_tokenizers.Split(Regex(_PATTERN), "isolated")
    return {word for text in set(texts) for word, _ in cutter.pre_tokenize_str(text)}


def build(words: set[str], ranks: Ranks) -> tuple[dict[str, Any], dict[str, list[str]]]:
    """tokenizer.json, and the split of every word: its tokens in the vocabulary's alphabet."""
    alphabet = _byte_alphabet()

    def visible(token: bytes) -> str:
        return "".join(alphabet[value] for value in token)

    splits: dict[str, list[str]] = {}
    merges: dict[Merge, int] = {}
    for word in sorted(words):
        tokens, used = split_word(word.encode(), ranks)
        splits[word] = [visible(token) for token in tokens]
        merges.update({merge: ranks[merge[0] + merge[1]] for merge in used})
    ordered = sorted(merges, key=lambda merge: merges[merge])
    vocabulary = [bytes([value]) for value in sorted(range(256), key=lambda value: ranks[bytes([value])])]
    vocabulary += [left + right for left, right in ordered if left + right not in set(vocabulary)]
    vocabulary = list(dict.fromkeys(vocabulary))
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": _added_tokens(len(vocabulary)),
        "normalizer": {"type": "NFC"},
        "pre_tokenizer": {
            "type": "Sequence",
            "pretokenizers": [
                {"type": "Split", "pattern": {"Regex": _PATTERN}, "behavior": "Isolated", "invert": False},
                {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False},
            ],
        },
        "post_processor": None,
        "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": False,
            "vocab": {visible(token): index for index, token in enumerate(vocabulary)},
            "merges": [[visible(left), visible(right)] for left, right in ordered],
        },
    }, splits


def write_processor(folder: Path, tokenizer: dict[str, Any]) -> None:
    """The folder a base VLM is published with: tokenizer, image settings, chat template."""
    folder.mkdir(parents=True, exist_ok=True)
    merges = "".join(f"{left} {right}\n" for left, right in tokenizer["model"]["merges"])
    _write_json(folder / "tokenizer.json", tokenizer)
    _write_json(folder / "vocab.json", tokenizer["model"]["vocab"])
    (folder / "merges.txt").write_text("#version: 0.2\n" + merges, encoding="utf-8")
    _write_json(
        folder / "tokenizer_config.json",
        {
            "tokenizer_class": "Qwen2Tokenizer",
            "eos_token": "<|im_end|>",
            "pad_token": "<|endoftext|>",
            "model_max_length": 262144,
            "clean_up_tokenization_spaces": False,
            "add_prefix_space": False,
            "bos_token": None,
            "unk_token": None,
            "processor_class": "Qwen3VLProcessor",
        },
    )
    _write_json(
        folder / "preprocessor_config.json",
        {
            "size": {"longest_edge": WIDTH * HEIGHT, "shortest_edge": WIDTH * HEIGHT},
            "patch_size": 16,
            "temporal_patch_size": 2,
            "merge_size": 2,
            "image_mean": [0.5, 0.5, 0.5],
            "image_std": [0.5, 0.5, 0.5],
            "processor_class": "Qwen3VLProcessor",
            "image_processor_type": "Qwen2VLImageProcessorFast",
        },
    )
    _write_json(folder / "chat_template.json", {"chat_template": _CHAT_TEMPLATE})


@cache
def load_tokenizer() -> Any:
    """The processor folder's tokenizer, as `tokenizers.Tokenizer`."""
    from tokenizers import Tokenizer

    return Tokenizer.from_file(str(PROCESSOR_DIR / "tokenizer.json"))


def _write_json(path: Path, content: Any) -> None:
    path.write_text(json.dumps(content, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")


def _added_tokens(first: int) -> list[dict[str, Any]]:
    last_special = _ADDED.index(_SPECIAL_UP_TO)
    return [
        {
            "id": first + index,
            "content": content,
            "single_word": False,
            "lstrip": False,
            "rstrip": False,
            "normalized": False,
            "special": index <= last_special,
        }
        for index, content in enumerate(_ADDED)
    ]


def _byte_alphabet() -> list[str]:
    """The printable character that stands for each byte in a byte-level vocabulary."""
    kept = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    others = iter(range(256, 512))
    return [chr(value) if value in kept else chr(next(others)) for value in range(256)]


def example_texts(path: Path) -> list[str]:
    """Second column of a table of reasoning texts."""
    return [line.split("\t", 1)[1] for line in path.read_text(encoding="utf-8").splitlines()[1:] if "\t" in line]


def main(
    ranks_file: Annotated[Path, typer.Argument(help="qwen.tiktoken")],
    examples: Annotated[Path, typer.Argument(help="table of real reasoning texts")] = Path(
        "../shared/reference/coc_examples.tsv"
    ),
) -> None:
    """Write the processor folder and word_splits.json."""
    words = words_of([*world_sentences(), *example_texts(examples), *_PROMPT_TEXTS])
    tokenizer, splits = build(words, load_ranks(ranks_file))
    write_processor(PROCESSOR_DIR, tokenizer)
    _write_json(SPLITS_FILE, splits)
    typer.echo(
        f"{len(words)} words, {len(tokenizer['model']['vocab'])} tokens, {len(tokenizer['model']['merges'])} merges"
    )


if __name__ == "__main__":
    typer.run(main)
