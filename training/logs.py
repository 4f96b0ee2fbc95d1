"""Logs of many shapes with planted diagnostics.

A diagnostic is what the model must quote: the text from the word that marks a failure to the end of
its line. Where a line is a failure as a whole (`cp: cannot stat …`) it is the line.
"""

import os
import string
from dataclasses import dataclass

WORDS = """
account action adapter address agent alias allocator archive argument array artifact asset async attribute auth
backend backup balance batch binary block body bridge broker browser bucket buffer build bundle byte cache callback
channel check checksum chunk client clock cluster codec column command commit compiler component config connection
constraint consumer container content context cookie copy core counter cursor daemon data database deadline decoder
default delta dependency descriptor device digest directory disk dispatch document domain driver edge element encoder
endpoint engine entry event exchange executor export expression extension factory feature fetch field file filter flag
folder format frame function gateway generator graph group guard handle handler handshake hash header health heap helper
history hook host identity image import index input instance integer interface interval invoice item iterator job journal
kernel key label layer layout leader lease length lexer library limit line link linker list listener loader lock log
login loop machine macro mailbox manager manifest map market mask member memory merge message method metric migration
model module monitor mount mutex name namespace network node number object offset operation option order output owner
package packet page parameter parent parser partition password patch path payload peer permission pipeline pixel plugin
pointer policy pool port prefix price process producer profile project promise protocol provider proxy queue quota range
reader record region registry release remote render replica report request resolver resource response result retry
return role rollback root route router row rule runner runtime sample scale scheduler schema scope script search
section secret segment selector sensor sequence server service session shader shard share shell signal signature size
slot snapshot socket source stack stage state statement status storage store stream string struct subject submodule
subscription suffix switch symbol sync syntax system table tag target task template tenant test thread ticket token
tool topic trace tracker traffic trait transaction transfer transform tree trigger tunnel type unit update upload user
utility validator value variable vector vendor version view volume wallet watcher widget window worker workspace writer zone
""".split()
VERBS = """
accept acquire allocate apply attach bind build cancel check close compile compress compute configure connect copy
create decode decrypt delete deploy detect discover download drop dump emit enable encode evict execute expand export
fetch find finish flush format generate handle import index initialize insert install join link list load lock map
match merge migrate mount move notify open pack parse persist poll prepare process publish pull purge push query read
rebuild receive reconnect refresh register reload remove render replace reset resize resolve restart restore resume
retry return rotate run save scan schedule send serialize set sign skip spawn start stop store submit subscribe sync
terminate transform truncate unlink unpack update upgrade upload validate verify wait warm write
""".split()
ADJECTIVES = """
active bad broken busy closed corrupt current dirty duplicate empty expired external final first foreign free full
global idle illegal incomplete incompatible inconsistent internal invalid last local locked long malformed minor missing
negative new nested null old open orphaned partial pending previous primary public read-only recursive remote required
reserved second secondary short stale static temporary unexpected unknown unreachable unsafe unsupported unused valid wrong
""".split()
NAMES = """
alice bob carol dave erin frank grace heidi ivan judy mallory nina oscar peggy rupert sybil trent victor walter yusuf
atlas borealis cobalt delta ember falcon garnet helios indigo juniper krypton lumen mercury nimbus onyx phoenix quartz
raven saturn tundra umber vega willow xenon yarrow zephyr
""".split()
EXTENSIONS = "c cc cpp h rs py js ts tsx go java kt rb php cs swift lua sql yaml yml json toml xml html css md proto sh".split()
EXCEPTIONS = """
ValueError TypeError KeyError IndexError RuntimeError ImportError ModuleNotFoundError AttributeError OSError IOError
FileNotFoundError PermissionError ConnectionError ConnectionRefusedError ConnectionResetError TimeoutError AssertionError
ZeroDivisionError NameError SyntaxError IndentationError UnicodeDecodeError RecursionError NotImplementedError
StopIteration MemoryError OverflowError ReferenceError RangeError URIError EvalError NoMethodError ArgumentError LoadError
""".split()
JAVA_EXCEPTIONS = """
java.lang.NullPointerException java.lang.IllegalStateException java.lang.IllegalArgumentException java.io.IOException
java.io.FileNotFoundException java.lang.OutOfMemoryError java.sql.SQLException java.net.ConnectException
java.lang.ClassNotFoundException java.util.NoSuchElementException java.util.concurrent.TimeoutException
org.hibernate.HibernateException kotlin.KotlinNullPointerException java.lang.ArrayIndexOutOfBoundsException
""".split()
FOREIGN = {
    "de": ("Verbindung Datei Fehler konnte nicht geöffnet werden ungültiger Schlüssel Zeile Prüfung größer als für den Zugriff"
           " verweigert Speicher voll Dienst läuft gestartet geladen übersprungen Modul Wert fehlt").split(),
    "fr": ("fichier introuvable connexion refusée échec de la vérification clé non valide accès à la mémoire délai dépassé"
           " démarré chargé terminé requête traitée tâche ignorée référence manquante").split(),
    "es": ("conexión rechazada archivo no encontrado clave inválida línea dañada memoria agotada sesión iniciada"
           " petición terminada años tamaño versión módulo cargado señal").split(),
    "ru": ("схема не найдена ошибка соединения файл повреждён ключ недоступен память исчерпана служба запущена запрос"
           " выполнен строка таблица сессия узел очередь пользователь").split(),
    "zh": "连接 失败 文件 不存在 权限 不足 超时 内存 服务 启动 完成 请求 用户 数据库 校验 错误 配置 加载 节点 队列".split(),
    "ja": "接続 に 失敗 しました ファイル が 見つかりません 権限 が ありません 起動 完了 要求 を 処理 設定 読み込み タイムアウト".split(),
    "emoji": "🚀 deploy ✅ done 📦 package 🔥 hot ⚠️ careful 💥 crash 🎉 shipped 🐛 bug".split(),
}


