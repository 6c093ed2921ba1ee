"""The engine with TIDE's plugin against the same target in plain SGLang and in transformers."""

from __future__ import annotations

import functools
import itertools
import json
import os
import threading
from collections.abc import Callable
from pathlib import Path

import httpx
import psutil
import pytest
import torch
from engines import Appliance, in_parallel
from safetensors.torch import load_file, save_file
from scipy import stats

from tide_cli.drafts.store import DraftStore, version_name
from tide_cli.drafts.tensors import vocabulary_ids
from tide_cli.engine.client import EngineClient
from tide_cli.spool.erase import Which
from tide_cli.spool.reader import SpoolReader
from tide_cli.spool.samples import Sample

pytestmark = [pytest.mark.engine, pytest.mark.timeout(900)]

CHUNK = 512  # tokens that the engine prefills at once on a CPU
SAMPLES = int(os.environ.get("TIDE_TEST_SAMPLES", "600"))  # drawn at temperature 1; more of them see smaller errors


@pytest.mark.parametrize("concurrency", [1, 4])
def test_greedy_output_is_that_of_plain_sglang(
    appliance: Appliance, prompt_ids: list[list[int]], plain_outputs: list[list[int]], concurrency: int
) -> None:
    appliance.flush_cache()
    answers = appliance.greedy(prompt_ids, len(plain_outputs[0]), concurrency, f"identity-{concurrency}")
    assert [answer["output_ids"] for answer in answers] == plain_outputs
    assert all(answer["meta_info"]["spec_verify_ct"] > 0 for answer in answers)


def test_captured_states_are_those_of_the_target(
    appliance: Appliance,
    model,
    prompt_ids: list[list[int]],
    plain_outputs: list[list[int]],
    record_property: Callable[[str, object], None],
) -> None:
    """Every sample of the requests above, and one long enough for a chunked prefill; prefix-cache hits included."""
    long = [token for ids in prompt_ids for token in ids][: CHUNK + 600]
    (answer,) = appliance.greedy([long], 4, 1, "chunked")
    texts = [ids + out for ids, out in zip([*prompt_ids, long], [*plain_outputs, answer["output_ids"]], strict=True)]
    expected = functools.cache(lambda text: reference_states(model, texts[text]))
    reader = SpoolReader.open(appliance.state / "spool")
    compared = chunked = 0
    off = {"aux": 0.0, "final": 0.0}
    for sample in all_samples(reader, until_tokens=long[-8:]):
        tokens, missing = sample.tokens.tolist(), sample.info.prefix_missing
        rows = slice(missing, missing + len(tokens))
        aux, final = expected(next(i for i, text in enumerate(texts) if text[rows] == tokens))
        off["aux"] = max(off["aux"], float((sample.aux.float() - aux[rows]).abs().max()))
        off["final"] = max(off["final"], float((sample.final.float() - final[rows]).abs().max()))
        # the spool rounds to bfloat16, which keeps 8 bits
        torch.testing.assert_close(sample.aux.float(), aux[rows], rtol=2**-8, atol=2e-2)
        torch.testing.assert_close(sample.final.float(), final[rows], rtol=2**-8, atol=2e-2)
        compared += 1
        chunked += len(tokens) + missing > CHUNK
    record_property("largest_difference", f"{off} in {compared} samples")
    assert compared >= 2 * len(prompt_ids)
    assert chunked == 1
    assert any(info.reused for info in reader.samples())


