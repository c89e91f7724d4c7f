"""A network and what goes in and out of it, written as a program that needs none of this package."""

import copy
import importlib.util
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from eftgan.errors import UserError
from eftgan.files import atomic_path

EVERY_TASK = "all"  # in the place of a task's name
INSTALL = 'pip install "eftgan[onnx]"'


@dataclass(frozen=True)
class Program:
    """A network for inference, with an example and a name for every input; inputs with a batch may have any size of it.

    A file says in its metadata what it was made from.
    """

    network: nn.Module
    inputs: Mapping[str, Tensor]  # in the order of the network's arguments
    output: str
    metadata: Mapping[str, str] = field(default_factory=dict)
    without_batch: Sequence[str] = ()  # inputs that are one for the whole batch

    def write(self, out: Path) -> None:
        """NAME.pt2 or NAME.onnx."""
        check_format(out)
        self.network.eval()
        write = self._write_onnx if out.suffix == ".onnx" else self._write_pt2
        with torch.no_grad():
            write(out)

    @property
    def _dynamic(self) -> tuple[dict[int, Any] | None, ...]:
        batch = torch.export.Dim("batch", min=1)
        return tuple(None if name in self.without_batch else {0: batch} for name in self.inputs)

    def _write_pt2(self, out: Path) -> None:
        exported = torch.export.export(self.network, tuple(self.inputs.values()), dynamic_shapes=self._dynamic)
        for node in exported.graph.nodes:
            node.meta.pop("stack_trace", None)  # names files of this machine
        with atomic_path(out) as temporary:
            # torch.export.save asks for its own file ending
            whole = temporary.with_suffix(".pt2")
            torch.export.save(exported, whole, extra_files=dict(self.metadata))
            whole.replace(temporary)

    def _write_onnx(self, out: Path) -> None:
        network = contiguous(copy.deepcopy(self.network))
        program = torch.onnx.export(
            network,
            tuple(self.inputs.values()),
            dynamo=True,
            input_names=list(self.inputs),
            output_names=[self.output],
            dynamic_shapes=self._dynamic,
            verbose=False,
        )
        assert program is not None
        _forget_its_making(program.model)
        program.model.metadata_props.update(self.metadata)
        with atomic_path(out) as temporary:
            program.save(temporary, external_data=False)

    def usage(self, out: Path, examples: Mapping[str, str]) -> list[str]:
        """Lines of Python that run the file; `examples`: of inputs, as code."""
        own = dict(examples) | {name: "torch.tensor(0)" for name in self.without_batch}
        if out.suffix == ".pt2":
            call = ", ".join(own.values())
            return [
                "  import torch",
                f'  program = torch.export.load("{out}").module()',
                f"  {self.output} = program({call})",
            ]
        feed = ", ".join(f'"{name}": {code}.numpy()' for name, code in own.items())
        return [
            "  import onnxruntime, torch",
            f'  session = onnxruntime.InferenceSession("{out}")',
            f"  ({self.output},) = session.run(None, {{{feed}}})",
        ]


def check_format(out: Path, further: str = "") -> None:
    """Refuse a name whose ending says no known format, and ONNX where its packages are missing: before slow work."""
    if further and out.suffix == further:
        return
    if out.suffix not in (".pt2", ".onnx"):
        also = f", NAME.onnx or NAME{further} (tensors)" if further else " or NAME.onnx"
        raise UserError(f"--out {out}: name it NAME.pt2 (a PyTorch program){also}")
    if out.suffix == ".onnx" and importlib.util.find_spec("onnxscript") is None:
        raise UserError(f"--out {out}: ONNX needs further packages; install them with: {INSTALL}")


def task_program(
    network: nn.Module, inputs: Mapping[str, Tensor], output: str, metadata: Mapping[str, str], *, numbered: bool
) -> Program:
    """A program of one task; or of several, whose number (from 0, in the order of the metadata) is the last input."""
    if not numbered:
        return Program(network, inputs, output, metadata)
    return Program(network, {**inputs, "task": torch.tensor(0)}, output, metadata, without_batch=("task",))


def _forget_its_making(model: Any) -> None:
    """Leave out what torch notes of every node: stack traces, which name files of this machine, and more."""
    graph = model.graph
    values = [value for node in graph.all_nodes() for value in node.outputs]
    for each in (model, graph, *graph.all_nodes(), *graph.inputs, *values, *graph.initializers.values()):
        each.metadata_props.clear()


def contiguous(network: nn.Module) -> nn.Module:
    """The network itself with its tensors in torch's usual layout: the only one that ONNX knows."""
    for tensor in (*network.parameters(), *network.buffers()):
        tensor.data = tensor.data.contiguous(memory_format=torch.contiguous_format)
    return network
