"""Tasks: a workspace of files, a question about it, and where the diagnostics stand."""

from dataclasses import dataclass

from logs import SHAPES, decoy, invented, make_lines, pick, version, word

STRIDE = 500
"""The expert reads in blocks that end at multiples of this.

Ranges may have 512 bytes. 500 leaves room to come back to the grid when the last block had to end
early because it would have cut a code point.
"""


@dataclass
class Task:
    """What the model is asked, and what only the expert knows."""

    text: str
    files: dict
    target: str
    named: str | None
    diagnostics: dict
    """For each file the byte ranges of its diagnostics, in order."""
    log_order: list
    """The logs in the order in which they deserve to be read once the files were listed."""


LOG_STEMS = """
build test server app service install deploy ci output error debug access worker daemon system kernel boot run make
compile nightly release job agent backend api gateway migrate backup import sync stderr stdout console main trace report
""".split()
LOG_ENDINGS = ["log"] * 7 + ["txt", "txt", "out", "out", "err"]
OTHER_FILES = """
README.md Makefile LICENSE Cargo.toml package.json main.py setup.py config.yaml index.html notes.md src/main.rs src/lib.rs
src/app.py docs/guide.md docker-compose.yml Dockerfile tests/test_app.py requirements.in go.mod style.css data.csv schema.sql
""".split()
LOG_FOLDERS = ["logs", "log", "out", "var/log", "build", "target", "ci", "artifacts", "tmp", "results"]

NAMED = """
Find the diagnostic in {}.|What went wrong in {}?|Find the error in {}.|Read {} and quote the error.|Look into {} and tell me why it failed.
Why did it fail? See {}.|Which error is in {}?|Quote the failure from {}.|{} should tell what failed. Find it.|Check {} for errors.
Open {} and report the first error.|The build is broken; the log is {}. What is the error?|Please find the failing line in {}.
Something failed. Its output is in {}. Quote the diagnostic.|Report the diagnostic of {}.|Is there an error in {}?|In {}, what is the error message?
Search {} for the failure and quote it exactly.|Tell me the exact error message in {}.|Diagnose {}.|Inspect {} and find the cause.
The job log {} ends badly. Why?|Go through {} until you find the diagnostic.|Does {} contain a failure? Quote it.|Investigate {}.
I need the error text from {}.|{}: what failed?|Find what broke in {} and answer with the message.|Extract the error line from {}.
Our pipeline wrote {}. Find the error.|The tests failed, see {}. Which message?|Find it in {}.|Error in {}?|Summarize the failure in {}.
Locate the diagnostic in the file {}.|Please look at {} and quote the problem.|Finde den Fehler in {}.|Trouve l'erreur dans {}.|Busca el error en {}.
Have a look at {}, something is wrong there.|The deploy stopped. {} has the details. What happened?|What does {} complain about?|Find the problem in {}
""".replace("\n", "|").strip("|").split("|")
UNNAMED = """
Find the diagnostic.|What went wrong?|Find the error.|Something failed here. Find out what.|Why did the build fail?|Which test failed?
Look through the logs and quote the error.|Is there an error in the logs?|Find the log and report the failure.|Quote the error message.
The job failed. Find the reason.|Check the output for errors.|Find the failing line.|Report the diagnostic.|Find it.|What is broken?
There is a log in the workspace. What does it complain about?|Search the workspace for an error message.|Diagnose the failure.|Why is it red?
Please find out why it failed.|Finde den Fehler.|Trouve l'erreur.|Busca el error.|One of the files holds an error. Quote it.
""".replace("\n", "|").strip("|").split("|")
HINTED = """
Find the error in the {} log.|What went wrong in the {} log?|Check the {} log for the failure.|Quote the error of the {} log.
The {} log has an error. Which?|Look at the {} log.|Why did {} fail?|Diagnose the {} failure.|The {} step failed. Find out why.
""".replace("\n", "|").strip("|").split("|")
QUOTES = [("", "")] * 6 + [("`", "`"), ("'", "'"), ('"', '"'), ("./", ""), ("**", "**")]


def log_name(rng):
    """A file name that looks like a log's."""
    stem = pick(rng, LOG_STEMS) if rng.random() < 0.5 else word(rng)
    roll = rng.random()
    if roll < 0.12:
        stem = f"{stem}-{rng.randint(1, 99)}"
    elif roll < 0.2:
        stem = f"{stem}_{word(rng)}"
    elif roll < 0.27:
        stem = f"{stem}.{rng.randint(1, 9)}"
    elif roll < 0.34:
        stem = f"{stem}-{rng.randint(2019, 2031)}-{rng.randint(1, 12):02d}-{rng.randint(1, 28):02d}"
    elif roll < 0.42:
        stem = f"{stem}-{invented(rng)}"
    elif roll < 0.46:
        stem = stem.upper()
    return f"{stem}.{pick(rng, LOG_ENDINGS)}"


def log_path(rng):
    name = log_name(rng)
    if rng.random() < 0.35:
        folder = pick(rng, LOG_FOLDERS) if rng.random() < 0.7 else word(rng)
        return f"{folder}/{name}"
    return name


