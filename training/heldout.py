"""Makes the held-out cases of tests/eval: real tools' logs, and logs of shapes that logs.py lacks.

Nothing here is shared with the generator of the training tasks but the block size: the sentences,
the formats, the questions and the file names are others. Each case is one that the expert answers
within the steps; what no reader could reach in eight steps proves nothing about a model.
"""

import argparse
import json
import random
from pathlib import Path

from expert import ABSENT, STRIDE, Expert, Unsuitable
from loop import EvidenceWorkspace, Run
from tasks import Task

CALM = """
Opened ledger partition {n} for the nightly reconciliation
The thermostat in hall {n} reports {n}.5 degrees
Imported {n} postcards from the spring archive
Nothing to do for tenant {w}, moving on
Checkpoint {n} reached after {n} milliseconds
Rotated the signing certificate of {w}.example.org
Belt {n} runs at {n} parcels per minute
User {w} signed in from terminal {n}
Fetched weather for {w} ({n} rows)
Compacted {n} segments, reclaimed {n} kilobytes
Sensor {w}-{n} calibrated against the reference
Heartbeat from {w} is {n} ms old
Scheduled the next inventory for {n}:30
Cache warm: {n} of {n} entries present
Rendered chapter {n} with {n} figures
Printed {n} labels on device {w}
Queue {w} drained, {n} letters were delivered
Reindexed the library catalogue up to volume {n}
Answered {n} questions about the {w} timetable
Loaded dictionary {w} with {n} headwords
Skipping optional step {w}
Using locale en_GB for {w}
Mounted /srv/{w} read-write
Peer {w} offered protocol {n}.{n}
Received {n} frames from camera {w}
Translating {n} strings for {w}
Backup of {w} took {n} s
Garbage collection finished: {n} objects freed
Tide table for {w} covers {n} days
Vehicle {n} left depot {w}
Compressed {w}.bin from {n} to {n} bytes
Voting round {n} closed, quorum present
Paper tray {n} refilled by {w}
Elevator {n} serviced without remarks
Playlist {w} has {n} tracks
The mirror in {w} is up to date
Negotiated {n} streams with {w}
Reading glasses inventory: {n} pairs
Solver iteration {n}, residual 0.00{n}
Parking deck {n} has {n} free places
""".strip().splitlines()
TROUBLE = """
the valve of tank {n} does not close
lost the link to {w} after {n} attempts
ledger {w} differs from its copy by {n} cents
voltage on rail {n} fell below 4.{n} V
the licence of {w} ended {n} days ago
postcode {n} belongs to no district
volume {w} is full, {n} bytes were not written
two writers hold the lease of {w}
template {w}.tpl uses the unknown helper {w}
the answer of {w} has {n} bytes too many
queue {w} refuses letter {n}: recipient is gone
signature over block {n} does not verify
paper jam in unit {w}, drawer {n}
station {w} sent a reading from the future ({n})
rule {n} contradicts rule {n}
no pilot is assigned to flight {n}
column {w} cannot hold the value {n}
expected the token '{w}' near offset {n}
interpreter for {w} scripts is missing
the index of {w} points behind its end
watchdog of {w} fired after {n} s
clock of node {w} is {n} s ahead
could not decode glyph {n} of {w}
handshake with {w}:{n} was cut short
bearing {n} is hotter than allowed
division of {w} by nil
shelf {w} holds a book twice: {n}
upload {w} was abandoned at {n} percent
door {n} was opened without a badge
schema {w} has no field {n}
""".strip().splitlines()
PLACES = "harbour meadow lantern copper violet granite orchard compass thistle beacon pelican juniper walnut marble saffron heron cedar otter falcon tulip basalt clover amber linden".split()
UNICODE_CALM = """
Größenprüfung für Straße {n} übersprungen
Λειτουργία {w} ξεκίνησε κανονικά
Обход участка {n} закончен без замечаний
카메라 {n} 연결됨
プリンター {w} は待機中です
Zażółć gęślą jaźń, krok {n}
Température de la cuve {n} : normale
Đã tải {n} bản ghi
""".strip().splitlines()
UNICODE_TROUBLE = """
Tür {n} schließt nicht, Prüfung abgebrochen
давление в контуре {n} выше нормы
η βαλβίδα {n} δεν κλείνει
서버 {w} 응답 없음
タンク{n}の圧力が高すぎます
pompe n° {n} à l'arrêt, débit nul
""".strip().splitlines()


