"""Runs cases through the loop with a checkpoint, greedily, and prints what came of it.

The project's own `bounded-evidence eval` does the same with the real loop and the real decoder;
this one exists so that training can be watched without them.
"""

import argparse
import json
import re
import time

import torch
from tokenizers import Tokenizer

from loop import EvidenceWorkspace, Limits, Run
from model import Config, Decoder
from tokenizer import END, SPECIAL, STEPS, SYSTEM, USER

MAX_REPLY_TOKENS = 400
NOTHING_FOUND = "no diagnostic"
"""How a final begins, in any case, when it says that there is nothing to quote."""

_STRING = rb'(?:[^"\\\x00-\x1f]|\\["\\/bfnrt]|\\u[0-9a-f]{4})*'
_HEADS = [rb'{"tool":"read_file","path":"', rb'{"tool":"list_files","path":"', rb'{"final":"']
_OPEN = re.compile(_STRING + rb'(?:\\(?:u[0-9a-f]{0,3})?)?')
_CLOSED = re.compile(_STRING + rb'"\}?')


def is_prefix_of_action(text):
    """Whether `text` can still become an action; the simplest constraint that makes replies parse."""
    for head in _HEADS:
        if head.startswith(text):
            return True
        if text.startswith(head):
            rest = text[len(head) :]
            if _OPEN.fullmatch(rest):
                return True
            closed = _CLOSED.fullmatch(rest)
            return bool(closed and re.search(rb"[^ \"}]", rest))
    return False


def is_action(text):
    return is_prefix_of_action(text) and text.endswith(b'"}') and _parses(text)


def _parses(text):
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


class Cache:
    """Keys and values of one run; what a new prompt shares with the last is kept."""

    def __init__(self, config):
        shape = (1, config.num_key_value_heads, config.max_position_embeddings, config.head_dim)
        self.layers = [LayerBuffer(shape) for _ in range(config.num_hidden_layers)]
        self.tokens = []

    def keep(self, tokens):
        """Drops what differs from `tokens`; answers how many of them are still there."""
        kept = 0
        while kept < min(len(self.tokens), len(tokens) - 1) and self.tokens[kept] == tokens[kept]:
            kept += 1
        self.tokens = self.tokens[:kept]
        for layer in self.layers:
            layer.length = kept
        return kept


class LayerBuffer:
    def __init__(self, shape):
        self.k, self.v, self.length = torch.zeros(shape), torch.zeros(shape), 0

    def extend(self, k, v):
        end = self.length + k.shape[2]
        self.k[:, :, self.length : end], self.v[:, :, self.length : end] = k, v
        self.length = end
        return self.k[:, :, :end], self.v[:, :, :end]


class Model:
    """A checkpoint that answers messages."""

    def __init__(self, model, tokenizer):
        self.model, self.tokenizer = model, tokenizer
        token = tokenizer.token_to_id
        self.end, self.roles = token(END), {"system": token(SYSTEM), "user": token(USER)}
        self.steps = [token(step) for step in STEPS]
        self.cache = Cache(model.config)
        added = {index: token.content for index, token in tokenizer.get_added_tokens_decoder().items()}
        self.bytes = [_bytes_of(tokenizer, index, added) for index in range(tokenizer.get_vocab_size())]
        self.encoded = {}

    def _encode(self, text):
        if text not in self.encoded:
            self.encoded[text] = self.tokenizer.encode(text, add_special_tokens=False).ids
        return self.encoded[text]

    def prompt(self, messages):
        """The messages' tokens, as the chat template has them."""
        tokens, step = [], 0
        for message in messages:
            ids = self._encode(message["content"])
            if message["role"] == "assistant":
                tokens += [self.steps[min(step, 7)], *ids, self.end]
                step += 1
            else:
                tokens += [self.roles[message["role"]], *ids]
        return [*tokens, self.steps[min(step, 7)]]

    @torch.no_grad()
    def _advance(self, tokens):
        cache = self.cache
        begin = len(cache.tokens)
        positions = torch.arange(begin, begin + len(tokens))
        mask = torch.arange(begin + len(tokens))[None] <= positions[:, None]
        hidden = self.model.hidden(torch.tensor([tokens]), positions[None], cache.layers, mask)
        cache.tokens = cache.tokens + list(tokens)
        return self.model.logits(hidden[0, -1])

    def reply(self, messages, constrained):
        tokens = self.prompt(messages)
        kept = self.cache.keep(tokens)
        logits = self._advance(tokens[kept:])
        text = b""
        for _ in range(MAX_REPLY_TOKENS):
            token = self._choose(logits, text) if constrained else int(logits.argmax())
            if token == self.end:
                break
            text += self.bytes[token]
            if len(self.cache.tokens) >= self.model.config.max_position_embeddings - 1:
                break
            logits = self._advance([token])
        return text.decode("utf-8", "replace")

    def _choose(self, logits, text):
        for token in logits.argsort(descending=True).tolist():
            if token == self.end:
                if is_action(text):
                    return token
            elif self.bytes[token] and is_prefix_of_action(text + self.bytes[token]):
                return token
        return self.end


