"""The training data and the model: copies are exact, runs are right, seeds repeat."""

import json
from pathlib import Path

import pytest
import torch
from tokenizers import Tokenizer

import expert
import tokenizer as names
from data import Encoder, batches
from evaluate import Model, evaluate, is_action, is_prefix_of_action
from model import Config, Decoder, construct

EVAL = Path(__file__).parents[2] / "tests/eval/cases.jsonl"
SEEDS = range(400)


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tokenizer")
    names.write(names.build(300), folder)
    return Tokenizer.from_file(str(folder / "tokenizer.json"))


def is_sublist(part, whole):
    return any(whole[at : at + len(part)] == part for at in range(len(whole) - len(part) + 1))


def test_a_seed_gives_the_same_episode():
    for seed in range(20):
        first, second = expert.make_episode(seed), expert.make_episode(seed)
        assert first.run.messages == second.run.messages


def test_the_expert_is_right_and_stays_within_its_steps():
    for seed in SEEDS:
        episode = expert.make_episode(seed)
        run, task = episode.run, episode.task
        assert run.reason == "completed" and len(run.events) <= 8
        if run.final == expert.ABSENT:
            continue
        quoted = run.final.removeprefix(expert.FOUND)
        planted = [
            task.files[path].encode()[start:stop].decode()
            for path, ranges in task.diagnostics.items()
            for start, stop in ranges
        ]
        assert quoted in planted


def test_whatever_is_copied_is_the_same_tokens_in_its_source(tokenizer):
    encoder = Encoder(tokenizer)
    for seed in SEEDS:
        episode = expert.make_episode(seed)
        sources = [encoder.encode(m["content"]) for m in episode.run.messages if m["role"] != "assistant"]
        for turn in episode.turns:
            if not turn.taught:
                continue
            action = json.loads(turn.response)
            if turn.pieces:
                escaped = [json.dumps(piece, ensure_ascii=False)[1:-1] for piece in turn.pieces]
                inline = not episode.run.events[-2][1].startswith("Artifact range:")
                if inline and escaped != turn.pieces:
                    continue  # The raw text of a short result is not escaped yet.
                for piece in escaped:
                    assert any(is_sublist(encoder.encode(piece), source) for source in sources), piece
            elif ".tool-artifacts" in turn.response:
                digest = action["path"].split("/")[1].removeprefix("artifact-")
                tokens = encoder.encode(digest)
                assert len(tokens) == 32
                assert any(is_sublist(tokens, source) for source in sources)
            elif action.get("tool") == "read_file":
                tokens = encoder.encode(action["path"])
                assert any(is_sublist(tokens, source) for source in sources), action["path"]


def test_tokens_give_the_text_back(tokenizer):
    for seed in range(60):
        for message in expert.make_episode(seed).run.messages:
            ids = tokenizer.encode(message["content"], add_special_tokens=False).ids
            assert tokenizer.decode(ids, skip_special_tokens=False) == message["content"]


def test_the_chat_template_is_what_training_sees(tokenizer):
    jinja2 = pytest.importorskip("jinja2")
    template = jinja2.Template(names.CHAT_TEMPLATE)
    encoder = Encoder(tokenizer)
    for seed in range(40):
        episode = expert.make_episode(seed)
        if episode.turns[-1].pieces and len(episode.turns[-1].pieces) > 1:
            continue  # What a range cut is answered in the tokens of its two parts.
        final = {"role": "assistant", "content": episode.turns[-1].response}
        messages = [*episode.run.messages, final]
        text = template.render(messages=messages, add_generation_prompt=False)
        tokens = encoder.episode(episode).tokens
        assert tokenizer.encode(text, add_special_tokens=False).ids == tokens
        prompt = template.render(messages=messages[:-1], add_generation_prompt=True)
        ids = tokenizer.encode(prompt, add_special_tokens=False).ids
        assert ids == tokens[: len(ids)]
        assert tokenizer.id_to_token(ids[-1]) == f"<|step{len(episode.turns)}|>"


def test_batches_repeat(tokenizer):
    encoder = Encoder(tokenizer)
    first, second = (next(batches(encoder, 7, 2_000, {"whole": 4, "short": 4, "opening": 4, "copying": 2})) for _ in range(2))
    assert torch.equal(first.tokens, second.tokens) and torch.equal(first.weights, second.weights)