def pick(rng, choices):
    """One of `choices`; the shorter name for rng.choice keeps the templates readable."""
    return choices[int(rng.random() * len(choices))]


def invented(rng):
    """A word that no list has, so that copying cannot rest on remembered words."""
    if rng.random() < 0.5:
        return "".join(
            pick(rng, "bcdfghjklmnprstvwz") + pick(rng, "aeiou") + pick(rng, ["", "", "n", "r", "s", "x"])
            for _ in range(rng.randint(1, 3))
        )
    return "".join(pick(rng, string.ascii_lowercase) for _ in range(rng.randint(2, 8)))


def word(rng):
    roll = rng.random()
    if roll < 0.62:
        return pick(rng, WORDS)
    if roll < 0.72:
        return pick(rng, VERBS)
    if roll < 0.80:
        return pick(rng, NAMES)
    return invented(rng)


def identifier(rng):
    parts = [word(rng) for _ in range(rng.randint(1, 3))]
    style = rng.random()
    if style < 0.4:
        return "_".join(parts)
    if style < 0.65:
        return parts[0] + "".join(part.capitalize() for part in parts[1:])
    if style < 0.8:
        return "".join(part.capitalize() for part in parts)
    if style < 0.9:
        return "-".join(parts)
    return "_".join(parts).upper()


def number(rng):
    return str(rng.randint(0, 10 ** rng.randint(1, 6)))


def hexadecimal(rng):
    digits = rng.choice([2, 4, 6, 7, 8, 8, 12, 16, 40])
    return rng.choice(["0x", "", ""]) + "".join(pick(rng, "0123456789abcdef") for _ in range(digits))


def version(rng):
    return ".".join(str(rng.randint(0, rng.choice([3, 12, 40]))) for _ in range(rng.choice([2, 3, 3, 3])))


def path(rng):
    parts = [word(rng) for _ in range(rng.randint(1, 4))]
    root = rng.choice(["", "", "", "/", "./", "../", "/usr/lib/", "/var/", "/home/", "src/", "C:\\"])
    separator = "\\" if root == "C:\\" else "/"
    return root + separator.join(parts) + "." + pick(rng, EXTENSIONS)


def host(rng):
    return rng.choice(
        [
            f"{word(rng)}.{rng.choice(['internal', 'example.com', 'local', 'svc', 'test'])}",
            f"{rng.randint(1, 254)}.{rng.randint(0, 254)}.{rng.randint(0, 254)}.{rng.randint(1, 254)}",
            "localhost",
            "127.0.0.1",
            f"{pick(rng, NAMES)}-{rng.randint(1, 40)}",
        ]
    )


def quoted(rng, text):
    left, right = rng.choice([("'", "'"), ('"', '"'), ("`", "`"), ("`", "'"), ("‘", "’"), ("", ""), ("<", ">"), ("[", "]")])
    return left + text + right


def thing(rng):
    return pick(rng, [identifier, identifier, path, number, host, version, hexadecimal, word, word])(rng)


def foreign(rng, language=None):
    words = FOREIGN[language or pick(rng, list(FOREIGN))]
    joiner = "" if words[0][0] in "连接" else " "
    return joiner.join(pick(rng, words) for _ in range(rng.randint(3, 7)))


