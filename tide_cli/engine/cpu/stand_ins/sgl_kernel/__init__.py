"""What SGLang 0.5.23 imports from its own CPU kernels, in plain torch, for machines without a build of them.

Only chains are known here (`--speculative-eagle-topk 1`, which is all TIDE starts): a request for a tree is
refused. Signatures are those of the call sites in `sglang.kernels.ops.speculative` and `…ops.kvcache`.
Every `# mutable` argument is written in place; nothing is returned.
"""

import ctypes

import torch

_QLEN_ONLY = 1  # sglang TreeMaskMode.QLEN_ONLY: SGLang's choice on a CPU


def assign_draft_cache_locs_contiguous_cpu(
    req_pool_indices, req_to_token, seq_lens, out_cache_loc, pool_len, topk, num_steps
):
    """out_cache_loc[bs*topk*num_steps]  # mutable: each request's cache slots from seq_lens on."""
    width = topk * num_steps
    columns = seq_lens.long().unsqueeze(1) + torch.arange(width)
    out_cache_loc.view(-1, width).copy_(req_to_token[req_pool_indices.long().unsqueeze(1), columns])


def assign_extend_cache_locs_cpu(req_pool_indices, req_to_token, start, end, out_cache_loc, pool_len):
    """out_cache_loc  # mutable: the slots [start, end) of each request, one after another."""
    offset = 0
    for request, first, last in zip(req_pool_indices.tolist(), start.tolist(), end.tolist(), strict=True):
        out_cache_loc[offset : offset + last - first] = req_to_token[request, first:last]
        offset += last - first


def fill_bonus_tokens_cpu(accept_tokens, accept_lens, bonus_tokens, stride):
    """bonus_tokens[bs]  # mutable: the last accepted token of each request."""
    last = torch.arange(accept_lens.shape[0]) * stride + accept_lens.long() - 1
    bonus_tokens.copy_(accept_tokens.reshape(-1)[last])


def fill_accept_out_cache_loc_cpu(accept_index, out_cache_loc, accept_out_cache_loc):
    """accept_out_cache_loc  # mutable: the slots of the accepted tokens, packed to the front."""
    flat = accept_index.reshape(-1)
    accepted = flat[flat >= 0].long()
    accept_out_cache_loc[: accepted.numel()] = out_cache_loc[accepted]


def build_tree_kernel_efficient_cpu(
    parent_list,
    selected_index,
    verified_seq_len,
    tree_mask,
    positions,
    retrieve_index,
    retrieve_next_token,
    retrieve_next_sibling,
    topk,
    depth,
    num_verify_tokens,
    tree_mask_mode,
):
    """A chain of num_verify_tokens: mask [bs*n*n] lower triangular, positions from each sequence's end on."""
    if topk != 1 or int(tree_mask_mode) != _QLEN_ONLY:
        raise NotImplementedError("on a CPU TIDE drafts chains: start SGLang with --speculative-eagle-topk 1")
    batch, n = verified_seq_len.numel(), num_verify_tokens
    positions[: batch * n].copy_((verified_seq_len.long().unsqueeze(1) + torch.arange(n)).reshape(-1))
    retrieve_index.copy_(torch.arange(batch * n).view(batch, n))
    following = torch.arange(1, n + 1)
    following[-1] = -1
    retrieve_next_token.copy_(following.expand(batch, n))
    tree_mask[: batch * n * n].view(batch, n, n).copy_(torch.ones(n, n, dtype=torch.bool).tril())


def verify_tree_greedy_cpu(
    predicts,
    accept_index,
    accept_token_num,
    candidates,
    retrive_index,
    retrive_next_token,
    retrive_next_sibling,
    target_predict,
):
    """Accept the longest prefix of each chain that equals the target's argmax.

    candidates, target_predict [bs, n]; predicts [bs*n], accept_index [bs, n], accept_token_num [bs]  # mutable.
    """
    batch, n = candidates.shape
    target = target_predict.reshape(batch, n)
    accepted = (candidates[:, 1:] == target[:, :-1]).long().cumprod(dim=1).sum(dim=1)
    commit_chain(predicts, accept_index, accept_token_num, retrive_index, accepted, target)


def commit_chain(predicts, accept_index, accept_token_num, retrive_index, accepted, tokens):
    """Write a verified chain: accepted [bs] drafts, tokens [bs, n] the token that follows each chain position."""
    kept = torch.arange(tokens.shape[1]) <= accepted.unsqueeze(1)
    accept_token_num.copy_(accepted)
    accept_index.copy_(torch.where(kept, retrive_index, -1)[:, : accept_index.shape[1]])
    rows = retrive_index[kept]
    predicts[rows] = tokens[kept].to(predicts.dtype)


def assign_req_to_token_pool_cpu(req_pool_indices, req_to_token, start, end, out_cache_loc, pool_len):
    """req_to_token  # mutable: columns [start, end) of each request become its new slots."""
    offset = 0
    for request, first, last in zip(req_pool_indices.tolist(), start.tolist(), end.tolist(), strict=True):
        req_to_token[request, first:last] = out_cache_loc[offset : offset + last - first].to(req_to_token.dtype)
        offset += last - first


def copy_all_layer_kv_cache_cpu(data_ptrs, strides, target_rows, source_rows):
    """Copy cache rows in every buffer: data_ptrs [buffers] addresses, strides [buffers] bytes of a row.

    A chain never moves rows; SGLang calls this once, to warm it up.
    """
    for address, size in zip(data_ptrs.tolist(), strides.tolist(), strict=True):
        rows = [ctypes.string_at(address + row * size, size) for row in source_rows.tolist()]
        for row, content in zip(target_rows.tolist(), rows, strict=True):
            ctypes.memmove(address + row * size, content, size)


def rotate_input_ids_cpu(*_):
    raise NotImplementedError("multi-layer EAGLE drafts are not available on a CPU")
