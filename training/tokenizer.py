"""The tokenizer: made so that whatever must be copied is the same tokens in its source and in the answer.

- Spaces, line ends, quotes and punctuation never merge with what stands beside them.
- Digits stand alone, except that a number of exactly two digits is one token: clocks and dates.
- Digests are pairs of hexadecimal digits.
- The loop's fixed phrases (the system prompt's lines, the keys of observations and ranges, the
  beginnings of the actions) are one token each, so that a decision is one token.
"""

import argparse
import importlib
import inspect
import json
from pathlib import Path

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

from expert import ABSENT, FOUND, make_episode
from loop import SYSTEM_PROMPT

VOCABULARY = 3_072
SEED_BASE = 10_000_000
END_OF_TEXT, END, SYSTEM, USER = "<|endoftext|>", "<|im_end|>", "<|system|>", "<|user|>"
STEPS = [f"<|step{number}|>" for number in range(1, 9)]
ENGLISH = ["argparse", "asyncio.base_events", "http.client", "logging", "os", "socket", "subprocess", "tarfile", "unittest.case"]
"""Modules of Python's library whose comments give the tokenizer ordinary English."""
SPECIAL = [END_OF_TEXT, END, SYSTEM, USER, *STEPS]

READ = '{"tool":"read_file","path":"'
READ_RANGE = f"{READ}.tool-artifacts/artifact-"
LIST = '{"tool":"list_files","path":"'
LIST_ALL = f'{LIST}."}}'
FINAL_FOUND = f'{{"final":"{FOUND}'
FINAL_ABSENT = f'{{"final":"{ABSENT}"}}'
OBSERVATION = 'Tool result:\nTool result externalized:\n{"artifact_id":"artifact-'
SUGGESTION = '],"range_request":{"path":".tool-artifacts/artifact-'
RANGE = 'Tool result:\nArtifact range:\n{"artifact_id":"artifact-'
DATA, DATA_END = ',"data":"', '","end":'
PHRASES = [
    *SYSTEM_PROMPT.splitlines(keepends=True),
    READ, READ_RANGE, LIST, LIST_ALL, FINAL_FOUND, FINAL_ABSENT, '{"final":"',
    "Tool result:\n", OBSERVATION, '","byte_count":', ',"head_preview":"', '","head_range":[0,',
    '],"omitted_range":[', SUGGESTION, "/bytes/", '","tool":"read_file"},"sha256":"', '","tail_preview":"',
    '","tail_range":[', "]}", RANGE, DATA, DATA_END, ',"sha256":"', '","start":', ',"total_byte_count":',
    "Tool result:\nfile ", "Tool result:\ndir ", "\nfile ", "\ndir ",
    "Tool result:\nerror: path is not accessible",
    "Tool result:\nerror: path is not a regular file",
    "Tool result:\nerror: path is not a directory",
    "Tool result:\nerror: artifact range does not align to UTF-8 text",
    "Tool result:\nerror: artifact range must satisfy 0 <= start < end",
    "Tool result:\nerror: artifact range exceeds 512 bytes",
    "Tool result:\nerror: artifact range exceeds the stored byte count",
    "Tool result:\nerror: artifact range path is malformed",
    "Tool result:\nerror: artifact is not available in this store",
    "Tool result:\nerror: response is not valid JSON: ",
]  # fmt: skip

# Hexadecimal pairs are recognized by the run of at least 32 digits that they stand in.
PIECES = (
    r"[0-9a-f]{2}(?=[0-9a-f]{30})|(?<=[0-9a-f]{30})[0-9a-f]{2}"
    r"|\\u[0-9a-f]{4}|\\."
    r"|(?<![0-9])[0-9]{2}(?![0-9])|[0-9]"
    r"|\r?\n| +"
    r"|[A-Z]+(?![a-z])|[A-Z]?[a-z]+"
    r"|[^\x00-\x7F]+"
    r"|-{2,}|={2,}|\.{2,}|_{2,}|\*{2,}|#{2,}|~{2,}"
    r"|[\x00-\x7F]"
)

CHAT_TEMPLATE = """\
{%- for message in messages -%}
{%- if message.role == 'assistant' -%}
{{- '<|step' ~ (8 if loop.index > 17 else loop.index // 2) ~ '|>' ~ message.content ~ '<|im_end|>' -}}
{%- else -%}
{{- '<|' ~ message.role ~ '|>' ~ message.content -}}
{%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}
{{- '<|step' ~ (8 if messages | length > 16 else messages | length // 2) ~ '|>' -}}
{%- endif -%}
"""


def build(episodes):
    """A tokenizer trained on the transcripts of `episodes` seeds that training does not use."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(PIECES), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    pairs = [a + b for a in "0123456789abcdef" for b in "0123456789abcdef"]
    added = len(SPECIAL) + len(PHRASES)

    def corpus():
        for seed in range(SEED_BASE, SEED_BASE + episodes):
            task = make_episode(seed).task
            yield task.text
            for text in task.files.values():
                yield json.dumps(text, ensure_ascii=False)[1:-1]
        for module in ENGLISH:
            yield inspect.getsource(importlib.import_module(module))

    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY - added - len(pairs),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
        special_tokens=[],
        limit_alphabet=256,
    )
    tokenizer.train_from_iterator(corpus(), trainer)

    # The pairs that the corpus had no reason to merge come last, where they disturb no word.
    value = json.loads(tokenizer.to_str())
    vocabulary, merges = value["model"]["vocab"], value["model"]["merges"]
    for pair in pairs:
        if pair not in vocabulary:
            vocabulary[pair] = len(vocabulary)
            merges.append([pair[0], pair[1]])
    tokenizer = Tokenizer.from_str(json.dumps(value))
    tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in SPECIAL])
    tokenizer.add_tokens([AddedToken(phrase, normalized=False) for phrase in PHRASES])
    return tokenizer


def write(tokenizer, folder):
    """tokenizer.json and tokenizer_config.json, as transformers and the tokenizers crate read them."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": 4096,
        "clean_up_tokenization_spaces": False,
        "eos_token": END,
        "pad_token": END_OF_TEXT,
        "chat_template": CHAT_TEMPLATE,
    }
    text = json.dumps(config, ensure_ascii=False, indent=2)
    (folder / "tokenizer_config.json").write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("folder")
    arguments.add_argument("--episodes", type=int, default=4_000)
    options = arguments.parse_args()
    write(build(options.episodes), options.folder)
