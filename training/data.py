"""Transcripts as tokens, with a weight for every token that is to be predicted."""

import json
import random
from dataclasses import dataclass, field

import torch

from expert import make_episode
from tokenizer import END, END_OF_TEXT, FINAL_FOUND, STEPS, SYSTEM, USER

DECISION_WEIGHT, COPY_WEIGHT = 2.0, 0.2
POINTED_TOKENS = 3
"""So many tokens of each copy are pointed at; the rest follows by induction."""
DIGEST_TOKENS = 32
IGNORED, ORDINARY, START, INSIDE, STOP = -1, 0, 1, 2, 3
"""Marks of the tokens of a log: an auxiliary head learns them in training, and is left out after."""


@dataclass
class Item:
    """One sequence."""

    tokens: list
    weights: list
    marks: list
    copies: list = field(default_factory=list)
    """Pairs of positions: where a token is predicted that is copied, and what it is copied from."""
    decisions: list = field(default_factory=list)
    """Pairs of positions: where an action is chosen, and what it rests on: where a diagnostic stops,
    where the path stands that is read, and the first token where it rests on neither."""

    def __len__(self):
        return len(self.tokens)


@dataclass
class Batch:
    """Sequences, padded on the right; pairs of positions become (sequence, position, source)."""

    tokens: torch.Tensor
    weights: torch.Tensor
    marks: torch.Tensor
    copies: torch.Tensor
    decisions: torch.Tensor


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
        return [self.found, *(token for piece in self.pieces(turn) for token in piece), *self.encode('"}')]

    def pieces(self, turn):
        return [self.encode(json.dumps(piece, ensure_ascii=False)[1:-1]) for piece in turn.pieces]

    def episode(self, episode, opening=False):
        """A transcript; an opening ends with the first path.

        Nothing is learnt from what the tools and the task say, but digests that stand there again.
        The marks tell for the text of a log which tokens begin, continue and end a diagnostic.
        """
        messages = episode.run.messages
        item = Item([], [], [])
        tokens, marks = item.tokens, item.marks

        def add(ids, weight=0.0, mark=IGNORED):
            tokens.extend(ids)
            item.weights.extend([weight] * len(ids) if isinstance(weight, float) else weight)
            marks.extend([mark] * len(ids) if isinstance(mark, int) else mark)

        add([self.system, *self.encode(messages[0]["content"])])
        seen = set()
        path = None
        shown = []
        for turn, (step, message) in zip(episode.turns, enumerate(messages[1::2])):
            encoding = self.tokenizer.encode(message["content"], add_special_tokens=False)
            ids = encoding.ids
            mark = IGNORED
            if step:
                path = _path_of(episode.turns[step - 1].response) or path
                places = _places(message["content"], episode.task, path)
                if places is not None:
                    mark = [IGNORED, *_marks(encoding.offsets, *places)]
            shown.append((len(tokens), len(tokens) + 1 + len(ids)))
            add([self.user, *ids], [0.0, *self._digest_weights(ids, seen)], mark)
            reply = self.final(turn) + [self.end]
            if turn.taught:
                self._point(item, turn, shown)
            taught = 1.0 if turn.taught else 0.0
            # The first token chooses the action, the second where its text is copied from.
            add([self.steps[step], *reply], [0.0, *[DECISION_WEIGHT * taught] * 2, *[taught] * (len(reply) - 2)])
            if opening and turn.taught and '"read_file"' in turn.response:
                break
        return item

    def _point(self, item, turn, shown):
        """Notes what the reply that comes next rests on, and where its parts are copied from."""
        decision = len(item.tokens)
        at = decision + 1
        if turn.pieces:
            pieces = self.pieces(turn)
            for piece, (first, last) in zip(pieces, shown[-len(pieces) :]):
                kind = START if piece is pieces[0] else INSIDE
                begins = [i for i in range(first, last) if item.marks[i] == kind and item.tokens[i] == piece[0]]
                if not begins:
                    return
                # In the raw text of a short result an escaped character is another token.
                begin = max(begins, key=lambda i: (_common(item.tokens[i:last], piece), -i))
                common = _common(item.tokens[begin:last], piece)
                item.copies += [(at + offset, begin + offset) for offset in range(min(common, POINTED_TOKENS))]
                at += len(piece)
            stop = next((i for i in range(begin + 1, last) if item.marks[i] == STOP), None)
            if stop is not None:
                item.decisions.append((decision, stop))
            return
        path = _path_of(turn.response)
        if path is not None and path != ".":
            ids = self.encode(path)
            for first, last in reversed(shown):
                begin = next((i for i in range(last - 1, first, -1) if item.tokens[i : i + len(ids)] == ids), None)
                if begin is not None:
                    item.copies += [(at + offset, begin + offset) for offset in range(min(len(ids), POINTED_TOKENS))]
                    item.decisions.append((decision, begin))
                    return
            return
        item.decisions.append((decision, 0))

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
        return Item(tokens, weights, [IGNORED] * len(tokens))


def _common(first, second):
    """How many tokens two sequences begin with alike."""
    return next((i for i, (a, b) in enumerate(zip(first, second)) if a != b), min(len(first), len(second)))


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


def batches(encoder, seed, batch_tokens, mix, longest=3_000):
    """Batches without end, from `seed` on: padded on the right.

    `mix` says how many of each kind of sequence are made at a time. A whole transcript has 1,000
    tokens and five decisions in them; short ones teach the same pointing at a path or at a
    diagnostic with 150, and openings, which end with the first file that is read, with 50.
    """
    rng = random.Random(seed)

    def task_seed():
        return rng.randrange(1_000_000_000, 2_000_000_000)

    makers = {
        "whole": lambda: encoder.episode(make_episode(task_seed())),
        "short": lambda: encoder.episode(make_episode(task_seed(), short=True)),
        "opening": lambda: encoder.episode(make_episode(task_seed(), short=True), opening=True),
        "copying": lambda: encoder.copying(rng),
    }
    while True:
        items = [makers[kind]() for kind, count in mix.items() for _ in range(count)]
        items = [item for item in items if len(item) <= longest]
        items.sort(key=len)
        groups, group = [], []
        for item in items:
            if group and len(item) * (len(group) + 1) > batch_tokens:
                groups.append(group)
                group = []
            group.append(item)
        groups.append(group)
        rng.shuffle(groups)
        for group in groups:
            yield pad(encoder, group)


def pad(encoder, items):
    """One batch."""
    length = max(len(item) for item in items)
    tokens = torch.full((len(items), length), encoder.pad)
    weights = torch.zeros(len(items), length)
    marks = torch.full((len(items), length), IGNORED)
    for row, item in enumerate(items):
        tokens[row, : len(item)] = torch.tensor(item.tokens)
        weights[row, : len(item)] = torch.tensor(item.weights)
        marks[row, : len(item)] = torch.tensor(item.marks)

    def pairs(name):
        found = [(row, *pair) for row, item in enumerate(items) for pair in getattr(item, name)]
        return torch.tensor(found, dtype=torch.long).view(-1, 3)

    return Batch(tokens, weights, marks, pairs("copies"), pairs("decisions"))
