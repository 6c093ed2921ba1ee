"""SGLang finds the models of the known targets in TIDE's package, and every other one where it always does."""

from __future__ import annotations

import importlib
import sys

import pytest

from tide_cli.engine import architectures


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch):
    """SGLang's registry of models as an engine process sets it up."""
    name = "sglang.srt.models.registry"
    monkeypatch.setenv("SGLANG_EXTERNAL_MODEL_PACKAGE", architectures.__name__)
    monkeypatch.delitem(sys.modules, name, raising=False)
    module = importlib.import_module(name)
    yield module.ModelRegistry
    sys.modules.pop(name)  # the next import makes one from the environment as it is then


@pytest.mark.parametrize(
    "architecture",
    ["LlamaForCausalLM", "LlamaForCausalLMEagle3", "GptOssForCausalLM", "Qwen3ForCausalLM", "Qwen3MoeForCausalLM"],
)
def test_the_models_of_known_targets_are_found_without_importing_all(registry, architecture: str) -> None:
    assert registry.is_arch_supported(architecture)
    found, resolved = registry.resolve_model_cls([architecture])
    assert (found.__name__, resolved) == (architecture, architecture)
    assert found.__module__.startswith("sglang.srt.models.")
    assert not registry._default_models_loaded


def test_any_other_model_is_found_as_ever(registry) -> None:
    assert registry.is_arch_supported("Qwen2ForCausalLM")
    assert registry.resolve_model_cls(["Qwen2ForCausalLM"])[0].__module__ == "sglang.srt.models.qwen2"
