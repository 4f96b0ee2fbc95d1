"""The loop that the model will run in, as far as reading goes.

The rules are those of crates/evidence-core and crates/evidence-agent, restated here because the
training data is made in Python; tests/test_loop.py holds them to the same vectors byte for byte.
"""

import hashlib
import json
import re
from dataclasses import dataclass, field

SYSTEM_PROMPT = """\
You are a coding agent. Inspect the workspace before editing it.
Reply with exactly one JSON object and no markdown.
Finish with: {"final":"brief summary"}
Available actions:
{"tool":"list_files","path":"."}
{"tool":"read_file","path":"README.md"}
Paths must be relative to the workspace.
Keep changes small and never invent file contents."""
NAMESPACE = ".tool-artifacts/"
RANGE_PATH = re.compile(r"\.tool-artifacts/artifact-([0-9a-f]{64})/bytes/([0-9]+)-([0-9]+)")
READING_TOOLS = {"list_files", "read_file"}
WRITING_TOOLS = {"write_file", "edit_file", "run_command"}


class ActionError(Exception):
    """The tool refused; the message is what the model reads after `error: `."""


@dataclass(frozen=True)
class Limits:
    """Contract A's limits of one observation and of one range."""

    max_inline_bytes: int = 512
    preview_bytes: int = 64
    max_range_bytes: int = 512


@dataclass(frozen=True)
class AgentLimits:
    """How long a run may last."""

    max_steps: int = 8
    max_context_chars: int = 48_000
    max_invalid_actions: int = 3
    max_identical_actions: int = 2


