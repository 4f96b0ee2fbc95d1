"""A Qwen3 decoder in plain torch, with the names that a checkpoint has.

transformers' Qwen3ForCausalLM computes the same (tests/test_model.py compares them); this one is
faster on a CPU because it computes logits only where they are needed, and it decodes many runs at
once.
"""

from dataclasses import asdict, dataclass

import torch
import torch.nn.functional as F
from torch import nn


@dataclass(frozen=True)
class Config:
    vocab_size: int
    hidden_size: int = 192
    num_hidden_layers: int = 5
    num_attention_heads: int = 4
    num_key_value_heads: int = 2
    head_dim: int = 64
    intermediate_size: int = 448
    rope_theta: float = 1_000_000.0
    rms_norm_eps: float = 1e-6
    max_position_embeddings: int = 4096

    def checkpoint(self):
        """config.json of the finished checkpoint, less the token ids."""
        return {
            "architectures": ["Qwen3ForCausalLM"],
            "model_type": "qwen3",
            "hidden_act": "silu",
            "attention_bias": False,
            "attention_dropout": 0.0,
            "tie_word_embeddings": True,
            "use_cache": True,
            "use_sliding_window": False,
            "initializer_range": 0.02,
            **asdict(self),
        }


class RMSNorm(nn.Module):
    def __init__(self, size, eps):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self.eps = eps

    def forward(self, x):
        return F.rms_norm(x, self.weight.shape, self.weight, self.eps)


class Attention(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.heads, self.kv_heads = config.num_attention_heads, config.num_key_value_heads
        self.head_dim = config.head_dim
        width, kv_width = self.heads * self.head_dim, self.kv_heads * self.head_dim
        self.q_proj = nn.Linear(config.hidden_size, width, bias=False)
        self.k_proj = nn.Linear(config.hidden_size, kv_width, bias=False)
        self.v_proj = nn.Linear(config.hidden_size, kv_width, bias=False)
        self.o_proj = nn.Linear(width, config.hidden_size, bias=False)
        self.q_norm = RMSNorm(self.head_dim, config.rms_norm_eps)
        self.k_norm = RMSNorm(self.head_dim, config.rms_norm_eps)

    def forward(self, x, rotation, cache, mask):
        batch, length, _ = x.shape
        split = (batch, length, -1, self.head_dim)
        q = _rotate(self.q_norm(self.q_proj(x).view(split)), rotation).transpose(1, 2)
        k = _rotate(self.k_norm(self.k_proj(x).view(split)), rotation).transpose(1, 2)
        v = self.v_proj(x).view(split).transpose(1, 2)
        if cache is not None:
            k, v = cache.extend(k, v)
        group = self.heads // self.kv_heads
        k, v = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=mask is None)
        return self.o_proj(y.transpose(1, 2).reshape(batch, length, -1))


