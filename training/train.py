"""Trains the model on the expert's transcripts: seeded, and resumed from its checkpoint file.

The learning rate is constant until --decay-from tokens and falls linearly to --tokens.
"""

import argparse
import json
import os
import time
from collections import defaultdict
from pathlib import Path

import torch
import torch.nn.functional as F
from tokenizers import Tokenizer

import tokenizer as names
from data import IGNORED, Encoder, batches
from model import Config, Decoder, construct

BEFORE_A_DIGEST = [
    names.READ_RANGE,
    names.OBSERVATION,
    names.SUGGESTION,
    names.RANGE,
    ',"sha256":"',
    '","tool":"read_file"},"sha256":"',
]
MARKED_LAYER, MARKING, MARK_WEIGHTS = 2, 0.5, [1.0, 8.0, 1.0, 8.0]
"""An auxiliary head reads which tokens begin, continue and end a diagnostic from the third layer.

One decision in a hundred tokens says too little about what a diagnostic is; this says it for every
token of a log. The head is no part of the finished model.
"""


POINTING, ECHOING, ECHOES = 0.5, 0.2, 200
"""The weight of the loss of what the pointing heads attend to. Most transcripts start one copy of a
path and one of a diagnostic: from these alone, where to copy from is learnt very slowly."""


class Muon(torch.optim.Optimizer):
    """Momentum whose updates are orthogonalized by five Newton-Schulz steps."""

    def __init__(self, parameters, lr, momentum=0.95):
        super().__init__(parameters, {"lr": lr, "momentum": momentum})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for parameter in group["params"]:
                state = self.state[parameter]
                if "momentum" not in state:
                    state["momentum"] = torch.zeros_like(parameter)
                momentum = state["momentum"]
                momentum.lerp_(parameter.grad, 1 - group["momentum"])
                update = _orthogonalize(parameter.grad.lerp(momentum, group["momentum"]))
                scale = max(1, parameter.shape[0] / parameter.shape[1]) ** 0.5
                parameter.add_(update, alpha=-group["lr"] * scale)


def _orthogonalize(matrix):
    a, b, c = 3.4445, -4.7750, 2.0315
    x = matrix / (matrix.norm() + 1e-7)
    transposed = x.shape[0] > x.shape[1]
    if transposed:
        x = x.T
    for _ in range(5):
        square = x @ x.T
        x = a * x + (b * square + c * square @ square) @ x
    return x.T if transposed else x


def optimizers(model, lr):
    """Muon for the matrices of the layers, Adam for the embedding and the norms.

    The first two layers, which copy from the start, and the embedding, which they match by, move
    slowly: at the full rate they forget within a hundred steps what the construction gave them.
    """
    copying = [p for p in model.layers[:2].parameters() if p.dim() == 2]
    others = [p for p in model.layers[2:].parameters() if p.dim() == 2]
    norms = [p for p in model.parameters() if p.dim() == 1]
    return [
        Muon([{"params": copying, "lr": lr * 0.15}, {"params": others, "lr": lr}], lr),
        torch.optim.AdamW(
            [{"params": norms, "lr": lr * 0.1}, {"params": [model.embed_tokens.weight], "lr": lr * 0.05}],
            betas=(0.9, 0.98),
            weight_decay=0.0,
        ),
    ]


def factor(tokens, options):
    """The learning rate's factor after `tokens`."""
    warm = min(1.0, (tokens + 1) / options.warm_up)
    left = (options.tokens - tokens) / max(1, options.tokens - options.decay_from)
    return warm * min(1.0, max(left, 0.02))


def _some(places):
    return places[torch.randperm(len(places))[:ECHOES]]


