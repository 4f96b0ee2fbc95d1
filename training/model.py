"""A Qwen3 decoder in plain torch, with the names that a checkpoint has.

transformers' Qwen3ForCausalLM computes the same (tests/test_model.py compares them); this one is
faster on a CPU because it computes logits only where they are needed, and it decodes many runs at
once.
"""

from dataclasses import asdict, dataclass

import torch
import torch.nn.functional as F
from torch import nn


COPYING_LAYERS, COPYING_HEAD, DECIDING_HEAD = (3, 4), 3, 1
"""The heads that training tells what to attend to. They are ordinary heads of the finished model."""


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

    def pointing(self, x, rotation, head, pairs):
        """How surprising the sources in `pairs` are as what `head` attends to: its cross-entropy.

        `x` is the layer's normalized input, and `pairs` holds (sequence, position, source).
        """
        sequence, position, source = pairs.unbind(1)
        cos, sin = rotation
        rows = slice(head * self.head_dim, (head + 1) * self.head_dim)
        q = self.q_norm(F.linear(x[sequence, position], self.q_proj.weight[rows]))
        q = _rotate(q, (cos[0, position, 0], sin[0, position, 0]))
        shared = head // (self.heads // self.kv_heads)
        rows = slice(shared * self.head_dim, (shared + 1) * self.head_dim)
        k = _rotate(self.k_norm(F.linear(x, self.k_proj.weight[rows])), (cos[:, :, 0], sin[:, :, 0]))
        scores = (k[sequence] @ q[:, :, None])[..., 0] * self.head_dim**-0.5
        later = torch.arange(x.shape[1]) > position[:, None]
        return F.cross_entropy(scores.masked_fill(later, -torch.inf), source)

    def copied(self, x, head):
        """What `head` adds to the residual stream where it attends to nothing but `x`."""
        shared = head // (self.heads // self.kv_heads)
        values = self.v_proj.weight[shared * self.head_dim : (shared + 1) * self.head_dim]
        return F.linear(F.linear(x, values), self.o_proj.weight[:, head * self.head_dim : (head + 1) * self.head_dim])

    def forward(self, x, rotation, cache, mask, chosen=None):
        batch, length, _ = x.shape
        split = (batch, length, -1, self.head_dim)
        q = _rotate(self.q_norm(self.q_proj(x).view(split)), rotation).transpose(1, 2)
        k = _rotate(self.k_norm(self.k_proj(x).view(split)), rotation).transpose(1, 2)
        v = self.v_proj(x).view(split).transpose(1, 2)
        if cache is not None:
            k, v = cache.extend(k, v)
        group = self.heads // self.kv_heads
        if mask is None:
            grouped = q.reshape(-1, group, length, self.head_dim)
            y = CausalAttention.apply(grouped, k.reshape(-1, length, self.head_dim), v.reshape(-1, length, self.head_dim))
            y = y.view(batch, self.heads, length, self.head_dim)
        else:
            k, v = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
            y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        y = y.transpose(1, 2).reshape(batch, length, -1)
        return self.o_proj(y if chosen is None else y[chosen])


