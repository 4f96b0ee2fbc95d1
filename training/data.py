"""Transcripts as tokens, with a weight for every token that is to be predicted."""

import json
import random

import torch

from expert import make_episode
from tokenizer import END, END_OF_TEXT, FINAL_FOUND, STEPS, SYSTEM, USER

DECISION_WEIGHT, COPY_WEIGHT = 2.0, 0.2
DIGEST_TOKENS = 32


class Encoder:
    """Turns episodes into tokens as the chat template would."""

    def __init__(self, tokenizer):
        self.tokenizer = tokenizer
        token = tokenizer.token_to_id
        self.system, self.user, self.end = token(SYSTEM), token(USER), token(END)
        self.pad, self.found = token(END_OF_TEXT), token(FINAL_FOUND)
        self.steps = [token(step) for step in STEPS]
        hexadecimal = "0123456789abcdef"
        self.pairs = {token(a + b) for a in hexadecimal for b in hexadecimal}
        self.vocab_size = tokenizer.get_vocab_size()

    def encode(self, text):
        return self.tokenizer.encode(text, add_special_tokens=False).ids

    def final(self, turn):
        """The tokens of a final answer: those of its source, also where a range cut it."""
        if not turn.pieces:
            return self.encode(turn.response)
        tokens = [self.found]
        for piece in turn.pieces:
            tokens += self.encode(json.dumps(piece, ensure_ascii=False)[1:-1])
        return tokens + self.encode('"}')

    def episode(self, episode):
        """Tokens and their weights; nothing is learnt from what the tools and the task say, but
        digests that stand there again."""
        messages = episode.run.messages
        tokens, weights = [], []

        def add(ids, weight=0.0):
            tokens.extend(ids)
            weights.extend([weight] * len(ids) if isinstance(weight, float) else weight)

        add([self.system, *self.encode(messages[0]["content"])])
        seen = set()
        for turn, (step, message) in zip(episode.turns, enumerate(messages[1::2])):
            ids = self.encode(message["content"])
            add([self.user, *ids], [0.0, *self._digest_weights(ids, seen)])
            reply = self.final(turn) + [self.end]
            taught = 1.0 if turn.taught else 0.0
            add([self.steps[step], *reply], [0.0, DECISION_WEIGHT * taught, *[taught] * (len(reply) - 1)])
        return tokens, weights

    def _digest_weights(self, ids, seen):
        weights = [0.0] * len(ids)
        run = 0
        for index, token in enumerate([*ids, -1]):
            if token in self.pairs:
                run += 1
                continue
            if run == DIGEST_TOKENS:
                digest = tuple(ids[index - run : index])
                if digest in seen:
                    weights[index - run : index] = [COPY_WEIGHT] * run
                seen.add(digest)
            run = 0
        return weights

    def copying(self, rng):
        """Random tokens, and pieces of them again: the copies are to be predicted."""
        source = [rng.randrange(self.vocab_size) for _ in range(rng.randint(60, 200))]
        tokens, weights = [self.user, *source], [0.0] * (len(source) + 1)
        for _ in range(rng.randint(2, 4)):
            start = rng.randrange(len(source) - 20)
            piece = source[start : start + rng.randint(8, 20)]
            tokens += piece
            weights += [0.0] * 2 + [1.0] * (len(piece) - 2)
            noise = [rng.randrange(self.vocab_size) for _ in range(rng.randint(1, 5))]
            tokens += noise
            weights += [0.0] * len(noise)
        return tokens, weights


def batches(encoder, seed, batch_tokens, copying, pool=48, longest=3_000):
    """Batches without end, from `seed` on: (tokens, targets' weights), padded on the right."""
    rng = random.Random(seed)
    while True:
        items = []
        for _ in range(pool):
            if rng.random() < copying:
                items.append(encoder.copying(rng))
                continue
            item = encoder.episode(make_episode(rng.randrange(1_000_000_000, 2_000_000_000)))
            if len(item[0]) <= longest:
                items.append(item)
        items.sort(key=lambda item: len(item[0]))
        groups, group = [], []
        for item in items:
            if group and len(item[0]) * (len(group) + 1) > batch_tokens:
                groups.append(group)
                group = []
            group.append(item)
        groups.append(group)
        rng.shuffle(groups)
        for group in groups:
            yield pad(encoder, group)


def pad(encoder, items):
    length = max(len(tokens) for tokens, _ in items)
    tokens = torch.full((len(items), length), encoder.pad)
    weights = torch.zeros(len(items), length)
    for row, (ids, weight) in enumerate(items):
        tokens[row, : len(ids)] = torch.tensor(ids)
        weights[row, : len(ids)] = torch.tensor(weight)
    return tokens, weights
