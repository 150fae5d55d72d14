"""Planner: loads a model directory and turns an Observation into a Plan. No ROS in it."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch

from rsd_planner.decoding.acceptance import EXACT, Substitution
from rsd_planner.decoding.logits import Sampling
from rsd_planner.decoding.loop import decode
from rsd_planner.decoding.protocols import Draft
from rsd_planner.decoding.reasoning import Closing, Reasoning
from rsd_planner.decoding.verify_length import LONGEST, VerifyLength, measure_costs
from rsd_planner.draft.memory import ReasoningMemory
from rsd_planner.draft.path_changes import read_path_changes
from rsd_planner.draft.target_parts import TargetParts
from rsd_planner.engine.backends import Backend, BackendName, load_backend
from rsd_planner.engine.manifest import target_fingerprint
from rsd_planner.errors import CheckpointError, EngineError, ModelOutputError, ObservationError, ParameterError
from rsd_planner.model_info import ModelInfo
from rsd_planner.plan import WAYPOINTS, FinishReason, Plan, StageTimes, TokenOrigin
from rsd_planner.scene.observation import HISTORY_STEPS, STEP_NS, EgoHistory, Frame, Observation, Pose
from rsd_planner.target.action_expert import ACTION_DIMS
from rsd_planner.target.action_space import roll_out, solve_v0
from rsd_planner.target.alpamayo import AlpamayoTarget, Prompt
from rsd_planner.target.checkpoint import ModelDirectory, accessible
from rsd_planner.target.config import FRAMES_PER_CAMERA, Variant

_DTYPES = ("float32", "bfloat16")
ACCEPTANCES = ("exact", "action_tolerant")


@dataclass(frozen=True)
class PlannerSettings:
    """How a Planner decodes and samples. Defaults reproduce greedy decoding and the published ten flow steps."""

    device: str = "cpu"  # as torch names it: cpu, cuda, cuda:0
    dtype: str = "float32"  # float32 | bfloat16; exported graphs and engines have a precision of their own
    backend: str = "auto"  # auto (graphs where they are and are faster) | pytorch | onnxruntime | tensorrt
    engine: str = ""  # directory of exported graphs or built engines; "" = onnx/ or engines/ in the model directory
    allow_fallback: bool = False  # whether PyTorch runs the model where the backend cannot
    temperature: float = 0.0  # 0 = greedy
    top_p: float = 1.0
    max_reasoning_tokens: int = 256
    seed: int = 0  # of the flow noise and of sampling; with t0 it fixes a plan whose reasoning is not sampled
    flow_steps: int | None = None  # None = the checkpoint's own number (exact)
    memory_ticks: int = 10  # earlier reasonings to propose from (exact); 0 = none
    verify_length: int | None = None  # drafted tokens per verify pass (exact); None = what is fastest here and now
    allow_plain_decoding: bool = False  # whether a draft that cannot be used is left aside instead of refused
    accept: str = "exact"  # exact | action_tolerant: lossy, needs a draft with measured path changes
    path_tolerance_m: float = 0.1  # action_tolerant: bound on the path change of a kind of token
    reasoning_deadline_s: float | None = None  # after this time in `plan` the reasoning is closed; None = never

    def __post_init__(self) -> None:
        """Raises ParameterError for a value outside its range."""
        if self.dtype not in _DTYPES:
            raise ParameterError(f"dtype is {self.dtype!r}, expected one of {', '.join(_DTYPES)}")
        if not (math.isfinite(self.temperature) and self.temperature >= 0):
            raise ParameterError(f"temperature is {self.temperature}, expected 0 (greedy) or more")
        if not 0 < self.top_p <= 1:
            raise ParameterError(f"top_p is {self.top_p}, expected more than 0 and at most 1")
        if self.max_reasoning_tokens < 1:
            raise ParameterError(f"max_reasoning_tokens is {self.max_reasoning_tokens}, expected at least 1")
        if self.seed < 0:
            raise ParameterError(f"seed is {self.seed}, expected 0 or more")
        if self.flow_steps is not None and self.flow_steps < 1:
            raise ParameterError(f"flow_steps is {self.flow_steps}, expected at least 1")
        if self.memory_ticks < 0:
            raise ParameterError(f"memory_ticks is {self.memory_ticks}, expected 0 (no memory) or more")
        if self.verify_length is not None and not 1 <= self.verify_length <= LONGEST:
            raise ParameterError(f"verify_length is {self.verify_length}, expected 1 to {LONGEST}")
        if self.reasoning_deadline_s is not None and not self.reasoning_deadline_s > 0:
            raise ParameterError(f"reasoning_deadline_s is {self.reasoning_deadline_s}, expected more than 0")
        if self.accept not in ACCEPTANCES:
            raise ParameterError(f"accept is {self.accept!r}, expected one of {', '.join(ACCEPTANCES)}")
        if not (math.isfinite(self.path_tolerance_m) and self.path_tolerance_m > 0):
            raise ParameterError(f"path_tolerance_m is {self.path_tolerance_m}, expected more than 0")
        if self.lossy and self.temperature > 0:
            raise ParameterError(f"accept is {self.accept} with temperature {self.temperature}, expected 0 (greedy)")
        if self.backend not in (known := [name.value for name in BackendName]):
            raise ParameterError(f"backend is {self.backend!r}, expected one of {', '.join(known)}")
        _check_device(self.device)

    @property
    def lossy(self) -> bool:
        """Whether a plan's reasoning may differ from the model's own."""
        return self.accept != ACCEPTANCES[0]


def _check_device(name: str) -> None:
    try:
        device = torch.device(name)
    except RuntimeError:
        raise ParameterError(f"device is {name!r}, expected cpu, cuda or cuda:N") from None
    if device.type not in ("cpu", "cuda"):
        raise ParameterError(f"device is {name!r}, expected cpu, cuda or cuda:N")
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise ParameterError(f"device is {name!r}, but this machine shows {torch.cuda.device_count()} CUDA devices")


def _load_backend(model_dir: Path, settings: PlannerSettings) -> tuple[Backend, str]:
    """The backend asked for; or PyTorch, where that is allowed, and why the other was refused."""
    name, engine = BackendName(settings.backend), Path(settings.engine).expanduser() if settings.engine else None
    try:
        return load_backend(name, model_dir, engine, device=settings.device, dtype=settings.dtype), ""
    except EngineError as error:
        if not settings.allow_fallback:
            raise
        plain = load_backend(BackendName.PYTORCH, model_dir, None, device=settings.device, dtype=settings.dtype)
        return plain, str(error)


@dataclass
class _Stopwatch:
    """Milliseconds since the last lap."""

    _last: float = field(default_factory=time.perf_counter)

    def lap(self) -> float:
        now = time.perf_counter()
        elapsed, self._last = (now - self._last) * 1e3, now
        return elapsed


class Planner:
    """One model, ready to plan. Owned by one thread."""

    def __init__(
        self,
        target: AlpamayoTarget,
        info: ModelInfo,
        settings: PlannerSettings,
        draft: Draft | None = None,
        allowed: Container[Substitution] = EXACT,
    ) -> None:
        """
        Args:
            allowed: Substitutions that `accept: action_tolerant` lets the draft make.
        """
        self.info = info
        self._allowed = allowed
        self._target = target
        self._settings = settings
        self._sampling = Sampling(settings.temperature, settings.top_p)
        words = target.vocabulary
        self._closing = Closing(words.cot_end, words.future_start, words.bins)
        self._memory = ReasoningMemory(settings.memory_ticks)
        self._draft = draft
        self._verify_length = VerifyLength(settings.verify_length)
        self._sequence = 0

    @classmethod
    def load(cls, model_dir: Path, settings: PlannerSettings | None = None) -> Planner:
        """Load a model directory.

        Raises:
            CheckpointError: A part is missing, damaged or does not fit the others (DraftError: the draft does not); or
                the model is not supported.
            ParameterError: A setting is out of range.
        """
        with accessible(Path(model_dir)):
            return cls._load(Path(model_dir), settings or PlannerSettings())

    @classmethod
    def _load(cls, model_dir: Path, settings: PlannerSettings) -> Planner:
        backend, backend_refused = _load_backend(model_dir, settings)
        target, directory = backend.target, ModelDirectory.find(model_dir)
        draft, described, refused = None, "", ""
        if settings.lossy and directory.draft is None:
            raise ParameterError(f"accept is {settings.accept}, but {model_dir} has no draft/ to be tolerant with")
        if directory.draft is not None:
            try:
                draft, config = backend.load_draft(directory.draft, target_parts(target))
            except CheckpointError as error:
                if not settings.allow_plain_decoding:
                    raise
                refused = str(error)
            else:
                target.taps = config.taps
                described = f"{config.kind.value}, {config.rope.value}"
        allowed = _tolerated(directory, settings) if settings.lossy and draft is not None else EXACT
        info = ModelInfo(
            name=target.config.variant.model_name,
            path=model_dir,
            parameters=sum(p.numel() for p in target.network.parameters()),
            device=settings.device,
            dtype=backend.dtype,
            camera_ids=target.config.cameras,
            frames_per_camera=FRAMES_PER_CAMERA,
            takes_route=target.config.variant is Variant.V1_5,
            notice=directory.notice if allowed is EXACT else f"{_lossy_notice(settings)} {directory.notice}".strip(),
            draft=described,
            draft_refused=refused,
            backend=backend.name,
            backend_refused=backend_refused,
        )
        return cls(target, info, settings, draft, allowed)

    @property
    def target(self) -> AlpamayoTarget:
        """The loaded checkpoint and its cache, for those who measure or compare it."""
        return self._target

    def plan(self, observation: Observation, on_reasoning: Callable[[str], None] | None = None) -> Plan:
        """Encode new frames, prefill, reason, sample actions, roll them out.

        Args:
            on_reasoning: Given the reasoning as far as it has come, whenever it has come further.

        Raises:
            ObservationError: The model cannot be given this observation.
            ImageError: A frame cannot be decoded or is too thin for the model.
            ModelOutputError: The model's output is not finite.
        """
        started = time.perf_counter()
        _check_observation(observation, self.info)
        frames = [frame for camera in sorted(observation.cameras) for frame in observation.cameras[camera]]
        new = [frame for frame in frames if not self._target.has_features(frame)]
        watch = _Stopwatch()
        for frame in new:
            _ = frame.image
        decode_images_ms = watch.lap()
        for frame in new:
            self._target.encode(frame)
        self._target.synchronize()
        encode_ms = watch.lap()
        prompt = self._target.prompt(observation)
        prompt_ms = watch.lap()

        generator = self._generator(observation.stamp_ns)
        noise = torch.randn(WAYPOINTS, ACTION_DIMS, generator=generator)
        reasoning = self._reason(prompt, generator, started, on_reasoning)
        watch.lap()
        actions = self._target.sample_actions(noise, self._settings.flow_steps)
        history = observation.history
        v0 = solve_v0(history.positions, history.rotations)
        path = roll_out(actions.numpy(), v0, self._target.scaling, z=float(history.positions[-1, 2]))
        if not (np.isfinite(path.positions).all() and np.isfinite(path.rotations).all()):
            raise ModelOutputError("the path of the action expert's output is not finite")
        action_ms = watch.lap()

        self._sequence += 1
        return Plan(
            stamp_ns=observation.stamp_ns,
            sequence=self._sequence,
            reasoning=self._target.vocabulary.reasoning(reasoning.token_ids),
            token_ids=reasoning.token_ids,
            origins=reasoning.origins,
            finish_reason=reasoning.finish_reason,
            positions=path.positions,
            rotations=path.rotations,
            speeds=path.speeds,
            v0=v0,
            stage_times=StageTimes(
                decode_images_ms, encode_ms, prompt_ms + reasoning.prefill_ms, reasoning.decode_ms, action_ms
            ),
            tokens_per_pass=reasoning.tokens_per_pass,
            frames_encoded=len(new),
            frames_reused=len(frames) - len(new),
            speculation=reasoning.speculation,
            lossy=self._allowed is not EXACT,
            parts=self._target.vocabulary.parts(reasoning.token_ids, reasoning.origins),
        )

    def _reason(
        self, prompt: Prompt, generator: torch.Generator, started: float, on_reasoning: Callable[[str], None] | None
    ) -> Reasoning:
        settings, said = self._settings, list[int]()

        def on_commit(tokens: Sequence[int]) -> None:
            said.extend(tokens)
            if on_reasoning is not None:
                on_reasoning(self._target.vocabulary.reasoning(said).rstrip("\ufffd"))  # half a character waits

        reasoning = decode(
            self._target,
            prompt,
            self._closing,
            sampling=self._sampling,
            max_tokens=settings.max_reasoning_tokens,
            generator=generator,
            drafts=self._drafts,
            verify_length=self._verify_length,
            deadline=None if settings.reasoning_deadline_s is None else started + settings.reasoning_deadline_s,
            allowed=self._allowed,
            on_commit=on_commit,
        )
        if reasoning.finish_reason is not FinishReason.EMPTY:
            pairs = zip(reasoning.token_ids, reasoning.origins, strict=True)
            self._memory.remember([token for token, origin in pairs if origin is not TokenOrigin.FORCED])
        return reasoning

    @property
    def _drafts(self) -> tuple[Draft, ...]:
        """In order of preference: what was said a moment ago costs nothing to propose."""
        memory = (self._memory,) if self._settings.memory_ticks else ()
        return memory if self._draft is None else (*memory, self._draft)

    def warm_up(self, camera_ids: Sequence[int] | None = None) -> None:
        """Plan once on black images, so that the first real plan is as fast as the next ones; time the steps there.

        Args:
            camera_ids: The cameras that will be used; all the model was trained for by default.
        """
        black = np.zeros((*self._target.typical_image, 3), np.uint8)
        cameras = {
            camera: tuple(Frame.from_image(-STEP_NS * k, black) for k in reversed(range(FRAMES_PER_CAMERA)))
            for camera in camera_ids or self.info.camera_ids
        }
        still = np.broadcast_to(np.eye(3), (HISTORY_STEPS, 3, 3))
        history = EgoHistory(np.zeros((HISTORY_STEPS, 3)), still, Pose(np.zeros(3), np.eye(3)))
        self.plan(Observation(0, cameras, history))
        if self._drafts and self._settings.verify_length is None:
            self._verify_length.costs = measure_costs(self._target, () if self._draft is None else (self._draft,))
        self._verify_length.forget()
        self._memory.clear()
        self._sequence = 0

    def reset(self) -> None:
        """Forget all that was kept between ticks: call it when time jumps."""
        self._target.forget()
        self._memory.clear()

    def close(self) -> None:
        """Release the model's memory; the Planner is of no use afterwards."""
        self._target.close()

    def _generator(self, stamp_ns: int) -> torch.Generator:
        """Noise depends on seed and t0 alone: the same instant gives the same plan, whatever was skipped before."""
        entropy = np.random.SeedSequence([self._settings.seed, stamp_ns % 2**64])
        return torch.Generator().manual_seed(int(entropy.generate_state(1, np.uint64)[0]) % 2**63)


