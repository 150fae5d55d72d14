"""Weights as int8, one scale per output channel: smaller engines, activations untouched."""

from __future__ import annotations

from typing import Any

import numpy as np

_SMALLEST = 1024  # numbers: below, nothing is gained
_LEVELS = 127


def quantize_weights(model: Any) -> None:
    """Replace the constant right-hand sides of matrix products by int8 and a DequantizeLinear, in place.

    Symmetric, q = round(w / s) with s = max |w| / 127 per output channel.

    Args:
        model: An onnx_ir model.
    """
    import onnx_ir as ir

    done: dict[str, Any] = {}
    for node in list(model.graph):
        if node.op_type not in ("MatMul", "Gemm"):
            continue
        weight = node.inputs[1]
        tensor = weight.const_value if weight.is_initializer() else None
        if tensor is None or len(tensor.shape) != 2 or tensor.size < _SMALLEST:
            continue
        if weight.name not in done:
            channel = 0 if node.op_type == "Gemm" and _flag(node, "transB") else 1
            done[weight.name] = _dequantized(ir, model, weight, channel, node)
        node.replace_input_with(1, done[weight.name])
    for name in done:
        if not model.graph.initializers[name].uses():
            del model.graph.initializers[name]


def _flag(node: Any, name: str) -> bool:
    attribute = node.attributes.get(name)
    return attribute is not None and bool(attribute.as_int())


def _dequantized(ir: Any, model: Any, weight: Any, channel: int, before: Any) -> Any:
    values = weight.const_value.numpy()
    whole = values.astype(np.float32)
    scale = np.abs(whole).max(axis=1 - channel) / _LEVELS
    scale[scale == 0] = 1.0
    scale = scale.astype(values.dtype)
    rows = np.expand_dims(scale.astype(np.float32), 1 - channel)
    levels = np.clip(np.round(whole / rows), -_LEVELS, _LEVELS).astype(np.int8)
    stored = [
        ir.Value(name=f"{weight.name}_{part}", const_value=ir.tensor(array), shape=ir.Shape(array.shape), type=kind)
        for part, array, kind in (
            ("int8", levels, ir.TensorType(ir.DataType.INT8)),
            ("scale", scale, ir.TensorType(weight.const_value.dtype)),
        )
    ]
    for value in stored:
        model.graph.register_initializer(value)
    node = ir.node("DequantizeLinear", stored, attributes={"axis": channel}, name=f"dequantize_{weight.name}")
    node.outputs[0].shape, node.outputs[0].type = weight.shape, ir.TensorType(weight.const_value.dtype)
    model.graph.insert_before(before, node)
    return node.outputs[0]
