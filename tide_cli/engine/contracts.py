"""What TIDE relies on in SGLang beyond its hook points: facts that can be read in the source, by topic.

Imports, server arguments and metrics are not listed: contract_report reads them from the code that uses them. The facts
of the CUDA path are here because no test on a machine without a GPU would notice that they have moved.
"""

from __future__ import annotations

from dataclasses import dataclass

_SRT = "sglang.srt"
_WORKER = f"{_SRT}.speculative.eagle_worker_v2.EAGLEWorkerV2"
_DRAFT = f"{_SRT}.speculative.eagle_worker_v2.EagleDraftWorker"
_SCHEDULER = f"{_SRT}.managers.scheduler.Scheduler"
_BATCHES = f"{_SRT}.managers.schedule_batch"
_STATE = f"{_SRT}.managers.scheduler_components.internal_state"
_RESULTS = f"{_SRT}.managers.scheduler_components.batch_result_processor.SchedulerBatchResultProcessor"
_HTTP = f"{_SRT}.entrypoints.http_server"
_PROTOCOL = f"{_SRT}.entrypoints.openai.protocol"
_RUNNER = f"{_SRT}.model_executor.runner.decode_cuda_graph_runner.DecodeCudaGraphRunner"
_GRAPHS = f"{_SRT}.model_executor.runner_backend.full_cuda_graph_backend.FullCudaGraphBackend"
_PREFILL_RUNNER = f"{_SRT}.model_executor.runner.prefill_cuda_graph_runner.PrefillCudaGraphRunner"
_PREFILL_GRAPHS = f"{_SRT}.model_executor.runner_backend.breakable_cuda_graph_backend.BreakableCudaGraphBackend"
_DRAFT_GRAPHS = f"{_SRT}.speculative.eagle_draft_cuda_graph_runner.EAGLEDraftCudaGraphRunner"
_DRAFT_MODEL = f"{_SRT}.models.llama_eagle3.LlamaForCausalLMEagle3"
_HOOKS = f"{_SRT}.plugins.hook_registry.HookRegistry"


@dataclass(frozen=True)
class Contract:
    """One fact. where: dotted name in SGLang; says: texts of its source, in this order, spelt as ast.unparse does;
    has: what its objects have. purpose: what of TIDE breaks without it."""

    where: str
    purpose: str
    says: tuple[str, ...] = ()
    has: tuple[str, ...] = ()


def _captures(model: str) -> tuple[Contract, Contract]:
    """Of a target's class: it takes the aux layers, and hands aux states to the logits processor."""
    name = f"{_SRT}.models.{model}"
    return (
        Contract(
            f"{name}.set_eagle3_layers_to_capture",
            "capture: aux states are inputs of layers 2, L//2, L-3, or of those that the draft names",
            ("capture_aux_hidden_states = True", "2, num_layers // 2, num_layers - 3", "val + 1 for val in layer_ids"),
        ),
        Contract(
            f"{name}.forward",
            "capture: the logits processor gets the aux states",
            ("hidden_states, aux_hidden_states = hidden_states", "self.logits_processor(", "aux_hidden_states)"),
        ),
    )


def _backends(method: str, kind: str) -> Contract:
    names = ("flashinfer", "triton", "fa3", "trtllm_mha", "fa4")
    return Contract(
        f"{_SRT}.speculative.draft_utils.DraftBackendFactory.{method}",
        "speculation on GPUs: the draft has what the target attends with",
        tuple(f"'{name}': self._create_{name}_{kind}_backend" for name in names),
    )