def _tolerated(directory: ModelDirectory, settings: PlannerSettings) -> Container[Substitution]:
    assert directory.draft is not None
    changes = read_path_changes(directory.draft, target_fingerprint(directory.root))
    return changes.below(settings.path_tolerance_m)


def _lossy_notice(settings: PlannerSettings) -> str:
    return (
        f"LOSSY: accept is {settings.accept}, so a reasoning may hold tokens of the draft that are not the model's, "
        f"where such a token was seen to move the path by less than {settings.path_tolerance_m:g} m."
    )


def target_parts(target: AlpamayoTarget) -> TargetParts:
    """What a draft must know of this target."""
    text, words = target.network.text, target.vocabulary
    return TargetParts(
        hidden_size=text.config.hidden_size,
        layers=text.config.num_hidden_layers,
        vocab_size=target.vocab_size,
        longest_prompt=target.longest_prompt,
        rope_sections=text.rotary_emb.mrope_section,
        forbidden=words.bins,
        closing=(words.cot_end, words.future_start),
        embedding=text.embed_tokens,
        lm_head=target.network.vlm.lm_head,
        dtype=target.dtype,
        device=target.device,
    )


def _check_observation(observation: Observation, info: ModelInfo) -> None:
    cameras = sorted(observation.cameras)
    known = ", ".join(map(str, info.camera_ids))
    if not cameras:
        raise ObservationError(f"the observation has no camera, expected at least one of {known}")
    if unknown := [camera for camera in cameras if camera not in info.camera_ids]:
        raise ObservationError(f"camera id {unknown[0]} is not one that {info.name} was trained for: {known}")
    for camera in cameras:
        if (found := len(observation.cameras[camera])) != info.frames_per_camera:
            raise ObservationError(f"camera {camera} has {found} frames, expected {info.frames_per_camera}")
    history = observation.history
    for name, shape in (("positions", (HISTORY_STEPS, 3)), ("rotations", (HISTORY_STEPS, 3, 3))):
        values = getattr(history, name)
        if values.shape != shape:
            raise ObservationError(f"ego history {name} have shape {values.shape}, expected {shape}")
        if not np.isfinite(values).all():
            raise ObservationError(f"ego history {name} hold a value that is not finite")
    if observation.route and not info.takes_route:
        raise ObservationError(f"the observation carries a route text, which {info.name} does not take")
    if observation.route and "<|" in observation.route:
        raise ObservationError(f"the route text {observation.route!r} holds '<|', which starts a control token")
