"""The measurements themselves; each needs target and drafts and nothing else from the others."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import torch
from torch import Tensor

from rsd_planner.gpu_check.attention import CPU_KINDS, CUDA_KINDS, Attend, causal_bias, grouped, reference
from rsd_planner.gpu_check.catalogue import EagerTarget, Pass, draft_passes, encode_name, step_name, target_passes
from rsd_planner.gpu_check.draft_passes import DFlashPasses, Eagle3Passes
from rsd_planner.gpu_check.exactness import TOKENS, Read, agreement, logits_by
from rsd_planner.gpu_check.floors import copy_rate, matmul_rate
from rsd_planner.gpu_check.models import DraftModels, TargetModels, make_drafts, make_target
from rsd_planner.gpu_check.report import Report, Row
from rsd_planner.gpu_check.shapes import IMAGES, STEPS, CheckShape
from rsd_planner.gpu_check.static_layers import decoder_layer
from rsd_planner.gpu_check.target_passes import Kernels
from rsd_planner.gpu_check.ticks import TickRunner
from rsd_planner.gpu_check.timing import LeftOutError, Program, measure
from rsd_planner.gpu_check.traces import Trace
from rsd_planner.gpu_check.vision_pass import vision_block

T = TypeVar("T")

_COMPILATIONS = 64  # shapes and roles of a layer
_LARGEST_ERROR = 0.02  # of an attention kind, relative to float32


class Session:
    """State of one check."""

    def __init__(self, shape: CheckShape, device: torch.device, report: Report) -> None:
        self.shape, self.device, self.report = shape, device, report
        self.dtype = torch.bfloat16 if device.type == "cuda" else torch.float32
        self._target: TargetModels | None = None
        self._drafts: DraftModels | None = None
        self._eager: EagerTarget | None = None
        self._passes: dict[str, Pass] = {}
        self._attend: dict[int, Attend] = {}  # tokens -> the fastest kind
        self._captured: dict[tuple[str, str], Program] = {}  # name, mode
        self._compiled: tuple[Any, Any] | None = None  # decoder layer, vision block
        self._eager_said: Tensor | None = None  # logits of the planner's own single steps

    @property
    def target(self) -> TargetModels:
        return _made(self._target, "target")

    @property
    def drafts(self) -> DraftModels:
        return _made(self._drafts, "drafts")

    @property
    def eager_target(self) -> EagerTarget:
        return _made(self._eager, "target")

    def make_target(self) -> None:
        self._target = make_target(self.shape, self.dtype, self.device)
        self._eager = EagerTarget(self.shape, self._target)
        self._passes.update(target_passes(self.shape, self._target, self._eager))
        self.note_memory("with the target")

    def make_drafts(self) -> None:
        self._drafts = make_drafts(self.shape, self.target, self.device)
        self._passes.update(draft_passes(self.shape, self.target, self._drafts, self.eager_target))
        self.note_memory("with target and drafts")

    def note_memory(self, when: str) -> None:
        """The largest amount allocated so far."""
        if self.device.type == "cuda":
            self.report.memory_gb[when] = torch.cuda.max_memory_allocated(self.device) / 1e9

    def measure_rates(self) -> None:
        """What the floors are made of."""
        self.report.rates["operations_per_s"] = matmul_rate(self.shape, self.dtype, self.device)
        self.report.rates["bytes_per_s"] = copy_rate(self.shape, self.dtype, self.device)
        if self.device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(self.device)

    def eager(self, name: str) -> None:
        """Time the planner's own code."""
        self.eager_target.rewind()
        self._row(name).timings["eager"] = measure(self._pass(name).eager, self.device)

    def fill(self) -> None:
        """Put the prompt into the static cache."""
        for name in (encode_name(IMAGES), "prefill"):
            self._pass(name).static(self._kernels(name))
        self.rewind()

    def graph(self, name: str) -> None:
        """Capture a static pass and time its replays."""
        self._capture(name, "graph", self._kernels(name))

    def compiled(self, name: str) -> None:
        """The same with compiled layers."""
        if self.device.type != "cuda":
            raise LeftOutError("no CUDA device")
        if self._compiled is None:
            import torch._dynamo

            torch._dynamo.config.recompile_limit = _COMPILATIONS
            self._compiled = (_compile(decoder_layer), _compile(vision_block))
        self._capture(name, "compiled", Kernels(self._kernels(name).attend, *self._compiled))

    def fastest(self, name: str) -> Callable[[], Any]:
        """A static pass by name: its fastest captured form, or as it is where none was captured."""
        forms = {mode: program for (each, mode), program in self._captured.items() if each == name}
        if not forms:
            act, kernels = self._pass(name).static, self._kernels(name)
            return lambda: act(kernels)
        timings = self.report.rows[name].timings
        return min(forms.items(), key=lambda form: timings[form[0]].median)[1]

    def rewind(self) -> None:
        """The static cache to the past at which passes are measured."""
        self.target.passes.length.fill_(self.shape.past)

    def choose_attention(self, tokens: int) -> None:
        """Time every kind over all text layers; the fastest right one is taken from now on."""
        passes, past = self.target.passes, self.shape.past
        text = self.target.network.text.config
        heads, group = text.num_attention_heads, text.num_attention_heads // text.num_key_value_heads
        queries = torch.randn(heads, tokens, text.head_dim, device=self.device).to(self.dtype)
        write = past + torch.arange(tokens, device=self.device)
        bias = causal_bias(write, passes.cache.capacity, group, self.dtype)
        expected = reference(queries, passes.cache.keys[0], passes.cache.values[0], bias)
        best, failed = float("inf"), []
        for name, kind in (CUDA_KINDS if self.device.type == "cuda" else CPU_KINDS).items():
            try:
                found, ms = self._time_attention(kind, queries, bias)
            except Exception as error:  # a kind that this device or version has no kernel for
                failed.append(f"{name}: {type(error).__name__} {str(error)[:80]}")
                continue
            difference = float((found - expected).norm() / expected.norm())
            self.report.attention.append({"tokens": tokens, "kind": name, "ms": ms, "error": difference})
            if difference < _LARGEST_ERROR and ms < best:
                best, self._attend[tokens] = ms, kind
        if failed:
            raise RuntimeError("; ".join(failed))

    def compare_eager(self) -> None:
        """The planner's own passes against its single steps."""
        target = self.target.target
        read, rewind = (lambda tokens: target.verify(tokens).logits), self.eager_target.rewind
        self._eager_said = self._compare("eager", read, rewind)

    def compare_static(self) -> None:
        """Passes over static buffers, the fastest ones, against single steps of theirs; these against eager ones."""
        passes = self.target.passes

        def read(tokens: Sequence[int]) -> Tensor:
            count = len(tokens)
            passes.tokens[:count].copy_(torch.tensor(tokens))
            self.fastest(step_name(count))()
            passes.length.add_(count)
            return passes.logits[:count]

        single = self._compare(self._described(), read, self.rewind)
        if self._eager_said is not None:
            found = agreement(self._eager_said, single, self.shape.bins)
            self.report.exactness.append({"mode": f"{self._described()}, eager", "tokens_per_pass": 1, **found})

    def run_ticks(self, trace: Trace) -> None:
        """Whole ticks as fast as the passes are by now."""
        drafts: dict[str, DFlashPasses | Eagle3Passes] = {"dflash": self.drafts.dflash, "eagle3": self.drafts.eagle3}
        entry = TickRunner(self.target.passes, drafts, self.fastest).measure(trace)
        self.report.ticks.append({**entry, "passes": self._described()})

    def _compare(self, mode: str, read: Read, rewind: Callable[[], None]) -> Tensor:
        """Passes of several tokens against single steps, whose logits are returned."""
        dice = torch.Generator().manual_seed(0)
        tokens = torch.randint(self.shape.image_pad - 10, (TOKENS,), generator=dice).tolist()
        single = logits_by(1, tokens, read, rewind)
        for count in STEPS[1:]:
            together = logits_by(count, tokens, read, rewind)
            found = agreement(single, together, self.shape.bins)
            self.report.exactness.append({"mode": mode, "tokens_per_pass": count, **found})
        rewind()
        return single

    def _time_attention(self, kind: Attend, queries: Tensor, bias: Tensor) -> tuple[Tensor, float]:
        cache = self.target.passes.cache

        def act() -> list[Tensor]:
            return [kind(queries, keys, values, bias) for keys, values in zip(cache.keys, cache.values, strict=True)]

        program = Program(act, self.device)
        if self.device.type == "cuda":
            program.capture()
        ms = measure(program, self.device).median
        return program()[0].clone(), ms

    def _capture(self, name: str, mode: str, kernels: Kernels) -> None:
        act = self._pass(name).static
        self.rewind()
        program = Program(lambda: act(kernels), self.device).capture()
        self._row(name).timings[mode] = measure(program, self.device)
        self._captured[name, mode] = program

    def _kernels(self, name: str) -> Kernels:
        return Kernels(self._attend.get(self._pass(name).tokens, grouped))

    def _pass(self, name: str) -> Pass:
        return _made(self._passes.get(name), "target or draft")

    def _row(self, name: str) -> Row:
        return self.report.rows.setdefault(name, Row(name, self._pass(name).work))

    def _described(self) -> str:
        modes = {mode for _, mode in self._captured}
        return "compiled" if "compiled" in modes else "graph" if modes else "static"


def _made(thing: T | None, name: str) -> T:
    if thing is None:
        raise LeftOutError(f"no {name} could be made")
    return thing


def _compile(act: Any) -> Any:
    return torch.compile(act, fullgraph=True, dynamic=False)