def say(rng, sentences):
    text = rng.choice(sentences)
    while "{n}" in text:
        text = text.replace("{n}", str(rng.randint(1, 10 ** rng.randint(1, 4))), 1)
    while "{w}" in text:
        text = text.replace("{w}", rng.choice(PLACES), 1)
    return text


def stamp(rng, state):
    state["t"] = state.get("t", rng.randint(1, 80_000)) + rng.randint(1, 40)
    t = state["t"]
    return f"{t // 3600 % 24:02d}:{t // 60 % 60:02d}:{t % 60:02d}"


# Each shape: an ordinary line, and a failure as (what stands before, the diagnostic, lines after).
SHAPES = {
    "logcat": (
        lambda r, s, m: f"{r.choice('IDV')}/{r.choice(PLACES).capitalize()}Manager({r.randint(100, 9999):5d}): {m}",
        lambda r, s, m: (f"E/{r.choice(PLACES).capitalize()}Manager({r.randint(100, 9999):5d}): ", f"FATAL EXCEPTION: {m}", []),
    ),
    "workflow": (
        lambda r, s, m: f"##[group]{m}" if r.random() < 0.2 else f"{m}",
        lambda r, s, m: ("##[error]", f"Error: {m}", ["##[endgroup]"]),
    ),
    "table": (
        lambda r, s, m: f"{stamp(r, s)};{r.choice(['info', 'info', 'notice'])};{r.choice(PLACES)};{m}",
        lambda r, s, m: (f"{stamp(r, s)};", f"error;{r.choice(PLACES)};{m}", []),
    ),
    "klog": (
        lambda r, s, m: f"I1204 {stamp(r, s)}.{r.randint(0, 999_999):06d} {r.randint(1, 99):7d} {r.choice(PLACES)}.go:{r.randint(9, 900)}] {m}",
        lambda r, s, m: (f"F1204 {stamp(r, s)}.{r.randint(0, 999_999):06d} {r.randint(1, 99):7d} {r.choice(PLACES)}.go:{r.randint(9, 900)}] ", f"fatal error: {m}", []),
    ),
    "elixir": (
        lambda r, s, m: f"{stamp(r, s)}.{r.randint(0, 999):03d} [info] {m}",
        lambda r, s, m: ("** (exit) an exception was raised: ", f"RuntimeError: {m}", [f"    (stdlib) gen_server.erl:{r.randint(100, 900)}"]),
    ),
    "haskell": (
        lambda r, s, m: f"[{r.randint(1, 40):2d} of 40] Compiling {r.choice(PLACES).capitalize()}.{r.choice(PLACES).capitalize()} ( src/{r.choice(PLACES)}.hs )",
        lambda r, s, m: (f"src/{r.choice(PLACES).capitalize()}.hs:{r.randint(1, 300)}:{r.randint(1, 60)}: ", f"error: {m}", ["   |"]),
    ),
    "bazel": (
        lambda r, s, m: f"INFO: {m}" if r.random() < 0.5 else f"[{r.randint(1, 900)} / 900] {m}",
        lambda r, s, m: ("", f"ERROR: /srv/{r.choice(PLACES)}/BUILD:{r.randint(1, 90)}:{r.randint(1, 9)}: {m}", ["Target //app:main was not built"]),
    ),
    "mainframe": (
        lambda r, s, m: f"{stamp(r, s)} JOB{r.randint(1000, 9999)} IEF{r.randint(100, 999)}I {m.upper()}",
        lambda r, s, m: (f"{stamp(r, s)} JOB{r.randint(1000, 9999)} ", f"ERROR IEC{r.randint(100, 999)}I {m.upper()}", []),
    ),
    "tree": (
        lambda r, s, m: f"{'│   ' * r.randint(0, 2)}├── {m}",
        lambda r, s, m: (f"{'│   ' * r.randint(0, 2)}└── ", f"FAILED: {m}", []),
    ),
    "xml": (
        lambda r, s, m: f'<testcase name="{r.choice(PLACES)}{r.randint(1, 99)}" time="0.{r.randint(10, 99)}"/>',
        lambda r, s, m: ("  <failure>", f"AssertionError: {m}</failure>", ["</testcase>"]),
    ),
    "simulator": (
        lambda r, s, m: f"# {r.randint(0, 99_999):>8} ns  {r.choice(PLACES)}.{r.choice(PLACES)}: {m}",
        lambda r, s, m: (f"# {r.randint(0, 99_999):>8} ns  ", f"FATAL: {r.choice(PLACES)}.{r.choice(PLACES)}: {m}", ["# simulation stopped"]),
    ),
    "database": (
        lambda r, s, m: f"2027-03-0{r.randint(1, 9)} {stamp(r, s)} CET [{r.randint(100, 9999)}]: [{r.randint(1, 9)}-1] LOG:  {m}",
        lambda r, s, m: (f"2027-03-0{r.randint(1, 9)} {stamp(r, s)} CET [{r.randint(100, 9999)}]: [3-1] ", f"FATAL:  {m}", [f"HINT:  {say(r, CALM)}"]),
    ),
    "statistics": (
        lambda r, s, m: f"NOTE: {m}.",
        lambda r, s, m: ("", f"ERROR {r.randint(10, 99)}-{r.randint(100, 999)}: {m}.", ["NOTE: The step was stopped."]),
    ),
    "tap-notes": (
        lambda r, s, m: f"ok {s.setdefault('k', 0) + r.randint(1, 99)} {m}" if r.random() < 0.7 else f"# {m}",
        lambda r, s, m: ("", f"not ok {r.randint(1, 99)} {m}", ["  ---", "  ..."]),
    ),
    "bars": (
        lambda r, s, m: f"| {r.choice(PLACES):<10} | {stamp(r, s)} | {m:<46} |",
        lambda r, s, m: (f"| {r.choice(PLACES):<10} | {stamp(r, s)} | ", f"CRITICAL {m}", []),
    ),
    "dotted": (
        lambda r, s, m: f"{m} {'.' * r.randint(3, 30)} done",
        lambda r, s, m: (f"{say(r, CALM)} {'.' * r.randint(3, 30)} ", f"failed: {m}", []),
    ),
    "chat": (
        lambda r, s, m: f"<{r.choice(PLACES)}> {m}",
        lambda r, s, m: (f"<{r.choice(PLACES)}> ", f"panic: {m}", []),
    ),
    "keyed": (
        lambda r, s, m: f"ts={stamp(r, s)} sev=info unit={r.choice(PLACES)} text={json.dumps(m)}",
        lambda r, s, m: (f"ts={stamp(r, s)} ", f"sev=error unit={r.choice(PLACES)} text={json.dumps(m, ensure_ascii=False)}", []),
    ),
}
HARMLESS = [
    "Errors so far: none",
    "error counter reset to 0",
    "no failures were recorded",
    "errors=0 retries=2",
    "warning: {w} is slow today",
    "Warning: drawer {n} is nearly empty",
    "the error page of {w} was translated",
    "failover test passed",
    "fatal_threshold={n}",
    "0 of {n} checks failed",
]
QUESTIONS = """
Please tell me what broke, the transcript is {}.|I think {} holds an error message. Which one?|Give me the exact wording of the failure in {}.
The night run left {} behind. What stopped it?|Work through {} and cite the diagnostic.|{} was attached to the ticket; what is the problem?
Users complain. Read {} and say which error it shows.|What is the reason for the failure recorded in {}?|Scan {} and return the error.
My colleague sent me {}. Which failure does it contain?|Cite the first error in {}.|Can you find out from {} what is wrong?
Explain the failure: {}|According to {}, what failed?|Take {} and find the diagnostic, please.
""".replace("\n", "|").strip("|").split("|")
OPEN_QUESTIONS = """
Something is wrong, the log must be somewhere here. What is it?|Cite the failure that the log in this folder reports.|Which error did the last run leave behind?
Find the log and tell me what stopped the run.|Have a look around and report the error.|The run stopped. Say why.
""".replace("\n", "|").strip("|").split("|")
NAMES = "press-run nightshift turbine harvest ledger-close relay pumphouse signalbox kiln loom ferry quarry".split()
ENDINGS = ["log", "log", "log", "txt", "out"]


