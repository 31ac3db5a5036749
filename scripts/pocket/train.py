"""Trains the pocket model: a qwen35moe trunk, an early exit after layer 2, and one MTP block.

The loss is cross-entropy of the next token, plus 0.25 of that at the early exit, 0.2 of the MTP block's for the token
after the next, and 0.01 of the routers' balance. Time is the budget: the learning rate is constant for the first 30 %
of it and falls linearly to the end. Seeds are fixed, but how many steps fit is the machine's affair. Reads
`tokenizer.json`, `docs.npy` and `chats.npy` from the data folder; writes the checkpoint every 200 steps and at the
end.
"""

import argparse
import math
import time
from pathlib import Path

SEED = 5
SEQUENCE = 512
EXIT_LAYER = 2
CHECKPOINT_EVERY = 200
# Of 20 sequences one is prose; the others are conversations.
MIX = ["docs"] + ["chats"] * 19
LOSS_WEIGHTS = {"next": 1.0, "exit": 0.25, "mtp": 0.2, "balance": 0.01}


def configuration(tokenizer_path):
    """The trunk's shape; the vocabulary and the end token are the tokenizer's."""
    from tokenizers import Tokenizer
    from transformers import Qwen3_5MoeTextConfig

    tokenizer = Tokenizer.from_file(str(tokenizer_path))
    return Qwen3_5MoeTextConfig(
        vocab_size=tokenizer.get_vocab_size(),
        hidden_size=256,
        num_hidden_layers=8,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=64,
        max_position_embeddings=8192,
        linear_key_head_dim=64,
        linear_value_head_dim=64,
        linear_num_key_heads=4,
        linear_num_value_heads=8,
        moe_intermediate_size=256,
        shared_expert_intermediate_size=256,
        num_experts_per_tok=2,
        num_experts=8,
        rms_norm_eps=1e-6,
        rope_parameters={
            "rope_type": "default",
            "rope_theta": 100000.0,
            "partial_rotary_factor": 0.5,
            "mrope_section": [6, 5, 5],
            "mrope_interleaved": True,
        },
        bos_token_id=None,
        eos_token_id=tokenizer.token_to_id("<|im_end|>"),
        tie_word_embeddings=False,
        attn_implementation="sdpa",
    )


def build_mtp(config):
    """The MTP block: norms of hidden state and embedding, their projection, one attention layer, a norm."""
    from torch import nn
    from transformers import Qwen3_5MoeTextConfig
    from transformers.models.qwen3_5_moe.modeling_qwen3_5_moe import Qwen3_5MoeDecoderLayer, Qwen3_5MoeRMSNorm

    one_layer = {"layer_types": ["full_attention"], "num_hidden_layers": 1}
    layer_config = Qwen3_5MoeTextConfig(**{**config.to_dict(), **one_layer})
    layer_config._attn_implementation = "sdpa"
    block = nn.Module()
    block.fc = nn.Linear(2 * config.hidden_size, config.hidden_size, bias=False)
    block.layers = nn.ModuleList([Qwen3_5MoeDecoderLayer(layer_config, 0)])
    block.norm = Qwen3_5MoeRMSNorm(config.hidden_size, 1e-6)
    block.pre_fc_norm_hidden = Qwen3_5MoeRMSNorm(config.hidden_size, 1e-6)
    block.pre_fc_norm_embedding = Qwen3_5MoeRMSNorm(config.hidden_size, 1e-6)
    return block


