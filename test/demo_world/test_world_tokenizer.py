"""The cut-down tokenizer splits as the whole one does."""

import json
import random
from importlib.util import find_spec
from pathlib import Path

import pytest

from rsd_planner.demo.world.tokenizer import (
    PROCESSOR_DIR,
    SPLITS_FILE,
    example_texts,
    load_ranks,
    load_tokenizer,
    split_word,
    words_of,
    world_sentences,
)

GOLDEN = Path(__file__).parents[1] / "golden/alpamayo_r1/processor"
EXAMPLES = Path(__file__).parents[3] / "shared/reference/coc_examples.tsv"


@pytest.fixture(scope="module")
def sentences() -> list[str]:
    return list(world_sentences())


def test_every_sentence_of_the_world_splits_as_with_all_ranks(sentences: list[str]) -> None:
    splits = json.loads(SPLITS_FILE.read_text())
    tokenizer = load_tokenizer()
    words = words_of(sentences)
    assert words <= splits.keys()
    for word in words:
        assert tokenizer.encode(word, add_special_tokens=False).tokens == splits[word]
    for text in random.Random(0).sample(sentences, 300):
        assert tokenizer.decode(tokenizer.encode(text).ids) == text


@pytest.mark.skipif(not EXAMPLES.exists(), reason=f"{EXAMPLES} is not here")
def test_real_reasoning_splits_as_with_all_ranks() -> None:
    splits, tokenizer = json.loads(SPLITS_FILE.read_text()), load_tokenizer()
    for text in example_texts(EXAMPLES):
        words = [word for word, _ in tokenizer.pre_tokenizer.pre_tokenize_str(text)]
        plain = {word.replace(" ", "Ġ"): split for word, split in splits.items()}
        assert tokenizer.encode(text).tokens == [token for word in words for token in plain[word]]


@pytest.mark.skipif(find_spec("dashscope") is None, reason="dashscope, which carries all ranks, is not installed")
def test_the_list_of_splits_is_that_of_all_ranks() -> None:
    spec = find_spec("dashscope")
    assert spec is not None
    assert spec.submodule_search_locations
    ranks = load_ranks(Path(spec.submodule_search_locations[0]) / "resources/qwen.tiktoken")
    assert len(ranks) == 151_643
    for word, split in json.loads(SPLITS_FILE.read_text()).items():
        lengths = [len(token) for token in split_word(word.encode(), ranks)[0]]
        assert lengths == [len(token) for token in split]


def test_the_folder_has_what_a_base_model_is_published_with() -> None:
    names = {path.name for path in PROCESSOR_DIR.iterdir()}
    assert names | {"config.json"} == {path.name for path in GOLDEN.iterdir()}
    for name in ("tokenizer_config.json", "chat_template.json"):
        assert json.loads((PROCESSOR_DIR / name).read_text()) == json.loads((GOLDEN / name).read_text())
    added = [token["content"] for token in json.loads((PROCESSOR_DIR / "tokenizer.json").read_text())["added_tokens"]]
    golden = [token["content"] for token in json.loads((GOLDEN / "tokenizer.json").read_text())["added_tokens"]]
    assert added == golden


def test_byte_pairs_merge_lowest_rank_first() -> None:
    ranks = {bytes([value]): value for value in range(256)} | {b"ab": 300, b"bc": 299, b"abc": 301}
    assert split_word(b"abc", ranks)[0] == [b"abc"]
    assert split_word(b"abc", ranks)[1] == [(b"b", b"c"), (b"a", b"bc")]