FAILURES = [
    lambda r: f"cannot {pick(r, VERBS)} {quoted(r, thing(r))}",
    lambda r: f"cannot {pick(r, VERBS)} {word(r)} {quoted(r, thing(r))}: {reason(r)}",
    lambda r: f"could not {pick(r, VERBS)} {word(r)}: {reason(r)}",
    lambda r: f"failed to {pick(r, VERBS)} {thing(r)}",
    lambda r: f"failed to {pick(r, VERBS)} {word(r)} {quoted(r, thing(r))}: {reason(r)}",
    lambda r: f"unable to {pick(r, VERBS)} {pick(r, ADJECTIVES)} {word(r)} ({reason(r)})",
    lambda r: f"{pick(r, ADJECTIVES)} {word(r)} {quoted(r, thing(r))}",
    lambda r: f"{word(r)} {quoted(r, thing(r))} not found",
    lambda r: f"{identifier(r)} is not defined",
    lambda r: f"expected {quoted(r, thing(r))}, found {quoted(r, thing(r))}",
    lambda r: f"expected {number(r)} but got {number(r)}",
    lambda r: f"undefined {word(r)} {quoted(r, identifier(r))}",
    lambda r: f"{word(r)} {pick(r, ['mismatch', 'overflow', 'timeout', 'corrupted', 'violation', 'conflict', 'exhausted'])}",
    lambda r: f"{reason(r)}",
    lambda r: f"{word(r)} {word(r)} exited with code {r.randint(1, 255)}",
    lambda r: f"code={r.choice('ABCDEHKMX')}{r.randint(1, 9999)} {word(r)} {word(r)}",
    lambda r: f"{word(r)} to {host(r)}:{r.randint(20, 65535)} {pick(r, ['refused', 'reset by peer', 'timed out', 'lost'])}",
    lambda r: f"{path(r)}: {reason(r)}",
    lambda r: " ".join(invented(r) for _ in range(r.randint(2, 8))),
    lambda r: " ".join(thing(r) for _ in range(r.randint(2, 6))),
    lambda r: f"no {word(r)} for {word(r)} {quoted(r, thing(r))} in {path(r)}",
    lambda r: f"{foreign(r)}",
    lambda r: f"{word(r)} {number(r)} {foreign(r)}",
    lambda r: f"[{identifier(r)}] {word(r)} {pick(r, ADJECTIVES)}: {thing(r)}={thing(r)}",
    lambda r: f"{identifier(r)}: {identifier(r)}({thing(r)}) returned {r.randint(-40, 99)} ({reason(r)})",
]
REASONS = """
no such file or directory|No such file or directory|permission denied|Permission denied|connection refused|Connection refused
timed out|timeout after 30 s|out of memory|Cannot allocate memory|disk full|No space left on device|already exists|not found
broken pipe|Broken pipe|invalid argument|unexpected end of file|unexpected token|access denied|too many open files|bad request
checksum mismatch|signature invalid|version conflict|deadlock detected|operation not permitted|404 Not Found|exit status 1
exit code 137|host unreachable|name resolution failed|certificate has expired|mismatched types|missing dependency|syntax error
""".replace("\n", "|").strip("|").split("|")
REASONS += [os.strerror(number) for number in range(1, 41)]


def reason(rng):
    return pick(rng, REASONS) if rng.random() < 0.7 else f"{pick(rng, ADJECTIVES)} {word(rng)}"


def failure(rng):
    """What went wrong, without a marker."""
    return pick(rng, FAILURES)(rng)


CHATTER = [
    lambda r: f"{pick(r, VERBS)} {word(r)} {thing(r)}",
    lambda r: f"{word(r)} {pick(r, ['started', 'ready', 'done', 'finished', 'closed', 'skipped', 'updated', 'ok', 'accepted'])}",
    lambda r: f"{word(r)} {quoted(r, thing(r))} {pick(r, ['loaded', 'saved', 'sent', 'built', 'checked', 'cached'])} in {number(r)} ms",
    lambda r: f"{word(r)}={thing(r)} {word(r)}={thing(r)}",
    lambda r: f"{pick(r, ['GET', 'POST', 'PUT', 'DELETE'])} /{word(r)}/{thing(r)} {r.choice([200, 201, 204, 301, 304])} {number(r)}",
    lambda r: f"{r.randint(0, 100)}% {word(r)}",
    lambda r: f"[{r.randint(1, 99)}/{r.randint(100, 400)}] {word(r)} {path(r)}",
    lambda r: f"{pick(r, VERBS)} {path(r)}",
    lambda r: " ".join(word(r) for _ in range(r.randint(2, 9))),
    lambda r: " ".join(invented(r) for _ in range(r.randint(1, 7))),
    lambda r: f"{identifier(r)}({thing(r)}, {thing(r)}) -> {thing(r)}",
    lambda r: f"{word(r)} listening on {host(r)}:{r.randint(20, 65535)}",
    lambda r: f"{number(r)} {word(r)}s, {number(r)} {word(r)}s",
    lambda r: f"{word(r)} {version(r)} ({hexadecimal(r)})",
]
DECOYS = [
    lambda r: "0 errors",
    lambda r: f"0 errors, {r.randint(0, 30)} warnings",
    lambda r: f"errors: 0, warnings: {r.randint(0, 9)}",
    lambda r: f"{r.randint(1, 400)} passed, 0 failed",
    lambda r: f"failed: 0, skipped: {r.randint(0, 9)}",
    lambda r: "no errors found",
    lambda r: f"no errors in {path(r)}",
    lambda r: f"warning: {failure(r)}",
    lambda r: f"warning: unused {word(r)} {quoted(r, identifier(r))}",
    lambda r: f"{path(r)}:{r.randint(1, 900)}:{r.randint(1, 80)}: warning: {failure(r)}",
    lambda r: f"WARN {word(r)}: {failure(r)}",
    lambda r: f"WARNING: {word(r)} is deprecated, use {identifier(r)}",
    lambda r: f"note: {word(r)} error handling is {r.choice(['on', 'off', 'enabled'])}",
    lambda r: f"error_log=/var/log/{word(r)}.log",
    lambda r: f"on_error={r.choice(['continue', 'stop', 'retry'])}",
    lambda r: "last_error=none",
    lambda r: f"error rate 0.{r.randint(0, 9)}%",
    lambda r: f"test_{word(r)}_error ... ok",
    lambda r: f"test {word(r)}::fails_on_{word(r)} ... ok",
    lambda r: f"Compiling thiserror v{version(r)}",
    lambda r: f"cc -Wall -Werror -c {path(r)}",
    lambda r: f"{identifier(r)}ErrorHandler registered",
    lambda r: f"GET /errors/{r.randint(400, 599)}.html 200",
    lambda r: f"recovered from {word(r)} failure, retrying",
    lambda r: f"panic_on_oops={r.randint(0, 1)}",
    lambda r: f"exit code 0",
    lambda r: f"error budget {r.randint(80, 100)}% left",
    lambda r: f"fatal signals are ignored by {word(r)}",
    lambda r: f"retry {r.randint(1, 3)} of 5 after {reason(r)}",
    lambda r: f"INFO no failures in the last {number(r)} s",
]
MARKERS = """
error:|Error:|ERROR:|error|ERROR|Error|[ERROR]|[error]|fatal:|FATAL:|FATAL|Fatal error:|fatal error:|CRITICAL|CRITICAL:
[FATAL]|[CRIT]|[crit]|SEVERE:|EMERG|panic:|PANIC:|FAIL:|FAILED:|FAILED|FAILURE:|Failed|failure:|ERR!|[ERR]|ERR|exception:
Exception:|Unhandled exception:|Uncaught exception:|*** ERROR:|!!! error:|E:|BUG:|abort:|level=error|level=fatal|severity=ERROR
""".replace("\n", "|").strip("|").split("|")
LEVELS = ["INFO", "INFO", "INFO", "DEBUG", "WARN", "TRACE", "NOTICE"]
FAILURE_LEVELS = ["ERROR", "ERROR", "ERROR", "FATAL", "CRITICAL", "SEVERE", "PANIC", "ERR", "CRIT", "EMERG"]