def categories(encoder, tokenizer):
    """For the log: which kind of token each one is."""
    kind = torch.zeros(encoder.vocab_size, dtype=torch.long)
    decisions = [names.READ, names.READ_RANGE, names.LIST, names.LIST_ALL, names.FINAL_FOUND, names.FINAL_ABSENT]
    for name in decisions:
        kind[tokenizer.token_to_id(name)] = 1
    for pair in encoder.pairs:
        kind[pair] = 2
    for digit in "0123456789":
        kind[tokenizer.token_to_id(digit)] = 3
    return kind, ["text", "decision", "pair", "digit"]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tokenizer", required=True, help="a folder with tokenizer.json")
    parser.add_argument("--checkpoint", required=True, help="is resumed from, and written")
    parser.add_argument("--tokens", type=float, required=True, help="how many to train on, in all")
    parser.add_argument("--decay-from", type=float, required=True)
    parser.add_argument("--until", type=float, help="stops here already; the schedule stays that of --tokens")
    parser.add_argument("--warm-up", type=float, default=80_000)
    parser.add_argument("--lr", type=float, default=0.01)
    parser.add_argument("--batch-tokens", type=int, default=5_000)
    parser.add_argument("--longest", type=int, default=3_000, help="leaves longer transcripts out")
    parser.add_argument("--whole", type=int, default=12, help="whole transcripts made at a time")
    parser.add_argument("--short", type=int, default=40, help="short ones with them")
    parser.add_argument("--openings", type=int, default=50)
    parser.add_argument("--copying", type=int, default=8)
    parser.add_argument("--report", type=int, default=20, help="steps between lines of the log")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    torch.manual_seed(options.seed)

    tokenizer = Tokenizer.from_file(os.path.join(options.tokenizer, "tokenizer.json"))
    encoder = Encoder(tokenizer)
    model = Decoder(Config(encoder.vocab_size))
    construct(model, [[tokenizer.token_to_id(phrase) for phrase in BEFORE_A_DIGEST]])
    marker = torch.nn.Linear(model.config.hidden_size, len(MARK_WEIGHTS))
    optimizer = optimizers(model, options.lr)
    optimizer.append(torch.optim.AdamW(marker.parameters(), lr=options.lr * 0.2, weight_decay=0.0))
    tokens = steps = seconds = 0
    checkpoint = Path(options.checkpoint)
    if checkpoint.exists():
        state = torch.load(checkpoint)
        model.load_state_dict(state["model"])
        if "marker" in state:
            marker.load_state_dict(state["marker"])
        for one, saved in zip(optimizer, state["optimizers"]):
            one.load_state_dict(saved)
        tokens, steps, seconds = state["tokens"], state["steps"], state["seconds"]
        for one, own in zip(optimizer, optimizers(model, options.lr)):
            for group, fresh in zip(one.param_groups, own.param_groups):
                group["lr"] = fresh["lr"]
    rates = [[group["lr"] for group in one.param_groups] for one in optimizer]

    def save():
        state = {
            "model": model.state_dict(),
            "marker": marker.state_dict(),
            "optimizers": [one.state_dict() for one in optimizer],
            "tokens": tokens,
            "steps": steps,
            "seconds": seconds,
            "config": model.config.checkpoint(),
        }
        torch.save(state, checkpoint.with_suffix(".tmp"))
        checkpoint.with_suffix(".tmp").replace(checkpoint)

    kind, kinds = categories(encoder, tokenizer)
    right, seen, losses, markings, pointings, echoes = defaultdict(int), defaultdict(int), [], [], [], []
    saved = time.monotonic()
    # A resumed run draws other tasks: the seed of the stream follows from the step.
    mix = {"whole": options.whole, "short": options.short, "opening": options.openings, "copying": options.copying}
    stream = batches(encoder, options.seed * 1_000_003 + steps, options.batch_tokens, mix, options.longest)
    while tokens < min(options.tokens, options.until or options.tokens):
        begun = time.monotonic()
        batch = next(stream)
        ids, marks = batch.tokens, batch.marks
        targets, weight = ids[:, 1:], batch.weights[:, 1:]
        chosen = weight > 0
        taps = []
        logits = model.logits(model.hidden(ids[:, :-1], taps=taps, chosen=chosen))
        expected, weight = targets[chosen], weight[chosen]
        loss = (F.cross_entropy(logits, expected, reduction="none") * weight).sum() / weight.sum()
        told = marks[:, :-1] != IGNORED
        marking = torch.zeros(())
        if told.any():
            seen_there = F.rms_norm(taps[MARKED_LAYER][told], (model.config.hidden_size,))
            marking = F.cross_entropy(marker(seen_there), marks[:, :-1][told], torch.tensor(MARK_WEIGHTS))
        pointing = model.pointing(taps, batch.copies, batch.decisions)
        sources = torch.cat([_some(batch.copies[:, [0, 2]]), _some(torch.nonzero(ids[:, :-1] != encoder.pad))])
        echoing = model.echoing(taps, ids, sources)
        (loss + MARKING * marking + POINTING * pointing + ECHOING * echoing).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scale = factor(tokens, options)
        for one, own in zip(optimizer, rates):
            for group, rate in zip(one.param_groups, own):
                group["lr"] = rate * scale
            one.step()
            one.zero_grad()
        tokens += int((ids != encoder.pad).sum())
        steps += 1
        seconds += time.monotonic() - begun
        losses.append(float(loss.detach()))
        markings.append(float(marking.detach()))
        pointings.append(float(pointing.detach()))
        echoes.append(float(echoing.detach()))
        hits = logits.detach().argmax(-1) == expected
        for index, name in enumerate(kinds):
            of_kind = (kind[expected] == index) & (weight >= 1)
            right[name] += int(hits[of_kind].sum())
            seen[name] += int(of_kind.sum())
        if steps % options.report == 0:
            shares = {name: round(right[name] / max(1, seen[name]), 4) for name in kinds}
            line = {
                "step": steps,
                "tokens": tokens,
                "seconds": round(seconds),
                "loss": round(sum(losses) / len(losses), 4),
                "marking": round(sum(markings) / len(markings), 4),
                "pointing": round(sum(pointings) / len(pointings), 4),
                "echoing": round(sum(echoes) / len(echoes), 4),
                "lr": round(scale, 3),
                **shares,
            }
            print(json.dumps(line), flush=True)
            right, seen, losses, markings, pointings, echoes = defaultdict(int), defaultdict(int), [], [], [], []
        if time.monotonic() - saved > 120:
            save()
            saved = time.monotonic()
    save()


if __name__ == "__main__":
    main()