def test_turns_of_a_conversation_are_stored_whole_and_their_common_pages_once(
    appliance: Appliance, model, tokenizer
) -> None:
    """Two conversations on one system prompt; from the second turn on, most of each prompt is in the prefix cache."""
    system = "You are the keeper of a lighthouse. Answer every question in one short sentence, and stay friendly. " * 3
    reader = SpoolReader.open(appliance.state / "spool")
    last = max(info.id for info in reader.samples())
    cached = 0
    for who in ("Ada", "Grace"):
        messages = [{"role": "system", "content": system}]
        for turn in range(3):
            messages.append({"role": "user", "content": f"I am {who}. Question {turn}: how far can the light be seen?"})
            ids = tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_dict=True)["input_ids"]
            (answer,) = appliance.greedy([ids], 12, 1, f"{who}-{turn}")
            messages.append({"role": "assistant", "content": answer["text"]})
            cached += answer["meta_info"]["cached_tokens"]
    infos: list = []
    while len(infos) < 6:  # the last sample becomes visible just after its answer
        infos = reader.samples(since_id=last, oldest=6)
    assert cached > 6 * 40
    assert sum(info.reused for info in infos) >= cached - 16
    assert [info.prefix_missing for info in infos] == [0] * 6
    pages = [page for info in infos for page in info.pages]
    assert len(set(pages)) < len(pages) / 2
    sample = reader.read(infos[-1])
    aux, final = reference_states(model, sample.tokens.tolist())
    torch.testing.assert_close(sample.aux.float(), aux, rtol=2**-8, atol=2e-2)
    torch.testing.assert_close(sample.final.float(), final, rtol=2**-8, atol=2e-2)


def test_erasing_is_asked_of_the_running_engine(appliance: Appliance) -> None:
    folder = appliance.state / "spool"
    reader = SpoolReader.open(folder)
    info = reader.samples(newest=1)[0]
    client = EngineClient("127.0.0.1", appliance.port)
    erased = client.erase(folder, Which(ids=(info.id,)))
    client.close()
    assert erased.samples == 1
    assert erased.pages > 0
    assert info.id not in [known.id for known in reader.samples()]
    assert reader.read(info) is None
    assert appliance.generate(text="1 2 3", rid="tide-test", sampling_params={"max_new_tokens": 4})["output_ids"]


def all_samples(reader: SpoolReader, until_tokens: list[int]) -> list[Sample]:
    """Everything in the spool, once the sample whose prompt ends with these tokens is there."""
    while True:
        samples = [sample for info in reader.samples() if (sample := reader.read(info)) is not None]
        tails = (sample.tokens[~sample.loss_mask][-len(until_tokens) :].tolist() for sample in samples)
        if until_tokens in tails:
            return samples