def chatter(rng):
    return pick(rng, CHATTER)(rng)


def decoy(rng):
    return pick(rng, DECOYS)(rng)


@dataclass
class Failure:
    """Lines of a failure: one of them is `prefix + diagnostic`."""

    before: list
    prefix: str
    diagnostic: str
    after: list


class Shape:
    """One kind of log: what an ordinary line and a failure look like."""

    def __init__(self, rng):
        self.rng = rng

    def line(self):
        return chatter(self.rng)

    def failure(self):
        rng = self.rng
        return Failure([], "", f"{pick(rng, MARKERS)} {failure(rng)}", [])


class Compiler(Shape):
    def line(self):
        r = self.rng
        return pick(
            r,
            [
                lambda: f"{r.choice(['gcc', 'cc', 'clang', 'g++'])} -O{r.randint(0, 3)} -c {path(r)} -o {word(r)}.o",
                lambda: f"[{r.randint(1, 99):3d}%] Building {r.choice(['C', 'CXX'])} object {path(r)}.o",
                lambda: f"{path(r)}:{r.randint(1, 900)}:{r.randint(1, 80)}: warning: {failure(r)} [-W{word(r)}]",
                lambda: f"  {r.randint(1, 900)} |     {identifier(r)} = {identifier(r)}({thing(r)});",
                lambda: f"      |     {' ' * r.randint(0, 12)}^{'~' * r.randint(0, 9)}",
                lambda: f"make[{r.randint(1, 3)}]: Entering directory {quoted(r, path(r))}",
                lambda: f"{path(r)}: In function ‘{identifier(r)}’:",
            ],
        )()

    def failure(self):
        r = self.rng
        kind = r.random()
        after = r.sample(
            [
                f"  {r.randint(1, 900)} |   {identifier(r)}({thing(r)})",
                f"      |   {'^' * r.randint(1, 8)}",
                f"make: *** [Makefile:{r.randint(1, 90)}: {word(r)}.o] Error {r.randint(1, 2)}",
                f"{r.randint(1, 3)} error generated.",
                "compilation terminated.",
            ],
            r.randint(0, 3),
        )
        where = f"{path(r)}:{r.randint(1, 900)}:{r.randint(1, 80)}: "
        if kind < 0.6:
            return Failure([], where, f"{r.choice(['error:', 'error:', 'fatal error:'])} {failure(r)}", after)
        if kind < 0.7:
            return Failure([], f"{path(r)}({r.randint(1, 900)},{r.randint(1, 80)}): ", f"error {r.choice(['TS', 'CS', 'C'])}{r.randint(1000, 9999)}: {failure(r)}", after)
        if kind < 0.8:
            return Failure([], r.choice(["/usr/bin/ld: ", f"{word(r)}.o: ", f"{path(r)}:{r.randint(1, 99)}: ", f"main.c:(.text+{hexadecimal(r)}): "]),
                           r.choice([f"undefined reference to `{identifier(r)}'", f"cannot find -l{word(r)}: No such file or directory", f"multiple definition of `{identifier(r)}'"]),
                           ["collect2: error: ld returned 1 exit status"] if r.random() < 0.5 else [])
        if kind < 0.9:
            return Failure([], "", f"CMake Error at {path(r)}:{r.randint(1, 90)} ({identifier(r)}):", [f"  {failure(r)}"])
        return Failure([], where, f"{r.choice(['error:', 'syntax error:', 'undefined:'])} {identifier(r)}", after)