def _byte_level():
    """The characters that stand for bytes in a byte-level vocabulary."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    other = [byte for byte in range(256) if byte not in plain]
    return {chr(256 + index): byte for index, byte in enumerate(other)} | {chr(byte): byte for byte in plain}


BYTE_LEVEL = _byte_level()


def _bytes_of(tokenizer, index, added):
    """The bytes of a token; none for a control token."""
    token = tokenizer.id_to_token(index)
    if token in SPECIAL:
        return b""
    if index in added:
        return token.encode()
    return bytes(BYTE_LEVEL[character] for character in token)


def judge(case, run):
    """What this run shows, as (numerator, denominator) pairs."""
    actions = [(response, result) for response, result in run.events]
    unparsed = sum(1 for _, result in actions if result and result.startswith(("error: response is not valid JSON", "error: response must", "error: tool action", "error: final", "error: unknown", "error: missing fields")))
    requests = [(response, result) for response, result in actions if ".tool-artifacts/" in response]
    known = [any(f"artifact-{sha256}/" in response for sha256 in run.workspace.artifacts) for response, _ in requests]
    answered = [result is not None and result.startswith("Artifact range:") for _, result in requests]
    final = run.final or ""
    if case.get("absent"):
        right = run.reason == "completed" and final.lower().startswith(NOTHING_FOUND)
    else:
        right = run.reason == "completed" and all(text in final for text in case["expect"])
    return {
        "replies that parse": (len(actions) - unparsed, len(actions)),
        "ids copied exactly": (sum(known), len(known)),
        "ranges answered": (sum(answered), len(answered)),
        "runs completed": (int(run.reason == "completed"), 1),
        "answers right": (int(right), 1),
    }


def evaluate(model, cases, constrained, show=lambda *_: None):
    totals = {}
    for case in cases:
        workspace = EvidenceWorkspace(case["files"], Limits(**case.get("limits", {})))
        run = Run(case["task"], workspace)
        while run.reason is None:
            run.reply(model.reply(run.messages, constrained))
        result = judge(case, run)
        show(case, run, result)
        for name, (part, whole) in result.items():
            before = totals.get(name, (0, 0))
            totals[name] = (before[0] + part, before[1] + whole)
    return totals


def load(checkpoint, tokenizer_folder):
    """A training checkpoint (a file) or a finished one (a folder)."""
    tokenizer = Tokenizer.from_file(f"{tokenizer_folder}/tokenizer.json")
    if checkpoint.endswith(".pt"):
        state = torch.load(checkpoint)
        config, weights = state["config"], state["model"]
    else:
        from safetensors.torch import load_file

        with open(f"{checkpoint}/config.json", encoding="utf-8") as text:
            config = json.load(text)
        weights = load_file(f"{checkpoint}/model.safetensors")
        weights = {name.removeprefix("model."): tensor.float() for name, tensor in weights.items()}
    fields = {name: config[name] for name in Config.__dataclass_fields__}
    model = Decoder(Config(**fields))
    model.load_state_dict(weights)
    return Model(model.eval(), tokenizer)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("checkpoint", help="a training checkpoint (.pt) or a finished checkpoint's folder")
    parser.add_argument("cases", nargs="+", help="files of cases, one JSON object a line")
    parser.add_argument("--tokenizer", help="its folder, where it is not the checkpoint's")
    parser.add_argument("--constrained", action="store_true", help="only replies that parse")
    parser.add_argument("--every", type=int, default=1, help="runs one case out of so many")
    parser.add_argument("--show", action="store_true", help="prints the runs whose answer is wrong")
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    model = load(options.checkpoint, options.tokenizer or options.checkpoint)

    def show(case, run, result):
        if options.show and not result["answers right"][0]:
            print(json.dumps({"task": case["task"], "expect": case.get("expect")}, ensure_ascii=False))
            for response, answer in run.events:
                print("   >", response[:300])
                print("   <", (answer or "")[:160].replace("\n", "\\n"))
            print("   =", run.reason, flush=True)

    for name in options.cases:
        with open(name, encoding="utf-8") as lines:
            cases = [json.loads(line) for line in lines][:: options.every]
        begun = time.monotonic()
        totals = evaluate(model, cases, options.constrained, show)
        print(name, "constrained" if options.constrained else "free", f"{time.monotonic() - begun:.0f} s")
        for title, (part, whole) in totals.items():
            print(f"  {title}: {part}/{whole} = {part / max(1, whole):.3f}")
        right, count = totals["answers right"]
        print(f"{right} passed, {count - right} failed", flush=True)


if __name__ == "__main__":
    main()
