"""Plans of the machines in inventories/, computed by hand: each figure stands here once more, as arithmetic."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from machines import INVENTORIES, SHAPES, cpu, machine, with_gpus

from tide_cli.errors import UsageError
from tide_cli.hardware.inventory import Gpu, NumaNode
from tide_cli.hardware.memory import Part, cpu_engine_parts, reservoir_size, total, walk_bytes, walk_rows
from tide_cli.hardware.plan import Plan
from tide_cli.hardware.planner import make_plan
from tide_cli.hardware.refusals import DoesNotFit
from tide_cli.hardware.wishes import Wishes
from tide_cli.settings import load_settings

MIB, GIB = 2**20, 2**30

# Engine, besides the KV cache. Decode graphs of 2 MiB for each of eight requests: the target's, the draft's and
# draft-extend's make three sets for three draft steps. Prefill graphs of 8 MiB, the target's and the draft's: up to
# 1,024 tokens 8 + 14 + 8 + 8 = 38, then one every 256 tokens to 4,096 and one every 512 to 8,192.
DECODE_GRAPHS = 8 * 3 * 2 * MIB
PREFILL_GRAPHS = {2048: 2 * (38 + 4) * 8 * MIB, 4096: 2 * (38 + 12) * 8 * MIB, 8192: 2 * (38 + 12 + 8) * 8 * MIB}


# Activations: 512 MiB and 1.5 MiB a token of a prefill step, with 1/8 GiB a GPU. Hidden states of two forwards, 4 * H
# columns of 2 bytes. Driver and libraries: 512 MiB, as much again for collectives.
def reserve(step: int, hidden: int, tp: int = 1) -> int:
    activations = 512 * MIB + step * 3 * MIB // 2 + tp * 128 * MIB
    return DECODE_GRAPHS + PREFILL_GRAPHS[step] + activations + 2 * step * 8 * hidden + (512 if tp == 1 else 1024) * MIB


# gpt-oss-120b. Draft: fc 3*2880*2880, q 4096*5760, k and v 2*1024*5760, o 2880*4096, MLP 3*16384*2880, head 32000*2880,
# four norms.
DRAFT_120B = 24_883_200 + 23_592_960 + 11_796_480 + 11_796_480 + 141_557_760 + 92_160_000 + 11_520
# MXFP4 experts, 36 layers of 128, three matrices, 17/32 byte a weight: hidden 2880 becomes 3072, intermediate 2880 ->
# 2944 on one GPU, 1440 -> 1536 on two, 720 -> 768 on four, 360 -> 384 on eight.
EXPERT = 36 * 128 * 3 * 17 // 32
PADDING = {
    1: EXPERT * (3072 * 2944 - 2880 * 2880),
    2: EXPERT * (3072 * 1536 - 2880 * 1440),
    4: EXPERT * (3072 * 768 - 2880 * 720),
    8: EXPERT * (3072 * 384 - 2880 * 360),
}
# A token of KV cache on one GPU: 8 heads * (key, value) * 64 * 2 bytes = 2048 a layer; 18 full layers, 18 sliding ones
# that SGLang gives 0.8 of the tokens (29491.2, rounded up); the draft's layer has 8 * 2 * 128 * 2 = 4096.
TOKEN_120B = {1: 36_864 + 29_492 + 4096, 2: 18_432 + 14_746 + 2048, 4: 9216 + 7373 + 1024, 8: 4608 + 3687 + 512}
WEIGHTS_120B = 65_248_815_744

# Its trainer on a GPU: masters 4, moments 8, gradients 2 + 4, two copies of the draft 2 + 2 bytes a weight; embedding
# and head in bfloat16; a batch of 2048 tokens: states 8*H, the teacher's 32768 scores in 6 bytes, and for each of 3
# depths 2 bytes * (8*H + 2*(32+16)*128 + 4*16384) kept and three float32 rows of 32000.
TRAINER_120B = (
    22 * DRAFT_120B
    + 2 * 201_088 * 2880 * 2
    + 2048 * (8 * 2880 + 6 * 32_768 + 3 * (2 * (8 * 2880 + 12_288 + 65_536) + 12 * 32_000))
    + 512 * MIB
)


def static_120b(tp: int) -> int:
    """Weights on each GPU."""
    return -(-WEIGHTS_120B // tp) + PADDING[tp] + -(-2 * DRAFT_120B // tp)


def page(tokens: int) -> int:
    return tokens // 64 * 64


def usable(mib: int) -> int:
    """Whole halves of a GiB."""
    return mib // 512 * 512 * MIB


@dataclass(frozen=True)
class Case:
    """what: inventory and target. serve, train: GPUs. fraction: static bytes over free ones at the engine's start."""

    what: tuple[str, str]
    serve: tuple[int, ...]
    trainer: str
    train: tuple[int, ...]
    step: int
    tokens: int
    static: int
    start: int


