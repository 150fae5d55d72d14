"""Drafts at work on the golden target: what is said, what is in the cache, and what a draft is fed with."""

from __future__ import annotations

import gc
import itertools
import random
import weakref
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from draft_files import BINS, CLOSING, DFLASH, EAGLE3, random_draft
from golden_cases import R1, golden_case
from torch import Tensor

from rsd_planner.decoding.logits import Choice, Sampling
from rsd_planner.decoding.loop import decode
from rsd_planner.decoding.protocols import Draft, Proposal
from rsd_planner.decoding.reasoning import Closing, Reasoning
from rsd_planner.draft.dflash import DFlashDraft
from rsd_planner.draft.eagle3 import Eagle3Draft
from rsd_planner.draft.load import load_draft
from rsd_planner.draft.memory import ReasoningMemory
from rsd_planner.plan import TokenOrigin, TokenSource
from rsd_planner.planner import target_parts
from rsd_planner.scene.observation import EgoHistory, Frame, Observation
from rsd_planner.target.alpamayo import AlpamayoTarget, Prompt

PROMPTS = 24  # per target
CAP = 40
TAPS = (0, 1, 3)
CASES = [golden_case(R1, number) for number in range(3)]


def load_target(dtype: torch.dtype = torch.float32) -> AlpamayoTarget:
    return AlpamayoTarget.load(R1, device="cpu", dtype=dtype, taps=TAPS)


@pytest.fixture(scope="module")
def target() -> AlpamayoTarget:
    return load_target()


def blurred(seed: int) -> AlpamayoTarget:
    """The golden target with noise on its weights: less sure of itself, it says other things."""
    target, generator = load_target(), torch.Generator().manual_seed(seed)
    for parameter in target.network.text.parameters():
        if parameter.ndim == 2:
            parameter.mul_(1 + 0.6 * torch.randn(parameter.shape, generator=generator))
    return target


def observations(count: int, seed: int) -> Iterator[Observation]:
    """Recorded images or noise, of one camera or another, one to three of them, with histories that never were."""
    chance = np.random.default_rng(seed)
    for _ in range(count):
        cells = CASES[chance.integers(3)].recorded["image_cells"]
        images = [cells[i].repeat(40, 0).repeat(40, 1) for i in chance.integers(len(cells), size=chance.integers(1, 4))]
        if chance.random() < 0.5:
            images = [chance.integers(0, 256, (360, 640, 3), dtype=np.uint8) for _ in images]
        history = CASES[chance.integers(3)].observation.history
        positions = history.positions * chance.uniform(-1, 2) + chance.normal(0, 1, (16, 3))
        frames = tuple(Frame.from_image(i, image) for i, image in enumerate(images))
        camera = int(chance.choice([0, 1, 2, 6]))
        yield Observation(0, {camera: frames}, EgoHistory(positions, history.rotations, history.pose_t0))


def speak(target: AlpamayoTarget, prompt: Prompt, *drafts: Draft, temperature: float = 0.0, seed: int = 0) -> Reasoning:
    return decode(
        target,
        prompt,
        Closing(*CLOSING, BINS),
        sampling=Sampling(temperature, 0.98),
        max_tokens=CAP,
        generator=torch.Generator().manual_seed(seed),
        drafts=drafts,
    )


def rows(target: AlpamayoTarget) -> Tensor:
    """(layers * 2, KV heads, tokens, head dim): all keys and values."""
    length = target.cache.length
    return torch.stack([t[0, :, :length] for pair in (target.cache.keys, target.cache.values) for t in pair])


class Oracle:
    """Knows what will be said; silent at times, and wrong at times with any token there is."""

    source, longest = TokenSource.DRAFT, 15

    def __init__(self, answer: Sequence[int], seed: int, counts: Sequence[int] = (0, 3, 15)) -> None:
        self.answer, self.chance, self.counts = answer, random.Random(seed), counts

    def open(self, choice: Choice) -> None:
        self.said = 0

    def begin(self, features: Tensor | None, token_ids: Tensor, positions: Tensor) -> None: ...

    def extend(self, features: Tensor | None, tokens: Sequence[int]) -> None:
        self.said += len(tokens)

    def propose(self, limit: int) -> Proposal:
        count = min(self.chance.choice(self.counts), limit)
        guess = [t if self.chance.random() < 0.9 else self.chance.randrange(5810) for t in self.answer[self.said :]]
        return Proposal(self.source, tuple(guess[:count]))


