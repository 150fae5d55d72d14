"""What this device can do at best, measured, and how long a pass must therefore take."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain

import torch

from rsd_planner.draft.dflash import DFlashNetwork
from rsd_planner.draft.eagle3 import Eagle3Network
from rsd_planner.gpu_check.shapes import DFLASH_BLOCK, DRAFT_ROWS, EAGLE3_CHAIN, CheckShape
from rsd_planner.gpu_check.timing import measure
from rsd_planner.gpu_check.weights import parameter_count
from rsd_planner.target.network import AlpamayoNetwork

_BYTES = 2  # of a weight, a key, a value
_WAYPOINTS = 64
_INNER = 5  # products or copies per timing, so that the clocks are up


@dataclass(frozen=True)
class Work:
    """The least a pass must do."""

    bytes: float  # weights, keys and values read once from memory; written ones included
    operations: float  # multiplications and additions of the matrix products

    def __mul__(self, count: int) -> Work:
        return Work(self.bytes * count, self.operations * count)

    def __add__(self, other: Work) -> Work:
        return Work(self.bytes + other.bytes, self.operations + other.operations)


@dataclass(frozen=True)
class Floors:
    """Measured rates."""

    bytes_per_s: float  # of a copy, bytes read and bytes written counted
    operations_per_s: float  # of a square product in the model's precision

    def ms(self, work: Work) -> tuple[float, str]:
        """The least time, and what it is bound by."""
        by_bytes, by_operations = work.bytes / self.bytes_per_s * 1e3, work.operations / self.operations_per_s * 1e3
        return max((by_bytes, "bytes"), (by_operations, "operations"))


def copy_rate(shape: CheckShape, dtype: torch.dtype, device: torch.device) -> float:
    """Bytes per second of a copy within the device's memory, far larger than its caches."""
    source = torch.empty(shape.floor_bytes // dtype.itemsize, dtype=dtype, device=device).normal_()
    target = torch.empty_like(source)
    rounds = measure(lambda: [target.copy_(source) for _ in range(_INNER)], device, inner=_INNER)
    return 2 * shape.floor_bytes / rounds.median * 1e3


def matmul_rate(shape: CheckShape, dtype: torch.dtype, device: torch.device) -> float:
    """Operations per second of a square matrix product of random numbers."""
    side = shape.floor_size
    left, right = (torch.empty(side, side, dtype=dtype, device=device).normal_() for _ in range(2))
    out = torch.empty_like(left)
    rounds = measure(lambda: [torch.mm(left, right, out=out) for _ in range(_INNER)], device, inner=_INNER)
    return 2 * side**3 / rounds.median * 1e3


class Accounts:
    """The least work of every pass, counted from the modules and shapes."""

    def __init__(self, shape: CheckShape, network: AlpamayoNetwork) -> None:
        self._shape, self._network = shape, network
        text, expert = network.text.config, network.expert.rotary_emb.config
        self._layers = text.num_hidden_layers
        self._kv_row = 2 * text.num_key_value_heads * text.head_dim  # numbers per token and layer
        self._text_width = text.num_attention_heads * text.head_dim
        self._expert_width = expert.num_attention_heads * expert.head_dim
        self._text_weights = parameter_count(network.text.layers)
        self._head = network.vlm.lm_head.weight.numel()
        self._expert_weights = parameter_count([network.expert, network.action_in_proj, network.action_out_proj])

    def step(self, tokens: int, past: int) -> Work:
        """A verify pass, logits of all its tokens."""
        weights = self._text_weights + self._head
        attention = _attention(tokens, past + tokens / 2, self._text_width) * self._layers
        return Work(_BYTES * (weights + self._kv(past + tokens)), 2 * tokens * weights + attention)

    def prefill(self) -> Work:
        """The whole prompt, logits of its last token."""
        tokens = self._shape.prompt_tokens
        attention = _attention(tokens, tokens / 2, self._text_width) * self._layers
        return Work(
            _BYTES * (self._text_weights + self._head + self._kv(tokens)),
            2 * tokens * self._text_weights + 2 * self._head + attention,
        )

    def flow(self, steps: int, past: int) -> Work:
        """Euler steps of the action expert behind a prefix."""
        attention = _attention(_WAYPOINTS, past + _WAYPOINTS, self._expert_width) * self._layers
        one = Work(_BYTES * (self._expert_weights + self._kv(past)), 2 * _WAYPOINTS * self._expert_weights + attention)
        return one * steps

    def encode(self, images: int) -> Work:
        """Images through the vision tower."""
        vision = self._network.vision
        patches = self._shape.grid[1] * self._shape.grid[2]
        per_patch = parameter_count(chain(vision.blocks, [vision.patch_embed]))
        per_token = parameter_count(chain([vision.merger], vision.deepstack_merger_list))
        attention = _attention(patches, patches, vision.config.hidden_size) * len(vision.blocks)
        operations = 2 * patches * per_patch + 2 * patches // 4 * per_token + attention
        return Work(_BYTES * (per_patch + per_token), images * operations)

    def dflash(self, network: DFlashNetwork, past: int) -> Work:
        """Reading a pass's features, then one block."""
        projection, layers = network.fc.weight.numel(), parameter_count(network.layers)
        layer = network.layers[0].self_attn
        contexts = len(network.layers) * (layer.k_proj.weight.numel() + layer.v_proj.weight.numel())
        weights = projection + layers + self._head
        attention = _attention(DFLASH_BLOCK, past, self._text_width) * len(network.layers)
        operations = 2 * DRAFT_ROWS * (projection + contexts) + 2 * DFLASH_BLOCK * (layers + self._head) + attention
        return Work(_BYTES * (weights + len(network.layers) * self._kv_row * past), operations)

    def dflash_prompt(self, network: DFlashNetwork) -> Work:
        """Reading the prompt's features."""
        tokens, layer = self._shape.prompt_tokens, network.layers[0].self_attn
        contexts = len(network.layers) * (layer.k_proj.weight.numel() + layer.v_proj.weight.numel())
        weights = network.fc.weight.numel() + contexts
        features = tokens * network.fc.weight.shape[1]
        return Work(_BYTES * (weights + features), 2 * tokens * weights)

    def eagle3_prompt(self, network: Eagle3Network) -> Work:
        """Reading the prompt's features, which is one pass of the layer over all of them."""
        tokens = self._shape.prompt_tokens
        weights = network.fc.weight.numel() + parameter_count([network.midlayer])
        features = tokens * network.fc.weight.shape[1]
        operations = 2 * tokens * weights + _attention(tokens, tokens / 2, self._text_width)
        return Work(_BYTES * (weights + features), operations)

    def eagle3(self, network: Eagle3Network, past: int) -> Work:
        """Reading a pass's features, then a chain of proposals, the first of which needs no further layer pass."""
        assert network.lm_head is not None
        projection, layer = network.fc.weight.numel(), parameter_count([network.midlayer])
        head = network.lm_head.weight.numel()
        passes = _reads(layer, self._kv_row * past) * EAGLE3_CHAIN + _reads(head, 0) * EAGLE3_CHAIN
        attention = _attention(DRAFT_ROWS + EAGLE3_CHAIN - 1, past, self._text_width)
        operations = 2 * DRAFT_ROWS * (projection + layer) + 2 * (EAGLE3_CHAIN - 1) * layer + 2 * EAGLE3_CHAIN * head
        return _reads(projection, 0) + passes + Work(0, operations + attention)

    def _kv(self, tokens: float) -> float:
        return float(self._layers * self._kv_row * tokens)


def _reads(weights: float, others: float) -> Work:
    return Work(_BYTES * (weights + others), 0)


def _attention(tokens: float, seen: float, width: int) -> float:
    """Operations of scores and mixing in one layer."""
    return 4 * tokens * seen * width
