"""`--model config.json`, and `model=` in Python: what is taken of public configurations, what wins, what is refused."""

import json

import pytest

from iosim.errors import InputError
from iosim.model_file import read_model

LLAMA = {"model_type": "llama", "hidden_size": 4096, "num_attention_heads": 32, "num_hidden_layers": 32}
LLAMA |= {"num_key_value_heads": 8, "head_dim": None}
DEEPSEEK = {"num_attention_heads": 128, "num_key_value_heads": 128, "num_hidden_layers": 61, "hidden_size": 7168}
DEEPSEEK |= {"kv_lora_rank": 512, "qk_rope_head_dim": 64, "qk_nope_head_dim": 128, "v_head_dim": 128}
TYPES = ["sliding_attention", "full_attention"]


def write(tmp_path, config):
    path = tmp_path / "config.json"
    path.write_text(config if isinstance(config, str) else json.dumps(config))
    return str(path)


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        (LLAMA, "heads 32 kv_heads 8 d 128 layers 32"),
        ({**LLAMA, "head_dim": 64}, "heads 32 kv_heads 8 d 64 layers 32"),
        ({**LLAMA, "num_key_value_heads": None}, "heads 32 kv_heads 32 d 128 layers 32"),
        ({"text_config": LLAMA, "vision_config": {}}, "heads 32 kv_heads 8 d 128 layers 32"),
        ({"n_head": 12, "n_embd": 768, "n_layer": 12}, "heads 12 kv_heads 12 d 64 layers 12"),
        ({"n_head": 71, "hidden_size": 4544, "n_layer": 32, "multi_query": True}, "heads 71 kv_heads 1 d 64 layers 32"),
        ({**LLAMA, "sliding_window": 4096}, "heads 32 kv_heads 8 d 128 layers 32 mask causal&window:4095"),
        ({**LLAMA, "sliding_window": 4096, "use_sliding_window": False}, "heads 32 kv_heads 8 d 128 layers 32"),
        (DEEPSEEK, "heads 128 kv_heads 1 d 576 dv 512 latent True layers 61"),
    ],
)
def test_what_is_taken(tmp_path, config, expected):
    found = read_model(write(tmp_path, config))
    words = expected.split()
    assert {name: str(value) for name, value in found.options.items()} == dict(
        zip(words[::2], words[1::2], strict=True)
    )
    assert found.left_out == [] and read_model(str(tmp_path)) == found, "a folder has its config.json"


@pytest.mark.parametrize(
    "more",
    [{"layer_types": TYPES * 16}, {"model_type": "gemma2"}, {"use_sliding_window": True, "max_window_layers": 28}],
)
def test_a_window_of_some_layers_is_not_taken(tmp_path, more):
    found = read_model(write(tmp_path, {**LLAMA, "sliding_window": 128, **more}))
    assert "mask" not in found.options
    assert found.left_out == ["some layers have a window, which is not taken: --mask 'causal&window:127' is theirs"]


@pytest.mark.parametrize("key", ["num_attention_heads", "hidden_size", "num_hidden_layers"])
def test_an_unknown_architecture_names_the_key_that_is_missing(tmp_path, key, iosim):
    path = write(tmp_path, {name: value for name, value in LLAMA.items() if name != key})
    done = iosim("memory", "--model", path, "--N", 1024)
    assert (done.exit_code, done.stdout) == (2, "") and done.stderr.count("\n") == 1
    assert f"config.json: {key}: found 'nothing'" in done.stderr and "its model_type is llama" in done.stderr


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ("[", "no JSON"),
        ("[" * 50_000, "no JSON"),
        ("[1]", "it is no object"),
        ({**LLAMA, "num_attention_heads": 33}, "hidden_size: found 4096; allowed: a multiple of the 33 heads"),
        ({**LLAMA, "head_dim": 1.5}, "head_dim: found 1.5; allowed: a whole number"),
        ({"kv_lora_rank": 512, **LLAMA}, "qk_rope_head_dim: found 'nothing'"),
    ],
)
def test_bad_files(tmp_path, config, message):
    with pytest.raises(InputError, match="^--model") as caught:
        read_model(write(tmp_path, config))
    assert message in str(caught.value)
    with pytest.raises(InputError, match="no such file"):
        read_model(str(tmp_path / "none.json"))


