"""`python -m tide_cli.bench.train_specforge …`: SpecForge's own command line, on a machine that may have no GPU.

Where there is CUDA it is called as it is. Else its loss, a Triton kernel that only a GPU can run, is replaced by the
same sum in plain torch, and the stored states, which are bfloat16, become float32 where the draft is; everything else
(loader, batches, model, optimiser, loop) is SpecForge's.
"""

from __future__ import annotations

import sys


def main(argv: list[str]) -> int:
    import torch
    from specforge.cli import main as specforge

    from tide_cli.training.specforge_cpu import prepare_specforge

    if not torch.cuda.is_available():
        from specforge.algorithms.eagle3 import model
        from specforge.modeling.draft.llama3_eagle import LlamaForCausalLMEagle3

        prepare_specforge()
        model.LogSoftmaxLoss = _LogSoftmaxLoss
        project = LlamaForCausalLMEagle3.project_hidden_states
        LlamaForCausalLMEagle3.project_hidden_states = lambda draft, states: project(
            draft, states.to(draft.fc.weight.dtype)
        )
    return specforge(argv)


class _LogSoftmaxLoss:
    """What SpecForge's kernel computes: the cross-entropy of each row against the teacher's probabilities; their mean
    over all rows, those that are masked count as 0."""

    @staticmethod
    def apply(logits, teacher, mask):
        import torch.nn.functional as F

        losses = -(teacher * F.log_softmax(logits.float(), -1)).sum(-1)
        return (losses * mask.squeeze(-1).bool()).mean()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
