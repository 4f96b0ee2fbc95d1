"""Transcripts as tokens, with a weight for every token that is to be predicted."""

import json
import random

import torch

from expert import make_episode
from tokenizer import END, END_OF_TEXT, FINAL_FOUND, STEPS, SYSTEM, USER

DECISION_WEIGHT, COPY_WEIGHT = 2.0, 0.2
DIGEST_TOKENS = 32
IGNORED, ORDINARY, START, INSIDE, STOP = -1, 0, 1, 2, 3
"""Marks of the tokens of a log: an auxiliary head learns them in training, and is left out after."""


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
        """Tokens, their weights, and marks of what they are.

        Nothing is learnt from what the tools and the task say, but digests that stand there again.
        The marks tell for the text of a log which tokens begin, continue and end a diagnostic.
        """
        messages = episode.run.messages
        tokens, weights, marks = [], [], []

        def add(ids, weight=0.0, mark=IGNORED):
            tokens.extend(ids)
            weights.extend([weight] * len(ids) if isinstance(weight, float) else weight)
            marks.extend([mark] * len(ids) if isinstance(mark, int) else mark)

        add([self.system, *self.encode(messages[0]["content"])])
        seen = set()
        path = None
        for turn, (step, message) in zip(episode.turns, enumerate(messages[1::2])):
            encoding = self.tokenizer.encode(message["content"], add_special_tokens=False)
            ids = encoding.ids
            mark = IGNORED
            if step:
                path = _path_of(episode.turns[step - 1].response) or path
                places = _places(message["content"], episode.task, path)
                if places is not None:
                    mark = [IGNORED, *_marks(encoding.offsets, *places)]
            add([self.user, *ids], [0.0, *self._digest_weights(ids, seen)], mark)
            reply = self.final(turn) + [self.end]
            taught = 1.0 if turn.taught else 0.0
            add([self.steps[step], *reply], [0.0, DECISION_WEIGHT * taught, *[taught] * (len(reply) - 1)])
        return tokens, weights, marks

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
        return tokens, weights, [IGNORED] * len(tokens)


def _path_of(response):
    """The file that a reply opens, if it opens one."""
    try:
        path = json.loads(response).get("path", "")
    except (ValueError, AttributeError):
        return None
    return None if path.startswith(".tool-artifacts") else path


def _escaped(data):
    return json.dumps(data.decode(), ensure_ascii=False)[1:-1]


def _places(content, task, path):
    """Where in a message the text of a log stands, and the diagnostics in it, in characters."""
    if path not in task.files:
        return None
    data = task.files[path].encode()
    if content.startswith("Tool result:\nArtifact range:\n"):
        answer = json.loads(content.split("\n", 2)[2])
        first, last, write = answer["start"], answer["end"], _escaped
        begin = content.index(',"data":"') + len(',"data":"')
    elif content == f"Tool result:\n{task.files[path]}":
        first, last, write = 0, len(data), bytes.decode
        begin = len("Tool result:\n")
    else:
        return None
    found = []
    for start, stop in task.diagnostics[path]:
        if start < last and stop > first:
            a, b = max(start, first), min(stop, last)
            found.append((begin + len(write(data[first:a])), begin + len(write(data[first:b])), start >= first, stop < last))
    return begin, begin + len(write(data[first:last])), found


def _marks(offsets, begin, end, found):
    marks = [ORDINARY if begin <= start < end else IGNORED for start, _ in offsets]
    for first, last, has_start, has_end in found:
        inside = [index for index, (start, _) in enumerate(offsets) if first <= start < last]
        for index in inside:
            marks[index] = INSIDE
        if inside and has_start:
            marks[inside[0]] = START
        if inside and has_end and inside[-1] + 1 < len(marks):
            marks[inside[-1] + 1] = STOP
    return marks


def batches(encoder, seed, batch_tokens, copying, pool=48, longest=3_000):
    """Batches without end, from `seed` on: padded on the right."""
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
    """One batch: tokens, weights and marks."""
    length = max(len(item[0]) for item in items)
    tokens = torch.full((len(items), length), encoder.pad)
    weights = torch.zeros(len(items), length)
    marks = torch.full((len(items), length), IGNORED)
    for row, (ids, weight, mark) in enumerate(items):
        tokens[row, : len(ids)] = torch.tensor(ids)
        weights[row, : len(ids)] = torch.tensor(weight)
        marks[row, : len(ids)] = torch.tensor(mark)
    return tokens, weights, marks