def test_the_options_of_a_line_win_and_a_note_says_what_was_taken(tmp_path, iosim):
    path = write(tmp_path, {**LLAMA, "sliding_window": 4096})
    asked = ("count", "--N", 1, "--Nk", 8192, "--M", "100KB", "--json")
    found = iosim(*asked, "--model", path, "--kv-heads", 4)
    problem = json.loads(found.stdout)["problem"]
    assert [problem[name] for name in ("heads", "kv_heads", "d", "mask")] == [32, 4, 128, "causal&window:4095"]
    assert f"note: --model {path}: --heads 32 --d 128 --mask 'causal&window:4095' taken\n" in found.stderr
    assert json.loads(iosim(*asked, "--model", path, "--causal").stdout)["problem"]["mask"] == "causal&window:4095"
    assert json.loads(iosim(*asked, "--model", path, "--mask", "causal").stdout)["problem"]["mask"] == "causal"


def test_every_command_that_asks_about_a_model_counts_it_as_its_options(tmp_path, iosim):
    path, sizes = write(tmp_path, LLAMA), ("--heads", 32, "--kv-heads", 8, "--d", 128)
    layers = ("--layers", 32)
    for line, own in (
        (("count", "--N", 64, "--M", "64KB"), sizes),
        (("memory", "--N", 1024), (*sizes, *layers)),
        (("memory", "--budget", "80GB"), (*sizes, *layers)),
        (("batch", "--requests", "2:64"), (*sizes, *layers)),
        (("links", "--N", 1024, "--ranks", 4), sizes),
        (("roofline", "--N", 64, "--hardware", "h100"), sizes),
        (("roofline", "--Nk", 64, "--decode", "--hardware", "h100", "--schedule", "flash2"), sizes),
        (("tune", "--N", 64, "--M", "64KB"), sizes),
        (("bounds", "--N", 64, "--M", "64KB"), sizes),
    ):
        by_model, by_hand = iosim(*line, "--model", path), iosim(*line, *own)
        assert by_model.exit_code == 0 and by_model.stdout == by_hand.stdout


def test_the_heads_of_a_prefill_where_one_of_their_sizes_is_given(tmp_path):
    """DeepSeek-V3 multiplies queries of 192 words with keys of 128 heads; its cache has rows of 576."""
    found = read_model(write(tmp_path, DEEPSEEK), {"d"}).options
    assert "d" not in found, "it is given"
    assert (found["kv_heads"], found["dv"]) == (128, 128) and "latent" not in found
    assert read_model(write(tmp_path, DEEPSEEK), {"dv"}).options["d"] == 192


QWEN3_NEXT = {"model_type": "qwen3_next", "hidden_size": 2048, "num_attention_heads": 16, "num_key_value_heads": 2}
QWEN3_NEXT |= {"head_dim": 256, "num_hidden_layers": 48, "full_attention_interval": 4, "linear_conv_kernel_dim": 4}
QWEN3_NEXT |= {"linear_num_key_heads": 16, "linear_num_value_heads": 32}
QWEN3_NEXT |= {"linear_key_head_dim": 128, "linear_value_head_dim": 128}
OTHERS = "36 of its 48 layers are no softmax attention, and are left out"


@pytest.mark.parametrize(
    ("more", "layers", "left_out"),
    [
        ({"full_attention_interval": 4}, 12, OTHERS),
        ({"layer_types": [*["linear_attention"] * 3, "full_attention"] * 12}, 12, OTHERS),
        ({"layer_types": [*["mamba"] * 3, "attention"] * 12}, 12, OTHERS),
        ({"layers_block_type": [*["mamba"] * 3, "attention"] * 12}, 12, OTHERS),
        ({"attn_type_list": [0, 0, 0, 1] * 12}, 12, OTHERS),
        ({"linear_attn_config": {"full_attn_layers": [*range(4, 49, 4)]}}, 12, OTHERS),
        ({"attn_layer_indices": [*range(3, 48, 4)]}, 12, OTHERS),
        ({"attn_layer_period": 4, "attn_layer_offset": 2}, 12, OTHERS),
        ({"hybrid_override_pattern": "M-M*" * 12}, 12, OTHERS),
        ({"layer_types": ["full_attention"] * 47 + ["conv"]}, 47, "1 of its 48 layers is no softmax attention, and is"),
    ],
)
def test_layers_that_keep_a_state_are_named_and_left_out(tmp_path, more, layers, left_out):
    found = read_model(write(tmp_path, {**LLAMA, "num_hidden_layers": 48, **more}))
    assert found.options["layers"] == layers and len(found.left_out) == 1 and found.left_out[0].startswith(left_out)


