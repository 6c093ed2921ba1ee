"""`python sglang_models.py FOLDER`: what SGLang's model classes make of the known targets and their drafts, as JSON.

A process of its own, because SGLang keeps its configuration and its groups for the whole process. The targets are built
at full size on the meta device, which takes no memory; a small draft is built for real and loaded.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import torch
from sglang.srt import runtime_context
from sglang.srt.distributed import parallel_state
from sglang.srt.layers.quantization.mxfp4 import Mxfp4Config
from sglang.srt.models.gpt_oss import GptOssForCausalLM
from sglang.srt.models.llama import LlamaForCausalLM
from sglang.srt.models.llama_eagle3 import LlamaForCausalLMEagle3
from sglang.srt.models.qwen3 import Qwen3ForCausalLM
from sglang.srt.models.qwen3_moe import Qwen3MoeForCausalLM
from sglang.srt.server_args import ServerArgs
from transformers import GptOssConfig, LlamaConfig, Qwen3Config, Qwen3MoeConfig

from tide_cli.targets.known import known_targets
from tide_cli.targets.shape import DraftShape, TargetShape

CLASSES = {
    "gpt-oss-120b": (GptOssForCausalLM, GptOssConfig),
    "gpt-oss-20b": (GptOssForCausalLM, GptOssConfig),
    "llama-3.1-8b-instruct": (LlamaForCausalLM, LlamaConfig),
    "qwen3-8b": (Qwen3ForCausalLM, Qwen3Config),
    "qwen3-30b-a3b": (Qwen3MoeForCausalLM, Qwen3MoeConfig),
}


def main(folder: Path) -> None:
    start_sglang(folder)
    torch.set_default_dtype(torch.bfloat16)
    targets = {name: target(name, known_targets()[name].shape) for name in CLASSES}
    print(json.dumps({"targets": targets, "swap": swap(), "ranks": two_ranks()}))


def start_sglang(folder: Path) -> None:
    """As a scheduler of one rank does, with a configuration that no test goes by."""
    (folder / "config.json").write_text(json.dumps(tiny().to_dict() | {"architectures": ["LlamaForCausalLM"]}))
    arguments = ServerArgs(model_path=str(folder), device="cpu", skip_tokenizer_init=True)
    runtime_context.publish(arguments, role="scheduler", ranks=runtime_context.SpawnRanks(world_rank=0))
    store = f"file://{folder / 'store'}"
    parallel_state.init_distributed_environment(1, 0, store, local_rank=0, backend="gloo")
    parallel_state.initialize_model_parallel(backend="gloo")


def target(name: str, shape: TargetShape) -> dict[str, object]:
    model_class, config_class = CLASSES[name]
    config = config_class(
        num_hidden_layers=shape.layers,
        hidden_size=shape.hidden_size,
        intermediate_size=shape.intermediate_size,
        num_attention_heads=shape.heads,
        num_key_value_heads=shape.kv_heads,
        head_dim=shape.head_dim,
        vocab_size=shape.vocab_size,
        **({"num_local_experts": shape.experts, "num_experts": shape.experts} if shape.experts else {}),
        **({"moe_intermediate_size": shape.expert_intermediate_size} if shape.experts else {}),
    )
    with torch.device("meta"):
        model = model_class(config, quantisation(shape))
        draft = LlamaForCausalLMEagle3(draft_config(shape.usual_draft, shape.vocab_size))
    model.set_eagle3_layers_to_capture(None)
    usual = list(model.model.layers_to_capture)
    model.set_eagle3_layers_to_capture([1, shape.layers // 2 - 1, shape.layers - 4])
    embedding, head = model.get_embed_and_head()
    return {
        "bytes": sum(parameter.numel() * parameter.element_size() for parameter in model.parameters()),
        "layers": usual,
        "named_layers": list(model.model.layers_to_capture),
        "embedding": list(embedding.shape),
        "dtypes": [str(embedding.dtype), str(head.dtype)],
        "keeps_last": model.logits_processor.keep_last_hidden_states,
        "draft_parameters": sum(p.numel() for name, p in draft.named_parameters() if "embed_tokens" not in name),
    }


def quantisation(shape: TargetShape) -> Mxfp4Config | None:
    """As the published checkpoints of gpt-oss name it."""
    if shape.quantisation != "mxfp4":
        return None
    kept = ["model.layers.*.self_attn", "model.layers.*.mlp.router", "model.embed_tokens", "lm_head"]
    return Mxfp4Config.from_config({"quant_method": "mxfp4", "modules_to_not_convert": kept})


def draft_config(shape: DraftShape, target_vocabulary: int) -> LlamaConfig:
    return LlamaConfig(
        hidden_size=shape.hidden_size,
        intermediate_size=shape.intermediate_size,
        num_hidden_layers=1,
        num_attention_heads=shape.heads,
        num_key_value_heads=shape.kv_heads,
        head_dim=shape.head_dim,
        vocab_size=target_vocabulary,
        draft_vocab_size=shape.vocab_size,
        tie_word_embeddings=False,
    )


def tiny() -> LlamaConfig:
    return draft_config(DraftShape(64, 128, 4, 2, 16, 64), target_vocabulary=320)


def swap() -> dict[str, object]:
    """Loads a second draft over a first one, as a swap does: what stays where it is, and what has changed."""
    model = LlamaForCausalLMEagle3(tiny())
    for parameter in model.parameters():
        parameter.data.zero_()
    addresses = {name: parameter.data_ptr() for name, parameter in model.named_parameters()}
    model.load_weights(weights(torch.ones).items())
    return {
        "moved": [name for name, parameter in model.named_parameters() if parameter.data_ptr() != addresses[name]],
        "unwritten": [name for name, parameter in model.named_parameters() if not bool((parameter == 1).all())],
        "hot_token_ids": model.hot_token_id.tolist(),
    }


def two_ranks() -> dict[str, bool]:
    """Whether what two ranks of tensor parallelism load of a draft is, put together, the whole of it."""
    whole = weights(torch.randn)
    parts = []
    for rank in (0, 1):
        group = SimpleNamespace(world_size=2, rank_in_group=rank, ranks=[0, 1], cpu_group=None)
        groups = dict.fromkeys(("tp_group", "attn_tp_group", "moe_tp_group"), group)
        sizes = dict.fromkeys(("tp_size", "attn_tp_size", "moe_tp_size"), 2)
        places = dict.fromkeys(("tp_rank", "attn_tp_rank", "moe_tp_rank"), rank)
        with runtime_context.get_parallel().override(**groups, **sizes, **places):
            model = LlamaForCausalLMEagle3(tiny())
            model.load_weights(whole.items())
        parts.append(dict(model.named_parameters()))
    head = torch.cat([part["lm_head.weight"] for part in parts])
    output = torch.cat([part["model.layers.0.self_attn.o_proj.weight"] for part in parts], dim=1)
    return {
        "head": torch.equal(head, whole["lm_head.weight"]),
        "attention": torch.equal(output, whole["midlayer.self_attn.o_proj.weight"]),
        "fc": all(torch.equal(part["model.fc.weight"], whole["fc.weight"]) for part in parts),
    }


def weights(make: Callable[[tuple[int, ...]], torch.Tensor]) -> dict[str, torch.Tensor]:
    """A draft as SpecForge writes and TIDE stores it; its vocabulary is every fifth token of the target's."""
    shapes = {
        "fc.weight": (64, 192),
        "midlayer.self_attn.q_proj.weight": (64, 128),
        "midlayer.self_attn.k_proj.weight": (32, 128),
        "midlayer.self_attn.v_proj.weight": (32, 128),
        "midlayer.self_attn.o_proj.weight": (64, 64),
        "midlayer.mlp.gate_proj.weight": (128, 64),
        "midlayer.mlp.up_proj.weight": (128, 64),
        "midlayer.mlp.down_proj.weight": (64, 128),
        "midlayer.hidden_norm.weight": (64,),
        "midlayer.input_layernorm.weight": (64,),
        "midlayer.post_attention_layernorm.weight": (64,),
        "norm.weight": (64,),
        "lm_head.weight": (64, 64),
    }
    own = torch.arange(64)
    chosen = own * 5
    return {name: make(shape) for name, shape in shapes.items()} | {
        "d2t": chosen - own,
        "t2d": torch.isin(torch.arange(320), chosen),
    }


if __name__ == "__main__":
    main(Path(sys.argv[1]))
