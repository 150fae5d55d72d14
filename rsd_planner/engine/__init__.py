"""The target and its drafts as graphs: exported to ONNX, run by ONNX Runtime, compiled and run by TensorRT."""
