"""The models of the known targets and of EAGLE3 drafts, as SGLang has them. `EntryClass` is the name it looks for."""

from __future__ import annotations

from sglang.srt.models.gpt_oss import GptOssForCausalLM
from sglang.srt.models.llama import LlamaForCausalLM
from sglang.srt.models.llama_eagle3 import LlamaForCausalLMEagle3
from sglang.srt.models.qwen3 import Qwen3ForCausalLM
from sglang.srt.models.qwen3_moe import Qwen3MoeForCausalLM

EntryClass = [GptOssForCausalLM, LlamaForCausalLM, LlamaForCausalLMEagle3, Qwen3ForCausalLM, Qwen3MoeForCausalLM]
