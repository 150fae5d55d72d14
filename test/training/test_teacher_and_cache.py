"""What training is fed with is what the planner's own loop says and sees, and it is there again after a stop."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from golden_cases import R1
from training_files import CAP, MixedFrames, golden_cache, golden_target

from rsd_planner.decoding.logits import Sampling
from rsd_planner.decoding.loop import decode
from rsd_planner.decoding.reasoning import Closing, Reasoning
from rsd_planner.errors import TrainingError
from rsd_planner.plan import TokenOrigin
from rsd_planner.target.alpamayo import AlpamayoTarget, Prompt
from rsd_planner.training import cache as cache_module
from rsd_planner.training import samples as samples_module
from rsd_planner.training.cache import FINAL, Cache, target_fingerprint
from rsd_planner.training.samples import Samples
from rsd_planner.training.teacher import Teacher

TAPS = (0, 2)


@pytest.fixture(scope="module")
def target() -> AlpamayoTarget:
    return golden_target()


def plain(target: AlpamayoTarget, prompt: Prompt, max_tokens: int = CAP) -> Reasoning:
    words = target.vocabulary
    closing = Closing(words.cot_end, words.future_start, words.bins)
    generator = torch.Generator()
    return decode(target, prompt, closing, sampling=Sampling(), max_tokens=max_tokens, generator=generator)


def own(reasoning: Reasoning) -> list[int]:
    pairs = zip(reasoning.token_ids, reasoning.origins, strict=True)
    return [token for token, origin in pairs if origin is not TokenOrigin.FORCED]


@pytest.mark.parametrize(("max_tokens", "count"), [(CAP, 15), (6, 8)])
def test_the_batch_says_token_for_token_what_the_plain_loop_says(
    target: AlpamayoTarget, max_tokens: int, count: int
) -> None:
    source = MixedFrames(count)
    observations = [source.observation(number) for number in range(len(source))]
    batches, refused = Teacher(target).prompts(observations)
    said = set()
    assert not refused
    assert sorted(number for prompts in batches for number in prompts.numbers) == list(range(count))
    for prompts in batches:
        found, _ = Teacher(target).greedy(prompts, max_tokens, ())
        for number, tokens in zip(prompts.numbers, found, strict=True):
            assert tokens == own(plain(target, target.prompt(observations[number]), max_tokens))
            said.add(tuple(tokens))
    assert len(said) >= 2
    if max_tokens == CAP:
        assert len({len(tokens) for tokens in said}) >= 3  # some stop early, and the batch goes on


def test_hidden_states_are_those_a_draft_is_fed_with(target: AlpamayoTarget, tmp_path: Path) -> None:
    source = MixedFrames(7)
    samples = Samples(golden_cache(tmp_path, source, target, gigabytes=0.0), TAPS)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cache_module, "CHUNK", 3)
        patch.setattr(samples_module, "CHUNK", 3)
        cache = golden_cache(tmp_path / "stored", source, target)
        stored, resident = Samples(cache, TAPS), Samples(cache, TAPS, resident=True)
        chunked = {int(chosen[0]): (stored.batch(chosen), resident.batch(chosen)) for chosen in samples.epoch(2, 0, 0)}
    target.taps = TAPS
    for chosen in samples.epoch(2, 0, 0):
        batch = samples.batch(chosen)
        rounded, held = chunked[int(chosen[0])]
        for row, sample in enumerate(chosen.tolist()):
            reasoning = samples.reasonings[sample].tolist()
            prompt = target.prompt(source.observation(sample))
            step = target.prefill(prompt, reasoning[:-1])
            read = len(step.features)
            assert batch.tokens[row, : batch.prompt_length].tolist() == step.token_ids.tolist()
            assert torch.equal(batch.positions, step.positions)
            torch.testing.assert_close(batch.features[row, :read], step.features, rtol=1e-4, atol=1e-4)
            torch.testing.assert_close(rounded.features[row, :read], step.features, rtol=1e-2, atol=1e-2)
            assert torch.equal(rounded.features[row, :read], held.features[row, :read])
            assert torch.equal(rounded.final[row, : len(reasoning)], held.final[row, : len(reasoning)])
            final = batch.final[row, : len(reasoning)]
            torch.testing.assert_close(target.network.logits(final), step.logits, rtol=1e-4, atol=1e-4)
    target.taps = ()


def test_the_ego_history_is_filled_in(target: AlpamayoTarget, tmp_path: Path) -> None:
    source = MixedFrames(6)
    samples = Samples(golden_cache(tmp_path, source, target), TAPS)
    words, seen = target.vocabulary, set()
    start, end = words.encode("<|traj_history_start|>")[0], words.encode("<|traj_history_end|>")[0]
    for sample in range(len(samples)):
        prompt = samples.prompts[sample].tolist()
        told = prompt[prompt.index(start) + 1 : prompt.index(end)]
        assert words.history_placeholder not in prompt
        assert told == target.config.history.encode(source.observation(sample).history.positions).tolist()
        seen.add(tuple(told))
    assert len(seen) == len(samples)


def test_a_stopped_cache_goes_on_and_is_never_half_written(target: AlpamayoTarget, tmp_path: Path) -> None:
    source = MixedFrames(3)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cache_module, "CHUNK", 2)
        cache = Cache(tmp_path, source, Teacher(target), "one", max_tokens=CAP, gigabytes=1.0)
        cache.fill(range(cache.chunks), TAPS, lambda: True)
        assert source.asked == 2
        assert not cache.complete()
        again = Cache(tmp_path, source, Teacher(target), "one", max_tokens=CAP, gigabytes=1.0)
        again.fill(range(again.chunks), TAPS, lambda: False)
        assert source.asked == 3
        assert again.complete()
        assert not list(tmp_path.rglob("*.part"))
        again.fill(range(again.chunks), (*TAPS, 3), lambda: False)  # another draft taps other layers
        assert source.asked == 6
        assert {path.name for path in (tmp_path / "mixed").iterdir() if path.is_dir()} == {
            "layer-00",
            "layer-02",
            "layer-03",
            FINAL,
        }


def test_more_frames_go_on_with_the_cache_of_fewer(target: AlpamayoTarget, tmp_path: Path) -> None:
    """Neither does data that has grown, such as a split that is still rendered, begin anew."""
    source = MixedFrames(7)
    source.fingerprint = "grows"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cache_module, "CHUNK", 3)
        for limit, count, asked, length in ((2, 7, 3, 2), (5, 7, 6, 5), (None, 7, 7, 7), (None, 8, 9, 8)):
            source.count = count
            cache = Cache(tmp_path, source, Teacher(target), "one", max_tokens=CAP, gigabytes=0.0, limit=limit)
            cache.fill(range(cache.chunks), TAPS, lambda: False)
            samples = Samples(cache, TAPS)
            assert (source.asked, len(samples)) == (asked, length)
            assert sorted(np.concatenate(samples.epoch(1, 0, 0)).tolist()) == list(range(length))


def test_hidden_states_are_kept_as_far_as_there_is_room(target: AlpamayoTarget, tmp_path: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cache_module, "CHUNK", 3)
        kept = golden_cache(tmp_path / "all", MixedFrames(9), target)
        size = sum(path.stat().st_size for path in (tmp_path / "all").rglob("*.safetensors")) / 3
        some = golden_cache(tmp_path / "some", MixedFrames(9), target, gigabytes=2.2 * size / 1e9)
    assert len(list((tmp_path / "all").rglob("*.safetensors"))) == 3 * len([*TAPS, FINAL])
    assert len(list((tmp_path / "some").rglob("*.safetensors"))) == 2 * len([*TAPS, FINAL])
    assert kept.frames == some.frames == 9


def test_what_another_target_said_is_not_used(target: AlpamayoTarget, tmp_path: Path) -> None:
    golden_cache(tmp_path, MixedFrames(2), target)
    with pytest.raises(TrainingError, match=r"about\.json: found {'target': '\w+'}, expected {'target': 'other'}"):
        Cache(tmp_path, MixedFrames(2), Teacher(target), "other", max_tokens=CAP, gigabytes=1.0)
    with pytest.raises(TrainingError, match=r"found {'data': '2, 0'}, expected {'data': '2, 7'}"):
        Cache(tmp_path, MixedFrames(2, seed=7), Teacher(target), target_fingerprint(R1), max_tokens=CAP, gigabytes=1.0)


def test_a_broken_image_leaves_its_frame_out(target: AlpamayoTarget, tmp_path: Path) -> None:
    samples = Samples(golden_cache(tmp_path, MixedFrames(4, broken=[2]), target), TAPS)
    assert samples.ids == ["mixed/0", "mixed/1", "mixed/3"]
    assert list(samples.refused) == ["mixed/2"]
    assert "cannot be" in samples.refused["mixed/2"] or "image of" in samples.refused["mixed/2"]


def test_batches_are_of_one_layout_and_the_same_for_the_same_seed(target: AlpamayoTarget, tmp_path: Path) -> None:
    samples = Samples(golden_cache(tmp_path, MixedFrames(12), target), TAPS)
    first, other = samples.epoch(2, 3, 0), samples.epoch(2, 3, 1)
    assert np.array_equal(first, samples.epoch(2, 3, 0))
    assert not np.array_equal(first, other)
    assert sorted(np.concatenate(first).tolist()) == list(range(12))
    assert {len({len(samples.prompts[i]) for i in chosen}) for chosen in first} == {1}
    assert len({len(samples.prompts[chosen[0]]) for chosen in first}) == 2
    with pytest.raises(TrainingError, match="make no batch of 9"):
        samples.epoch(9, 0, 0)