class MLP(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.gate_proj = nn.Linear(config.hidden_size, config.intermediate_size, bias=False)
        self.up_proj = nn.Linear(config.hidden_size, config.intermediate_size, bias=False)
        self.down_proj = nn.Linear(config.intermediate_size, config.hidden_size, bias=False)

    def forward(self, x):
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class DecoderLayer(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.self_attn = Attention(config)
        self.mlp = MLP(config)
        self.input_layernorm = RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.post_attention_layernorm = RMSNorm(config.hidden_size, config.rms_norm_eps)

    def forward(self, x, rotation, cache, mask):
        x = x + self.self_attn(self.input_layernorm(x), rotation, cache, mask)
        return x + self.mlp(self.post_attention_layernorm(x))


class LayerCache:
    """Keys and values of one layer for a batch of runs, filled from the left."""

    def __init__(self):
        self.k = self.v = None

    def extend(self, k, v):
        if self.k is not None:
            k, v = torch.cat([self.k, k], 2), torch.cat([self.v, v], 2)
        self.k, self.v = k, v
        return k, v


class Decoder(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.config = config
        self.embed_tokens = nn.Embedding(config.vocab_size, config.hidden_size)
        self.layers = nn.ModuleList(DecoderLayer(config) for _ in range(config.num_hidden_layers))
        self.norm = RMSNorm(config.hidden_size, config.rms_norm_eps)
        half = torch.arange(0, config.head_dim, 2).float() / config.head_dim
        self.register_buffer("frequencies", config.rope_theta**-half, persistent=False)

    def hidden(self, tokens, positions=None, caches=None, mask=None, taps=None):
        """The normalized hidden states, from which `logits` follow.

        What each layer leaves behind is added to the list `taps`, if there is one.
        """
        if positions is None:
            positions = torch.arange(tokens.shape[1])[None]
        angles = positions[..., None].float() * self.frequencies
        rotation = torch.cos(angles)[:, :, None], torch.sin(angles)[:, :, None]
        x = self.embed_tokens(tokens)
        for index, layer in enumerate(self.layers):
            x = layer(x, rotation, caches and caches[index], mask)
            if taps is not None:
                taps.append(x)
        return self.norm(x)

    def logits(self, hidden):
        """The embedding is tied."""
        return hidden @ self.embed_tokens.weight.T


def _rotate(x, rotation):
    cos, sin = rotation
    a, b = x.chunk(2, -1)
    return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)


@torch.no_grad()
def construct(model, alike=()):
    """Writes an induction circuit into the first two layers before training.

    Head 0 of layer 0 looks one token back and head 1 two tokens back; two heads of layer 1 find
    where the last two tokens stood before and copy the token that followed them. From a random
    start copying 64-digit digests is not learnt within any budget that was tried.

    Tokens of a group in `alike` match each other as contexts, because the same thing follows them.
    """
    config = model.config
    width = config.head_dim
    half = width // 2
    assert config.hidden_size == 3 * width and config.num_attention_heads == 4
    generator = torch.Generator().manual_seed(3)

    def normal(*shape):
        return torch.randn(*shape, generator=generator)

    for layer in model.layers:
        for parameter in layer.parameters():
            if parameter.dim() == 2:
                uniform = torch.rand(parameter.shape, generator=generator) * 2 - 1
                parameter.copy_(uniform * parameter.shape[1] ** -0.5)
    embedding = torch.zeros(config.vocab_size, config.hidden_size)
    embedding[:, 1:width] = normal(config.vocab_size, width - 1) * 0.14
    for group in alike:
        embedding[group, 1:width] = embedding[group[0], 1:width] + normal(len(group), width - 1) * 0.03
    embedding[:, 0] = 0.5
    embedding[:, width:] = normal(config.vocab_size, config.hidden_size - width) * 0.01
    model.embed_tokens.weight.copy_(embedding)
    for index, layer in enumerate(model.layers):
        sharpness = 2.0 if index < 2 else 1.5
        layer.self_attn.q_norm.weight.fill_(sharpness)
        layer.self_attn.k_norm.weight.fill_(sharpness)
        layer.self_attn.o_proj.weight.mul_(0.5)
        layer.mlp.down_proj.weight.mul_(0.3)

    first = model.layers[0].self_attn
    rotated = 6
    omega = model.frequencies

    def looking(offset):
        """A vector whose score is highest for keys `offset` tokens away."""
        vector = torch.zeros(width)
        vector[:rotated] = torch.cos(omega[:rotated] * offset)
        vector[half : half + rotated] = torch.sin(omega[:rotated] * offset)
        return vector

    q, k, v, o = (first.q_proj.weight, first.k_proj.weight, first.v_proj.weight, first.o_proj.weight)
    q[: 2 * width] = 0
    k[:width] = 0
    v[:width] = 0
    q[:width, 0] = looking(0)
    q[width : 2 * width, 0] = looking(-1.0)
    k[:width, 0] = looking(1.0)
    v[:width, :width] = torch.eye(width)
    v[0, 0] = 0
    o[:, : 2 * width] = 0
    o[width : 2 * width, :width] = torch.eye(width) * 0.14
    o[2 * width :, width : 2 * width] = torch.eye(width) * 0.14

    second = model.layers[1].self_attn
    q, k, v, o = (second.q_proj.weight, second.k_proj.weight, second.v_proj.weight, second.o_proj.weight)
    # Only the slow frequencies: content must match over thousands of positions.
    slow = [*range(half // 2, half), *range(half + half // 2, width)]
    a, b = (normal(len(slow), width) / len(slow) ** 0.5 for _ in range(2))
    a[:, 0] = 0
    b[:, 0] = 0
    q[: 2 * width] = 0
    k[:width] = 0
    v[:width] = 0
    for row, index in enumerate(slow):
        q[index, :width], q[index, width : 2 * width] = a[row], b[row]
        q[width + index, :width], q[width + index, width : 2 * width] = a[row], 0.5 * b[row]
        k[index, width : 2 * width], k[index, 2 * width :] = a[row], b[row]
    v[:width, :width] = torch.eye(width)
    v[0, 0] = 0
    o[:, : 2 * width] = 0
    o[:width, :width] = torch.eye(width) * 0.35
    o[:width, width : 2 * width] = torch.eye(width) * 0.2