def draft_for(target: AlpamayoTarget, kind: str, rope: str, directory: Path) -> Eagle3Draft | DFlashDraft:
    draft, config = load_draft(random_draft(kind, rope, directory), target_parts(target))
    assert config.taps == target.taps
    return draft


def difference(target: AlpamayoTarget, prompt: Prompt, plain: Reasoning, drafted: Reasoning) -> float | None:
    """None if the same was said; otherwise the margin of the two likeliest tokens where it began to differ."""
    if plain.token_ids == drafted.token_ids:
        return None
    pairs = zip(plain.token_ids, drafted.token_ids, strict=False)
    same = sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], pairs))
    logits = target.prefill(prompt, plain.token_ids[:same]).logits[-1]
    logits[BINS.start : BINS.stop] = -torch.inf
    first, second = logits.topk(2).values.tolist()
    return float(first - second)


@pytest.mark.parametrize("model", ["golden", "blurred"])
def test_exact_in_float32(model: str, tmp_path: Path) -> None:
    target = load_target() if model == "golden" else blurred(1)
    networks = [
        draft_for(target, kind, rope, tmp_path / f"{kind}_{rope}")
        for kind, rope in itertools.product((EAGLE3, DFLASH), ("flat", "mirrored"))
    ]
    memory, ties, said = ReasoningMemory(10), 0, set()
    for number, observation in enumerate(observations(PROMPTS, seed=7)):
        prompt = target.prompt(observation)
        plain = speak(target, prompt)
        expected = rows(target).clone()
        drafted = speak(target, prompt, memory, Oracle(plain.token_ids, number), networks[number % 4])
        found = rows(target).clone()
        memory.remember(drafted.token_ids)
        said.add(plain.token_ids)
        margin = difference(target, prompt, plain, drafted)
        if margin is None:
            assert drafted.finish_reason is plain.finish_reason
            assert found.shape == expected.shape
            assert float((found - expected).abs().max() / expected.abs().max()) < 1e-4
        else:
            assert margin < 1e-4
            ties += 1
        assert len(drafted.tokens_per_pass) < len(plain.tokens_per_pass)
    assert ties <= 1
    assert len(said) >= 8  # the prompts are really different


BFLOAT16_MARGIN = 0.25  # two steps of bfloat16 at the size of the logits


def test_in_bfloat16_only_close_calls_differ(tmp_path: Path) -> None:
    target = load_target(torch.bfloat16)
    network = draft_for(target, EAGLE3, "flat", tmp_path)
    for number, observation in enumerate(observations(6, seed=5)):
        prompt = target.prompt(observation)
        plain = speak(target, prompt)
        drafted = speak(target, prompt, Oracle(plain.token_ids, number), network)
        margin = difference(target, prompt, plain, drafted)
        assert margin is None or margin < BFLOAT16_MARGIN


@pytest.mark.parametrize("rope", ["flat", "mirrored"])
@pytest.mark.parametrize("kind", [EAGLE3, DFLASH])
def test_step_by_step_it_proposes_what_it_would_in_one_go(
    target: AlpamayoTarget, kind: str, rope: str, tmp_path: Path
) -> None:
    """Features, positions behind images, and cache of the draft line up however the tokens came."""
    draft = draft_for(target, kind, rope, tmp_path)
    prompt = target.prompt(CASES[1].observation)  # four images
    answer = speak(target, prompt).token_ids
    asked: list[tuple[int, tuple[int, ...]]] = []
    oracle = Oracle(answer, seed=3, counts=(0, 2))

    class Watched:
        source, longest = draft.source, draft.longest
        open, begin, extend = draft.open, draft.begin, draft.extend

        def propose(self, limit: int) -> Proposal:
            proposal = draft.propose(limit)
            if oracle.said:  # so not before the prompt is read
                asked.append((oracle.said, proposal.tokens))
            return proposal

    speak(target, prompt, oracle, Watched())
    assert len(asked) >= 2
    for said, proposed in asked:
        step = target.prefill(prompt, answer[: said - 1])
        draft.open(Choice(Sampling(), BINS, torch.Generator()))
        length = len(step.token_ids)
        draft.begin(step.features[:length], step.token_ids, step.positions)
        draft.extend(step.features[length:], answer[:said])
        assert draft.propose(len(proposed)).tokens == proposed


