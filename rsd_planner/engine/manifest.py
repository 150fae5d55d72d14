"""Sidecars of exported graphs and built engines: what they were made of, and whether that is what is here."""

from __future__ import annotations

import hashlib
import json
import resource
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from rsd_planner.errors import EngineError, one_line
from rsd_planner.target.checkpoint import ModelDirectory

FILE_NAME = "manifest.json"
FORMAT = 1
_HASHED = ("config.json", "preprocessor_config.json", "*.safetensors", "model.safetensors.index.json")


@dataclass(frozen=True)
class Port:
    """One input or output of a graph."""

    name: str
    dtype: str  # as torch names it: float32, int64
    shape: tuple[int | str, ...]  # a name stands for a length that is chosen per pass
    shares: str = ""  # output: the input whose memory it must be given


@dataclass(frozen=True)
class Span:
    """Least, usual and greatest length of a named dimension."""

    least: int
    usual: int
    most: int


@dataclass(frozen=True)
class Graph:
    """One exported graph."""

    files: Mapping[str, int]  # name -> bytes; the first is the ONNX file, others its external data
    sha256: str  # over these files
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    dimensions: Mapping[str, Span]

    @property
    def onnx_file(self) -> str:
        return next(iter(self.files))


@dataclass(frozen=True)
class ExportManifest:
    """The sidecar of `rsd_planner export`."""

    model_name: str
    fingerprint: str  # of weights and configs of the target
    draft: str  # "EAGLE-3", "DFlash" or ""
    draft_fingerprint: str
    precision: str  # fp32 | fp16 | bf16 | int8-weight
    taps: tuple[int, ...]
    capacity: int  # rows of the KV cache that the largest prompt and a reasoning need
    tools: Mapping[str, str]  # package -> version
    peak_memory_bytes: int  # of the exporting process
    graphs: Mapping[str, Graph] = field(default_factory=dict)

    @classmethod
    def read(cls, directory: Path) -> ExportManifest:
        """Raises EngineError when there is none, or one that this version cannot read."""
        values = read_sidecar(directory, "rsd_planner export --model MODEL --out " + str(directory))
        try:
            graphs = {name: _graph(graph) for name, graph in values.pop("graphs").items()}
            return cls(**{**values, "taps": tuple(values["taps"]), "graphs": graphs})
        except (TypeError, KeyError, AttributeError) as error:
            raise EngineError(
                f"{directory / FILE_NAME}: not a manifest of exported graphs ({one_line(error)})"
            ) from None

    def write(self, directory: Path) -> None:
        write_sidecar(directory, asdict(self))

    def require_files(self, directory: Path, names: Sequence[str]) -> None:
        """Raises EngineError when a graph is not there, or a file of one has another size than when it was written."""
        again = f"run: rsd_planner export --model MODEL --out {directory}"
        for name in names:
            if name not in self.graphs:
                raise EngineError(f"{directory}: the {name} graph is not there, its export did not end; {again}")
            for file, size in self.graphs[name].files.items():
                require_size(directory / file, size, f"the {name} graph", again)

    def require_model(self, directory: Path, model: Path, draft: Path | None) -> None:
        """Raises EngineError unless the graphs were made of these very weights."""
        again = f"run: rsd_planner export --model {model} --out {directory}"
        if (found := target_fingerprint(model)) != self.fingerprint:
            raise EngineError(
                f"{directory}: exported from weights {self.fingerprint[:16]}, {model} has {found[:16]}; {again}"
            )
        found = fingerprint([draft]) if draft else ""
        if found != self.draft_fingerprint:
            raise EngineError(
                f"{directory}: exported with draft {self.draft_fingerprint[:16] or 'none'}, {draft or model} has "
                f"{found[:16] or 'none'}; {again}"
            )


def require_size(path: Path, size: int, what: str, again: str) -> None:
    """Raises EngineError when a file is missing or has another size."""
    if not path.is_file():
        raise EngineError(f"{path}: {what} is missing; {again}")
    if (found := path.stat().st_size) != size:
        raise EngineError(f"{path}: {what} has {found} bytes, expected {size} as its manifest says; {again}")


def read_sidecar(directory: Path, command: str) -> dict[str, Any]:
    """The values of a manifest, without its format.

    Raises:
        EngineError: It is missing, no JSON, or of another format; the message says the command that makes one.
    """
    path = directory / FILE_NAME
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise EngineError(f"{path}: no such file; make it with: {command}") from None
    except (OSError, ValueError) as error:
        raise EngineError(f"{path}: not a readable manifest ({one_line(error)}); run: {command}") from None
    found = values.pop("format", None) if isinstance(values, dict) else None
    if found != FORMAT:
        raise EngineError(f"{path}: manifest of format {found}, expected {FORMAT}; run: {command}")
    assert isinstance(values, dict)
    return values


def write_sidecar(directory: Path, values: Mapping[str, Any]) -> None:
    path = directory / FILE_NAME
    part = path.with_suffix(".part")
    part.write_text(json.dumps({"format": FORMAT, **values}, indent=1) + "\n", encoding="utf-8")
    part.replace(path)


def target_fingerprint(model: Path) -> str:
    """Of the target of a model directory: its weights and every config that decides what they mean."""
    from rsd_planner.target.config import read_config

    directory = ModelDirectory.find(model)
    return fingerprint([directory.checkpoint, directory.processor(read_config(directory.checkpoint))])


def fingerprint(folders: Sequence[Path]) -> str:
    """SHA-256 over the contents of all weights and configs in these folders, whatever the folders are called."""
    paths = [path for folder in folders for pattern in _HASHED for path in sorted(folder.glob(pattern))]
    with ThreadPoolExecutor() as pool:  # hashing leaves the interpreter's lock
        digests = pool.map(lambda path: sha256([path]), paths)
        whole = hashlib.sha256()
        for path, digest in zip(paths, digests, strict=True):
            whole.update(f"{path.name} {digest}\n".encode())
    return whole.hexdigest()


def peak_memory() -> int:
    """Most bytes this process has had in memory so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def sha256(paths: Sequence[Path]) -> str:
    """Over the contents of files, one after the other."""
    whole = hashlib.sha256()
    for path in paths:
        with path.open("rb") as file:
            whole.update(hashlib.file_digest(file, "sha256").digest())
    return whole.hexdigest()


def _graph(values: Mapping[str, Any]) -> Graph:
    def ports(name: str) -> tuple[Port, ...]:
        return tuple(Port(**{**port, "shape": tuple(port["shape"])}) for port in values[name])

    spans = {name: Span(**span) for name, span in values["dimensions"].items()}
    return Graph(values["files"], values["sha256"], ports("inputs"), ports("outputs"), spans)