def to_json(value):
    """Compact JSON, keys sorted, non-ASCII unescaped."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), sort_keys=True)


def _is_boundary(data, position):
    return position >= len(data) or position <= 0 or data[position] & 0xC0 != 0x80


def floor_boundary(data, position):
    """The last code point boundary at or before `position`."""
    position = min(position, len(data))
    while not _is_boundary(data, position):
        position -= 1
    return position


def ceil_boundary(data, position):
    """The first code point boundary at or after `position`."""
    while not _is_boundary(data, position):
        position += 1
    return min(position, len(data))


def range_path(sha256, start, end):
    """The path that asks for the bytes [start, end) of an artifact."""
    return f"{NAMESPACE}artifact-{sha256}/bytes/{start}-{end}"


class EvidenceWorkspace:
    """A read-only workspace of files in memory, whose large results are externalized."""

    def __init__(self, files, limits=Limits(), max_file_bytes=1_048_576, max_list_entries=1_000):
        self.files = files
        self.limits = limits
        self.max_file_bytes = max_file_bytes
        self.max_list_entries = max_list_entries
        self.artifacts = {}

    def execute(self, tool, arguments):
        """What the model reads after `Tool result:`, and whether it is an error."""
        try:
            path = arguments.get("path", "." if tool == "list_files" else None)
            if path.startswith(NAMESPACE):
                if tool != "read_file":
                    raise ActionError("artifact paths support read_file only")
                return self._range(path), False
            text = self._list(path) if tool == "list_files" else self._read(path)
        except ActionError as error:
            return f"error: {error}", True
        return self._bounded(text), False

    def _resolve(self, path):
        if not path.strip():
            raise ActionError("path must be a non-empty string")
        parts = [part for part in path.split("/") if part not in ("", ".")]
        if path.startswith("/") or ".." in parts:
            raise ActionError("path must be relative and stay in the workspace")
        if any(_is_private(part) for part in parts):
            raise ActionError("path is not accessible")
        return "/".join(parts)

    def _read(self, path):
        path = self._resolve(path)
        if path not in self.files:
            if path == "" or any(name.startswith(f"{path}/") for name in self.files):
                raise ActionError("path is not a regular file")
            raise ActionError("path is not accessible")
        text = self.files[path]
        if len(text.encode()) > self.max_file_bytes:
            raise ActionError(f"file exceeds {self.max_file_bytes} bytes")
        return text

    def _list(self, path):
        path = self._resolve(path)
        prefix = f"{path}/" if path else ""
        if path in self.files:
            raise ActionError("path is not a directory")
        entries = {}
        for name in self.files:
            if name.startswith(prefix):
                head, _, rest = name[len(prefix) :].partition("/")
                if not _is_private(head):
                    entries[prefix + head] = "dir" if rest else "file"
        if prefix and not entries:
            raise ActionError("path is not accessible")
        ordered = sorted(entries.items())[: self.max_list_entries]
        return "\n".join(f"{kind} {name}" for name, kind in ordered)

    def _bounded(self, text):
        data = text.encode()
        if len(data) <= self.limits.max_inline_bytes:
            return text
        sha256 = hashlib.sha256(data).hexdigest()
        self.artifacts[sha256] = data
        end = floor_boundary(data, self.limits.max_range_bytes)
        for preview_bytes in range(self.limits.preview_bytes, -1, -1):
            head = floor_boundary(data, preview_bytes)
            tail = max(ceil_boundary(data, len(data) - preview_bytes), head)
            observation = "Tool result externalized:\n" + to_json(
                {
                    "artifact_id": f"artifact-{sha256}",
                    "byte_count": len(data),
                    "head_preview": data[:head].decode(),
                    "head_range": [0, head],
                    "omitted_range": [head, tail],
                    "range_request": {"path": range_path(sha256, 0, end), "tool": "read_file"},
                    "sha256": sha256,
                    "tail_preview": data[tail:].decode(),
                    "tail_range": [tail, len(data)],
                }
            )
            if len(observation.encode()) <= self.limits.max_inline_bytes:
                return observation
        raise ActionError("the observation does not fit")

    def _range(self, path):
        parsed = RANGE_PATH.fullmatch(path)
        if not parsed:
            raise ActionError("artifact range path is malformed")
        sha256, start, end = parsed[1], int(parsed[2]), int(parsed[3])
        if sha256 not in self.artifacts:
            raise ActionError("artifact is not available in this store")
        data = self.artifacts[sha256]
        if start >= end:
            raise ActionError("artifact range must satisfy 0 <= start < end")
        if end - start > self.limits.max_range_bytes:
            raise ActionError(f"artifact range exceeds {self.limits.max_range_bytes} bytes")
        if end > len(data):
            raise ActionError("artifact range exceeds the stored byte count")
        if hashlib.sha256(data).hexdigest() != sha256:
            raise ActionError("artifact digest does not match its recorded identity")
        if not (_is_boundary(data, start) and _is_boundary(data, end)):
            raise ActionError("artifact range does not align to UTF-8 text")
        return "Artifact range:\n" + to_json(
            {
                "artifact_id": f"artifact-{sha256}",
                "byte_count": end - start,
                "data": data[start:end].decode(),
                "end": end,
                "sha256": sha256,
                "start": start,
                "total_byte_count": len(data),
            }
        )


def _is_private(name):
    return name in (".env", ".git", ".tool-artifacts") or name.endswith((".pem", ".key"))


def parse_action(response):
    """The action of a reply: ("final", text) or (tool, arguments)."""
    try:
        value = json.loads(response)
    except ValueError as error:
        raise ActionError(f"response is not valid JSON: {error}") from None
    if not isinstance(value, dict):
        raise ActionError("response must be a JSON object")
    if "final" in value:
        if set(value) != {"final"} or not isinstance(value["final"], str):
            raise ActionError("final action must contain only a string 'final' field")
        if not value["final"].strip():
            raise ActionError("final response must not be empty")
        return "final", value["final"]
    tool = value.pop("tool", None)
    if not isinstance(tool, str):
        raise ActionError("tool action requires a string 'tool' field")
    if tool in WRITING_TOOLS:
        raise ActionError(f"tool is not enabled: {tool}")
    if tool not in READING_TOOLS:
        raise ActionError(f"unknown tool: {tool}")
    if tool == "read_file" and "path" not in value:
        raise ActionError("missing fields for read_file: path")
    if unknown := sorted(set(value) - {"path"}):
        raise ActionError(f"unknown fields for {tool}: {', '.join(unknown)}")
    if not isinstance(value.get("path", ""), str):
        raise ActionError("path must be a string")
    return tool, value


@dataclass
class Run:
    """One run of the loop, a reply at a time."""

    task: str
    workspace: EvidenceWorkspace
    limits: AgentLimits = AgentLimits()
    events: list = field(default_factory=list)
    reason: str | None = None
    final: str | None = None

    def __post_init__(self):
        self.messages = [
            {"role": "system", "content": SYSTEM_PROMPT},
            {"role": "user", "content": self.task},
        ]
        self._invalid_actions = 0
        self._previous_action = None
        self._identical_actions = 0
        self._check_context()

    @property
    def step(self):
        """The number of the reply that the loop waits for, from 1."""
        return len(self.events) + 1

    def reply(self, response):
        """Takes the model's next reply; afterwards `reason` tells whether the run has ended."""
        try:
            action = parse_action(response)
        except ActionError as error:
            self._record(response, f"error: {error}")
            self._invalid_actions += 1
            if self._invalid_actions >= self.limits.max_invalid_actions:
                self.reason = "invalid_action_limit"
            return
        if action[0] == "final":
            self.events.append((response, None))
            self.final, self.reason = action[1], "completed"
            return
        self._identical_actions = (
            self._identical_actions + 1 if action == self._previous_action else 1
        )
        self._previous_action = action
        if self._identical_actions > self.limits.max_identical_actions:
            self._record(response, "error: identical action loop detected")
            self.reason = "repeated_action_limit"
            return
        result, _ = self.workspace.execute(*action)
        self._record(response, result)

    def _record(self, response, result):
        self.events.append((response, result))
        self.messages += [
            {"role": "assistant", "content": response},
            {"role": "user", "content": f"Tool result:\n{result}"},
        ]
        if len(self.events) >= self.limits.max_steps:
            self.reason = "step_limit"
        self._check_context()

    def _check_context(self):
        chars = sum(len(message["content"]) for message in self.messages)
        if self.reason is None and chars > self.limits.max_context_chars:
            self.reason = "context_limit"