def _fill(rng, line, byte_count):
    """`line` with exactly `byte_count` more bytes."""
    text = " ".join(word(rng) for _ in range(byte_count // 3 + 1))
    return line + (" " + text)[:byte_count] if byte_count else line


def make_log(rng, byte_count, positions):
    """A log of about `byte_count` bytes and the byte ranges of the diagnostics in it.

    `positions` holds a wished position for each diagnostic, in ascending order.
    """
    shape = pick(rng, SHAPES)(rng)
    decoys = rng.choice([0.0, 0.05, 0.1, 0.3])
    lines, size, found = [], 0, []

    def add(line):
        nonlocal size
        lines.append(line)
        size += len(line.encode()) + 1

    def add_failure():
        nonlocal size
        failure = shape.failure()
        for line in failure.before:
            add(line)
        start = size + len(failure.prefix.encode())
        # A quarter of the diagnostics is cut by the end of a block.
        diagnostic = failure.diagnostic
        length = len(diagnostic.encode())
        if rng.random() < 0.25 and lines and not failure.before and length > 4:
            cut = rng.randint(2, length - 1)
            border = (start + cut + STRIDE - 1) // STRIDE * STRIDE
            missing = border - cut - start
            if missing < 160 and border < byte_count:
                lines[-1] = _fill(rng, lines[-1], missing)
                start += missing
                size += missing
        add(failure.prefix + diagnostic)
        found.append((start, start + length))
        for line in failure.after:
            add(line)

    for position in positions:
        for line in make_lines(rng, shape, max(position - size, 0), decoys):
            if size + len(line.encode()) > position and size > 0:
                break
            add(line)
        add_failure()
    while size < byte_count:
        add(decoy(rng) if rng.random() < decoys else shape.line())
    return "\n".join(lines) + ("\n" if rng.random() < 0.8 else ""), found


def _size(rng):
    roll = rng.random()
    if roll < 0.10:
        return rng.randint(60, 420)
    if roll < 0.55:
        return rng.randint(520, 1500)
    if roll < 0.85:
        return rng.randint(1500, 2900)
    return rng.randint(2900, 8000)


def make_task(rng, short=False):
    """A task from nothing but the random numbers of `rng`; a short one has a log that is shown whole."""
    kind = rng.choices(["named", "unnamed", "hinted", "misnamed", "several"], [62, 14, 8, 8, 8])[0]
    if short:
        size = rng.randint(30, 440)
    else:
        size = _size(rng) if kind != "several" else rng.randint(100, 1600)
    absent = rng.random() < 0.14
    # Diagnostics stand where the expert can get: of a longer log only the end.
    lowest = max(0, size - 2700)
    positions = [] if absent else sorted(rng.randint(lowest, size) for _ in range(rng.choice([1, 1, 1, 2])))
    if positions and rng.random() < 0.1:
        positions[0] = lowest
    text, diagnostics = make_log(rng, size, positions)
    target = log_path(rng)
    files, found = {target: text}, {target: diagnostics}
    for name in rng.sample(OTHER_FILES, rng.choice([0, 0, 1, 2, 3])):
        files[name] = f"# {word(rng)} {version(rng)}\n"
    order = [target]
    if kind == "named":
        named = target
        left, right = pick(rng, QUOTES)
        question = pick(rng, NAMED).format(f"{left}{target}{right}")
    elif kind == "misnamed":
        named = _misspelt(rng, target)
        question = pick(rng, NAMED).format(named)
    else:
        named = None
        question = pick(rng, UNNAMED)
    if kind in ("hinted", "several"):
        other = log_path(rng)
        while other.split("/")[0] == target.split("/")[0]:
            other = log_name(rng)
        if kind == "hinted":
            stem = target.split("/")[-1].split(".")[0].split("-")[0].split("_")[0]
            if stem in other or "/" in target:
                return make_task(rng, short)
            files[other], found[other] = make_log(rng, rng.randint(60, 400), [])
            question = pick(rng, HINTED).format(stem)
        elif "/" in target or "/" in other:
            return make_task(rng, short)
        else:
            first, second = sorted([target, other])
            texts = [make_log(rng, rng.randint(60, 400 if short else 900), []), (text, diagnostics)]
            if rng.random() < 0.4:
                texts.reverse()
            for name, (content, places) in zip((first, second), texts):
                files[name], found[name] = content, places
            order = [first, second]
            target = first
    return Task(question, files, target, named, found, order)


def _misspelt(rng, target):
    """A path that the workspace does not have, close to one that it has."""
    folder, _, name = target.rpartition("/")
    roll = rng.random()
    if roll < 0.35 and folder:
        return name
    if roll < 0.55:
        return f"{pick(rng, LOG_FOLDERS)}/x-{name}"
    if roll < 0.8:
        return log_name(rng) if not folder else f"{folder}/{log_name(rng)}"
    stem, _, ending = name.rpartition(".")
    return f"{stem}{rng.choice(['s', '1', '-old', '_new', '2'])}.{ending}"
