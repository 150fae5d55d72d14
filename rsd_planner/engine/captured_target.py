"""The PyTorch target on a GPU: verify passes and flow steps recorded as CUDA graphs, all else as on a CPU."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property

import torch
from torch import Tensor

from rsd_planner.decoding.protocols import Step
from rsd_planner.engine import inputs
from rsd_planner.engine.capture import LENGTHS, CapturedRunner
from rsd_planner.engine.graph_parts import PACKED_ATTENTION, graph_attention
from rsd_planner.engine.graphs import ActionGraph, TextGraph
from rsd_planner.engine.manifest import Port
from rsd_planner.engine.runner import Described, Ports
from rsd_planner.target.alpamayo import AlpamayoTarget
from rsd_planner.target.kv_cache import KVCache
from rsd_planner.target.network import AlpamayoNetwork


class CapturedTarget(AlpamayoTarget):
    """Short passes go through the modules that are exported, over whole cache buffers, with the cache in place."""

    def _forward(
        self,
        embedded: Tensor,
        positions: Tensor,
        asked: int,
        deepstack: Sequence[Tensor] = (),
        image_index: Tensor | None = None,
    ) -> Step:
        count, length = embedded.shape[1], self.cache.length
        self.cache.reserve(self._runner.padded(count))
        if length == 0:
            self.cache.wipe()
        if deepstack or count > LENGTHS[-1]:
            return super()._forward(embedded, positions, asked, deepstack, image_index)
        out = self._runner.run(
            "text",
            {
                "embeddings": embedded,
                "positions": positions,
                "deepstack": embedded.new_zeros(0, *embedded.shape[1:]),
                "asked": torch.arange(count - asked, count, device=self.device),
                "mask": inputs.causal(length, count, self.cache.capacity, self.device),
                "write_index": torch.full((1,), length, device=self.device),
            },
            self.cache,
        )
        self.cache.commit(count)
        return Step(out["logits"], out.get("features"))

    @torch.inference_mode()
    def velocity(self, actions: Tensor, time: float) -> Tensor:
        """See `AlpamayoTarget.velocity`."""
        self.cache.reserve(len(actions))
        positions = self._positions_after(self.cache.length, len(actions))
        out = self._runner.run("action", inputs.flow_step(actions, time, positions, self.cache), self.cache)
        return out["velocity"][0]

    def close(self) -> None:
        self.__dict__.pop("_runner", None)
        super().close()

    @cached_property
    def _runner(self) -> CapturedRunner:
        return CapturedRunner(_Modules(self.network, self.taps, self.dtype, self.device))


class _Modules:
    """Text model and action expert as a `runner.Runner`."""

    def __init__(self, network: AlpamayoNetwork, taps: Sequence[int], dtype: torch.dtype, device: torch.device) -> None:
        self.dtype, self.device = dtype, device
        self._configs = (network.text.config, network.expert.rotary_emb.config)
        self._modules = {
            "text": TextGraph(network, taps, in_place=True),
            "action": ActionGraph(network, in_place=True),
        }
        features = (Port("features", "", ("tokens", -1)),) if taps else ()
        self._ports = {
            "text": Described(
                (
                    Port("embeddings", "", (1, "tokens", -1)),
                    Port("positions", "", (3, 1, "tokens")),
                    Port("deepstack", "", (0, "tokens", -1)),
                    Port("asked", "", ("asked",)),
                    Port("mask", "", (1, 1, "tokens", "capacity")),
                ),
                (Port("logits", "", ("asked", -1)), *features),
            ),
            "action": Described((Port("mask", "", (1, 1, -1, "capacity")),), (Port("velocity", "", (1, -1, -1)),)),
        }

    def ports(self, graph: str) -> Ports:
        """Those with lengths that are chosen per pass, and what comes out."""
        return self._ports[graph]

    def padded(self, count: int) -> int:
        """See `runner.Runner.padded`."""
        return count

    def new_cache(self, layers: int, kv_heads: int, head_dim: int) -> KVCache:
        """See `runner.Runner.new_cache`."""
        return KVCache(layers, kv_heads, head_dim, dtype=self.dtype, device=self.device)

    def run(self, graph: str, inputs: Mapping[str, Tensor], cache: KVCache | None = None) -> Mapping[str, Tensor]:
        """See `runner.Runner.run`."""
        assert cache is not None
        with graph_attention(*self._configs, name=PACKED_ATTENTION):
            out = self._modules[graph](**inputs, cache=[*cache.keys, *cache.values])
        return dict(zip((port.name for port in self._ports[graph].outputs), out, strict=False))