def test_the_state_of_qwen3_next_is_said_in_its_note(tmp_path, iosim):
    path = write(tmp_path, QWEN3_NEXT)
    done = iosim("links", "--model", path, "--N", 1024, "--ranks", 2)
    state = "each keeps a state of 128 x 128 words for each of 32 value heads (16 key heads)"
    assert done.stderr.endswith(
        f"note: --model {path}: --heads 16 --kv-heads 2 --d 256 taken\nnote: --model {path}: {OTHERS}: {state}\n"
    )
    path = write(tmp_path, {**QWEN3_NEXT, "layer_types": ["linear_attention"] * 48})
    done = iosim("memory", "--model", path, "--N", 1024)
    assert done.exit_code == 2 and "layer_types: found 'no layer of attention'" in done.stderr


def test_the_layers_of_qwen3_next_have_two_kinds(tmp_path, iosim):
    path = write(tmp_path, QWEN3_NEXT)
    layers = "gdn d=128 dv=128 heads=32 key-heads=16 * 36, attention*12"
    own = ("--heads", 16, "--kv-heads", 2, "--d", 256, "--layers", layers)
    for line in (("memory", "--N", 1024), ("batch", "--requests", "1:1024")):
        by_model, by_hand = iosim(*line, "--model", path), iosim(*line, *own)
        assert by_model.exit_code == 0 and by_model.stdout == by_hand.stdout
        assert f"--d 256 --layers '{layers}' taken" in by_model.stderr and "left out" not in by_model.stderr


FP8 = {"dynamic": False, "num_bits": 8, "type": "float"}
WEIGHTS = "its quantization (fp8) is that of weights, which attention does not read"
SCALES_LEFT = "the scales of cached keys and values{} are not taken: --kv-scales is theirs"
TYPE_LEFT = "no type of cached keys and values is taken from {}: --kv-dtype is theirs"


@pytest.mark.parametrize(("quantized", "taken", "left_out"), [
    (None, {}, ""),
    ({"quant_method": "fp8", "activation_scheme": "dynamic", "weight_block_size": [128, 128]}, {}, WEIGHTS),
    ({"quant_method": "fp8", "kv_cache_scheme": None}, {}, WEIGHTS),
    ({"kv_cache_scheme": {**FP8, "strategy": "tensor", "symmetric": True}}, {"kv_dtype": "fp8", "kv_scales": "tensor"}, ""),
    ({"kv_cache_scheme": {"num_bits": 4, "type": "int", "strategy": "group", "group_size": 64}},
     {"kv_dtype": "int4", "kv_scales": "64"}, ""),
    ({"kv_cache_scheme": {"num_bits": 8, "type": "int", "strategy": "channel"}}, {"kv_dtype": "int8"},
     SCALES_LEFT.format(" (strategy channel)")),
    ({"quant_method": "modelopt", "kv_cache_scheme": FP8}, {"kv_dtype": "fp8"}, SCALES_LEFT.format("")),
    ({"quant_method": "modelopt", "kv_cache_quant_algo": "FP8"}, {"kv_dtype": "fp8"}, SCALES_LEFT.format("")),
    ({"quant_method": "modelopt", "kv_cache_quant_algo": "NVFP4"}, {}, TYPE_LEFT.format('"NVFP4"')),
    ({"quant_method": "fp8", "kv_cache_scheme": "static"}, {}, TYPE_LEFT.format('"static"')),
    ({"kv_cache_scheme": {"quant_method": "other"}}, {}, TYPE_LEFT.format('{"quant_method": "other"}')),
    ({"kv_cache_scheme": {"num_bits": [8], "type": {}}}, {}, TYPE_LEFT.format('{"num_bits": [8], "type": {}}')),
])  # fmt: skip
def test_types_of_cached_keys_and_values(tmp_path, quantized, taken, left_out):
    """What a file of compressed-tensors or of ModelOpt says for sure; the rest is told."""
    for config in (
        {**LLAMA, "quantization_config": quantized},
        {"text_config": LLAMA, "quantization_config": quantized},
    ):
        found = read_model(write(tmp_path, config))
        assert {k: v for k, v in found.options.items() if k.startswith("kv_d") or k == "kv_scales"} == taken
        assert found.left_out == [left_out] * bool(left_out)