H100 = usable(81_559)
CASES = [
    # 1 x 80 GB: beside the weights 8192-token steps leave no cache, 4096 leave room for the wanted 8 * 8192 tokens. The
    # trainer would need 12.7 GiB more. It goes to the CPU, and the cache stays at the wanted size.
    Case(("h100-1x80", "gpt-oss-120b"), (0,), "cpu", (), 4096, 65_536, static_120b(1), 81_559 * MIB - 512 * MIB),
    # 2 x 80 GB: both serve, as a GPU of its own for training would leave one. 32 cores train 306 M weights.
    Case(
        ("h100-2x80", "gpt-oss-120b"),
        (0, 1),
        "cpu",
        (),
        8192,
        page((H100 - static_120b(2) - reserve(8192, 2880, 2)) // TOKEN_120B[2]),
        static_120b(2),
        81_559 * MIB - 1024 * MIB,
    ),
    # 8 x 80 GB: all serve (64 heads, 8 KV heads), as a GPU of its own for training would leave four. 56 cores train.
    Case(
        ("8xH100", "gpt-oss-120b"),
        tuple(range(8)),
        "cpu",
        (),
        8192,
        page((H100 - static_120b(8) - reserve(8192, 2880, 8)) // TOKEN_120B[8]),
        static_120b(8),
        81_559 * MIB - 1024 * MIB,
    ),
    # 4 x A100 80 GB serve although they stand behind the four A6000; the last of those trains.
    Case(
        ("a100-4x80-a6000-4x48", "gpt-oss-120b"),
        (4, 5, 6, 7),
        "own",
        (3,),
        8192,
        page((80 * GIB - static_120b(4) - reserve(8192, 2880, 4)) // TOKEN_120B[4]),
        static_120b(4),
        80 * GIB - 1024 * MIB,
    ),
    # AMD: 191.98 GiB each, of which 191.5 are planned.
    Case(
        ("mi300x-8x192", "gpt-oss-120b"),
        tuple(range(8)),
        "cpu",
        (),
        8192,
        page((usable(196_592) - static_120b(8) - reserve(8192, 2880, 8)) // TOKEN_120B[8]),
        static_120b(8),
        196_592 * MIB - 1024 * MIB,
    ),
    Case(
        ("4xMI300X-4xMI250", "gpt-oss-120b"),
        (4, 5, 6, 7),
        "own",
        (3,),
        8192,
        page((usable(196_592) - static_120b(4) - reserve(8192, 2880, 4)) // TOKEN_120B[4]),
        static_120b(4),
        196_592 * MIB - 1024 * MIB,
    ),
    # GPU 0 has 39.6 GiB left and GPU 2 9.6: 1 and 3 serve, and of the others 2 is too full for the trainer. Were those
    # free, all four would serve: the cache stays at the wanted size.
    Case(
        ("h100-4x80-busy", "gpt-oss-120b"),
        (1, 3),
        "own",
        (0,),
        8192,
        65_536,
        static_120b(2),
        81_559 * MIB - 1024 * MIB,
    ),
    # 141 GB: engine and trainer on one GPU; SGLang's fraction is that of what the trainer leaves.
    Case(
        ("1xH200", "gpt-oss-120b"),
        (0,),
        "shared",
        (0,),
        8192,
        page((usable(143_771) - TRAINER_120B - static_120b(1) - reserve(8192, 2880)) // TOKEN_120B[1]),
        static_120b(1),
        143_771 * MIB - TRAINER_120B - 512 * MIB,
    ),
    # 96 GB: it is shared here too, the step has to be smaller.
    Case(
        ("rtx-pro-6000-1x96", "gpt-oss-120b"),
        (0,),
        "shared",
        (0,),
        4096,
        65_536,
        static_120b(1),
        97_887 * MIB - TRAINER_120B - 512 * MIB,
    ),
    # 2 x 48 GB: two must serve together, and the trainer's 12.7 GiB fit beside them on neither.
    Case(
        ("2xRTX-6000-Ada", "gpt-oss-120b"), (0, 1), "cpu", (), 4096, 65_536, static_120b(2), 49_140 * MIB - 1024 * MIB
    ),
    # A MIG slice of 39.5 GiB holds Llama-3.1-8B: 4096 bytes a layer and token in 32 layers and the draft's.
    Case(
        ("h100-mig-2x40", "llama-3.1-8b-instruct"),
        (0,),
        "own",
        (1,),
        8192,
        page((usable(40_448) - 16_060_522_496 - 2 * 424_689_664 - reserve(8192, 4096)) // (33 * 4096)),
        16_060_522_496 + 2 * 424_689_664,
        40_448 * MIB - 512 * MIB,
    ),
    # 24 GB: less than the wanted cache even with the smallest step, and with the trainer on the CPU.
    Case(
        ("rtx4090-1x24", "llama-3.1-8b-instruct"),
        (0,),
        "cpu",
        (),
        2048,
        page((usable(24_564) - 16_060_522_496 - 2 * 424_689_664 - reserve(2048, 4096)) // (33 * 4096)),
        16_060_522_496 + 2 * 424_689_664,
        24_564 * MIB - 512 * MIB,
    ),
]
TOKEN = {"gpt-oss-120b": TOKEN_120B, "llama-3.1-8b-instruct": {1: 33 * 4096}}


def plan(inventory: str, target: str, **wishes: object) -> Plan:
    return make_plan(machine(inventory), SHAPES[target], Wishes(**wishes), target=target, others=SHAPES)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.what[0])
def test_by_hand(case: Case) -> None:
    made = plan(*case.what)
    assert (made.serve.gpus, made.trainer) == (case.serve, case.trainer)
    assert made.train is not None
    assert made.train.gpus == case.train
    assert (made.prefill_tokens, made.max_total_tokens) == (case.step, case.tokens)
    cache = case.tokens * TOKEN[case.what[1]][len(case.serve)]
    exact = (case.static + cache) / case.start
    assert made.mem_fraction_static is not None
    assert exact <= made.mem_fraction_static < exact + 0.001


# Where the engine chooses between 0 and 3 draft steps it has graphs for each: two sets for 0 and for 1 step, where the
# draft proposes nothing or what draft-extend has proposed already, three for 2 and for 3: ten sets instead of three,
# which are 7 * 8 * 2 = 112 MiB more.
ANY_OF_FOUR = (0, 1, 2, 3)


def test_graphs_for_each_number_of_draft_steps_by_hand() -> None:
    """8 x 80 GB: eight GPUs serve with a step of 8,192 tokens, and what the graphs take the cache lacks."""
    made = plan("8xH100", "gpt-oss-120b", step_counts=ANY_OF_FOUR)
    sizes = {part.name: part.size for part in made.memory[0].parts}
    assert sizes["CUDA graphs"] == 160 * MIB + 928 * MIB
    left = H100 - static_120b(8) - reserve(8192, 2880, 8) - 112 * MIB
    assert made.max_total_tokens == page(left // TOKEN_120B[8])
    # a fixed number: one step needs two sets, two and more need three
    for steps, sets in ((1, 2), (2, 3), (8, 3)):
        fixed = plan("8xH100", "gpt-oss-120b", step_counts=(steps,)).memory[0].parts
        assert next(part.size for part in fixed if part.name == "CUDA graphs") == sets * 16 * MIB + 928 * MIB
    plain = plan("8xH100", "gpt-oss-120b", speculation=False, training=False).memory[0].parts
    assert next(part.size for part in plain if part.name == "CUDA graphs") == 16 * MIB + 464 * MIB


def test_24_gb_hold_qwen3_8b_with_every_number_of_draft_steps_by_hand() -> None:
    """Weights 16,381,470,720 bytes and the draft's; steps of 2,048 tokens: 160 MiB of decode and 672 of
    prefill graphs, 3,712 MiB of activations, 128 of captured states, 512 for the driver. Eight requests of 2,048 tokens
    at 37 layers * 4096 bytes are the least, and fit."""
    made = plan("rtx4090-1x24", "qwen3-8b", step_counts=ANY_OF_FOUR)
    parts = {part.name: part.size for part in made.memory[0].parts}
    draft = parts["draft weights"]
    assert parts["target weights"] == 16_381_470_720
    taken = 16_381_470_720 + draft + (160 + 672 + 3712 + 128 + 512) * MIB
    assert made.max_total_tokens == page((usable(24_564) - taken) // (37 * 4096))
    assert made.max_total_tokens >= 8 * 2048


@pytest.mark.parametrize(("speculation", "steps"), [("auto", (0, 1, 2)), ("on", (2,)), (5, (5,)), ("off", (2,))])
def test_numbers_of_draft_steps_by_the_settings(speculation: str | int, steps: tuple[int, ...]) -> None:
    assert Wishes.of(load_settings({"draft_steps": 2, "speculation": speculation})).step_counts == steps


def test_parts_of_a_serving_gpu_by_hand() -> None:
    """8 x 80 GB, of which four are wanted: what each byte of GPU 0 is for, and of the trainer's."""
    made = plan("8xH100", "gpt-oss-120b", tp=4)
    parts = {part.name: part.size for part in made.memory[0].parts}
    assert parts == {
        "target weights": WEIGHTS_120B // 4,
        "expert padding": PADDING[4],
        "draft weights": 2 * DRAFT_120B // 4,
        "CUDA graphs": 48 * MIB + 928 * MIB,
        "activations": 512 * MIB + 12 * GIB + 512 * MIB,
        "captured states": 2 * 8192 * 8 * 2880,
        "driver and libraries": GIB,
        "KV cache": made.max_total_tokens * TOKEN_120B[4],
    }
    trainer = {part.name: part.size for part in made.memory[7].parts}
    assert sum(trainer.values()) == TRAINER_120B
    assert trainer["masters"] + trainer["Adam moments"] == 12 * DRAFT_120B


def test_the_walk_of_the_gate_by_hand() -> None:
    """Samples of 512 tokens, so that the walk, with a copy of the masters, takes more than a batch. A row has 32 * 512
    scores, 16 * 2880 states, 4 * 16384 of the MLP and 32000 logits: 160,000 elements, and 64 Mi hold 419 rows. An
    element takes 2 + 8 bytes, keys and values of a token 2 * 8 * 128 * 2."""
    made = plan("8xH100", "gpt-oss-120b", tp=4, batch_tokens=512, sample_tokens=512)
    trainer = {part.name: part.size for part in made.memory[7].parts}
    assert trainer["batch or walk"] == 4 * DRAFT_120B + 512 * 4096 + 419 * 160_000 * 10
    batch = TRAINER_120B - 22 * DRAFT_120B - 2 * 201_088 * 2880 * 2 - 512 * MIB
    assert trainer["batch or walk"] > batch // 4
    assert total(made.memory[7].parts) == TRAINER_120B - batch + trainer["batch or walk"]
    made = plan("8xH100", "gpt-oss-120b", tp=4)
    assert {part.name: part.size for part in made.memory[7].parts}["batch or walk"] == batch


def test_a_long_sample_is_walked_in_bounded_memory() -> None:
    """Of 2**20 tokens a row has 2**25 scores: one row at a time, beside the cache of keys and values."""
    draft = SHAPES["gpt-oss-120b"].usual_draft
    assert walk_rows(draft, 65_536) == 2**26 // (2**21 + 143_616) == 29
    assert walk_rows(draft, 2**20) == 1
    assert walk_rows(draft, 1) == 1
    assert walk_bytes(draft, 2**20, 2) == 2**20 * 4096 + (2**25 + 143_616) * 10


@given(tokens=st.integers(1, 2**21))
def test_the_memory_of_a_walk_grows_with_the_sample_and_not_with_its_square(tokens: int) -> None:
    draft = SHAPES["gpt-oss-120b"].usual_draft
    assert walk_bytes(draft, tokens, 2) <= tokens * 4096 + max(2**26, 32 * tokens + 143_616) * 10
    assert 1 <= walk_rows(draft, tokens) <= tokens


@pytest.mark.parametrize(
    ("name", "serve", "train"),
    [
        ("cpu-1", (0,), (0,)),
        ("cpu-2", (0,), (1,)),
        # each node has both threads of its 16 cores
        ("cpu-64-2-nodes", (*range(16), *range(32, 48)), (*range(16, 32), *range(48, 64))),
    ],
)
def test_cores_without_a_gpu(name: str, serve: tuple[int, ...], train: tuple[int, ...]) -> None:
    made = plan(name, "smollm2-135m")
    assert (made.serve.cores, made.train.cores) == (serve, train)
    assert made.serve.device == made.train.device == "cpu"
    assert made.max_total_tokens == 16_384
    assert bool(made.notes) == (name == "cpu-1")
    # float32: 135 M weights; 30 layers and the draft's, 3 heads * 2 * 64 * 4 bytes; 12,167,424 of the draft
    # weights of target and draft are there a second time, packed
    assert made.dtype == "float32"
    assert engine_bytes(made) == 2 * (2 * 269_060_552 + 4 * 12_167_424) + 16_384 * 31 * 1536 + 2 * GIB


def engine_bytes(made: Plan) -> int:
    return sum(part.size for part in made.memory[0].parts if part.owner == "engine")


def test_a_cpu_counts_the_precision_that_it_serves_in() -> None:
    native = replace(machine("cpu-2"), bfloat16=True)
    shape = SHAPES["smollm2-135m"]
    made = make_plan(native, shape, Wishes())
    assert made.dtype == "bfloat16"
    assert engine_bytes(made) == 2 * (269_060_552 + 2 * 12_167_424) + 16_384 * 31 * 768 + 2 * GIB
    for chosen in ("float32", "bfloat16"):
        for inventory in (native, machine("cpu-2")):
            assert make_plan(inventory, shape, Wishes(dtype=chosen)).dtype == chosen
    assert plan("h100-1x80", "qwen3-8b").dtype == "bfloat16"


def test_experts_and_quantised_weights_are_not_packed() -> None:
    """Of gpt-oss-20b 1.8 of 20.9 billion weights are neither."""
    shape = SHAPES["gpt-oss-20b"]
    parts = {part.name: part.size for part in cpu_engine_parts(shape, None, "bfloat16", 256)}
    assert parts["packed copies"] == pytest.approx(2 * 1.8e9, rel=0.02)
    assert "packed copies" not in {
        part.name for part in cpu_engine_parts(replace(shape, quantisation="fp8"), None, "bfloat16", 256)
    }


def test_the_engine_is_near_its_gpus() -> None:
    made = plan("a100-4x80-a6000-4x48", "gpt-oss-120b")
    assert made.serve.cores == tuple(range(32, 64))  # the A100 hang on node 1


def test_the_spool_of_a_plan() -> None:
    assert plan("cpu-2", "smollm2-135m").spool_size == 6 * GIB  # a tenth of 60 GiB
    assert plan("h100-1x80", "gpt-oss-20b").spool_size == 64 * GIB
    assert plan("cpu-2", "smollm2-135m", spool_size=5).spool_size == 5


def test_the_reservoir_of_a_plan() -> None:
    # a token takes 8 * 2880 + 12 bytes; 240 samples of 1,024 tokens are less than an eighth of 64 GiB
    assert plan("h100-1x80", "gpt-oss-120b").reservoir_size == 240 * 1024 * 23_052 < 8 * GIB
    # 240 * 1024 * (8 * 576 + 12) bytes are 1.06 GiB, an eighth of 6 GiB is less
    assert plan("cpu-2", "smollm2-135m").reservoir_size == 6 * GIB // 8
    assert plan("cpu-2", "smollm2-135m", sample_tokens=512).reservoir_size == 240 * 256 * 4620
    assert plan("cpu-2", "smollm2-135m", reservoir_size=5).reservoir_size == 5
    assert plan("cpu-2", "smollm2-135m", training=False).reservoir_size is None
    unknown = make_plan(machine("cpu-2"), None, Wishes())
    assert (unknown.spool_size, unknown.reservoir_size) == (6 * GIB, None)


@given(
    ring=st.integers(0, 2**46),
    row=st.integers(1, 2**20),
    more=st.integers(0, 2**20),
    tokens=st.integers(16, 2**20),
)
def test_the_reservoir_follows_the_row_and_the_ring(ring: int, row: int, more: int, tokens: int) -> None:
    size = reservoir_size(None, ring=ring, row=row, sample_tokens=tokens)
    assert size * 8 <= ring
    assert size <= reservoir_size(None, ring=ring, row=row + more, sample_tokens=tokens)
    assert size <= reservoir_size(None, ring=ring + more, row=row, sample_tokens=tokens)
    assert size >= min(tokens * row, ring // 8)  # a longest sample, where an eighth of the ring has room for one
    assert reservoir_size(more, ring=ring, row=row, sample_tokens=tokens) == more


@pytest.mark.parametrize(
    ("name", "target", "words"),
    [
        # 60.768 + 5.127 + 0.570 weights, 3.625 activations, 0.703 graphs, 0.5 driver, 0.088 states, and a cache of
        # 16384 * 70,452 bytes, which are 1.075: 72.455 in all
        ("rtx4090-1x24", "gpt-oss-120b", ("49.0 GiB are missing on GPU 0", "free are 23.5", "--target qwen3-8b")),
        ("h100-mig-2x40", "gpt-oss-120b", ("33.0 GiB are missing on GPU 0", "free are 39.5", "--target qwen3-8b")),
        # float32: 30.513 weights and 1.488 of the draft, all of them twice, 4.625 of cache, 2 of processes: 70.627
        ("cpu-1", "qwen3-8b", ("63.6 GiB are missing in main memory", "free are 7.0", "--target smollm2-135m")),
    ],
)
def test_what_does_not_fit_says_what_is_missing(name: str, target: str, words: tuple[str, ...]) -> None:
    with pytest.raises(UsageError) as refused:
        plan(name, target)
    text = "\n".join(refused.value.lines())
    assert [word for word in (target, *words) if word not in text] == []
    assert len(refused.value.lines()) == 2


@pytest.mark.parametrize("wish", [{"tp": 2}, {"gpus": "0"}, {"serve_gpus": "0"}, {"train_gpus": "0"}])
def test_gpus_that_are_not_here_are_refused_with_the_next_command(wish: dict[str, object]) -> None:
    with pytest.raises(UsageError) as refused:
        plan("cpu-2", "smollm2-135m", **wish)
    assert "`tide gpus` " in str(refused.value.remedy)


@pytest.mark.parametrize("flag", ["serve_gpus", "train_gpus"])
def test_a_gpu_that_another_wish_leaves_out_is_refused_with_that_wish(flag: str) -> None:
    with pytest.raises(UsageError, match="GPU 5 is not among --gpus"):
        plan("8xH100", "qwen3-8b", gpus="0-3", **{flag: "3,5"})
    with pytest.raises(UsageError, match="GPU 9 is not available"):
        plan("8xH100", "qwen3-8b", gpus="0-3", **{flag: "9"})


def test_the_parts_of_what_is_needed_add_up() -> None:
    for name, target in (("rtx4090-1x24", "gpt-oss-120b"), ("cpu-1", "qwen3-8b")):
        with pytest.raises(DoesNotFit) as refused:
            plan(name, target)
        needed, parts = re.search(r"needed are ([\d.]+) GiB \((.*)\), free", str(refused.value.why)).groups()
        assert sum(float(part.split()[-1]) for part in parts.split(", ")) == pytest.approx(float(needed))


def test_what_lacks_little_is_said_in_mib() -> None:
    assert "fit: 5 MiB are missing here" in DoesNotFit("x", "here", [Part("engine", "y", GIB)], GIB - 5 * MIB).what
    assert "fit: 0.5 GiB are missing here" in DoesNotFit("x", "here", [Part("engine", "y", GIB)], GIB // 2).what


def test_a_cache_that_lacks_a_part_of_its_last_page_is_refused_in_words() -> None:
    """A wish between two pages: each one either fits or is told what is missing."""
    fits = [_holds(tokens) for tokens in range(21_440, 21_696)]
    assert fits == sorted(fits, reverse=True)
    assert True in fits
    assert False in fits


def _holds(tokens: int) -> bool:
    try:
        make_plan(with_gpus(1, 24), SHAPES["qwen3-8b"], Wishes(total_tokens=tokens, training=False))
    except UsageError:  # and no other error
        return False
    return True


def test_notes_tell_what_is_unexpected() -> None:
    busy = " ".join(plan("h100-4x80-busy", "gpt-oss-120b").notes)
    assert "GPU 2 stays idle" in busy
    assert "GPU 0: others hold 40.0 GiB (pid 4711)" in busy
    assert "wait for PCI Express" in " ".join(plan("2xRTX-6000-Ada", "gpt-oss-120b").notes)
    assert "not been run" in " ".join(plan("mi300x-8x192", "qwen3-8b").notes)
    spare = plan("rtx-pro-6000-1x96", "gpt-oss-120b").notes
    (advice,) = [note for note in spare if "max_total_tokens" in note]
    more = int(advice.split("max_total_tokens = ")[1].split()[0])
    assert plan("rtx-pro-6000-1x96", "gpt-oss-120b", total_tokens=more).max_total_tokens == more
    with pytest.raises(UsageError, match="does not fit"):
        plan("rtx-pro-6000-1x96", "gpt-oss-120b", total_tokens=more + 200_000)


def test_a_slice_is_called_by_its_uuid() -> None:
    made = plan("h100-mig-2x40", "qwen3-8b")
    assert made.serve.visible == ("MIG-00000000-aaaa-bbbb-cccc-dddddddddddd",)
    assert made.train.visible == ("MIG-00000001-aaaa-bbbb-cccc-dddddddddddd",)


@pytest.mark.parametrize(
    ("name", "wishes", "words"),
    [
        ("8xH100", {"tp": 3}, "--tp 3"),
        ("8xH100", {"tp": 16}, "--tp 16"),
        ("8xH100", {"serve_gpus": "0-2"}, "--serve-gpus 0-2"),
        ("8xH100", {"serve_gpus": "0-3", "tp": 2}, "--tp 2"),
        ("8xH100", {"serve_gpus": "8"}, "--serve-gpus: GPU 8"),
        ("8xH100", {"serve_gpus": "x"}, "--serve-gpus: 'x'"),
        ("8xH100", {"serve_gpus": "cpu"}, "--serve-gpus cpu"),
        ("8xH100", {"train_gpus": "0-7"}, "--train-gpus 0-7"),
        ("8xH100", {"train_gpus": "6,7", "tp": 8}, "--train-gpus 6,7"),
        ("8xH100", {"train_gpus": "6,7", "serve_gpus": "5,6"}, "GPU 6 is to serve too"),
        ("h100-mig-2x40", {"train_gpus": "0,1"}, "slices"),
        ("8xH100", {"train_gpus": "GPU-12"}, "--train-gpus"),
        ("8xH100", {"gpus": "0-3", "serve_gpus": "4"}, "--serve-gpus: GPU 4"),
        ("8xH100", {"gpus": "cpu", "serve_gpus": "4"}, "--serve-gpus"),
        ("8xH100", {"serve_cores": "7-3"}, "--serve-cores"),
        ("8xH100", {"train_cores": "500"}, "--train-cores"),
        ("h100-mig-2x40", {"tp": 2}, "--tp 2"),
        ("h100-mig-2x40", {"serve_gpus": "0,1"}, "slices"),
        ("cpu-2", {"serve_gpus": "0"}, "--serve-gpus 0"),
        ("cpu-2", {"train_gpus": "0"}, "--train-gpus"),
        ("cpu-2", {"tp": 2}, "--tp 2"),
        ("h100-2x80", {"serve_gpus": "0", "train_gpus": "0", "total_tokens": 400_000}, "GPU 0"),
    ],
)
def test_wishes_that_cannot_be_fulfilled(name: str, wishes: dict[str, object], words: str) -> None:
    with pytest.raises(UsageError) as refused:
        plan(name, "qwen3-8b" if name != "cpu-2" else "smollm2-135m", **wishes)
    assert words in "\n".join(refused.value.lines())


def test_wishes_win() -> None:
    assert plan("8xH100", "qwen3-8b", tp=2).serve.gpus == (0, 1)
    assert plan("8xH100", "qwen3-8b", serve_gpus="6,7", train_gpus="0").serve.gpus == (6, 7)
    assert plan("8xH100", "qwen3-8b", gpus="4-7").serve.gpus == (4, 5, 6, 7)
    four = plan("8xH100", "qwen3-8b", gpus="4-7", train_gpus="7")  # a named one is the trainer's own
    assert (four.serve.gpus, four.trainer) == ((4, 5), "own")
    assert plan("h100-2x80", "qwen3-8b", train_gpus="0").serve.gpus == (1,)
    assert plan("h100-2x80", "qwen3-8b", train_gpus="cpu").serve.gpus == (0, 1)
    assert plan("h100-2x80", "smollm2-135m", gpus="cpu").serve.device == "cpu"
    both = plan("h100-2x80", "qwen3-8b", serve_gpus="0", train_gpus="0")
    assert both.trainer == "shared"
    assert "share it" in both.notes[-1] + both.notes[0]
    parts = {part.name: part.size for part in both.memory[0].parts if part.owner == "trainer"}
    assert both.shared_memory == sum(parts.values()) - parts["driver and libraries"] > 0
    assert four.shared_memory == 0  # its own: more than planned takes nothing from the engine
    mig = plan("h100-mig-2x40", "qwen3-8b", serve_gpus="MIG-00000001")
    assert (mig.serve.gpus, mig.train.gpus) == ((1,), (0,))


def test_every_gpu_that_is_named_trains() -> None:
    """Each holds what one alone would, and buffers for the exchange."""
    made = plan("8xH100", "gpt-oss-120b", train_gpus="7,6")
    assert (made.serve.gpus, made.trainer, made.train.gpus) == ((0, 1, 2, 3), "own", (7, 6))
    assert [device.planned for device in made.memory[4:]] == [0, 0, *[TRAINER_120B + GIB // 2] * 2]
    assert "GPU 6-7 train together" in " ".join(made.notes)
    assert "4 of 8 GPUs serve because of --train-gpus 7,6: without it 8 would" in made.notes
    assert "learn faster" not in " ".join(made.notes)
    assert plan("8xH100", "gpt-oss-120b", train_gpus="4-7").train.gpus == (4, 5, 6, 7)
    alone = plan("8xH100", "gpt-oss-120b", train_gpus="1-7")
    assert alone.notes[0] == "1 of 8 GPUs serves because of --train-gpus 1-7: without it 8 would"
    assert "because" not in " ".join(plan("8xH100", "gpt-oss-120b", train_gpus="7", tp=4).notes)
    unknown = make_plan(machine("8xH100"), None, Wishes(train_gpus="6,7"))
    assert (unknown.serve.gpus, unknown.train.gpus) == ((0, 1, 2, 3), (6, 7))
    # 12.7 + 0.5 GiB are on neither of the busy ones: 39.6 are free on GPU 0, 9.6 on GPU 2
    assert plan("h100-4x80-busy", "gpt-oss-120b", serve_gpus="1,3", train_gpus="0").train.gpus == (0,)
    with pytest.raises(DoesNotFit, match="on GPU 2"):
        plan("h100-4x80-busy", "gpt-oss-120b", serve_gpus="1,3", train_gpus="0,2")


def test_gpus_that_serve_no_purpose_train_together() -> None:
    """gpt-oss-120b has no room on three of 24 GB, of which two could work together; Qwen3-8B has room on one."""
    made = with_gpus(2)
    weak = tuple(Gpu(index, "weak", 24 * GIB, (8, 9)) for index in (2, 3, 4))
    mixed = replace(made, gpus=(*made.gpus, *weak))
    joined = make_plan(mixed, SHAPES["gpt-oss-120b"], Wishes())
    assert (joined.serve.gpus, joined.trainer, joined.train.gpus) == ((0, 1), "own", (4, 2, 3))
    assert "idle" not in " ".join(joined.notes)
    assert [device.planned for device in joined.memory[2:]] == [TRAINER_120B + GIB // 2] * 3
    small = make_plan(mixed, SHAPES["qwen3-8b"], Wishes())
    assert (small.serve.gpus, small.train.gpus) == ((0, 1), (4,))
    # those of another make and without room stay idle, and one that the user names trains alone
    odd = (replace(weak[0], name="odd"), weak[1], replace(weak[2], memory_used=12 * GIB))
    left = make_plan(replace(made, gpus=(*made.gpus, *odd)), SHAPES["gpt-oss-120b"], Wishes())
    assert left.train.gpus in ((2,), (3,))
    assert make_plan(mixed, SHAPES["gpt-oss-120b"], Wishes(train_gpus="3")).train.gpus == (3,)


def test_without_training_everything_serves() -> None:
    made = plan("8xH100", "gpt-oss-120b", training=False)
    assert made.train is None
    assert made.serve.gpus == tuple(range(8))
    assert plan("cpu-2", "smollm2-135m", training=False).serve.cores == (0, 1)
    assert "no effect" in plan("cpu-2", "smollm2-135m", training=False, train_cores="1").notes[0]
    assert "no effect" in plan("h100-2x80", "qwen3-8b", training=False, train_gpus="1").notes[-1]


def test_without_speculation_there_is_no_draft() -> None:
    made = plan("h100-2x80", "qwen3-8b", speculation=False)
    assert made.trainer == "off"
    assert [part.name for device in made.memory for part in device.parts if part.name == "draft weights"] == []


@pytest.mark.parametrize(
    ("gpus", "serve", "train"),
    [(1, (0,), (0,)), (2, (0,), (1,)), (3, (0, 1), (2,)), (4, (0, 1), (3,)), (8, (0, 1, 2, 3), (7,))],
)
def test_a_target_of_unknown_shape(gpus: int, serve: tuple[int, ...], train: tuple[int, ...]) -> None:
    made = make_plan(with_gpus(gpus), None, Wishes())
    assert (made.serve.gpus, made.train.gpus) == (serve, train)
    assert (made.memory, made.max_total_tokens, made.mem_fraction_static) == ((), None, None)
    assert "not planned" in made.notes[0]


def test_a_gpu_trains_where_serving_has_no_use_for_it() -> None:
    """Of three GPUs two can serve together; of eight all can, and a small target needs one."""
    three = make_plan(with_gpus(3), SHAPES["gpt-oss-120b"], Wishes())
    assert (three.serve.gpus, three.trainer, three.train.gpus) == ((0, 1), "own", (2,))
    small = plan("8xH100", "smollm2-135m")
    assert (small.serve.gpus, small.trainer, small.train.gpus) == ((0,), "own", (7,))


@pytest.mark.parametrize(("cores", "trainer"), [(29, "shared"), (31, "cpu")])
def test_cores_train_where_there_are_enough_of_them(cores: int, trainer: str) -> None:
    """The draft of gpt-oss-120b has 305.8 M weights, one core for each 10 M: 31 beside the engine's."""
    node = NumaNode(0, tuple(range(2 * cores)), 2**38, 2**38)
    made = make_plan(replace(with_gpus(2), nodes=(node,)), SHAPES["gpt-oss-120b"], Wishes())
    assert (made.trainer, made.serve.gpus) == (trainer, (0, 1))
    (reason,) = [note for note in made.notes if "of its own" in note]
    assert "1 of 2 GPUs to serve" in reason


def test_gpus_are_given_away_before_training_is_given_up() -> None:
    """Neither two serving GPUs nor the main memory have room for the trainer; beside one of them there is."""
    node = NumaNode(0, tuple(range(16)), 2**38, 2**30)
    made = make_plan(replace(with_gpus(2, 22), nodes=(node,)), SHAPES["gpt-oss-20b"], Wishes(requests=1))
    assert (made.serve.gpus, made.trainer) == ((0,), "own")


def test_what_idle_gpus_could_do_is_said_and_can_be_done() -> None:
    (idle,) = [note for note in plan("8xH100", "gpt-oss-120b", tp=4).notes if "idle" in note]
    assert "GPU 4-6 stay idle" in idle
    assert "`tide up --target gpt-oss-120b --gpus 4-6 --serve-cores A --train-cores B --port N --state-dir DIR`" in idle
    assert "or --train-gpus 4-7, to learn faster" in idle
    second = plan("8xH100", "gpt-oss-120b", gpus=idle.split("--gpus ")[1].split()[0])
    assert (second.serve.gpus, second.train.gpus) == ((4, 5), (6,))
    assert "--gpus" not in " ".join(plan("h100-4x80-busy", "gpt-oss-120b").notes)  # others hold it


def test_a_small_target_is_not_torn_apart() -> None:
    """A GPU with less than a GiB of weights waits more than it computes."""
    assert plan("8xH100", "smollm2-135m").serve.gpus == (0,)


def test_adaptation_that_does_not_fit_on_a_cpu_is_said() -> None:
    small = cpu(2, gib=4)
    made = make_plan(small, SHAPES["smollm2-135m"], Wishes())
    assert (made.train, made.serve.cores) == (None, (0, 1))
    assert "adaptation is off" in made.notes[0]
    with pytest.raises(UsageError, match="main memory"):
        make_plan(small, SHAPES["smollm2-135m"], Wishes(train_cores="1"))


def test_every_inventory_stands_in_a_test() -> None:
    text = Path(__file__).read_text()
    assert [file.stem for file in INVENTORIES if f'"{file.stem}"' not in text] == []
    assert len(INVENTORIES) >= 12
