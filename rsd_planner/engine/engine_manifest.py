"""Sidecar of built engines, and whether they fit the machine, the module and the model at hand."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

from rsd_planner.engine.manifest import (
    FILE_NAME,
    Port,
    Span,
    fingerprint,
    read_sidecar,
    require_size,
    target_fingerprint,
    write_sidecar,
)
from rsd_planner.errors import EngineError, one_line


@dataclass(frozen=True)
class Engine:
    """One built engine. Ports are those of the network TensorRT was given, read back from it."""

    file: str
    bytes: int
    onnx_sha256: str
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    dimensions: Mapping[str, Span]


@dataclass(frozen=True)
class EngineManifest:
    """The sidecar of `rsd_planner build-engine`."""

    module: str  # tensorrt_rtx | tensorrt
    version: str  # of it
    capabilities: tuple[str, ...]  # compute capabilities it was compiled for: "sm89"
    onnx: str  # directory the graphs lay in
    model_name: str
    fingerprint: str
    draft: str
    draft_fingerprint: str
    precision: str
    taps: tuple[int, ...]
    capacity: int
    engines: Mapping[str, Engine] = field(default_factory=dict)

    @classmethod
    def read(cls, directory: Path) -> EngineManifest:
        """Raises EngineError when there is none, or one that this version cannot read."""
        values = read_sidecar(directory, f"rsd_planner build-engine --onnx ONNX --out {directory}")
        try:
            engines = {name: _engine(engine) for name, engine in values.pop("engines").items()}
            listed = {name: tuple(values[name]) for name in ("capabilities", "taps")}
            return cls(**{**values, **listed, "engines": engines})
        except (TypeError, KeyError, AttributeError) as error:
            raise EngineError(f"{directory / FILE_NAME}: not a manifest of engines ({one_line(error)})") from None

    def write(self, directory: Path) -> None:
        write_sidecar(directory, asdict(self))

    def command(self, directory: Path) -> str:
        """What builds these engines again."""
        target = ",".join(self.capabilities)
        return f"rsd_planner build-engine --onnx {self.onnx} --out {directory} --module {self.module} --target {target}"

    def require_files(self, directory: Path, names: tuple[str, ...]) -> None:
        """Raises EngineError when one of the engines is not listed, missing or of another size than it was built."""
        again = f"run: {self.command(directory)}"
        for name in names:
            if name not in self.engines:
                raise EngineError(f"{directory}: engine {name} was not built; {again}")
            engine = self.engines[name]
            require_size(directory / engine.file, engine.bytes, f"engine {name}", again)

    def require_model(self, directory: Path, model: Path, draft: Path | None) -> None:
        """Raises EngineError unless the engines were built from these very weights."""
        pairs = (
            ("weights", self.fingerprint, target_fingerprint(model), model),
            ("draft", self.draft_fingerprint, fingerprint([draft]) if draft else "", draft or model),
        )
        for what, built, found, path in pairs:
            if built != found:
                raise EngineError(
                    f"{directory}: built from {what} {built[:16] or 'none'}, {path} has {found[:16] or 'none'}; "
                    f"run: rsd_planner export --model {model} --out {self.onnx} && {self.command(directory)}"
                )

    def require_version(self, directory: Path, version: str) -> None:
        """Raises EngineError unless the module that is to run the engines is the one that built them."""
        if version != self.version:
            raise EngineError(
                f"{directory}: built by {self.module} {self.version}, here is {self.module} {version}; "
                f"run: {self.command(directory)}"
            )

    def require_capability(self, directory: Path, capability: str) -> None:
        """Raises EngineError unless the engines were compiled for a GPU of this compute capability."""
        if capability not in self.capabilities:
            raise EngineError(
                f"{directory}: built for {', '.join(self.capabilities)}, this machine's GPU is {capability}; "
                f"run: rsd_planner build-engine --onnx {self.onnx} --out {directory} --target {capability}"
            )


def _engine(values: Mapping[str, object]) -> Engine:
    def ports(name: str) -> tuple[Port, ...]:
        return tuple(Port(**{**port, "shape": tuple(port["shape"])}) for port in values[name])  # type: ignore[attr-defined]

    spans = {name: Span(**span) for name, span in values["dimensions"].items()}  # type: ignore[attr-defined]
    return Engine(**{**values, "inputs": ports("inputs"), "outputs": ports("outputs"), "dimensions": spans})  # type: ignore[arg-type]
