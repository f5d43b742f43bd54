"""Functions of tensors that a GPU records once for each shape, and replays without the host.

A recording has buffers of its own for what goes in and comes out, and shares the memory in between with all others. It
is made on the second call of a shape: what is asked once is not worth it. Where nothing can be recorded, the function
is simply called.
"""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

logger = logging.getLogger("triever")

LIMIT = 32
"""Recordings that are kept; the one that was not used for the longest time goes first."""
WARM = 2
"""Calls before a recording, in which libraries and kernels prepare themselves."""

Outputs = tuple[Tensor, ...]


@dataclass(frozen=True)
class _Recording:
    graph: Any
    inputs: tuple[Tensor, ...]
    outputs: Outputs

    def replay(self, inputs: Sequence[Tensor]) -> Outputs:
        for buffer, tensor in zip(self.inputs, inputs, strict=True):
            buffer.copy_(tensor, non_blocking=True)
        self.graph.replay()
        return self.outputs


class Recorded:
    """`recorded = Recorded(limit=32)`, then `recorded(key, function, inputs)`.

    What is returned on a GPU is valid until the next call: copy it to the host at once, holding the `lock`.
    """

    def __init__(self, limit: int = LIMIT) -> None:
        self.limit = limit
        self.lock = threading.RLock()
        self.broken: str = ""  # why nothing is recorded any more
        self._recordings: OrderedDict[Hashable, _Recording] = OrderedDict()
        self._pool: Any = None
        self._stream: Any = None

    def __len__(self) -> int:
        return len(self._recordings)

    def __call__(self, key: Hashable, function: Callable[..., Outputs], inputs: Sequence[Tensor]) -> Outputs:
        """The outputs of a function of these inputs; under one key, function and shapes are always the same."""
        if self.broken or not inputs[0].is_cuda:
            return function(*inputs)
        with self.lock:
            recording = self._recordings.get(key) or self._made(key, function, inputs)
            if recording is None:
                return function(*inputs)
            self._recordings.move_to_end(key)
            return recording.replay(inputs)

    def forget(self, key: Hashable) -> None:
        """Drop a recording, if there is one."""
        with self.lock:
            self._recordings.pop(key, None)

    def _made(self, key: Hashable, function: Callable[..., Outputs], inputs: Sequence[Tensor]) -> _Recording | None:
        while len(self._recordings) >= self.limit:
            self._recordings.popitem(last=False)
        try:
            self._recordings[key] = self._record(function, inputs)
        except RuntimeError as error:  # what CUDA says where a call cannot be recorded
            self.broken = str(error).splitlines()[0]
            logger.warning("this search cannot be recorded, and goes step by step: %s", self.broken)
            torch.cuda.synchronize(inputs[0].device)
            return None
        return self._recordings[key]

    def _record(self, function: Callable[..., Outputs], inputs: Sequence[Tensor]) -> _Recording:
        device = inputs[0].device
        with torch.cuda.device(device):
            self._stream = self._stream or torch.cuda.Stream()
            buffers = tuple(tensor.clone() for tensor in inputs)
            self._stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(self._stream):
                for _ in range(WARM):
                    function(*buffers)
            torch.cuda.current_stream().wait_stream(self._stream)
            if not self._recordings:  # memory that is shared ends with the last recording that has a part in it
                self._pool = torch.cuda.graph_pool_handle()
            graph = torch.cuda.CUDAGraph()
            others = "thread_local"  # may use the GPU meanwhile
            with torch.cuda.graph(graph, pool=self._pool, stream=self._stream, capture_error_mode=others):
                outputs = function(*buffers)
        return _Recording(graph, buffers, outputs)