def test_features_of_a_pass_are_those_of_the_prefill(target: AlpamayoTarget) -> None:
    prompt = target.prompt(CASES[1].observation)
    length, said = len(prompt.token_ids), speak(target, prompt).token_ids
    together = target.prefill(prompt, said).features
    first = target.prefill(prompt, said[:3]).features
    target.rollback(1)
    second = target.verify(said[2:7]).features
    torch.testing.assert_close(first, together[: length + 3], rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(second, together[length + 2 : length + 7], rtol=1e-4, atol=1e-4)


def test_the_targets_positions_stay_as_they_are(target: AlpamayoTarget, tmp_path: Path) -> None:
    prompt = target.prompt(CASES[1].observation)
    before = (prompt.layout.positions.clone(), prompt.token_ids.clone(), prompt.layout.rope_delta)
    plain = speak(target, prompt)
    for kind, rope in itertools.product((EAGLE3, DFLASH), ("flat", "mirrored")):
        draft = draft_for(target, kind, rope, tmp_path / f"{kind}{rope}")
        assert speak(target, prompt, draft).token_ids == plain.token_ids
        assert torch.equal(prompt.layout.positions, before[0])
        assert torch.equal(prompt.token_ids, before[1])
        assert prompt.layout.rope_delta == before[2] < 0  # a row of the cache is not the position of its token


@pytest.mark.parametrize("kind", [EAGLE3, DFLASH])
def test_nothing_is_kept_of_a_frame(target: AlpamayoTarget, kind: str, tmp_path: Path) -> None:
    draft = draft_for(target, kind, "flat", tmp_path)
    prompt = target.prompt(CASES[1].observation)
    features: list[weakref.ref[Tensor]] = []
    begin = draft.begin

    def watched(given: Tensor | None, token_ids: Tensor, positions: Tensor) -> None:
        assert given is not None
        features.append(weakref.ref(given.untyped_storage()))
        begin(given, token_ids, positions)

    draft.begin = watched
    capacity = set()
    for _ in range(3):
        speak(target, prompt, draft)
        capacity.add((draft.cache.capacity, target.cache.capacity))
    assert len(capacity) == 1
    draft.open(Choice(Sampling(), BINS, torch.Generator()))
    gc.collect()
    assert draft.cache.length == 0
    assert [reference() for reference in features] == [None, None, None]


@pytest.mark.parametrize("whole_vocabulary", [False, True])
@pytest.mark.parametrize("kind", [EAGLE3, DFLASH])
def test_a_sampled_proposal_comes_with_what_it_was_drawn_from(
    target: AlpamayoTarget, kind: str, whole_vocabulary: bool, tmp_path: Path
) -> None:
    directory = random_draft(kind, "flat", tmp_path, whole_vocabulary=whole_vocabulary)
    draft, _ = load_draft(directory, target_parts(target))
    prompt = target.prompt(CASES[1].observation)
    reasoning = speak(target, prompt, draft, temperature=2.0)
    assert not any(token in BINS for token in reasoning.token_ids)
    assert reasoning.token_ids == speak(target, prompt, draft, temperature=2.0).token_ids
    assert TokenOrigin.FORCED in reasoning.origins or reasoning.token_ids[-1] == CLOSING[1]
    proposal = draft.propose(5)
    q = proposal.probabilities
    assert q is not None
    assert q.shape == (5, 5810)
    torch.testing.assert_close(q.sum(-1), torch.ones(5))
    assert (q[:, BINS.start : BINS.stop] == 0).all()
    assert (q[torch.arange(5), list(proposal.tokens)] > 0).all()
    if not whole_vocabulary and kind == EAGLE3:
        assert (q[0] > 0).sum() <= 402


@pytest.mark.parametrize("kind", [EAGLE3, DFLASH])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_damaged_draft_costs_time_and_nothing_else(
    target: AlpamayoTarget, kind: str, temperature: float, tmp_path: Path
) -> None:
    draft = draft_for(target, kind, "flat", tmp_path)
    draft.network.fc.weight.fill_(float("nan"))
    prompt = target.prompt(CASES[1].observation)
    reasoning = speak(target, prompt, draft, temperature=temperature)
    if temperature == 0:
        assert reasoning.token_ids == speak(target, prompt).token_ids
