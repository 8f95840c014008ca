"""The networks of `benchmarks.fusion` in PyTorch, and their graphs as both of its exporters write them.

    python -m benchmarks.fusion_models FOLDER

needs torch, onnx and onnxscript, not eqsat. The weights are replaced by notes from which `benchmarks.zoo` draws them
again, so that the graphs are small. The graphs in `benchmarks/fusion_graphs` are those of PyTorch 2.13.0.
"""

# torch is not a dependency of eqsat.
# pyright: reportMissingImports=false

from __future__ import annotations

import json
import lzma
import sys
import tempfile
from pathlib import Path

import onnx
import torch
from onnx import numpy_helper
from torch import nn
from torch.nn import functional

HIDDEN, HEADS, LAYERS, SEQUENCE = 256, 8, 2, 128
_LEAST_ELEMENTS = 1024


class EagerAttention(nn.Module):
    """Softmax between two matrix products, with an additive mask, as BERT has it."""

    def __init__(self) -> None:
        super().__init__()
        self.q, self.k, self.v, self.o = (nn.Linear(HIDDEN, HIDDEN) for _ in range(4))

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """Attends ``x`` [batch, sequence, hidden] to itself."""
        q, k, v = (_heads(part(x)) for part in (self.q, self.k, self.v))
        scores = q @ k.transpose(-1, -2) / (HIDDEN // HEADS) ** 0.5 + mask
        return self.o(_joined(scores.softmax(-1) @ v))


class FusedAttention(nn.Module):
    """``scaled_dot_product_attention`` of one product for queries, keys and values."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.o = nn.Linear(HIDDEN, 3 * HIDDEN), nn.Linear(HIDDEN, HIDDEN)

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """Attends ``x`` [batch, sequence, hidden] to itself."""
        q, k, v = (_heads(part) for part in self.qkv(x).chunk(3, -1))
        return self.o(_joined(functional.scaled_dot_product_attention(q, k, v, attn_mask=mask)))


class ModuleAttention(nn.Module):
    """``nn.MultiheadAttention``."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.MultiheadAttention(HIDDEN, HEADS, batch_first=True)

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """Attends ``x`` [batch, sequence, hidden] to itself."""
        return self.inner(x, x, x, need_weights=False)[0]


class GroupedAttention(nn.Module):
    """Grouped queries with rotary embedding and a causal mask, as Llama has them."""

    groups = 2

    def __init__(self) -> None:
        super().__init__()
        size = HIDDEN // HEADS
        self.q, self.o = nn.Linear(HIDDEN, HIDDEN, bias=False), nn.Linear(HIDDEN, HIDDEN, bias=False)
        self.k, self.v = (nn.Linear(HIDDEN, self.groups * size, bias=False) for _ in range(2))
        angles = torch.outer(torch.arange(SEQUENCE), 10000.0 ** (-torch.arange(0, size, 2) / size))
        both = torch.cat([angles, angles], -1)
        self.register_buffer("cos", both.cos())
        self.register_buffer("sin", both.sin())

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """Attends ``x`` [batch, sequence, hidden] to itself."""
        q, k, v = (_heads(part(x)) for part in (self.q, self.k, self.v))
        q, k = self._turned(q), self._turned(k)
        k, v = (t.repeat_interleave(HEADS // self.groups, 1) for t in (k, v))
        scores = q @ k.transpose(-1, -2) * (HIDDEN // HEADS) ** -0.5 + mask
        return self.o(_joined(scores.softmax(-1) @ v))

    def _turned(self, x: torch.Tensor) -> torch.Tensor:
        first, second = x.chunk(2, -1)
        return x * self.cos + torch.cat([-second, first], -1) * self.sin


class RootMeanSquare(nn.Module):
    """RMSNorm as Llama spells it."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(HIDDEN))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Normalizes the last axis."""
        return self.weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5))


class Gated(nn.Module):
    """SwiGLU."""

    def __init__(self) -> None:
        super().__init__()
        self.gate, self.up = (nn.Linear(HIDDEN, 2 * HIDDEN, bias=False) for _ in range(2))
        self.down = nn.Linear(2 * HIDDEN, HIDDEN, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Works on each position."""
        return self.down(functional.silu(self.gate(x)) * self.up(x))


class Encoder(nn.Module):
    """Layers of attention and a network for each position, normalized before each."""

    def __init__(self, attention: type[nn.Module], norm: type[nn.Module] | None = None) -> None:
        super().__init__()
        make = norm or (lambda: nn.LayerNorm(HIDDEN))
        last = Gated if norm else _perceptron
        self.layers = nn.ModuleList(nn.ModuleList([make(), attention(), make(), last()]) for _ in range(LAYERS))

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """``x`` [batch, sequence, hidden], ``mask`` [1, 1, sequence, sequence]."""
        for before, attention, between, network in self.layers:  # pyright: ignore[reportGeneralTypeIssues]
            x = x + attention(before(x), mask)
            x = x + network(between(x))
        return x


class Decoder(nn.Module):
    """One step of a decoder: it attends to a cache, which it extends, and to what an encoder made."""

    def __init__(self) -> None:
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(HIDDEN) for _ in range(3))
        self.q, self.k, self.v, self.o, self.cross_q, self.cross_o = (nn.Linear(HIDDEN, HIDDEN) for _ in range(6))
        self.network = _perceptron()

    def forward(
        self,
        x: torch.Tensor,
        keys: torch.Tensor,
        values: torch.Tensor,
        cross_keys: torch.Tensor,
        cross_values: torch.Tensor,
    ) -> tuple[torch.Tensor, ...]:
        """``x`` [batch, 1, hidden], the others [batch, heads, past, size]."""
        y = self.norms[0](x)
        keys = torch.cat([keys, _heads(self.k(y))], 2)
        values = torch.cat([values, _heads(self.v(y))], 2)
        x = x + self.o(_joined(_attended(_heads(self.q(y)), keys, values)))
        x = x + self.cross_o(_joined(_attended(_heads(self.cross_q(self.norms[1](x))), cross_keys, cross_values)))
        return x + self.network(self.norms[2](x)), keys, values


def _attended(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    scores = (q * (HIDDEN // HEADS) ** -0.5) @ k.transpose(-1, -2)
    return scores.softmax(-1) @ v


def _perceptron() -> nn.Module:
    return nn.Sequential(nn.Linear(HIDDEN, 2 * HIDDEN), nn.GELU(), nn.Linear(2 * HIDDEN, HIDDEN))


def _heads(x: torch.Tensor) -> torch.Tensor:
    return x.view(x.shape[0], x.shape[1], -1, HIDDEN // HEADS).transpose(1, 2)


def _joined(x: torch.Tensor) -> torch.Tensor:
    return x.transpose(1, 2).reshape(x.shape[0], x.shape[2], HIDDEN)


def networks() -> dict[str, tuple[nn.Module, dict[str, torch.Tensor], dict[str, int]]]:
    """Each with its inputs and the number of attentions and norms that it has."""
    x = torch.randn(1, SEQUENCE, HIDDEN)
    mask = torch.triu(torch.full((SEQUENCE, SEQUENCE), -10000.0), 1)[None, None]
    cache = torch.randn(1, HEADS, SEQUENCE - 1, HIDDEN // HEADS)
    both, has = {"x": x, "mask": mask}, {"attentions": LAYERS, "norms": 2 * LAYERS}
    step = {"x": x[:, :1], "keys": cache, "values": cache, "cross_keys": cache, "cross_values": cache}
    return {
        "eager": (Encoder(EagerAttention), both, has),
        "sdpa": (Encoder(FusedAttention), both, has),
        "module": (Encoder(ModuleAttention), both, has),
        "gqa_rope": (Encoder(GroupedAttention, RootMeanSquare), both, has),
        "cross_cache": (Decoder(), step, {"attentions": 2, "norms": 3}),
    }


def without_weights(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model with notes in the place of its weights."""
    for tensor in model.graph.initializer:
        values = numpy_helper.to_array(tensor)
        # The tables of the rotary embedding are not weights.
        if values.dtype.kind != "f" or values.size < _LEAST_ELEMENTS or values.shape[0] == SEQUENCE:
            continue
        note = f"random {values.mean():.4g} {values.std():.4g} {values.min():.4g} {values.max():.4g}"
        tensor.ClearField("raw_data")
        tensor.ClearField("float_data")
        tensor.doc_string = note
    return model


def export(folder: Path) -> None:
    """Writes each network as TorchScript's exporter and as that of ``torch.export`` write it."""
    torch.manual_seed(0)
    for name, (network, inputs, has) in networks().items():
        for how in ("ts", "dynamo"):
            with tempfile.TemporaryDirectory() as temporary:
                written = Path(temporary) / "model.onnx"
                options = {"opset_version": 17} if how == "ts" else {"external_data": False}
                torch.onnx.export(
                    network.eval(),
                    tuple(inputs.values()),
                    str(written),
                    input_names=list(inputs),
                    dynamo=how == "dynamo",
                    **options,
                )
                model = without_weights(onnx.load(str(written)))
            for node in model.graph.node:
                node.ClearField("doc_string")
                del node.metadata_props[:]
            (folder / f"{name}_{how}.onnx.xz").write_bytes(lzma.compress(model.SerializeToString(), preset=9))
            (folder / f"{name}_{how}.json").write_text(json.dumps(has) + "\n", encoding="utf-8")


if __name__ == "__main__":
    export(Path(sys.argv[1]))
