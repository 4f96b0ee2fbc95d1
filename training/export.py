"""Writes the finished checkpoint: what any loader of Qwen3 checkpoints reads, in bfloat16."""

import argparse
import json
import shutil
from pathlib import Path

import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer

from tokenizer import END, END_OF_TEXT

LIMIT_BYTES = 8 * 1024 * 1024


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("checkpoint", help="the training checkpoint")
    parser.add_argument("tokenizer", help="the tokenizer's folder")
    parser.add_argument("folder", help="where the finished checkpoint goes")
    parser.add_argument("--card", help="the model card; becomes README.md")
    options = parser.parse_args()
    state = torch.load(options.checkpoint)
    source, folder = Path(options.tokenizer), Path(options.folder)
    folder.mkdir(parents=True, exist_ok=True)
    token = Tokenizer.from_file(str(source / "tokenizer.json")).token_to_id
    weights = {f"model.{name}": tensor.to(torch.bfloat16).contiguous() for name, tensor in state["model"].items()}
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    ids = {"eos_token_id": token(END), "pad_token_id": token(END_OF_TEXT)}
    config = {**state["config"], **ids, "torch_dtype": "bfloat16"}
    for name, value in (("config.json", config), ("generation_config.json", {"do_sample": False, **ids})):
        (folder / name).write_text(json.dumps(value, indent=2) + "\n", encoding="utf-8")
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copyfile(source / name, folder / name)
    if options.card:
        shutil.copyfile(options.card, folder / "README.md")
    byte_count = sum(file.stat().st_size for file in folder.iterdir())
    if byte_count > LIMIT_BYTES:
        raise SystemExit(f"{byte_count} bytes are more than the {LIMIT_BYTES} that the repository takes")
    print(f"{folder}: {byte_count} bytes after {state['tokens']} tokens")


if __name__ == "__main__":
    main()