def shaped(rng, index):
    """One case of an unseen shape, with the expert's view of it."""
    kind = list(SHAPES)[index % len(SHAPES)]
    ordinary, broken = SHAPES[kind]
    state = {}
    foreign = rng.random() < 0.16
    calm = UNICODE_CALM + CALM[:6] if foreign else CALM
    trouble = UNICODE_TROUBLE if foreign else TROUBLE
    size = rng.choice([rng.randint(150, 450), rng.randint(600, 1500), rng.randint(600, 1500), rng.randint(1500, 2900), rng.randint(1500, 2900), rng.randint(3000, 7800)])
    absent = rng.random() < 0.13
    at = size if absent else rng.randint(max(0, size - 2400), size)
    cut = rng.random() < 0.22
    lines, length, where = [], 0, None
    while length < size or where is None:
        if where is None and length >= at:
            if absent:
                where = (0, 0)
                continue
            before, diagnostic, after = broken(rng, state, say(rng, trouble))
            start = length + len(before.encode())
            width = len(diagnostic.encode())
            if cut and lines:
                inside = rng.randint(3, width - 2)
                missing = -(start + inside) % STRIDE
                padding = " and so on, as ever, with care and patience, day by day, without haste or waste, until all is done"
                if missing <= len(padding):
                    lines[-1] += padding[:missing]
                    start += missing
                    length += missing
            where = (start, start + width)
            new = [before + diagnostic, *after]
        elif rng.random() < 0.07:
            new = [say(rng, HARMLESS)]
        else:
            new = [ordinary(rng, state, say(rng, calm))]
        lines += new
        length += sum(len(line.encode()) + 1 for line in new)
    text = "\n".join(lines) + "\n"
    name = f"{rng.choice(NAMES)}{rng.choice(['', '', f'-{rng.randint(1, 40)}', '_b'])}.{rng.choice(ENDINGS)}"
    return frame(rng, name, text, [] if absent else [where], None)