@torch.no_grad()
def reference_states(model, tokens: list[int]) -> tuple[torch.Tensor, torch.Tensor]:
    """aux [T, 3H] and final [T, H] by transformers."""
    out = model.model(torch.tensor([tokens]), output_hidden_states=True)
    layers = model.config.num_hidden_layers
    aux = torch.cat([out.hidden_states[i][0] for i in (2, layers // 2, layers - 3)], dim=-1)
    return aux, out.last_hidden_state[0]


def test_a_swap_in_the_middle_of_streams_changes_no_token(
    appliance: Appliance, prompt_ids: list[list[int]], plain_outputs: list[list[int]], tmp_path: Path
) -> None:
    version = publish(appliance, tmp_path, change=lambda name, tensor: tensor * 0.5 if "q_proj" in name else tensor)
    tokens = len(plain_outputs[0])
    swapped, underway = threading.Event(), threading.Barrier(5)

    def stream(i: int) -> list[int]:
        ids: list[int] = []
        request = {
            "input_ids": prompt_ids[i],
            "stream": True,
            "rid": f"stream-{i}",
            "sampling_params": {"temperature": 0, "max_new_tokens": tokens, "ignore_eos": True},
        }
        with appliance.http.stream("POST", "/generate", json=request) as answer:
            for line in answer.iter_lines():
                if line.startswith("data: {"):
                    first = not ids
                    ids = json.loads(line[6:])["output_ids"]
                    if first:
                        underway.wait(timeout=120)
        assert swapped.wait(timeout=120)
        return ids

    def swap() -> None:
        underway.wait(timeout=120)
        appliance.tide("drafts", "use", version_name(version))
        swapped.set()

    *streams, _ = in_parallel(5, [*(lambda i=i: stream(i) for i in range(4)), swap])
    assert streams == plain_outputs[:4]
    assert appliance.status()["drafts"]["served"] == version
    appliance.tide("drafts", "use", "v0000")


def test_a_swapped_in_draft_finds_no_prefix_of_the_one_before(
    appliance: Appliance, prompt_ids: list[list[int]], tmp_path: Path
) -> None:
    def cached_tokens() -> int:
        answer = appliance.generate(input_ids=prompt_ids[0], sampling_params={"temperature": 0, "max_new_tokens": 4})
        return answer["meta_info"]["cached_tokens"]

    version = publish(appliance, tmp_path, change=lambda name, tensor: tensor * 0.5 if "q_proj" in name else tensor)
    cached_tokens()
    assert cached_tokens() > 0
    appliance.tide("drafts", "use", version_name(version))
    assert [cached_tokens() > 0 for _ in range(2)] == [False, True]
    appliance.tide("drafts", "use", "v0000")
    assert cached_tokens() > 0


def test_a_swap_of_the_vocabulary_changes_no_token_and_proposes_as_well(
    appliance: Appliance, model, prompt_ids: list[list[int]], plain_outputs: list[list[int]], tmp_path: Path
) -> None:
    """Fifty tokens that no answer needs give way to others: every later token has another place in the draft."""
    ids = vocabulary_ids(load_file(appliance.state / "drafts" / "v0000" / "model.safetensors")["d2t"])
    needed = {token for out in plain_outputs for token in out}
    go = [token for token in ids.tolist()[20:] if token not in needed][:50]
    stay = torch.tensor([token not in go for token in ids.tolist()])
    come = torch.arange(20000, 20050)
    kept = torch.cat([ids[stay], come])
    order = kept.argsort()

    def change(name: str, tensor: torch.Tensor) -> torch.Tensor:
        if name == "d2t":
            return kept[order] - torch.arange(len(kept))
        if name == "t2d":
            return torch.zeros_like(tensor).index_fill(0, kept, True)
        if name == "lm_head.weight":
            return torch.cat([tensor[stay], model.lm_head.weight[come].detach().to(tensor.dtype)])[order]
        return tensor

    version, prompts, tokens = publish(appliance, tmp_path, change), prompt_ids[:6], len(plain_outputs[0])
    steps = []
    appliance.set_steps(3)
    for name in ("v0000", version_name(version), "v0000"):
        appliance.tide("drafts", "use", name)
        appliance.flush_cache()
        answers = appliance.greedy(prompts, tokens, 1, f"map-{len(steps)}")
        assert [answer["output_ids"] for answer in answers] == plain_outputs[:6]
        steps.append(sum(answer["meta_info"]["spec_verify_ct"] for answer in answers))
    appliance.set_steps(-1)
    assert steps[0] < tokens * len(prompts)  # something is accepted at all
    assert steps[1] == pytest.approx(steps[0], rel=0.1)
    assert steps[2] == steps[0]


def publish(appliance: Appliance, folder: Path, change) -> int:
    """A new version in the appliance's store: v0000 with changed tensors."""
    store = DraftStore(appliance.state / "drafts")
    manifest = store.manifest(0)
    folder.mkdir(exist_ok=True)
    tensors = {name: change(name, tensor) for name, tensor in load_file(store.path(0) / "model.safetensors").items()}
    save_file({name: tensor for name, tensor in tensors.items() if tensor is not None}, folder / "model.safetensors")
    (folder / "config.json").write_bytes((store.path(0) / "config.json").read_bytes())
    return store.publish(
        folder,
        parent=0,
        target=manifest.target,
        target_revision=manifest.target_revision,
        vocab_map_hash=manifest.vocab_map_hash,
        samples=0,
        tokens=0,
        gate=None,
    )


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ("missing", "midlayer.self_attn.q_proj.weight"),
        ("shape", "lm_head.weight"),
        ("nan", "fc.weight"),
        ("map", "vocabulary map"),
        ("damaged", "sha256"),
        ("unpublished", "v0999"),
    ],
)
def test_a_wrong_draft_is_refused_and_serving_goes_on(
    appliance: Appliance, tmp_path: Path, wrong: str, named: str
) -> None:
    def change(name: str, tensor: torch.Tensor) -> torch.Tensor | None:
        if wrong == "missing" and name == named:
            return None
        if wrong == "shape" and name == named:
            return tensor[:-1].clone()
        if wrong == "nan" and name == named:
            return tensor * float("nan")
        if wrong == "map" and name == "d2t":
            return tensor + 1
        return tensor

    version = 999 if wrong == "unpublished" else publish(appliance, tmp_path, change)
    if wrong == "damaged":
        weights = appliance.state / "drafts" / version_name(version) / "model.safetensors"
        weights.chmod(0o600)
        with weights.open("r+b") as file:
            file.seek(-10, 2)
            file.write(b"tide")
    refused = appliance.tide("drafts", "use", version_name(version), check=False)
    assert refused.returncode == 1
    assert named in refused.stderr
    assert len(refused.stderr.strip().splitlines()) <= 2
    assert appliance.status()["drafts"]["served"] == 0
    assert appliance.generate(text="1 2 3", rid="tide-test", sampling_params={"max_new_tokens": 4})["output_ids"]


def test_sampling_at_temperature_1_follows_the_target(appliance: Appliance, model, tokenizer) -> None:
    """Three tokens, the top 4 of each: the joint distribution is known exactly from transformers."""
    prompt, keep, rounds, batch = tokenizer("The weather today is").input_ids, 4, SAMPLES, 50
    params = {"temperature": 1.0, "top_k": keep, "max_new_tokens": 3, "ignore_eos": True}

    def some(i: int) -> list[dict]:
        rids = [f"tide-{i}-{k}" for k in range(batch)]
        return appliance.generate(input_ids=[prompt] * batch, rid=rids, sampling_params=params)

    calls = [lambda i=i: some(i) for i in range(rounds // batch)]
    seen: dict[tuple[int, ...], int] = {}
    for answer in in_parallel(2, calls):
        for one in answer:
            key = tuple(one["output_ids"])
            seen[key] = seen.get(key, 0) + 1
    expected = joint_top_k(model, prompt, keep, 3)
    assert set(seen) <= set(expected), "a token outside the top k"
    total = sum(seen.values())
    assert total == rounds
    likely = [key for key, p in expected.items() if p * total >= 5]
    counts = [seen.get(key, 0) for key in likely]
    weights = [expected[key] * total for key in likely]
    counts.append(total - sum(counts))
    weights.append(total - sum(weights))
    assert stats.chisquare(counts, weights).pvalue > 1e-3


@torch.no_grad()
def joint_top_k(model, prompt: list[int], keep: int, depth: int) -> dict[tuple[int, ...], float]:
    """Probability of each continuation of `depth` tokens when each is drawn from the `keep` most probable."""
    level: dict[tuple[int, ...], float] = {(): 1.0}
    for _ in range(depth):
        batch = torch.tensor([prompt + list(key) for key in level])
        values, ids = model(batch).logits[:, -1].double().softmax(-1).topk(keep)
        values /= values.sum(-1, keepdim=True)
        level = {
            (*key, int(token)): p * float(value)
            for (key, p), row, tokens in zip(level.items(), values, ids, strict=True)
            for value, token in zip(row, tokens, strict=True)
        }
    return level


def test_own_questions_are_not_captured(appliance: Appliance) -> None:
    before = SpoolReader.open(appliance.state / "spool").totals()["samples"]
    appliance.generate(text="a b c", rid="tide-own", sampling_params={"max_new_tokens": 8})
    appliance.generate(text="a b c", rid="theirs", sampling_params={"max_new_tokens": 8})
    reader = SpoolReader.open(appliance.state / "spool")
    deadline = threading.Event()
    while reader.totals()["samples"] == before and not deadline.wait(0.1):
        pass
    assert reader.totals()["samples"] == before + 1


def test_a_client_that_goes_away_leaves_no_sample(appliance: Appliance) -> None:
    before = appliance.http.get("/server_info").json()["internal_states"][0]["tide"]["capture"]
    with (
        pytest.raises(httpx.ReadTimeout),
        httpx.Client(base_url=appliance.url, timeout=httpx.Timeout(30, read=2.0), trust_env=False) as impatient,
    ):
        impatient.post(
            "/generate",
            json={"text": "Count to a thousand", "sampling_params": {"max_new_tokens": 2000, "ignore_eos": True}},
        )
    deadline = threading.Event()
    for _ in range(600):
        state = appliance.http.get("/server_info").json()["internal_states"][0]["tide"]["capture"]
        if state.get("dropped_aborted", 0) > before.get("dropped_aborted", 0):
            break
        deadline.wait(0.1)
    else:
        pytest.fail("the aborted request was not noticed")
    assert state["samples"] == before["samples"]


def test_requests_that_would_end_the_scheduler_are_refused(appliance: Appliance) -> None:
    chat = {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 2, "logprobs": True}
    plain = {"input_ids": [1, 2, 3], "sampling_params": {"max_new_tokens": 2}}
    bodies = [({"top_logprobs_num": number, "return_logprob": True}, number == 3) for number in (10**6, -1, 3)]
    bodies += [({"input_ids": [1, number, 3]}, number == 2) for number in (10**9, -7, 2)]
    bodies += [({"input_ids": None, "text": ""}, False), ({"session_params": {"id": "none"}}, False)]
    for body, good in bodies:
        assert appliance.http.post("/generate", json=plain | body).status_code == (200 if good else 400), body
    for asked, status in ((10**6, 400), (3, 200)):
        answer = appliance.http.post("/v1/chat/completions", json=chat | {"top_logprobs": asked})
        assert answer.status_code == status, answer.text
    for stream, (asked, status) in itertools.product((False, True), ((10**9, 400), (2, 200))):
        answer = appliance.http.post("/v1/chat/completions", json=chat | {"n": asked, "stream": stream})
        assert answer.status_code == status, answer.text


def test_the_phases_of_the_start_are_told(appliance: Appliance) -> None:
    """SGLang's log still has the lines that begin a phase."""
    (ready,) = appliance.events("ready")
    phases = ready["data"]["phases"]
    assert list(phases)[-6:] == ["imports", "devices", "weights", "kv_cache", "warm_up", "first_token"]
    spent = sum(phases[phase] for phase in list(phases)[-6:])
    assert spent == pytest.approx(ready["data"]["seconds"], abs=2)  # its stamps are whole seconds
    # of SGLang's models only those that are served were imported: a CPU cannot import some of the others
    assert "error when loading sglang.srt.models" not in (appliance.state / "logs" / "engine.log").read_text()


def test_the_engine_has_settled_on_cores_that_are_not_the_trainers(appliance: Appliance) -> None:
    children = appliance.status()["children"]
    trainer = psutil.Process(children["trainer"]["pid"]).cpu_affinity()
    launcher = psutil.Process(children["engine"]["pid"])
    parts = [launcher, *launcher.children(recursive=True)]
    assert len(parts) >= 3
    threads = [thread.id for part in parts for thread in part.threads()]
    cores = set().union(*(os.sched_getaffinity(thread) for thread in threads))
    assert cores.isdisjoint(trainer) or len(os.sched_getaffinity(0)) == 1


def test_arguments_that_sglang_does_not_know_end_the_start_at_once(cache: Path, tmp_path: Path) -> None:
    other = Appliance(tmp_path, cache)
    done = other.tide("up", "--no-speculation", "--port", other.port, "--", "--bogus", 3, check=False)
    assert done.returncode == 1
    assert "SGLang does not accept its arguments: unrecognized arguments: --bogus 3" in done.stderr
    assert len(done.stderr.splitlines()) == 2