class Rust(Shape):
    def line(self):
        r = self.rng
        return pick(
            r,
            [
                lambda: f"   Compiling {identifier(r)} v{version(r)}",
                lambda: f"  Downloaded {word(r)}-{word(r)} v{version(r)}",
                lambda: f"warning: unused {word(r)}: `{identifier(r)}`",
                lambda: f"  --> {path(r)}:{r.randint(1, 900)}:{r.randint(1, 80)}",
                lambda: f"   = note: `#[warn({identifier(r)})]` on by default",
                lambda: f"test {word(r)}::{identifier(r)} ... ok",
                lambda: f"    Finished `dev` profile [unoptimized] target(s) in {r.randint(0, 90)}.{r.randint(10, 99)}s",
            ],
        )()

    def failure(self):
        r = self.rng
        kind = r.random()
        after = [f"  --> {path(r)}:{r.randint(1, 900)}:{r.randint(1, 80)}", "   |"] if r.random() < 0.7 else []
        if kind < 0.55:
            return Failure([], "", f"error[E{r.randint(0, 999):04d}]: {failure(r)}", after)
        if kind < 0.75:
            return Failure([], "", f"error: {failure(r)}", after)
        if kind < 0.85:
            return Failure([], f"test {word(r)}::{identifier(r)} ... ", "FAILED", [])
        where = f"panicked at {path(r)}:{r.randint(1, 900)}:{r.randint(1, 80)}:"
        if kind < 0.93:
            return Failure([f"thread '{word(r)}' {where}"], "", failure(r), ["note: run with `RUST_BACKTRACE=1` environment variable to display a backtrace"])
        return Failure([], f"thread '{word(r)}' ", f"{where} {failure(r)}", after)


class Python(Shape):
    def line(self):
        r = self.rng
        return pick(
            r,
            [
                lambda: f"Collecting {identifier(r)}>={version(r)}",
                lambda: f"  Downloading {identifier(r)}-{version(r)}-py3-none-any.whl ({r.randint(1, 900)} kB)",
                lambda: f"{path(r)}::test_{word(r)}_{word(r)} PASSED [{r.randint(1, 99):3d}%]",
                lambda: f"{path(r)} {'.' * r.randint(2, 30)} [{r.randint(1, 99):3d}%]",
                lambda: f"Requirement already satisfied: {word(r)} in /usr/lib/python3.{r.randint(8, 14)}/site-packages ({version(r)})",
                lambda: f"{path(r)}:{r.randint(1, 900)}: DeprecationWarning: {identifier(r)} is deprecated",
                lambda: f"INFO:{word(r)}:{chatter(r)}",
                lambda: f"test_{word(r)} ({word(r)}.{identifier(r)}) ... ok",
            ],
        )()

    def failure(self):
        r = self.rng
        kind = r.random()
        exception = pick(r, EXCEPTIONS) if r.random() < 0.7 else word(r).capitalize() + r.choice(["Error", "Error", "Exception", "Failure"])
        if kind < 0.5:
            before = ["Traceback (most recent call last):"]
            for _ in range(r.randint(1, 3)):
                before += [f'  File "{path(r)}", line {r.randint(1, 900)}, in {identifier(r)}', f"    {identifier(r)}({thing(r)})"]
            return Failure(before, r.choice(["", "", f"{word(r)}."]), f"{exception}: {failure(r)}", [])
        if kind < 0.65:
            return Failure([f">       assert {identifier(r)} == {thing(r)}"], "E       ", f"{exception}: {failure(r)}",
                           [f"FAILED {path(r)}::test_{word(r)} - {exception}"] if r.random() < 0.5 else [])
        if kind < 0.75:
            return Failure([], "", f"FAILED {path(r)}::test_{word(r)} - {exception}: {failure(r)}", [])
        if kind < 0.9:
            return Failure([], "", f"ERROR: {r.choice([failure(r), f'No matching distribution found for {identifier(r)}=={version(r)}', f'Could not find a version that satisfies the requirement {identifier(r)}'])}", [])
        return Failure([], "", f"{r.choice(['FAIL', 'ERROR'])}: test_{word(r)} ({word(r)}.{identifier(r)})", ["-" * 20])


