"""The simulator against the project's vectors, byte for byte."""

import json
from pathlib import Path

import pytest

from loop import SYSTEM_PROMPT, AgentLimits, EvidenceWorkspace, Limits, Run

VECTORS = Path(__file__).parents[2] / "tests/vectors"


def vectors(name):
    with open(VECTORS / name, encoding="utf-8") as lines:
        return [pytest.param(case, id=case["name"]) for case in map(json.loads, lines)]


def is_reading_only(case):
    policy = case["policy"]
    return not policy.get("allow_writes") and not policy.get("allowed_commands")


@pytest.mark.parametrize("case", vectors("evidence.jsonl"))
def test_observations_and_ranges(case):
    workspace = EvidenceWorkspace(case["files"], Limits(**case["limits"]))
    for step in case["steps"]:
        if step["op"] == "tamper":
            break
        if step["tool"] in ("read_file", "list_files"):
            result, _ = workspace.execute(step["tool"], step["arguments"])
            assert result == step["result"]


@pytest.mark.parametrize("case", vectors("loop.jsonl"))
def test_runs(case):
    if not is_reading_only(case):
        pytest.skip("the model is trained to read, not to write or to run commands")
    assert case["system_prompt"] == SYSTEM_PROMPT
    policy = {key: case["policy"][key] for key in case["policy"] if key.startswith("max_")}
    policy.pop("max_write_bytes", None)
    workspace = EvidenceWorkspace(case["files"], Limits(**case["limits"]), **policy)
    run = Run(case["task"], workspace, AgentLimits(**case["agent_limits"]))
    for response in case["responses"]:
        if run.reason:
            break
        run.reply(response)
    expected = case["run"]
    assert (run.reason, run.final) == (expected["reason"], expected["final"])
    assert len(run.events) == len(expected["events"])
    for (response, result), event in zip(run.events, expected["events"]):
        assert response == event["response"]
        if "result_prefix" in event:
            assert result.startswith(event["result_prefix"])
        else:
            assert result == event["result"]
    for prompt in case.get("prompts", ()):
        messages = run.messages[: prompt["messages"]]
        assert [message["role"] for message in messages] == prompt["roles"]
        assert sum(len(message["content"]) for message in messages) == prompt["chars"]
