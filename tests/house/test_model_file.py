"""`--model config.json`: what is taken of public configurations, what wins, and what is refused."""

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
        ({**LLAMA, "layer_types": ["linear_attention", "full_attention"] * 8}, "heads 32 kv_heads 8 d 128 layers 8"),
        (DEEPSEEK, "heads 128 kv_heads 1 d 576 dv 512 latent True layers 61"),
    ],
)
def test_what_is_taken(tmp_path, config, expected):
    found = read_model(write(tmp_path, config))
    words = expected.split()
    assert {name: str(value) for name, value in found.options.items()} == dict(
        zip(words[::2], words[1::2], strict=True)
    )
    assert found.notes == [] and read_model(str(tmp_path)) == found, "a folder has its config.json"


@pytest.mark.parametrize(
    "more",
    [{"layer_types": TYPES * 16}, {"model_type": "gemma2"}, {"use_sliding_window": True, "max_window_layers": 28}],
)
def test_a_window_of_some_layers_is_not_taken(tmp_path, more):
    found = read_model(write(tmp_path, {**LLAMA, "sliding_window": 128, **more}))
    assert "mask" not in found.options
    assert found.notes == ["some layers have a window, which is not taken: --mask 'causal&window:127' is theirs"]


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
    assert f"note: --model {path}: --heads 32 --d 128 --mask causal&window:4095 taken\n" in found.stderr
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
    ):
        by_model, by_hand = iosim(*line, "--model", path), iosim(*line, *own)
        assert by_model.exit_code == 0 and by_model.stdout == by_hand.stdout


def test_the_heads_of_a_prefill_where_one_of_their_sizes_is_given(tmp_path):
    """DeepSeek-V3 multiplies queries of 192 words with keys of 128 heads; its cache has rows of 576."""
    found = read_model(write(tmp_path, DEEPSEEK), {"d"}).options
    assert (found["kv_heads"], found["d"], found["dv"]) == ("128", "192", "128") and "latent" not in found
