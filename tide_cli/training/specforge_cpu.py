"""What SpecForge 0.2.0 needs on a machine without CUDA: its small compiled functions left as they are.

It decorates element-wise functions with torch.compile, and each would be built by a C++ compiler, for a minute, at the
first step. Its Triton kernels are only defined here, never launched: tide_cli.training.eagle3_rows computes the loss.
"""

from __future__ import annotations

import torch
import torch._dynamo


def prepare_specforge() -> None:
    """Call before a SpecForge module is run; idempotent. Nothing is changed where there is CUDA."""
    if not torch.cuda.is_available():
        torch._dynamo.config.disable = True