def initialise(model, mtp):
    """Normal weights of deviation 0.02, smaller towards the residual stream; time steps of 0.001 to 0.1."""
    import torch
    from torch import nn

    for module in list(model.modules()) + list(mtp.modules()):
        kind = type(module).__name__
        if isinstance(module, (nn.Linear, nn.Embedding)) or kind == "Qwen3_5MoeTopKRouter":
            nn.init.normal_(module.weight, std=0.02)
        if kind == "Qwen3_5MoeExperts":
            nn.init.normal_(module.gate_up_proj, std=0.02)
            nn.init.normal_(module.down_proj, std=0.02 / 4)
        if kind == "Qwen3_5MoeGatedDeltaNet":
            with torch.no_grad():
                low, high = math.log(0.001), math.log(0.1)
                step = torch.exp(torch.rand(module.num_v_heads) * (high - low) + low)
                # The inverse of softplus, which the layer applies.
                module.dt_bias.copy_(step + torch.log(-torch.expm1(-step)))
    for name, parameter in model.named_parameters():
        if name.endswith(("o_proj.weight", "out_proj.weight", "down_proj.weight")):
            parameter.data.mul_(0.25)


class Batches:
    """Random windows of the data, one token for the MTP block longer than the targets."""

    def __init__(self, folder, size, device):
        import numpy
        import torch

        self.size, self.device = size, device
        self.data = {
            name: torch.from_numpy(numpy.load(folder / f"{name}.npy").astype(numpy.int64)) for name in sorted(set(MIX))
        }

    def draw(self):
        """Shape [size, SEQUENCE + 2]."""
        import numpy
        import torch

        windows = []
        for i in range(self.size):
            pick = i % len(MIX) if self.size >= len(MIX) else numpy.random.randint(len(MIX))
            tokens = self.data[MIX[pick]]
            start = numpy.random.randint(0, len(tokens) - SEQUENCE - 2)
            windows.append(tokens[start : start + SEQUENCE + 2])
        return torch.stack(windows).to(self.device)


class Routers:
    """Collects the router logits of a forward pass."""

    def __init__(self, model):
        self.logits = []
        for module in model.modules():
            if type(module).__name__ == "Qwen3_5MoeTopKRouter":
                module.register_forward_hook(lambda _, __, output: self.logits.append(output[0]))

    def balance(self, config):
        """Load-balancing loss (Switch Transformer, equation 4), averaged over the layers; 1 is even."""
        import torch
        from torch.nn import functional

        experts, used = config.num_experts, config.num_experts_per_tok
        total = 0.0
        for logits in self.logits:
            probability = logits.float().softmax(-1)
            chosen = torch.topk(probability, used, -1).indices
            load = functional.one_hot(chosen, experts).float().sum(1).mean(0)
            total = total + experts * (load * probability.mean(0)).sum() / used
        return total / len(self.logits)


def cross_entropy(logits, targets):
    """Mean over all positions, in f32."""
    from torch.nn import functional

    return functional.cross_entropy(logits.float().reshape(-1, logits.shape[-1]), targets.reshape(-1))