def frame(rng, name, text, ranges, expect):
    """Puts a log into a workspace and asks for it."""
    roll = rng.random()
    path = name if rng.random() < 0.7 else f"{rng.choice(['reports', 'shift', 'data/raw', 'log'])}/{name}"
    files = {path: text}
    for other in rng.sample(["README.md", "plan.md", "Makefile", "main.go", "values.yaml", "index.css"], rng.randint(0, 3)):
        files[other] = "see the handbook\n"
    named = path
    question = rng.choice(QUESTIONS).format(rng.choice(["{}", "{}", "{}", "`{}`", "'{}'"]).format(path))
    if roll < 0.17:
        named, question = None, rng.choice(OPEN_QUESTIONS)
    elif roll < 0.25 and "/" in path:
        named = path.rpartition("/")[2]
        question = rng.choice(QUESTIONS).format(named)
    task = Task(question, files, path, named, {path: ranges}, [path])
    case = {"task": question, "files": files}
    if ranges:
        data = text.encode()
        case["expect"] = [expect or data[ranges[0][0] : ranges[0][1]].decode()]
    else:
        case["absent"] = True
    run = Run(question, EvidenceWorkspace(files))
    expert = Expert(task, run)
    try:
        while run.reason is None:
            run.reply(expert.next_turn().response)
    except Unsuitable:
        return None
    right = run.final == ABSENT if not ranges else case["expect"][0] in (run.final or "")
    return case if right else None


def real(rng, record):
    """A case of a recorded log, or None where nobody could reach its diagnostic."""
    text, expect = record["text"], record["expect"]
    ranges = []
    if expect:
        data = text.encode()
        begin = data.index(expect.encode())
        end = data.find(b"\n", begin)
        ranges = [(begin, end if end >= 0 else len(data))]
    for _ in range(20):
        if case := frame(rng, record["log"], text, ranges, expect):
            return case
    return None


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("real_logs", help="what real_logs.py printed")
    parser.add_argument("folder", help="is given real.jsonl and shapes.jsonl, together cases.jsonl")
    parser.add_argument("--count", type=int, default=200)
    options = parser.parse_args()
    rng = random.Random("held out")
    with open(options.real_logs, encoding="utf-8") as lines:
        records = [json.loads(line) for line in lines]
    cases = []
    for record in records:
        if record["expect"] and record["expect"] not in record["text"]:
            raise SystemExit(f"{record['log']}: the tool did not print what was expected")
        if case := real(rng, record):
            cases.append({"name": f"real/{record['log']}", **case})
        else:
            print(f"out of reach: {record['log']}")
    print(f"{len(cases)} real logs")
    index = 0
    while len(cases) < options.count:
        if case := shaped(rng, index):
            cases.append({"name": f"shape/{list(SHAPES)[index % len(SHAPES)]}-{index}", **case})
        index += 1
    folder = Path(options.folder)
    folder.mkdir(parents=True, exist_ok=True)
    text = "".join(json.dumps(case, ensure_ascii=False) + "\n" for case in cases)
    (folder / "cases.jsonl").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