def test_what_is_copied_is_pointed_at(tokenizer):
    encoder = Encoder(tokenizer)
    answers = pointed = 0
    for seed in range(100):
        episode = expert.make_episode(seed, short=seed % 2 == 0)
        item = encoder.episode(episode)
        assert all(item.tokens[at + 1] == item.tokens[source] and source <= at for at, source in item.copies)
        if episode.turns[-1].pieces:
            answers += 1
            decision = len(item) - len(encoder.final(episode.turns[-1])) - 2
            first = (decision + 1, item.tokens[decision + 2])
            pointed += any((at, item.tokens[source]) == first for at, source in item.copies)
    assert pointed > 0.95 * answers


def small_model(tokenizer):
    encoder = Encoder(tokenizer)
    model = Decoder(Config(encoder.vocab_size, num_hidden_layers=2))
    construct(model)
    return encoder, model


def test_the_construction_copies_before_any_training(tokenizer):
    encoder, model = small_model(tokenizer)
    item = encoder.episode(expert.make_episode(3))
    tokens, weights = item.tokens, item.weights
    with torch.no_grad():
        predicted = model.logits(model.hidden(torch.tensor([tokens])))[0].argmax(-1)
    copies = [i for i in range(1, len(tokens)) if tokens[i] in encoder.pairs and weights[i] > 0]
    right = sum(int(predicted[i - 1]) == tokens[i] for i in copies)
    assert right / len(copies) > 0.9


def test_transformers_computes_the_same(tokenizer):
    transformers = pytest.importorskip("transformers")
    encoder, model = small_model(tokenizer)
    config = transformers.Qwen3Config(**{k: v for k, v in model.config.checkpoint().items() if k != "architectures"})
    other = transformers.Qwen3ForCausalLM(config).eval()
    other.load_state_dict({f"model.{k}": v for k, v in model.state_dict().items()}, strict=False)
    other.tie_weights()
    tokens = torch.tensor([encoder.episode(expert.make_episode(5)).tokens])
    with torch.no_grad():
        assert torch.allclose(other(tokens).logits, model.logits(model.hidden(tokens)), atol=2e-3)


def test_decoding_with_the_cache_agrees_with_one_pass(tokenizer):
    encoder, decoder = small_model(tokenizer)
    model = Model(decoder.eval(), tokenizer)
    messages = expert.make_episode(3).run.messages
    tokens = model.prompt(messages)
    with torch.no_grad():
        whole = decoder.logits(decoder.hidden(torch.tensor([tokens])))[0, -1]
    model._advance(tokens[:50])
    stepwise = model._advance(tokens[50:])
    assert torch.allclose(whole, stepwise, atol=1e-3)


def test_the_constraint_lets_actions_through_and_nothing_else():
    for seed in range(60):
        for turn in expert.make_episode(seed).turns:
            if turn.taught:
                text = turn.response.encode()
                assert all(is_prefix_of_action(text[:end]) for end in range(len(text) + 1))
                assert is_action(text)
    for text in (b"hello", b'{"final":""}', b'{"final":"x"}}', b'{"tool":"write_file"', b'{"final":"a\nb'):
        assert not is_action(text)


def test_the_held_out_cases():
    with open(EVAL, encoding="utf-8") as lines:
        cases = [json.loads(line) for line in lines]
    assert len(cases) == 200
    assert sum(case["name"].startswith("real/") for case in cases) >= 40
    for case in cases:
        assert all(len(text.encode()) <= 8_300 for text in case["files"].values())
        texts = "\n".join(case["files"].values())
        assert case.get("absent") or all(expected in texts for expected in case["expect"])
        json.dumps(case).encode()


class Oracle:
    """A model that knows the answer: what the cases' judge must accept."""

    def __init__(self, case):
        self.case = case

    def reply(self, messages, constrained):
        return expert.final_action(expert.ABSENT if self.case.get("absent") else self.case["expect"][0])


def test_the_judge():
    with open(EVAL, encoding="utf-8") as lines:
        case = json.loads(next(lines))
    assert evaluate(Oracle(case), [case], False)["answers right"] == (1, 1)
    wrong = {**case, "expect": ["something else"]}
    assert evaluate(Oracle(case), [wrong], False)["answers right"] == (0, 1)