class JavaScript(Shape):
    def line(self):
        r = self.rng
        return pick(
            r,
            [
                lambda: f"npm {r.choice(['warn', 'WARN', 'notice'])} {word(r)} {identifier(r)}@{version(r)}: {chatter(r)}",
                lambda: f"> {word(r)}@{version(r)} {r.choice(['build', 'test', 'lint'])}",
                lambda: f"added {number(r)} packages in {r.randint(1, 60)}s",
                lambda: f"  ✓ {word(r)} {word(r)} {word(r)} ({r.randint(1, 90)} ms)",
                lambda: f"{path(r)}  {r.randint(1, 900)}.{r.randint(10, 99)} kB │ gzip: {r.randint(1, 90)}.{r.randint(10, 99)} kB",
                lambda: f"  {r.randint(1, 300)}:{r.randint(1, 80)}  warning  {failure(r)}  {word(r)}/{identifier(r)}",
                lambda: f"ok {r.randint(1, 300)} - {word(r)} {word(r)}",
                lambda: f"webpack {version(r)} compiled in {number(r)} ms",
            ],
        )()

    def failure(self):
        r = self.rng
        kind = r.random()
        stack = [f"    at {identifier(r)} ({path(r)}:{r.randint(1, 900)}:{r.randint(1, 80)})" for _ in range(r.randint(0, 3))]
        if kind < 0.2:
            return Failure([], "npm ", f"{r.choice(['ERR!', 'error'])} code {r.choice(['E404', 'ERESOLVE', 'ENOENT', 'EACCES', 'ELIFECYCLE', 'E' + word(r).upper()])}",
                           [f"npm error {failure(r)}"] if r.random() < 0.5 else [])
        if kind < 0.5:
            return Failure([], r.choice(["", "", "Uncaught ", "  "]), f"{r.choice(['TypeError', 'ReferenceError', 'SyntaxError', 'RangeError', 'Error', 'AssertionError'])}: {failure(r)}", stack)
        if kind < 0.6:
            return Failure([], f"  {r.randint(1, 300)}:{r.randint(1, 80)}  ", f"error  {failure(r)}  {identifier(r)}", [])
        if kind < 0.75:
            return Failure([], "", f"not ok {r.randint(1, 300)} - {word(r)} {failure(r)}", ["  ---"] if r.random() < 0.5 else [])
        if kind < 0.85:
            return Failure([], r.choice(["", "✘ ", "[vite] "]), f"[ERROR] {failure(r)}", stack)
        return Failure([], "  ", f"{r.choice(['✕', '✗', '●', '×'])} {word(r)} {failure(r)}", [])


class Packages(Shape):
    def line(self):
        r = self.rng
        return pick(
            r,
            [
                lambda: f"Get:{r.randint(1, 90)} http://{host(r)}/{word(r)} {word(r)}/main amd64 {identifier(r)} {version(r)} [{number(r)} kB]",
                lambda: f"Unpacking {identifier(r)} ({version(r)}-{r.randint(1, 9)}) ...",
                lambda: f"Setting up {identifier(r)} ({version(r)}) ...",
                lambda: f"Selecting previously unselected package {identifier(r)}.",
                lambda: f"#{r.randint(1, 30)} [{r.randint(1, 9)}/9] RUN {pick(r, VERBS)} {path(r)}",
                lambda: f"#{r.randint(1, 30)} {r.randint(0, 40)}.{r.randint(100, 999)} {chatter(r)}",
                lambda: f"remote: Counting objects: {r.randint(1, 100)}% ({number(r)}/{number(r)}), done.",
                lambda: f"==> {word(r).capitalize()} {identifier(r)} {version(r)}",
                lambda: f"ok: [{host(r)}]",
                lambda: f"TASK [{word(r)} : {word(r)} {word(r)}] {'*' * 30}",
                lambda: f"{identifier(r)}: Refreshing state... [id={hexadecimal(r)}]",
                lambda: f"[INFO] {chatter(r)}",
            ],
        )()

    def failure(self):
        r = self.rng
        return pick(
            r,
            [
                lambda: Failure([], "", f"E: {r.choice([failure(r), f'Unable to locate package {identifier(r)}', f'Package {quoted(r, identifier(r))} has no installation candidate'])}", []),
                lambda: Failure([], r.choice(["", f"#{r.randint(1, 30)} "]), f"ERROR: {r.choice([failure(r), f'failed to solve: {failure(r)}'])}", []),
                lambda: Failure([], r.choice(["", "", "dpkg: ", "git: ", "remote: "]), f"{r.choice(['fatal:', 'error:', 'error:'])} {failure(r)}", []),
                lambda: Failure([], "", f"fatal: [{host(r)}]: FAILED! => {{\"changed\": false, \"msg\": \"{failure(r)}\"}}", ["PLAY RECAP ****"]),
                lambda: Failure([], r.choice(["", "│ "]), f"Error: {failure(r)}", ["│ "] if r.random() < 0.3 else []),
                lambda: Failure([], "", f"[ERROR] {r.choice([failure(r), f'Failed to execute goal {identifier(r)}: {failure(r)}'])}", ["[INFO] BUILD FAILURE"] if r.random() < 0.3 else []),
                lambda: Failure([], "", r.choice(["FAILURE: Build failed with an exception.", f"Execution failed for task ':{word(r)}:{identifier(r)}'."]), [f"> {failure(r)}"]),
                lambda: Failure([], "", f"{r.choice(['curl', 'wget'])}: ({r.randint(1, 90)}) {failure(r)}", []),
            ],
        )()


