"""Networks as files for other programs: PyTorch's own (.pt2) and ONNX."""