class CausalAttention(torch.autograd.Function):
    """Causal attention in blocks of queries, each with the keys up to its end.

    Its backward pass takes three quarters of the time that torch's own takes on a CPU, which
    computes the masked half as well.
    """

    BLOCK = 128

    @staticmethod
    def forward(ctx, q, k, v):
        """`q` is (run and key head, query head, position, feature); `k` and `v` lack the second."""
        runs, group, length, width = q.shape
        q = q * width**-0.5
        out, shares = torch.empty_like(q), []
        for start in range(0, length, CausalAttention.BLOCK):
            end = min(start + CausalAttention.BLOCK, length)
            rows = end - start
            scores = q[:, :, start:end].reshape(runs, group * rows, width) @ k[:, :end].transpose(1, 2)
            later = torch.ones(rows, rows, dtype=torch.bool).triu_(1)
            scores.view(runs, group, rows, end)[..., start:].masked_fill_(later, -torch.inf)
            share = torch.softmax(scores, -1)
            shares.append(share)
            out[:, :, start:end] = (share @ v[:, :end]).view(runs, group, rows, width)
        ctx.save_for_backward(q, k, v, *shares)
        return out

    @staticmethod
    def backward(ctx, gradient):
        q, k, v, *shares = ctx.saved_tensors
        runs, group, length, width = q.shape
        dq, dk, dv = torch.empty_like(q), torch.zeros_like(k), torch.zeros_like(v)
        for index, share in enumerate(shares):
            start = index * CausalAttention.BLOCK
            end = min(start + CausalAttention.BLOCK, length)
            rows = (runs, group * (end - start), width)
            of_block = gradient[:, :, start:end].reshape(rows)
            dv[:, :end].baddbmm_(share.transpose(1, 2), of_block)
            dshare = of_block @ v[:, :end].transpose(1, 2)
            dscores = torch._softmax_backward_data(dshare, share, -1, share.dtype)
            dq[:, :, start:end] = (dscores @ k[:, :end]).view(runs, group, end - start, width)
            dk[:, :end].baddbmm_(dscores.transpose(1, 2), q[:, :, start:end].reshape(rows))
        return dq * width**-0.5, dk, dv


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

    def forward(self, x, rotation, cache, mask, chosen=None):
        attended = self.self_attn(self.input_layernorm(x), rotation, cache, mask, chosen)
        x = (x if chosen is None else x[chosen]) + attended
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

    def hidden(self, tokens, positions=None, caches=None, mask=None, taps=None, chosen=None):
        """The normalized hidden states, from which `logits` follow.

        What each layer leaves behind is added to the list `taps`, if there is one. With `chosen`,
        a mask of the positions that matter, the last layer is finished for these alone.
        """
        rotation = self.rotation(torch.arange(tokens.shape[1])[None] if positions is None else positions)
        x = self.embed_tokens(tokens)
        for index, layer in enumerate(self.layers):
            last = index + 1 == len(self.layers)
            x = layer(x, rotation, caches and caches[index], mask, chosen if last else None)
            if taps is not None:
                taps.append(x)
        return self.norm(x)

    def rotation(self, positions):
        angles = positions[..., None].float() * self.frequencies
        return torch.cos(angles)[:, :, None], torch.sin(angles)[:, :, None]

    def pointing(self, taps, copies, decisions):
        """The loss of the heads that are to attend to what is copied and what a decision rests on."""
        rotation = self.rotation(torch.arange(taps[0].shape[1])[None])
        loss = torch.zeros(())
        for index in COPYING_LAYERS:
            layer = self.layers[index]
            x = layer.input_layernorm(taps[index - 1])
            if len(copies):
                loss = loss + layer.self_attn.pointing(x, rotation, COPYING_HEAD, copies)
            if len(decisions):
                loss = loss + layer.self_attn.pointing(x, rotation, DECIDING_HEAD, decisions)
        return loss / len(COPYING_LAYERS)

    def echoing(self, taps, tokens, places):
        """The loss of the copying heads as to what they copy where all their attention is at one token.

        `places` holds (sequence, position). Nothing else keeps a token readable in its own residual
        stream, which fills with what the layers think of it.
        """
        sequence, position = places.unbind(1)
        loss = torch.zeros(())
        for index in COPYING_LAYERS:
            layer = self.layers[index]
            copied = layer.self_attn.copied(layer.input_layernorm(taps[index - 1][sequence, position]), COPYING_HEAD)
            loss = loss + F.cross_entropy(self.logits(self.norm(copied)), tokens[sequence, position])
        return loss / len(COPYING_LAYERS)

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
    construct_pointers(model)


@torch.no_grad()
def construct_pointers(model):
    """Heads of the later layers that copy the token that they attend to; where to is to be learnt."""
    width = model.config.head_dim
    for index in COPYING_LAYERS:
        if index < len(model.layers):
            attention = model.layers[index].self_attn
            v, o = attention.v_proj.weight, attention.o_proj.weight
            v[width : 2 * width] = 0
            v[width + 1 : 2 * width, 1:width] = torch.eye(width - 1)
            o[:, COPYING_HEAD * width :] = 0
            o[:width, COPYING_HEAD * width :] = torch.eye(width) * 0.5
