"""What SGLang lacks on a machine without a GPU: kernels, an EAGLE attention backend, sampling, fast products."""

from __future__ import annotations


def install(*, speculation: bool) -> None:
    """Register the CPU support with SGLang's hook registry; called by the plugin, in each SGLang process."""
    from tide_cli.engine.cpu.install import install_model, install_speculation

    install_model()
    if speculation:
        install_speculation()