class Shell(Shape):
    def line(self):
        r = self.rng
        return pick(
            r,
            [
                lambda: f"+ {r.choice(['cp', 'mv', 'rm -f', 'mkdir -p', 'chmod 755', 'ls', 'cat', 'tar xf'])} {path(r)}",
                lambda: f"$ {word(r)} --{word(r)}={thing(r)} {path(r)}",
                lambda: f"-rw-r--r-- 1 {pick(r, NAMES)} {pick(r, NAMES)} {number(r)} {path(r)}",
                lambda: chatter(r),
            ],
        )()

    def failure(self):
        r = self.rng
        program = r.choice(["cp", "mv", "rm", "ls", "cat", "tar", "mkdir", "ln", "rsync", "install", "chmod", "find", "grep", "sed", word(r)])
        ending = r.choice(["No such file or directory", "Permission denied", "Not a directory", "File exists", "Is a directory", "Operation not permitted", "No space left on device"])
        return pick(
            r,
            [
                lambda: Failure([], "", f"{program}: cannot {r.choice(['stat', 'access', 'open', 'create directory', 'remove', 'create regular file'])} {quoted(r, path(r))}: {ending}", []),
                lambda: Failure([], "", f"{program}: {path(r)}: {ending}", []),
                lambda: Failure([], "", f"{r.choice(['bash', 'sh', 'zsh', path(r)])}: line {r.randint(1, 99)}: {identifier(r)}: command not found", []),
                lambda: Failure([], "", f"{r.choice(['sh', '/bin/sh'])}: {r.randint(1, 9)}: {identifier(r)}: not found", []),
                lambda: Failure([], "", f"{word(r)}: {path(r)}:{r.randint(1, 900)}: {identifier(r)}: Assertion `{identifier(r)}' failed.", ["Aborted (core dumped)"]),
                lambda: Failure([], "", "Segmentation fault (core dumped)", []),
                lambda: Failure([], "", f"syntax error at {path(r)} line {r.randint(1, 900)}, near {quoted(r, identifier(r))}", []),
                lambda: Failure([], f"{path(r)}:{r.randint(1, 900)}:in `{identifier(r)}': ", f"undefined {r.choice(['method', 'local variable'])} `{identifier(r)}' for nil", []),
                lambda: Failure([], r.choice(["PHP ", ""]), f"Fatal error:  {r.choice(['', 'Uncaught Error: '])}{failure(r)} in {path(r)}:{r.randint(1, 900)}", []),
                lambda: Failure([], f"=={r.randint(100, 99999)}==", f"ERROR: AddressSanitizer: {word(r)}-{word(r)}-overflow on address {hexadecimal(r)}", []),
            ],
        )()


class Go(Shape):
    def line(self):
        r = self.rng
        return pick(
            r,
            [
                lambda: f"ok  \t{word(r)}/{word(r)}\t{r.randint(0, 9)}.{r.randint(100, 999)}s",
                lambda: f"?   \t{word(r)}/{word(r)}\t[no test files]",
                lambda: f"=== RUN   Test{word(r).capitalize()}{word(r).capitalize()}",
                lambda: f"--- PASS: Test{word(r).capitalize()} ({r.randint(0, 9)}.{r.randint(10, 99)}s)",
                lambda: f"go: downloading {host(r)}/{word(r)} v{version(r)}",
            ],
        )()

    def failure(self):
        r = self.rng
        return pick(
            r,
            [
                lambda: Failure([], r.choice(["--- ", "    --- "]), f"FAIL: Test{word(r).capitalize()}{word(r).capitalize()} ({r.randint(0, 9)}.{r.randint(10, 99)}s)", [f"    {word(r)}_test.go:{r.randint(1, 300)}: {failure(r)}", "FAIL"]),
                lambda: Failure([], "", f"panic: {r.choice(['', 'runtime error: '])}{failure(r)}", ["", "goroutine 1 [running]:"]),
                lambda: Failure([], f"./{word(r)}.go:{r.randint(1, 900)}:{r.randint(1, 80)}: ", r.choice([f"undefined: {identifier(r)}", f"cannot use {identifier(r)} (variable of type {word(r)}) as {word(r)} value", f"syntax error: {failure(r)}"]), []),
                lambda: Failure([], "", f"Exception in thread \"{word(r)}\" {pick(r, JAVA_EXCEPTIONS)}: {failure(r)}", [f"\tat {word(r)}.{word(r)}.{identifier(r)}({word(r)}.java:{r.randint(1, 900)})"]),
                lambda: Failure([], r.choice(["", "", "Caused by: "]), f"{pick(r, JAVA_EXCEPTIONS)}: {failure(r)}", [f"\tat {word(r)}.{word(r)}.{identifier(r)}({word(r)}.java:{r.randint(1, 900)})"]),
            ],
        )()