def losses(model, mtp, routers, tokens):
    """The four losses of a batch; early exit and MTP are trained on the first half of it."""
    import torch

    inputs, targets, after = tokens[:, :SEQUENCE], tokens[:, 1 : SEQUENCE + 1], tokens[:, 2 : SEQUENCE + 2]
    half = max(1, tokens.shape[0] // 2)
    routers.logits.clear()
    output = model.model(inputs, output_hidden_states=True, use_cache=False)
    hidden = output.last_hidden_state
    next_loss = cross_entropy(model.lm_head(hidden), targets)
    early = model.model.norm(output.hidden_states[EXIT_LAYER][:half])
    exit_loss = cross_entropy(model.lm_head(early), targets[:half])
    embedded = model.model.embed_tokens(targets[:half])
    joined = torch.cat([mtp.pre_fc_norm_embedding(embedded), mtp.pre_fc_norm_hidden(hidden[:half])], -1)
    state = mtp.fc(joined)
    positions = torch.arange(SEQUENCE, device=tokens.device)[None].expand(3, half, -1)
    rotary = model.model.rotary_emb(state, positions)
    state = mtp.layers[0](state, position_embeddings=rotary, attention_mask=None)
    state = state[0] if isinstance(state, tuple) else state
    mtp_loss = cross_entropy(model.lm_head(mtp.norm(state)), after[:half])
    return {"next": next_loss, "exit": exit_loss, "mtp": mtp_loss, "balance": routers.balance(model.config)}


def learning_rate(peak, step, spent):
    """Warm-up over 50 steps, constant until 30 % of the time is `spent`, then linear down to 2e-5."""
    if spent <= 0.3:
        return peak * min(1, (step + 1) / 50)
    return peak * (1 - (spent - 0.3) / 0.7) + 2e-5


def optimizer(parameters, peak):
    """AdamW; only matrices decay."""
    import torch

    groups = [
        {"params": [p for p in parameters if p.ndim >= 2], "weight_decay": 0.05},
        {"params": [p for p in parameters if p.ndim < 2], "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=peak, betas=(0.9, 0.95), fused=True)


def train(model, mtp, batches, args, save):
    """Steps until the time is used up; `save(step)` writes a checkpoint."""
    import torch

    routers = Routers(model)
    parameters = list(model.parameters()) + list(mtp.parameters())
    adam = optimizer(parameters, args.lr)
    start, step, smooth = time.time(), 0, None
    while (spent := (time.time() - start) / args.seconds) <= 1:
        for group in adam.param_groups:
            group["lr"] = learning_rate(args.lr, step, spent)
        tokens = batches.draw()
        with torch.autocast(tokens.device.type, dtype=torch.bfloat16, enabled=not args.full_precision):
            parts = losses(model, mtp, routers, tokens)
            loss = sum(LOSS_WEIGHTS[name] * part for name, part in parts.items())
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        adam.step()
        adam.zero_grad(set_to_none=True)
        step += 1
        values = {name: part.item() for name, part in parts.items()}
        smooth = values if smooth is None else {n: 0.97 * smooth[n] + 0.03 * values[n] for n in values}
        if step % 50 == 0 or step < 4:
            told = " ".join(f"{name} {value:.3f}" for name, value in smooth.items())
            print(f"{time.time() - start:7.0f} s  step {step}  {told}  gradient {norm:.2f}", flush=True)
        if step % CHECKPOINT_EVERY == 0:
            save(step)
    save(step)
    print(f"{step} steps, {step * batches.size * SEQUENCE} tokens")


def arguments():
    """What was typed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder that prep.py wrote")
    parser.add_argument("--checkpoint", type=Path, required=True, help="file to write")
    parser.add_argument("--seconds", type=float, required=True, help="time to train")
    parser.add_argument("--resume", action="store_true", help="start from the checkpoint's weights")
    parser.add_argument("--batch-size", type=int, default=8, help="sequences a step (default: %(default)s)")
    parser.add_argument("--lr", type=float, default=3e-3, help="peak learning rate (default: %(default)s)")
    parser.add_argument("--full-precision", action="store_true", help="f32 arithmetic instead of bf16")
    return parser.parse_args()


def main():
    """Builds, initialises or resumes, trains."""
    args = arguments()
    import numpy
    import torch
    from transformers import Qwen3_5MoeForCausalLM

    torch.manual_seed(SEED)
    numpy.random.seed(SEED)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    config = configuration(args.data / "tokenizer.json")
    model = Qwen3_5MoeForCausalLM(config)
    mtp = build_mtp(config)
    initialise(model, mtp)
    if args.resume:
        checkpoint = torch.load(args.checkpoint)
        model.load_state_dict(checkpoint["model"])
        mtp.load_state_dict(checkpoint["mtp"])
    model.to(device)
    mtp.to(device)

    def save(step):
        weights = {"model": model.state_dict(), "mtp": mtp.state_dict()}
        torch.save({**weights, "cfg": config.to_dict(), "step": step}, args.checkpoint)

    train(model, mtp, Batches(args.data, args.batch_size, device), args, save)


if __name__ == "__main__":
    main()
