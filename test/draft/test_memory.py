"""The memory of earlier reasonings, on what a real Alpamayo R1 said and by hand."""

from __future__ import annotations

import json
from itertools import takewhile
from pathlib import Path

import pytest
import torch
from golden_cases import R1
from tokenizers import Tokenizer

from rsd_planner.decoding.logits import Choice, Sampling
from rsd_planner.draft.memory import ReasoningMemory
from rsd_planner.plan import TokenSource

SEQUENCES = Path(__file__).parents[3] / "shared" / "data" / "coc_sequences" / "sequences.jsonl"
GREEDY = Choice(Sampling(), range(0), torch.Generator())
COT_END, FUTURE = -1, -2  # no token of a text


def accepted(memory: ReasoningMemory, reasoning: list[int]) -> int:
    """Tokens of a frame that were proposed and right; what the memory is told is what the loop would tell it."""
    memory.open(GREEDY)
    proposal, said, right = memory.propose(15), 0, 0
    while True:
        rest = reasoning[said:]
        hits = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(proposal.tokens, rest, strict=False)))
        committed = rest[: hits + 1]  # the target's own token after them, unless that was all
        right, said = right + hits, said + len(committed)
        if said == len(reasoning):
            return right
        memory.extend(None, committed)
        proposal = memory.propose(15)


@pytest.mark.skipif(not SEQUENCES.exists(), reason="no recorded reasonings beside the repository")
@pytest.mark.parametrize(("ticks", "least"), [(1, 10.7), (10, 17.4)])
def test_accepted_tokens_per_frame_on_recorded_drives(ticks: int, least: float) -> None:
    tokenizer = Tokenizer.from_file(str(R1 / "processor" / "tokenizer.json"))
    frames = tokens = right = 0
    for line in SEQUENCES.read_text(encoding="utf-8").splitlines():
        memory = ReasoningMemory(ticks)
        texts = [text for text in json.loads(line)["reasoning"] if text.strip()]
        for i, text in enumerate(texts):
            reasoning = [*tokenizer.encode(text, add_special_tokens=False).ids, COT_END, FUTURE]
            if i > 0:
                frames, tokens = frames + 1, tokens + len(reasoning)
                right += accepted(memory, reasoning)
            memory.remember(reasoning)
    assert tokens / frames == pytest.approx(31.93, abs=0.005)
    assert right / frames >= least


def test_the_newest_reasoning_that_began_alike_goes_on() -> None:
    memory = ReasoningMemory(3)
    for reasoning in ([1, 2, 3, 4], [1, 2, 5, 6], [7, 8]):
        memory.remember(reasoning)
    memory.open(GREEDY)
    assert memory.propose(15).tokens == (7, 8)  # nothing said yet: all began alike
    assert memory.propose(15).source is TokenSource.MEMORY
    memory.extend(None, [1])
    assert memory.propose(15).tokens == (2, 5, 6)
    assert memory.propose(2).tokens == (2, 5)
    memory.extend(None, [2, 3])
    assert memory.propose(15).tokens == (4,)
    memory.extend(None, [4])
    assert memory.propose(15).tokens == ()  # it was said to its end
    memory.extend(None, [9])
    assert memory.propose(15).tokens == ()


def test_only_so_many_reasonings_are_kept() -> None:
    memory = ReasoningMemory(2)
    for reasoning in ([1, 2], [3, 4], [5, 6]):
        memory.remember(reasoning)
    memory.open(GREEDY)
    memory.extend(None, [1])
    assert memory.propose(15).tokens == ()
    memory.clear()
    memory.open(GREEDY)
    assert memory.propose(15).tokens == ()