CONTRACTS: dict[str, tuple[Contract, ...]] = {
    "start": (
        Contract(f"{_SRT}.managers.scheduler.run_scheduler_process", "hooks are there before the scheduler is made",
                 ("load_plugins()",)),
        Contract(f"{_SRT}.plugins", "the plugin is found", ('GENERAL_PLUGINS_GROUP = "sglang.srt.plugins"',)),
        Contract(f"{_SRT}.plugins.load_plugins", "hooks are applied", ("HookRegistry.apply_hooks()",)),
        Contract(_HOOKS, "what was not applied is noticed", has=("_hooks", "_patched", "register")),
        Contract(f"{_HOOKS}.apply_hooks", "what was not applied is noticed", ("cls._patched.add(target)",)),
        Contract(f"{_SRT}.plugins.hook_registry.HookType", "hooks", has=("AFTER", "AROUND", "REPLACE")),
        Contract(f"{_SRT}.environ.Envs", "the engine's environment",
                 has=("SGLANG_EXTERNAL_MODEL_PACKAGE", "SGLANG_ENABLE_TP_MEMORY_INBALANCE_CHECK")),
        Contract(f"{_SRT}.platforms", "serving on a CPU", ('"SGLANG_USE_CPU_ENGINE"',)),
        Contract(f"{_SRT}.distributed.bootstrap", "phases of a start (engine/phases.py)", ("Init parallel begin",)),
        Contract(f"{_SRT}.model_executor.model_runner", "phases of a start", ("Load weight begin", "Load weight end")),
        Contract(f"{_SCHEDULER}.init_model_worker", "phases of a start", ("max_total_num_tokens=",)),
    ),
    "http": (
        Contract(f"{_HTTP}.generate_request", "the first token, and measuring", ("'/generate'",)),
        Contract(f"{_HTTP}.set_internal_state", "swap, erase, steps", ("'/set_internal_state'", "'POST'")),
        Contract(f"{_HTTP}.server_info", "what the plugin reports", ("'/server_info'", "'internal_states'")),
        Contract(f"{_HTTP}.flush_cache", "no draft is judged on another's cache",
                 ("'/flush_cache'", "'POST'", "timeout")),
        Contract(f"{_HTTP}.openai_v1_chat_completions", "demo and bench", ("'/v1/chat/completions'",)),
        Contract(f"{_SRT}.utils.common.add_prometheus_middleware", "figures of the engine", ("'/metrics'",)),
        Contract(f"{_SRT}.managers.io_struct.SetInternalStateReq", "values are numbers by name",
                 ("server_args: Dict[str, Union[int, float]]",)),
        Contract(f"{_PROTOCOL}.ChatCompletionRequest", "demo and bench",
                 has=("rid", "return_meta_info", "return_spec_tokens_details", "stream_options")),
        Contract(f"{_PROTOCOL}.StreamOptions", "bench: the time of every token",
                 has=("include_usage", "continuous_usage_stats")),
        Contract(f"{_PROTOCOL}.SpecTokensDetails", "bench: verify steps of a request",
                 has=("spec_verify_ct", "spec_num_proposed_drafts", "spec_correct_drafts_histogram")),
        Contract(f"{_PROTOCOL}.SglExt", "bench: verify steps of a request", has=("spec_tokens_details",)),
        Contract(f"{_PROTOCOL}.ChatCompletionResponseChoice", "demo: verify steps of a request", has=("meta_info",)),
        Contract(f"{_SRT}.entrypoints.openai.serving_base.OpenAIServingBase.extract_routing_key",
                 "domains that clients name", ("'x-smg-routing-key'",)),
        Contract(f"{_SRT}.observability.metrics_collector.SchedulerMetricsCollector.increment_realtime_tokens",
                 "tokens in and out", ("'prefill_compute'", "'prefill_cache'", "'decode'", "mode=mode")),
    ),
    "objects": (
        Contract(_WORKER, "capture, swap, speculation", has=("draft_worker", "target_worker", "adaptive_controller",
                                                             "speculative_num_steps")),
        Contract(_DRAFT, "swap, speculation", has=("draft_runner", "hot_token_id", "speculative_num_steps")),
        Contract(f"{_SRT}.managers.tp_worker.TpModelWorker", "capture, speculation",
                 has=("model_runner", "forward_batch_generation")),
        Contract(f"{_SRT}.model_executor.model_runner.ModelRunner", "capture, swap, speculation",
                 has=("model", "dtype", "attn_backend", "model_config", "forward")),
        Contract(f"{_BATCHES}.Req", "capture", has=("rid", "origin_input_ids", "output_ids_through_stop", "finished",
                                                    "finished_reason", "spec_verify_ct", "spec_num_correct_drafts",
                                                    "routing_key", "sampling_params", "get_fill_ids")),
        Contract(f"{_BATCHES}.ScheduleBatch", "capture, speculation",
                 has=("reqs", "forward_mode", "is_extend_in_batch", "prefix_lens", "extend_lens", "extend_num_tokens",
                      "seq_lens", "seq_lens_cpu", "seq_lens_sum", "req_pool_indices", "req_to_token_pool", "spec_info",
                      "sampling_info", "has_grammar", "return_logprob", "input_ids", "out_cache_loc", "decoding_reqs")),
        Contract(f"{_SRT}.managers.utils.GenerationBatchResult", "capture, speculation",
                 has=("logits_output", "next_token_ids", "accept_lens", "new_seq_lens", "next_draft_input",
                      "speculative_num_draft_tokens", "num_correct_drafts_per_req_cpu")),
        Contract(f"{_SRT}.layers.logits_processor.LogitsProcessorOutput", "capture",
                 has=("hidden_states", "last_hidden_states", "next_token_logits")),
        Contract(f"{_SRT}.speculative.eagle_info.EagleDraftInput", "speculation",
                 has=("bonus_tokens", "topk_p", "topk_index", "hidden_states")),
        Contract(f"{_SRT}.model_executor.forward_batch_info.ForwardMode", "capture, speculation",
                 has=("EXTEND", "DECODE", "is_idle", "is_extend", "is_decode", "is_target_verify")),
        Contract(f"{_SRT}.model_executor.forward_batch_info.CaptureHiddenMode", "capture", has=("LAST", "FULL")),
        Contract(f"{_SRT}.distributed.parallel_state.GroupCoordinator", "ranks agree on the number of steps",
                 has=("ranks", "cpu_group")),
    ),
    "swap": (
        Contract(f"{_STATE}.SchedulerInternalStateController.set_internal_state",
                 "a swap is checked before it begins, between two steps",
                 ("self._update_handlers()", "handler.validate(key, value)", "except UpdateRejected",
                  "handlers[key].apply(key, value) or {}")),
        Contract(f"{_STATE}.SchedulerInternalStateController.get_internal_state", "the plugin reports its state",
                 ("self._add_speculative", "contribute(state)")),
        Contract(f"{_SCHEDULER}.init_request_dispatcher", "a swap is a request like others, on every rank",
                 ("(SetInternalStateReq, self.set_internal_state)",)),
        Contract(f"{_DRAFT_MODEL}.load_weights", "a swap writes the draft's own tensors in place",
                 ("if 'd2t' in name:", "self.hot_token_id = loaded_weight + torch.arange", "if 't2d' in name:",
                  "weight_loader(param, loaded_weight)")),
        Contract(f"{_DRAFT}.init_lm_head", "the draft's embedding is the target's, its vocabulary map the worker's",
                 ("self.draft_runner.model.set_embed(embed)",
                  "self.hot_token_id = self.draft_runner.model.hot_token_id.to(")),
        Contract(f"{_DRAFT}.draft_forward", "a graph reads the map in place", ("self.hot_token_id[topk_index]",)),
    ),
    "overlap schedule": (
        Contract(f"{_SRT}.speculative.spec_info.SpeculativeAlgorithm.create_worker",
                 "EAGLE3 has this worker with and without overlap", ("elif self.is_eagle():", "return EAGLEWorkerV2")),
        Contract(f"{_SRT}.speculative.spec_info.SpeculativeAlgorithm.is_eagle", "EAGLE3 is EAGLE",
                 ("SpeculativeAlgorithm.EAGLE3",)),
        Contract(f"{_SCHEDULER}.init_model_worker", "the scheduler calls the draft's worker, which calls the target's",
                 ("self.model_worker = self.draft_worker",)),
        Contract(f"{_SCHEDULER}.run_batch", "hooks copy on the stream that computes",
                 ("if self.enable_overlap:", "with self.forward_stream_ctx:",
                  "self.model_worker.forward_batch_generation(batch, **fwd_kwargs)")),
        Contract(f"{_WORKER}.forward_batch_generation", "the hooks on one round, in this order",
                 ("self._forward_prefill_batch(", "self.activate_step_by_batch(batch.seq_lens.shape[0])",
                  "self._build_trivial_verify_input(batch)", "self.draft_worker.draft(batch)", "self.verify(",
                  "self.draft_worker._draft_extend_for_decode(")),
        Contract(f"{_WORKER}._forward_prefill_batch", "the target's states before the draft reads them",
                 ("CaptureHiddenMode.FULL", "self.target_worker.forward_batch_generation(",
                  "self.draft_worker._draft_extend_for_prefill(")),
        Contract(f"{_SRT}.speculative.eagle_worker_common.run_eagle_verify", "states and counts of a verification",
                 ("target_worker.forward_batch_generation(", "eagle_sample(", "GenerationBatchResult(",
                  "speculative_num_draft_tokens=num_draft_tokens", "accept_lens=accept_lens")),
        Contract(f"{_SCHEDULER}.process_batch_result", "finished requests are noticed",
                 ("process_batch_result_decode(batch, result)", "process_batch_result_prefill(batch, result)")),
        Contract(f"{_RESULTS}._resolve_spec_v2_tokens", "what the target has accepted",
                 ("result.num_correct_drafts_per_req_cpu = [",)),
    ),
    "CUDA graphs": (
        Contract(f"{_SCHEDULER}.init_model_worker", "last states are asked for before a graph is captured",
                 ("self.maybe_init_draft_worker()", "self.init_all_cuda_graphs()")),
        Contract(f"{_SRT}.layers.logits_processor.LogitsProcessor._get_last_hidden_states_to_store",
                 "last states are kept where TIDE asks for them",
                 ("self.keep_last_hidden_states and aux_hidden_states is not None",
                  "logits_metadata.capture_hidden_mode.is_full()", "return hidden_states")),
        Contract(f"{_RUNNER}.get_spec_info", "a verification's graph keeps the states of all tokens",
                 ("else CaptureHiddenMode.FULL", "capture_hidden_mode=capture_mode")),
        Contract(f"{_RUNNER}.execute", "a graph's states, without the rows that fill it up",
                 ("hidden_states=output.hidden_states[:self.raw_num_token]",
                  "last_hidden_states=output.last_hidden_states[:self.raw_num_token]")),
        Contract(f"{_GRAPHS}.capture_session", "target and draft share one pool: see around_verify",
                 ("get_or_create_global_graph_memory_pool(",)),
        Contract(f"{_GRAPHS}.capture_one", "a graph's outputs stay where they are",
                 ("self._outputs[shape_key] = out",)),
        Contract(f"{_GRAPHS}.replay", "a replay overwrites them: they are copied before",
                 ("return self._outputs[shape_key]",)),
        Contract(f"{_SRT}.model_executor.cuda_graph_config.default_prefill_backend", "on CUDA a prefill is a graph",
                 ("return Backend.BREAKABLE if is_cuda()",)),
        Contract(f"{_PREFILL_GRAPHS}.capture_one",
                 "a prefill's last states lie in a buffer of the target's own: the draft's prefill spares them",
                 ("self._shared_output_buffer = self._alloc_full_buffer(", "with graph_pool_capture_scope(),",
                  "self._copy_output_to_buffer(out, buffer, out_rows)")),
        Contract(f"{_PREFILL_RUNNER}._execute_body_capture", "a prefill's aux states are joined after the graph, anew",
                 ("return self.model_runner.model.forward(",)),
        Contract(f"{_PREFILL_RUNNER}._trim_logits_output", "a prefill's states, without the rows that fill it up",
                 ("hidden_states=output.hidden_states[:self.raw_num_tokens]",
                  "last_hidden_states=output.last_hidden_states[:self.raw_num_tokens]")),
        Contract(f"{_DRAFT_GRAPHS}.capture_one_shape",
                 "the draft's graph holds its weights and its map",
                 ("self.eagle_worker.draft_forward(forward_batch)",)),
        Contract(f"{_WORKER}.build_adaptive_runtime_state", "every number of steps has its graphs",
                 ("self._draft_worker.init_attention_backend()", "self._draft_worker._capture_cuda_graphs()",
                  "speculative_num_draft_tokens=speculative_num_draft_tokens", "SpecRuntimeState(")),
        Contract(f"{_WORKER}.apply_runtime_state", "a switch of steps takes draft and target along",
                 ("dw.cuda_graph_runner = state.cuda_graph_runner",
                  "self._target_worker.model_runner.decode_cuda_graph_runner = state.target_graph_runner")),
        Contract(f"{_SRT}.speculative.adaptive_runtime_state.AdaptiveController.init_states", "TIDE's policy is asked",
                 ("self.params.set_cuda_graph_bs(cuda_graph_bs)", "self.params.cuda_graph_bs_for_step(steps)",
                  "speculative_num_draft_tokens=steps + 1")),
        Contract(f"{_SRT}.speculative.adaptive_runtime_state.AdaptiveController.activate_step_by_batch",
                 "TIDE's policy is asked", ("self.params.get_steps_for_batch(batch_size)",)),
        Contract(f"{_SRT}.speculative.adaptive_spec_params.adaptive_unsupported_reason",
                 "adaptive steps with EAGLE3 chains", ("('EAGLE', 'EAGLE3')", "cfg.speculative_eagle_topk != 1")),
    ),
    "tensor parallelism": (
        Contract(f"{_SRT}.runtime_context.ParallelContext", "rank 0 captures, all ranks take the same steps",
                 has=("__getattr__",)),
        Contract(f"{_SRT}.runtime_context", "rank 0 captures, all ranks take the same steps",
                 ('("tp_rank", "tp_size")', '("tp_size", "tp_group")')),
        Contract(f"{_SRT}.runtime_context.get_parallel", "rank 0 captures", ("return _PARALLEL",)),
        Contract(_DRAFT_MODEL, "every rank loads its part of a draft", ("DraftTPExecution.SINGLE_GROUP",)),
    ),
    "models": (
        *_captures("gpt_oss.GptOssForCausalLM"),
        *_captures("llama.LlamaForCausalLM"),
        *_captures("qwen3.Qwen3ForCausalLM"),
        *_captures("qwen3_moe.Qwen3MoeForCausalLM"),
        Contract(f"{_SRT}.model_executor.model_runner_components.attention_backend_setup"
                 ".configure_aux_hidden_state_capture", "capture: the draft's layer ids reach the target",
                 ("model.set_eagle3_layers_to_capture(eagle_aux_hidden_state_layer_ids)",)),
        Contract(f"{_SRT}.models.gpt_oss.GptOssForCausalLM.get_embed_and_head", "the draft shares the embedding",
                 ("self.model.embed_tokens.weight, self.lm_head.weight",)),
        Contract(f"{_SRT}.models.gpt_oss.GptOssForCausalLM.__init__", "MXFP4: the head is not quantised",
                 ("self.lm_head = ParallelLMHead(config.vocab_size, config.hidden_size, prefix=",)),
        Contract(f"{_SRT}.layers.quantization.mxfp4.Mxfp4Config.get_quant_method",
                 "MXFP4: only the experts are quantised",
                 ("isinstance(layer, FusedMoE)", "Mxfp4MoEMethod(prefix=prefix)")),
        Contract(f"{_SRT}.arg_groups.model_overrides.gpt_oss._gpt_oss_overrides",
                 "MXFP4: states are bfloat16, as drafts are",
                 ("if is_mxfp4_quant_format:", "overrides['dtype'] = 'bfloat16'")),
    ),
    "attention": (
        Contract(f"{_SRT}.arg_groups.model_overrides.gpt_oss._gpt_oss_overrides",
                 "gpt-oss: TRT-LLM on SM100, FlashAttention on SM90, else Triton, AITER on ROCm",
                 ("is_sm100", "'trtllm_mha'", "is_sm90", "'fa3'", "is_hip", "'aiter'", "'triton'")),
        _backends("create_decode_backend", "decode"),
        _backends("create_draft_extend_backend", "prefill"),
        Contract(f"{_DRAFT}._capture_cuda_graphs", "the draft's catching up is a graph with these",
                 ("TritonAttnBackend", "TRTLLMHAAttnBackend", "FlashInferAttnBackend", "FlashAttentionBackend")),
    ),
}  # fmt: skip
