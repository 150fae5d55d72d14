"""Passes over static buffers: what the planner's own code says, said without a word to the host."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from rsd_planner.gpu_check import attention
from rsd_planner.gpu_check.attention import causal_bias, grouped, reference, repeated
from rsd_planner.gpu_check.catalogue import EagerTarget, draft_passes, target_passes
from rsd_planner.gpu_check.models import DraftModels, TargetModels, make_drafts, make_target
from rsd_planner.gpu_check.scene import encode_one, prompt_of
from rsd_planner.gpu_check.shapes import ALPAMAYO, IMAGES, STEPS, TINY
from rsd_planner.gpu_check.static_layers import decoder_layer
from rsd_planner.gpu_check.target_passes import Kernels
from rsd_planner.gpu_check.weights import greedy
from rsd_planner.target.network import ScalingBuffers

KERNELS = Kernels(grouped)
CPU, META = torch.device("cpu"), torch.device("meta")


@pytest.fixture(autouse=True)
def _without_gradients() -> Iterator[None]:
    with torch.no_grad():
        yield


@pytest.fixture(scope="module")
def models() -> TargetModels:
    """The target after the prompt, in both forms, rewound to the same past."""
    torch.manual_seed(0)
    with torch.no_grad():
        made = make_target(TINY, torch.float32, CPU)
        made.scene.patches.normal_()
        made.passes.encode(IMAGES, KERNELS)
        made.passes.prefill(KERNELS)
    return made


@pytest.fixture(scope="module")
def drafts(models: TargetModels) -> DraftModels:
    with torch.no_grad():
        return make_drafts(TINY, models, CPU)


def prefilled(models: TargetModels) -> Any:
    grid = torch.tensor([TINY.grid])
    images = [encode_one(models.network, patches, grid) for patches in models.scene.patches]
    return models.target.prefill(prompt_of(models.scene, images))


def close(found: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)


def test_all_images_at_once_are_encoded_as_one_after_the_other(models: TargetModels) -> None:
    grid = torch.tensor([TINY.grid])
    for i in (0, 7, IMAGES - 1):
        one = encode_one(models.network, models.scene.patches[i], grid)
        for found, expected in zip(models.passes.image_rows[:, i], (one.embeddings, *one.deepstack), strict=True):
            close(found, expected)
    assert not torch.allclose(models.passes.image_rows[0, 0], models.passes.image_rows[0, 1])


def test_prefill_says_what_the_planner_says(models: TargetModels) -> None:
    read = prefilled(models)
    models.passes.prefill(KERNELS)
    close(models.passes.logits[0], read.logits[0])
    close(models.passes.prompt_features, read.features)
    assert int(models.passes.best[0]) == int(greedy(TINY).best(read.logits[0])[1])


@pytest.mark.parametrize("count", STEPS)
def test_a_step_says_what_the_planner_says(models: TargetModels, count: int) -> None:
    prefilled(models)
    models.target.rollback(TINY.prompt_tokens - TINY.past)
    tokens = torch.randint(TINY.image_pad - 10, (count,))
    step = models.target.verify(tokens.tolist())
    models.passes.length.fill_(TINY.past)
    models.passes.tokens[:count].copy_(tokens)
    models.passes.step(count, KERNELS)
    close(models.passes.logits[:count], step.logits)
    assert step.features is not None
    close(models.passes.features[:count], step.features)
    assert torch.equal(models.passes.best[:count], greedy(TINY).best(step.logits)[1])


def test_flow_moves_actions_as_the_planner_moves_them(models: TargetModels) -> None:
    """One Euler step: random features of frequency 100 make any more of them chaotic."""
    prefilled(models)
    models.passes.prefill(KERNELS)
    models.passes.length.fill_(TINY.prompt_tokens)
    models.passes.flow(1, KERNELS)
    close(models.passes.actions, models.target.sample_actions(models.passes.noise, 1))


def test_dflash_proposes_what_the_planner_s_draft_proposes(models: TargetModels, drafts: DraftModels) -> None:
    read = prefilled(models)
    assert read.features is not None
    draft, last = drafts.drafts.dflash, [5, 6, 8]
    rows = torch.randn(3, read.features.shape[1])
    draft.open(greedy(TINY))
    draft.begin(read.features, read.token_ids, read.positions)
    draft.extend(rows[:0], [7])
    draft.extend(rows, last)
    said = draft.propose(15)
    with torch.inference_mode():
        expected = models.network.vlm.lm_head(draft.hidden()[1:])

    models.passes.prefill(KERNELS)
    drafts.dflash.prompt(KERNELS)
    models.passes.features.normal_()[:3].copy_(rows)
    drafts.dflash.read.fill_(TINY.prompt_tokens)
    drafts.dflash.accepted.fill_(3)
    drafts.dflash.last.fill_(last[-1])
    logits = drafts.dflash.propose(KERNELS)
    words = torch.ones(TINY.vocab_size, dtype=torch.bool)
    words[TINY.bins.start : TINY.bins.stop] = False
    close(logits[:, words], expected[:, words])
    assert tuple(models.passes.tokens[:16].tolist()) == (last[-1], *said.tokens)


def test_eagle3_proposes_what_the_planner_s_draft_proposes(models: TargetModels, drafts: DraftModels) -> None:
    read = prefilled(models)
    assert read.features is not None
    width = TINY.eagle3.taps * TINY.eagle3.hidden
    models.passes.prefill(KERNELS)
    first = int(models.passes.best[0])
    draft, rows = drafts.drafts.eagle3, torch.randn(4, read.features.shape[1])
    draft.open(greedy(TINY))
    draft.begin(read.features[:, :width], read.token_ids, read.positions)
    draft.extend(read.features[:0, :width], [first])
    expected = [draft.propose(7).tokens]
    drafts.eagle3.prompt(KERNELS)
    drafts.eagle3.begin()
    drafts.eagle3.propose(KERNELS)
    found = [tuple(models.passes.tokens[1:8].tolist())]

    said = [11, 12, 13, 14]
    draft.extend(rows[:, :width], said)
    expected.append(draft.propose(7).tokens)
    models.passes.features.normal_()[:4].copy_(rows)
    models.passes.best[:4].copy_(torch.tensor(said))
    drafts.eagle3.extend(4)
    drafts.eagle3.propose(KERNELS)
    found.append(tuple(models.passes.tokens[1:8].tolist()))
    assert found == expected
    assert len(set(found[0])) > 1


@pytest.mark.parametrize("kind", [grouped, repeated])
@pytest.mark.parametrize("tokens", [1, 5])
def test_attention_kinds_agree(kind: Any, tokens: int) -> None:
    queries, keys, values = torch.randn(8, tokens, 16), torch.randn(2, 64, 16), torch.randn(2, 64, 16)
    bias = causal_bias(40 + torch.arange(tokens), 64, 4, torch.float32)
    close(kind(queries, keys, values, bias), reference(queries, keys, values, bias))
    seen = slice(0, 40 + tokens)  # the last token sees these rows and no others
    alone = reference(queries[:, -1:], keys[:, seen], values[:, seen], torch.zeros(4, 40 + tokens))
    close(kind(queries, keys, values, bias)[:, -1:], alone)


def test_attention_in_stretches_agrees(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the arithmetic of the CUDA kernel, which rounds the number of its log weights up."""

    def kernel(queries: Tensor, keys: Tensor, values: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
        scores = queries @ keys.transpose(2, 3) / queries.shape[3] ** 0.5 + bias
        padding = torch.zeros(*scores.shape[:2], 5)
        return scores.softmax(dim=-1) @ values, torch.cat([scores.logsumexp(dim=-1), padding], dim=-1)

    monkeypatch.setattr(attention, "_with_log_weight", kernel)
    queries, keys, values = torch.randn(8, 3, 16), torch.randn(2, 128, 16), torch.randn(2, 128, 16)
    bias = causal_bias(50 + torch.arange(3), 128, 4, torch.float32)
    close(attention.split(queries, keys, values, bias), reference(queries, keys, values, bias))


class OnDevice(TorchDispatchMode):
    """Refuses whatever a CUDA graph could not hold: tensors of another device, values the host waits for."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        elsewhere = [x for x in tree_leaves((args, kwargs, out)) if isinstance(x, Tensor) and x.device != META]
        assert not elsewhere, f"{func}: {elsewhere[0].device}"
        assert "nonzero" not in str(func)
        return out


def test_no_pass_of_the_true_shape_leaves_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ScalingBuffers, "scaling", lambda _: None)  # reads values, which nothing here has
    made = make_target(ALPAMAYO, torch.bfloat16, META)
    eager = EagerTarget(ALPAMAYO, made)
    passes = dict(target_passes(ALPAMAYO, made, eager))
    passes.update(draft_passes(ALPAMAYO, made, make_drafts(ALPAMAYO, made, META), eager))
    for name in ("encode 4 images", "prefill", "step of 16", "dflash proposal", "eagle3 proposal"):
        with OnDevice():
            passes[name].static(KERNELS)
    with OnDevice():
        made.passes.flow(1, KERNELS)
    assert made.scene.layout.rope_delta == -2592
    with pytest.raises(AssertionError, match="cpu"), OnDevice():
        made.passes.length.add_(torch.ones(1, dtype=torch.int64))


def test_one_compilation_serves_all_layers(models: TargetModels) -> None:
    graphs = []

    def count(graph: Any, _: Any) -> Any:
        graphs.append(graph)
        return graph.forward

    torch._dynamo.reset()
    layer = torch.compile(decoder_layer, backend=count, fullgraph=True, dynamic=False)
    models.passes.tokens.copy_(torch.arange(32))
    models.passes.length.fill_(TINY.past)
    models.passes.step(4, KERNELS)
    expected = models.passes.logits[:4].clone()
    models.passes.step(4, Kernels(grouped, layer))
    close(models.passes.logits[:4], expected)
    assert len(graphs) == 1
