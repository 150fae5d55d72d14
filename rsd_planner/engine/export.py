"""Writes the target and its draft as ONNX graphs, with a sidecar that says what they are."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from rich.console import Console

import rsd_planner
from rsd_planner.decoding.loop import IN_PREFILL
from rsd_planner.draft.config import DraftConfig
from rsd_planner.draft.load import load_draft
from rsd_planner.engine.graph_parts import graph_attention
from rsd_planner.engine.manifest import (
    FILE_NAME,
    ExportManifest,
    Graph,
    Port,
    fingerprint,
    peak_memory,
    sha256,
    target_fingerprint,
)
from rsd_planner.engine.quantize import quantize_weights
from rsd_planner.engine.specifications import IMAGE_TOKENS, Specification, draft_specifications, target_graphs
from rsd_planner.errors import EngineError, ParameterError
from rsd_planner.plan import WAYPOINTS
from rsd_planner.planner import target_parts
from rsd_planner.target.alpamayo import AlpamayoTarget
from rsd_planner.target.checkpoint import ModelDirectory

PRECISIONS = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16, "int8-weight": torch.float16}
OPSET = 24  # the first with TensorScatter
_TOOLS = ("torch", "transformers", "onnx", "onnxscript")
_LARGEST_FILE = 2_000_000_000  # bytes: protobuf's limit is 2 GiB; weights beyond go into a file beside the graph
_REASONING = 320  # rows: the default cap, its closing tokens, one verify pass
_GRAIN = 512


def export(
    model: Path, out: Path, *, precision: str, draft: Path | None, console: Console, largest_file: int = _LARGEST_FILE
) -> ExportManifest:
    """Export all graphs of a model directory. Graphs that are there already, made of the same, are kept.

    Args:
        draft: Draft directory; None for the model directory's own, if it has one.

    Raises:
        CheckpointError: The model or the draft cannot be loaded.
        ParameterError: The precision is none of `PRECISIONS`, or `out` cannot be written.
        EngineError: A package that exports is not installed.
    """
    if precision not in PRECISIONS:
        raise ParameterError(f"--precision is {precision!r}, expected one of {', '.join(PRECISIONS)}")
    if missing := [name for name in _TOOLS if find_spec(name) is None]:
        raise EngineError(f"export: found no {', '.join(missing)}; install what is in requirements-engines.txt")
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ParameterError(f"--out: cannot write {out}: {error.strerror or error}") from error
    _say(console, f"loading {model}")
    target = AlpamayoTarget.load(model, device="cpu", dtype=PRECISIONS[precision])
    draft = draft or ModelDirectory.find(model).draft
    loaded = None if draft is None else load_draft(draft, target_parts(target))
    if loaded is not None:
        target.taps = loaded[1].taps
    manifest = _header(model, draft, target, None if loaded is None else loaded[1], precision)
    specifications = target_graphs(target, manifest.capacity)
    if loaded is not None:
        specifications |= draft_specifications(loaded[0], manifest.capacity)
    manifest = replace(manifest, graphs=_kept(out, manifest))
    for number, (name, specification) in enumerate(specifications.items(), start=1):
        if name in manifest.graphs:
            _say(console, f"[{number}/{len(specifications)}] {name}: already there")
            continue
        with console.status(f"[{number}/{len(specifications)}] {name}"):
            graph = export_graph(name, specification, target, out, precision == "int8-weight", largest_file)
        graphs = {**manifest.graphs, name: graph}
        manifest = replace(manifest, graphs=graphs, peak_memory_bytes=peak_memory())
        manifest.write(out)
        _say(console, f"[{number}/{len(specifications)}] {name}: {sum(graph.files.values()) / 1e6:.1f} MB")
    return manifest


def _say(console: Console, text: str) -> None:
    console.print(text, markup=False, highlight=False, soft_wrap=True)


def _header(
    model: Path, draft: Path | None, target: AlpamayoTarget, config: DraftConfig | None, precision: str
) -> ExportManifest:
    rows = target.longest_prompt + IN_PREFILL + _REASONING + WAYPOINTS
    return ExportManifest(
        model_name=target.config.variant.model_name,
        fingerprint=target_fingerprint(model),
        draft="" if config is None else config.kind.value,
        draft_fingerprint="" if draft is None else fingerprint([draft]),
        precision=precision,
        taps=target.taps,
        capacity=-(-rows // _GRAIN) * _GRAIN,
        tools={"rsd_planner": rsd_planner.__version__, **{name: version(name) for name in _TOOLS}},
        peak_memory_bytes=peak_memory(),
    )


def _kept(out: Path, manifest: ExportManifest) -> dict[str, Graph]:
    """Graphs of an earlier run that was made of the same, as far as their files are whole."""
    if not (out / FILE_NAME).exists():
        return {}
    try:
        before = ExportManifest.read(out)
    except EngineError:
        return {}
    if replace(before, graphs={}, peak_memory_bytes=0) != replace(manifest, peak_memory_bytes=0):
        return {}
    whole = {}
    for name, graph in before.graphs.items():
        paths = [out / file for file in graph.files]
        if all(path.is_file() for path in paths) and sha256(paths) == graph.sha256:
            whole[name] = graph
    return whole


def export_graph(
    name: str, specification: Specification, target: AlpamayoTarget, out: Path, int8: bool, largest_file: int
) -> Graph:
    caches = specification.cache_names
    outputs = [*specification.outputs, *(f"{cache}_out" for cache in caches)]
    network = target.network
    configs = (network.text.config, network.expert.rotary_emb.config, network.vision.config)
    inputs = tuple(specification.inputs.values())
    with graph_attention(*configs), _quiet(), torch.no_grad():
        program = torch.onnx.export(
            specification.module.eval(),
            (*inputs, list(specification.cache)) if caches else inputs,
            input_names=[*specification.inputs, *caches],
            output_names=outputs,
            opset_version=OPSET,
            dynamo=True,
            dynamic_shapes=_dynamic_shapes(specification),
            custom_translation_table={torch.ops.rsd_planner.write_rows.default: _tensor_scatter},
            verbose=False,
        )
    from onnx_ir.passes.common import ClearMetadataAndDocStringPass

    assert program is not None
    if int8:
        quantize_weights(program.model)
    ClearMetadataAndDocStringPass()(program.model)  # such as stack traces with this machine's paths
    _name_lengths(program.model.graph, specification)
    size = sum(value.const_value.nbytes for value in program.model.graph.initializers.values() if value.const_value)
    path = out / f"{name}.onnx"
    data = path.with_suffix(".onnx.data")
    data.unlink(missing_ok=True)
    program.save(path, external_data=size > largest_file)
    paths = [path, data] if data.exists() else [path]
    return Graph(
        files={file.name: file.stat().st_size for file in paths},
        sha256=sha256(paths),
        inputs=_ports(program.model.graph.inputs),
        outputs=_ports(program.model.graph.outputs),
        dimensions=specification.spans,
    )


def _name_lengths(graph: Any, specification: Specification) -> None:
    """Give lengths that follow from others, such as image tokens from patches, their names."""
    import onnx_ir as ir

    for value in graph.inputs:
        names = specification.lengths.get(value.name, {})
        value.shape = ir.Shape([names.get(axis, dim) for axis, dim in enumerate(value.shape)])
    for value in graph.outputs:
        value.shape = ir.Shape([IMAGE_TOKENS if _unnamed(dim, specification) else dim for dim in value.shape])


def _unnamed(dim: Any, specification: Specification) -> bool:
    return not isinstance(dim, int) and str(dim.value) not in specification.spans


def _dynamic_shapes(specification: Specification) -> tuple[Any, ...]:
    dims: dict[str, Any] = {}
    for name, span in specification.spans.items():
        if name == "patches":  # whole blocks of merged patches
            dims[name] = 4 * torch.export.Dim(IMAGE_TOKENS, min=1, max=span.most)
        elif name == "capacity":
            dims[name] = torch.export.Dim(name, min=WAYPOINTS)
        else:
            dims[name] = torch.export.Dim(name, min=1, max=span.most)
    given = [
        {axis: dims[dim] for axis, dim in specification.lengths.get(name, {}).items()} for name in specification.inputs
    ]
    if specification.cache:
        given.append([{2: dims["capacity"]}] * len(specification.cache))  # type: ignore[arg-type]
    return tuple(given)


def _tensor_scatter(buffer: Any, rows: Any, index: Any) -> Any:
    from onnxscript.values import Opset

    return Opset("", OPSET).TensorScatter(buffer, rows, index, axis=-2, mode="linear")


def _ports(values: Any) -> tuple[Port, ...]:
    ports = []
    for value in values:
        shape = tuple(dim if isinstance(dim, int) else str(dim.value) for dim in value.shape)
        shares = value.name.removesuffix("_out") if value.name.endswith("_out") else ""
        ports.append(Port(value.name, _torch_name(value.dtype.name), shape, shares))
    return tuple(ports)


def _torch_name(onnx_name: str) -> str:
    names = {"FLOAT": "float32", "FLOAT16": "float16", "BFLOAT16": "bfloat16", "INT64": "int64"}
    return names[onnx_name]


@contextmanager
def _quiet() -> Iterator[None]:
    """The exporter warns of every axis that two inputs share, and of what it does not know of the future."""
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        logger.setLevel(logging.ERROR)
        try:
            yield
        finally:
            logger.setLevel(level)
