"""The worker's side: owns the model and plans on what the node sends, one observation at a time."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from rsd_planner.errors import ParameterError, PlannerError
from rsd_planner.messages.images import decode_image
from rsd_planner.scene.camera_window import naming_decoder
from rsd_planner.scene.observation import Frame
from rsd_planner.worker import wire
from rsd_planner.worker.channel import Channel, Message
from rsd_planner.worker.shared_memory import SharedMemory

if TYPE_CHECKING:
    from rsd_planner.planner import Planner

PARTIAL_PERIOD_S = 0.05  # between two looks at a reasoning under way
UNFORESEEN = 3  # errors in a row after which the process is not trusted any more

Progress = Callable[[str], None]
Load = Callable[[wire.LoadRequest, Progress], "Planner"]


def load_planner(request: wire.LoadRequest, progress: Progress) -> Planner:
    """Load and warm up a model, ready to plan. Imports PyTorch.

    Raises:
        PlannerError: A package is missing, the model cannot be loaded, or was not trained for one of the cameras.
    """
    progress("importing PyTorch")
    try:
        from rsd_planner.planner import Planner, PlannerSettings
    except ImportError as error:
        raise ParameterError(
            f"parameter 'model_python': found {sys.executable}, expected an interpreter with what is in "
            f"requirements.txt: {error}"
        ) from error

    progress(f"loading {request.model}")
    planner = Planner.load(request.model, PlannerSettings(**request.settings))
    trained = planner.info.camera_ids
    if untrained := [camera_id for camera_id in request.camera_ids if camera_id not in trained]:
        raise ParameterError(
            f"parameter 'camera_ids': found {untrained}, expected ids that {planner.info.name} was trained for: "
            f"{list(trained)}"
        )
    progress("warming up")
    planner.warm_up(request.camera_ids)
    return planner


class Server:
    """Serves one node until that hangs up."""

    def __init__(self, channel: Channel, memory: SharedMemory, load: Load) -> None:
        self._channel = channel
        self._memory = memory
        self._load = load
        self._planner: Planner | None = None
        self._frames: dict[int, Frame] = {}  # those the node has in its window, so that their features are kept
        self._generation = 0
        self._unforeseen = 0  # in a row

    def serve(self) -> None:
        """Answer until the node is gone, then release everything.

        Raises:
            Exception: That which a model cannot be expected to recover from; the node starts another worker.
        """
        try:
            while (message := self._channel.receive()) is not None:
                if message.kind == "load":
                    self._on_load(message)
                else:
                    self._on_plan(message)
        except ConnectionError:
            pass  # the node has gone while it was being answered
        finally:
            self._frames.clear()
            if self._planner is not None:
                self._planner.close()
            self._memory.close()
            self._channel.close()

    def _on_load(self, message: Message) -> None:
        def progress(text: str) -> None:
            self._channel.send(Message("progress", {"text": text}))

        try:
            self._planner = self._load(wire.read_load(message), progress)
        except ConnectionError:
            raise
        except Exception as error:
            self._channel.send(wire.error_message("failed", error))
        else:
            self._channel.send(wire.loaded_message(self._planner.info))

    def _on_plan(self, message: Message) -> None:
        assert self._planner is not None
        started = time.perf_counter()
        self._take_frames(message)
        try:
            if message.content["generation"] != self._generation:
                self._planner.reset()
                self._generation = message.content["generation"]
            observation = wire.read_job(message, self._frames.__getitem__)
            plan = self._planner.plan(observation, on_reasoning=self._teller())
        except Exception as error:  # reported by the node; the next observation gets its chance
            undecodable = [key for key, frame in self._frames.items() if frame.undecodable]
            self._channel.send(wire.error_message("error", error, undecodable))
            self._unforeseen += not isinstance(error, PlannerError)
            if self._unforeseen == UNFORESEEN or "CUDA error" in str(error):  # after which CUDA refuses every call
                raise
        else:
            self._unforeseen = 0
            self._channel.send(wire.plan_message(plan, time.perf_counter() - started))

    def _take_frames(self, message: Message) -> None:
        for key in message.content["forgotten"]:
            self._frames.pop(key, None)
        for described in message.content["new_frames"]:
            data = self._memory.read(described["offset"], described["length"])
            camera_id, stamp_ns = described["camera_id"], described["stamp_ns"]
            decode = naming_decoder(decode_image, camera_id, stamp_ns)
            self._frames[described["key"]] = Frame(stamp_ns, wire.payload_from(described["fields"], data), decode)

    def _teller(self) -> Callable[[str], None]:
        last = time.monotonic()

        def tell(reasoning: str) -> None:
            nonlocal last
            if time.monotonic() - last >= PARTIAL_PERIOD_S:
                last = time.monotonic()
                self._channel.send(Message("reasoning", {"text": reasoning}))

        return tell
