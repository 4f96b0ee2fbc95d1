"""The scripted expert: what a model that only reads should do, step by step."""

import json
import random
import re
from dataclasses import dataclass, field

from loop import AgentLimits, EvidenceWorkspace, Run, range_path
from tasks import STRIDE, Task, make_task

FOUND = "Found: "
ABSENT = "No diagnostic found in what was read."
REFUSALS = ("error: path ", "error: artifact ", "error: response ", "error: tool ")
"""How the loop's own errors begin; a log may begin with `error:` as well."""
LAST_READING_STEP = AgentLimits().max_steps - 1
MISALIGNED = "error: artifact range does not align to UTF-8 text"
LOG_NAME = re.compile(r"\.(log|txt|out|err)$")


class Unsuitable(Exception):
    """The task would teach something ambiguous; another is to be made."""


def read_action(path):
    return json.dumps({"tool": "read_file", "path": path}, ensure_ascii=False, separators=(",", ":"))


def list_action(path):
    return json.dumps({"tool": "list_files", "path": path}, ensure_ascii=False, separators=(",", ":"))


def final_action(text):
    return json.dumps({"final": text}, ensure_ascii=False, separators=(",", ":"))


def block_end(start, byte_count):
    """Where the block that begins at `start` ends: on the grid, or with the artifact."""
    return min((start + 3) // STRIDE * STRIDE + STRIDE, byte_count)


def first_start(byte_count, step):
    """Where reading begins so that the rest fits the steps that follow `step`.

    A log that is too long for them is read from where its last blocks begin: failures stand rather
    at the end.
    """
    blocks = -(-byte_count // STRIDE)
    return STRIDE * max(0, blocks - (LAST_READING_STEP - step))


@dataclass
class Turn:
    """One reply of a transcript."""

    response: str
    pieces: list | None
    """For a final answer: the parts of the diagnostic as they stand in the ranges that were read."""
    taught: bool
    """Mistakes are shown, so that their correction can be learnt, but not taught."""


@dataclass
class Episode:
    """A run by the expert, as training data."""

    run: Run
    turns: list = field(default_factory=list)


class Expert:
    """Answers one task. It may look at where the diagnostics are only in what was read."""

    def __init__(self, task: Task, run: Run):
        self.task, self.run = task, run
        self.to_read = list(task.log_order)
        self.path = None
        self.sha256 = None

    def next_turn(self):
        """The next correct reply."""
        run = self.run
        if not run.events:
            return self._read(self.task.named) if self.task.named else Turn(list_action("."), None, True)
        response, result = run.events[-1]
        if result.startswith(REFUSALS):
            return self._after_refusal(response, result)
        if result.startswith("Tool result externalized:\n"):
            observation = json.loads(result.partition("\n")[2])
            self.sha256, self.byte_count = observation["sha256"], observation["byte_count"]
            if run.step > LAST_READING_STEP:
                raise Unsuitable("no step is left to read a range")
            self.start = self.begin = first_start(self.byte_count, run.step - 1)
            self.borders = [self.begin]
            if self.begin and not _is_boundary(self.task.files[self.path], self.begin):
                raise Unsuitable("the first block begins inside a code point")
            return self._block(block_end(self.start, self.byte_count))
        if result.startswith("Artifact range:\n"):
            self.start = json.loads(result.partition("\n")[2])["end"]
            self.borders.append(self.start)
            return self._after_reading(self.begin, self.start, self.byte_count)
        if response == list_action(".") or '"list_files"' in response:
            return self._after_listing(result)
        self.borders = [0, len(result.encode())]
        return self._after_reading(0, len(result.encode()), len(result.encode()))

    def _read(self, path):
        self.path = path
        return Turn(read_action(path), None, True)

    def _block(self, end):
        self.end = end
        if self.run.step > LAST_READING_STEP:
            return Turn(final_action(ABSENT), None, True)
        return Turn(read_action(range_path(self.sha256, self.start, end)), None, True)

    def _after_refusal(self, response, result):
        if result == MISALIGNED:
            return self._block(self.end - 1)
        if self.sha256 and ".tool-artifacts" in response:
            return self._block(self.end)
        if self.run.step >= LAST_READING_STEP:
            raise Unsuitable("too late to read anything")
        return Turn(list_action("."), None, True)

    def _after_listing(self, listing):
        entries = [line.partition(" ")[::2] for line in listing.split("\n")]
        names = {name for _, name in entries}
        for path in self.to_read:
            if path in names:
                return self._read(path)
            folders = [name for kind, name in entries if kind == "dir" and path.startswith(f"{name}/")]
            if folders:
                if any(kind == "file" and LOG_NAME.search(name) for kind, name in entries):
                    raise Unsuitable("a file and a folder both look like the log")
                return Turn(list_action(folders[0]), None, True)
        raise Unsuitable("the log is not in the listing")

    def _after_reading(self, begin, end, byte_count):
        for start, stop in self.task.diagnostics[self.path]:
            if start < begin < stop or (start < begin and begin - start < 200):
                raise Unsuitable("a diagnostic just before the first block")
            if start >= begin and (stop < end or stop == end == byte_count):
                return self._found(start, stop)
            if start >= begin and start < end and self.run.step > LAST_READING_STEP:
                raise Unsuitable("the steps end inside a diagnostic")
        if end < byte_count:
            return self._block(block_end(self.start, byte_count))
        later = self.to_read[self.to_read.index(self.path) + 1 :] if self.path in self.to_read else []
        if later and self.run.step < LAST_READING_STEP:
            self.sha256 = None
            return self._read(later[0])
        if later:
            raise Unsuitable("another log is left, and no step")
        return Turn(final_action(ABSENT), None, True)

    def _found(self, start, stop):
        data = self.task.files[self.path].encode()
        borders = [start, *[border for border in self.borders if start < border < stop], stop]
        pieces = [data[a:b].decode() for a, b in zip(borders, borders[1:])]
        return Turn(final_action(FOUND + "".join(pieces)), pieces, True)


def _is_boundary(text, position):
    return text.encode()[position] & 0xC0 != 0x80


def _mistake(rng, turn, expert):
    """A wrong reply in place of `turn`, or None where none fits."""
    response = turn.response
    if turn.pieces or response.startswith('{"final"'):
        return None
    if ".tool-artifacts" not in response:
        if '"read_file"' in response and rng.random() < 0.7:
            return read_action(json.loads(response)["path"] + rng.choice(["x", ".bak", "1"]))
        return rng.choice([response[:-2], response[:-1], "Let me read the file.", f"```json\n{response}\n```"])
    sha256, start, end, byte_count = expert.sha256, expert.start, expert.end, expert.byte_count
    flipped = list(sha256)
    flipped[rng.randrange(64)] = rng.choice("0123456789abcdef")
    return rng.choice(
        [
            read_action(range_path(sha256, start, byte_count + rng.randint(1, 99))) if byte_count - start < 400 else read_action(range_path(sha256, start, start + rng.randint(513, 1200))),
            read_action(range_path(sha256, end, start)),
            read_action(range_path(sha256, end, end)),
            read_action(range_path("".join(flipped), start, end)),
            read_action(range_path(sha256[:-1], start, end)),
            read_action(range_path(sha256, start, start + rng.randint(513, 2000))),
        ]
    )


def make_episode(seed, short=False):
    """The expert's run on a task of its own, from a seed."""
    rng = random.Random(seed)
    while True:
        task = make_task(rng, short)
        run = Run(task.text, EvidenceWorkspace(task.files))
        expert, episode = Expert(task, run), Episode(run)
        mistakes = rng.choice([0, 0, 0, 0, 0, 1])
        try:
            while run.reason is None:
                turn = expert.next_turn()
                if mistakes and rng.random() < 0.35 and (wrong := _mistake(rng, turn, expert)):
                    mistakes -= 1
                    before = expert.path
                    turn = Turn(wrong, None, False)
                    expert.path = before
                episode.turns.append(turn)
                run.reply(turn.response)
        except Unsuitable:
            continue
        if run.reason == "completed":
            episode.task = task
            return episode