def test_a_command_takes_the_type_of_the_cache_unless_the_line_has_one(tmp_path, iosim):
    scheme = {"kv_cache_scheme": {**FP8, "strategy": "tensor"}}
    path, asked = write(tmp_path, {**LLAMA, "quantization_config": scheme}), ("memory", "--N", 8192)
    by_hand = iosim(
        *asked, "--heads", 32, "--kv-heads", 8, "--d", 128, "--layers", 32, "--kv-dtype", "fp8", "--kv-scales", "tensor"
    )
    by_model = iosim(*asked, "--model", path)
    assert by_model.stdout == by_hand.stdout and "--kv-dtype fp8 --kv-scales tensor" in by_model.stderr
    own = iosim(*asked, "--model", path, "--kv-dtype", "bf16")
    assert own.stdout == iosim(*asked, "--model", write(tmp_path, LLAMA)).stdout and "--kv-" not in own.stderr.replace(
        "--kv-heads", ""
    )
    assert "kv" not in iosim("links", "--model", path, "--N", 1024, "--ranks", 4).stderr.replace("--kv-heads", "")


def test_python_takes_what_the_command_line_takes(tmp_path):
    import iosim

    path = write(tmp_path, {**LLAMA, "sliding_window": 4096})
    sizes, window = {"heads": 32, "kv_heads": 8, "d": 128}, {"mask": "causal&window:4095"}
    for ask, own, all_of in (
        (iosim.count, {"N": 64, "M": "64KB"}, sizes | window),
        (iosim.count, {"N": 64, "M": "64KB", "passes": "step", "causal": True}, sizes | window),
        (iosim.memory, {"N": 1024}, sizes | {"layers": 32}),
        (iosim.batch, {"requests": "2:64"}, sizes | window | {"layers": 32}),
        (iosim.links, {"N": 1024, "ranks": 4}, sizes | window),
    ):
        assert ask(**own, model=path).to_dict() == ask(**{**own, **all_of, "causal": False}).to_dict()
    grid = {"N": [64, 128], "M": ["16KB", "64KB"], "schedules": "flash2"}
    assert iosim.sweep(**grid, model=path).equals(iosim.sweep(**grid, **sizes, **window))
    assert iosim.count(64, 64, "64KB", model=path).problem.d == 64, "what is given by its place wins"
    assert iosim.count(64, M="64KB", model=path, mask="causal", heads=4, kv_heads=4).problem.kv_heads == 4


def test_python_warns_of_what_is_left_out_and_asks_for_d(tmp_path):
    import iosim

    with pytest.warns(UserWarning, match="36 of its 48 layers are no softmax attention"):
        assert iosim.count(64, M="64KB", model=write(tmp_path, QWEN3_NEXT)).problem.heads == 16
    for ask, own in ((iosim.count, {"N": 64}), (iosim.memory, {"N": 64}), (iosim.links, {"N": 64, "ranks": 2})):
        with pytest.raises(InputError, match="^--d: found 'nothing'.*--model"):
            ask(**own)


def test_a_sweep_takes_the_sizes_of_a_model(tmp_path, iosim):
    path, line = write(tmp_path, LLAMA), ("sweep", "--N", "64,128", "--M", "64KB", "--schedule", "flash2")
    by_model = iosim(*line, "--model", path, "--d", "64,128")
    assert by_model.exit_code == 0 and "--heads 32 --kv-heads 8 taken" in by_model.stderr
    assert by_model.stdout == iosim(*line, "--heads", 32, "--kv-heads", 8, "--d", "64,128").stdout
    asked = ("sweep", "--what", "links", "--N", 1024, "--ranks", "2,4")
    assert iosim(*asked, "--model", path).stdout == iosim(*asked, "--heads", 32, "--kv-heads", 8, "--d", 128).stdout