class Service(Shape):
    """Logs of servers: the format of the fields is invented anew for each log."""

    def __init__(self, rng):
        super().__init__(rng)
        r = rng
        self.clock = r.randint(0, 86_399)
        self.day = (r.randint(2019, 2031), r.randint(1, 12), r.randint(1, 28))
        self.stamp = r.choice(["iso", "space", "bracket", "syslog", "clock", "kernel", "comma", "none", "none"])
        self.level = r.choice(["plain", "plain", "bracket", "lower", "colon", "bracket-lower", "none"])
        self.module = r.choice(["bracket", "plain", "colon", "pid", "none", "paren"])
        self.modules = [identifier(r) for _ in range(4)]
        self.style = r.choice(["line", "line", "line", "line", "logfmt", "json"])
        self.language = pick(r, list(FOREIGN)) if r.random() < 0.25 else None
        self.host = pick(r, NAMES)

    def _stamp(self):
        r = self.rng
        self.clock = (self.clock + r.randint(0, 9)) % 86_400
        clock = f"{self.clock // 3600:02d}:{self.clock // 60 % 60:02d}:{self.clock % 60:02d}"
        year, month, day = self.day
        names = "Jan Feb Mar Apr May Jun Jul Aug Sep Oct Nov Dec".split()
        return {
            "iso": f"{year}-{month:02d}-{day:02d}T{clock}Z ",
            "space": f"{year}-{month:02d}-{day:02d} {clock} ",
            "bracket": f"[{year}-{month:02d}-{day:02d} {clock}] ",
            "syslog": f"{names[month - 1]} {day:2d} {clock} {self.host} ",
            "clock": f"{clock} ",
            "kernel": f"[{self.clock:5d}.{r.randint(0, 999_999):06d}] ",
            "comma": f"{clock},{r.randint(0, 999):03d} ",
            "none": "",
        }[self.stamp]

    def _level(self, level):
        return {
            "plain": f"{level} ",
            "bracket": f"[{level}] ",
            "lower": f"{level.lower()} ",
            "colon": f"{level}: ",
            "bracket-lower": f"[{level.lower()}] ",
            "none": "",
        }[self.level]

    def _module(self):
        r = self.rng
        name = pick(r, self.modules)
        return {
            "bracket": f"[{name}] ",
            "plain": f"{name} ",
            "colon": f"{name}: ",
            "pid": f"{name}[{r.randint(1, 9999)}]: ",
            "paren": f"({name}) ",
            "none": "",
        }[self.module]

    def _message(self, make):
        return foreign(self.rng, self.language) if self.language and self.rng.random() < 0.5 else make(self.rng)

    def line(self):
        r = self.rng
        level = pick(r, LEVELS)
        message = self._message(failure if level == "WARN" and self.level != "none" else chatter)
        if self.style == "logfmt":
            return f'time={self._stamp().strip()} level={level.lower()} msg="{message}"'
        if self.style == "json":
            return f'{{"time":"{self._stamp().strip()}","level":"{level.lower()}","msg":"{message}"}}'
        return self._stamp() + self._level(level) + self._module() + message

    def failure(self):
        r = self.rng
        level = pick(r, FAILURE_LEVELS)
        message = self._message(failure)
        if self.style == "logfmt":
            return Failure([], f"time={self._stamp().strip()} ", f'level={r.choice(["error", "fatal"])} msg="{message}"', [])
        if self.style == "json":
            return Failure([], f'{{"time":"{self._stamp().strip()}",', f'"level":"{r.choice(["error", "fatal", "ERROR"])}","msg":"{message}"}}', [])
        if self.level == "none":
            own = pick(r, [
                lambda: f"{pick(r, MARKERS)} {message}",
                lambda: f"{pick(r, MARKERS)} {message}",
                lambda: f"Out of memory: Killed process {r.randint(1, 9999)} ({word(r)})",
                lambda: f"segfault at {hexadecimal(r)} ip {hexadecimal(r)} sp {hexadecimal(r)} error {r.randint(4, 7)}",
                lambda: f"I/O error, dev sd{r.choice('abc')}, sector {number(r)}",
                lambda: f"Kernel panic - not syncing: {message}",
                lambda: f"Failed to start {identifier(r)}.service",
                lambda: f"Failed with result '{r.choice(['exit-code', 'timeout', 'signal'])}'.",
                lambda: f"Main process exited, code=exited, status={r.randint(1, 255)}/FAILURE",
            ])()
            return Failure([], self._stamp() + self._module(), own, [])
        if r.random() < 0.25:
            # The level follows the module in many formats.
            return Failure([], self._stamp() + self._module(), self._level(level) + message, [])
        return Failure([], self._stamp(), self._level(level) + self._module() + message, [])


class Foreign(Service):
    """Services that write in another script, so that ranges would cut code points."""

    def __init__(self, rng):
        super().__init__(rng)
        self.language = pick(rng, list(FOREIGN))
        self.style = "line"

    def _message(self, make):
        rng = self.rng
        text = foreign(rng, self.language)
        return f"{text} {thing(rng)}" if rng.random() < 0.3 else text


class Salad(Shape):
    """Lines of invented words: nothing but the marker tells the failure."""

    def __init__(self, rng):
        super().__init__(rng)
        self.lead = rng.choice(["", "", "> ", "| ", "- ", f"{word(rng)}: ", f"[{word(rng)}] "])

    def line(self):
        r = self.rng
        return self.lead + " ".join(pick(r, [invented, number, word, thing])(r) for _ in range(r.randint(1, 9)))

    def failure(self):
        r = self.rng
        text = " ".join(pick(r, [invented, number, word, thing])(r) for _ in range(r.randint(2, 9)))
        return Failure([], self.lead, f"{pick(r, MARKERS)} {text}", [])


SHAPES = [Compiler, Rust, Python, JavaScript, Packages, Shell, Go, Service, Service, Service, Foreign, Salad, Salad, Shape]
DISTRACTION = 0.08


def make_lines(rng, shape, byte_count, decoys=DISTRACTION):
    """Ordinary lines of a shape, together about `byte_count` bytes."""
    lines, size = [], 0
    while size < byte_count:
        line = decoy(rng) if rng.random() < decoys else shape.line()
        lines.append(line)
        size += len(line.encode()) + 1
    return lines
