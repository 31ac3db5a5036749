"""Writes a checkpoint as a Hugging Face folder: the trunk, the MTP block as `mtp.*`, the tokenizer.

Matrices are rounded to bf16 values (stored as f32), so that every file and every reference made from the folder starts
from the same numbers.
"""

import argparse
import json
import shutil
from pathlib import Path

CHAT_TEMPLATE = """{%- for m in messages %}<|im_start|>{{ m.role }}
{{ m.content }}<|im_end|>
{% endfor %}{%- if add_generation_prompt %}<|im_start|>assistant
<think>

</think>

{% endif %}"""


def tensors(checkpoint):
    """All tensors by name, f32, matrices rounded to bf16."""
    named = dict(checkpoint["model"])
    named.update({f"mtp.{name}": tensor for name, tensor in checkpoint["mtp"].items()})
    whole = {name: tensor.contiguous().float() for name, tensor in named.items()}
    return {name: tensor.bfloat16().float() if tensor.ndim >= 2 else tensor for name, tensor in whole.items()}


def arguments():
    """What was typed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--checkpoint", type=Path, required=True, help="file that train.py wrote")
    parser.add_argument("--tokenizer", type=Path, required=True, help="tokenizer.json that prep.py wrote")
    parser.add_argument("--out", type=Path, required=True, help="folder to write")
    return parser.parse_args()


def main():
    """Converts and writes the folder's four files."""
    args = arguments()
    import torch
    from safetensors.torch import save_file

    args.out.mkdir(parents=True, exist_ok=True)
    checkpoint = torch.load(args.checkpoint, map_location="cpu")
    weights = tensors(checkpoint)
    save_file(weights, str(args.out / "model.safetensors"), metadata={"format": "pt"})
    config = dict(checkpoint["cfg"])
    config.update(
        architectures=["Qwen3_5MoeForCausalLM"], mtp_num_hidden_layers=1, torch_dtype="float32", dtype="float32"
    )
    (args.out / "config.json").write_text(json.dumps(config, indent=1))
    shutil.copy(args.tokenizer, args.out / "tokenizer.json")
    tokenizer_config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "eos_token": "<|im_end|>",
        "pad_token": "<|endoftext|>",
        "chat_template": CHAT_TEMPLATE,
        "model_max_length": 8192,
    }
    (args.out / "tokenizer_config.json").write_text(json.dumps(tokenizer_config))
    print(f"step {checkpoint['step']}: {len(weights)} tensors")


if __name__ == "__main__":
    main()
