"""Reads the configuration of a model in Hugging Face's form, config.json, as options of a problem.

Multi-head latent attention is taken as decoding kernels see it: one KV head of `kv_lora_rank + qk_rope_head_dim` words,
whose first `kv_lora_rank` are the value. Where d or dv is given, the heads of its prefill are taken.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Collection, Mapping
from typing import NamedTuple

from .errors import InputError
from .reading import Unreadable, read_text

LARGEST_CONFIG = 2**24  # bytes
ATTENTION = ("full_attention", "sliding_attention", "chunked_attention", "attention", "hybrid")
"""The kinds of layers that are softmax attention, as `layer_types` names them."""
ALTERNATE = ("gemma2", "gemma3", "gemma3_text", "cohere2")
"""Models with windows in some layers only, whose files need not say so."""
OTHER_NAMES = {"num_attention_heads": "n_head", "num_hidden_layers": "n_layer", "hidden_size": "n_embd"}
"""The same keys in GPT-2."""

QUANTIZED = "quantization_config"
CACHE_TYPES = {"float 8": "fp8", "int 8": "int8", "int 4": "int4", "FP8": "fp8", "INT8": "int8"}
"""{type and bits of a `kv_cache_scheme`, or the name of an algorithm: the type of K and V}."""

Config = Mapping[str, object]


class Model(NamedTuple):
    """Options by their names in Python, and what of the model they leave out."""

    options: dict[str, int | str | bool]
    left_out: list[str]


def read_model(path: str, given: Collection[str] = (), known: Collection[str] | None = None) -> Model:
    """The options of a model's file, or of the config.json of a folder, without those that are `given`.

    `known` are the options that are asked for: without it, all. Raises InputError for a file that cannot be read, and
    for a configuration without one of the keys that are needed.
    """
    file = os.path.join(path, "config.json") if os.path.isdir(path) else path
    config = _config(file)
    heads, (layers, left_out) = _number(config, "num_attention_heads", file), _layers(config, file)
    found: dict[str, int | str | bool] = {"heads": heads}
    if config.get("kv_lora_rank") is not None:
        found |= _latent(config, heads, file, whole={"d", "dv"}.isdisjoint(given))
    else:
        found |= {"kv_heads": _kv_heads(config, heads, file), "d": _head_dim(config, heads, file)}
    states = _state(config, OF_LAYERS)
    found["layers"] = layers
    if states and left_out and known is not None and "layers" in known and "layers" not in given:
        found["layers"], left_out = (
            f"{states} * {_number(config, 'num_hidden_layers', file) - layers}, attention*{layers}",
            [],
        )
    window, more = _window(config, file)
    if known is None or "mask" in known:
        found, left_out = found | window, left_out + more
    elif window or more:
        left_out = [*left_out, "a sliding window, which is not taken: the rows of all tokens are counted"]
    if "kv_dtype" not in given and (known is None or "kv_dtype" in known):
        cache, more = _cache(config)
        found, left_out = found | cache, left_out + more
    taken = {name: value for name, value in found.items() if name not in given and (known is None or name in known)}
    return Model(taken, left_out)


def _config(file: str) -> Config:
    """The keys of a file; those of the text model where there are several."""
    try:
        found = json.loads(read_text(file, LARGEST_CONFIG))
    except (Unreadable, ValueError, RecursionError) as error:
        why = str(error) if isinstance(error, Unreadable) else "no JSON"
        raise InputError("--model", file, "a config.json of Hugging Face's form", why) from None
    if isinstance(found, dict) and isinstance(found.get("text_config"), dict):
        found = {QUANTIZED: found.get(QUANTIZED), **found["text_config"]}
    if not isinstance(found, dict):
        raise InputError("--model", file, "a config.json of Hugging Face's form", "it is no object")
    return found


def _number(config: Config, key: str, file: str) -> int:
    """The whole number of a key."""
    value = config.get(key, config.get(OTHER_NAMES.get(key, key)))
    if isinstance(value, int) and not isinstance(value, bool) and value >= 1:
        return value
    kind = f"; its model_type is {config['model_type']}" if "model_type" in config else ""
    hint = f"give the options themselves, as --heads and --d{kind}"
    raise InputError(f"--model {file}: {key}", "nothing" if value is None else value, "a whole number above 0", hint)


# ---------------------------------------------------------------- layers


def _of_pattern(pattern: object, layers: int) -> int:
    """The layers with a * in a pattern such as M-M*, one letter a layer."""
    return str(pattern).count("*")


def _of_interval(every: object, layers: int) -> int:
    """The layers of which every so many-th is attention."""
    return layers // every if isinstance(every, int) and every > 0 else layers


def _listed(numbers: object, layers: int) -> int:
    """The layers whose numbers a list has; those of a mapping are in its `full_attn_layers`."""
    numbers = numbers.get("full_attn_layers") if isinstance(numbers, dict) else numbers
    return len(numbers) if isinstance(numbers, list) else layers


def _kinds(kinds: object, layers: int) -> int:
    """The layers of a list of kinds: names, or 1 for attention."""
    return sum(kind in ATTENTION or kind == 1 for kind in kinds) if isinstance(kinds, list) else layers


LAYERS: dict[str, Callable[[object, int], int]] = {
    "layer_types": _kinds,
    "layers_block_type": _kinds,
    "attn_type_list": _kinds,
    "full_attention_interval": _of_interval,
    "attn_layer_period": _of_interval,
    "attn_layer_indices": _listed,
    "linear_attn_config": _listed,
    "hybrid_override_pattern": _of_pattern,
}
"""{key: the layers that it says are softmax attention}, as hybrid models write it. The first that a file has counts."""


def _layers(config: Config, file: str) -> tuple[int, list[str]]:
    """The layers that are softmax attention, and a text on the others, which keep a state in place of keys."""
    layers = _number(config, "num_hidden_layers", file)
    key = next((key for key in LAYERS if config.get(key) is not None), None)
    found = layers if key is None else LAYERS[key](config[key], layers)
    if found == 0:
        raise InputError(f"--model {file}: {key}", "no layer of attention", "one or more", "its layers keep a state")
    others = layers - found
    if others <= 0:
        return found, []
    verb = "is no softmax attention, and is" if others == 1 else "are no softmax attention, and are"
    return found, [f"{others} of its {layers} layers {verb} left out{_state(config, OF_STATE)}"]


def _state(config: Config, text: str) -> str:
    """A text with the sizes of the state that the other layers keep, by the keys of Qwen3-Next; empty where the file
    does not say them."""
    names = ("linear_key_head_dim", "linear_value_head_dim", "linear_num_value_heads", "linear_num_key_heads")
    values = [config.get(name) for name in names]
    return text.format(*values) if all(isinstance(value, int) for value in values) else ""


OF_LAYERS = "gdn d={} dv={} heads={} key-heads={}"
"""The other layers as `--layers` takes them."""
OF_STATE = ": each keeps a state of {} x {} words for each of {} value heads ({} key heads)"


# ---------------------------------------------------------------- heads and windows


def _kv_heads(config: Config, heads: int, file: str) -> int:
    """The KV heads: as many as query heads where the file names none, and one in multi-query attention."""
    if config.get("multi_query") and not config.get("new_decoder_architecture"):
        return 1
    key = "num_kv_heads" if "num_kv_heads" in config else "num_key_value_heads"
    return heads if config.get(key) is None else _number(config, key, file)


def _head_dim(config: Config, heads: int, file: str) -> int:
    """The words of a head: `head_dim`, or the hidden words over the heads."""
    if config.get("head_dim") is not None:
        return _number(config, "head_dim", file)
    hidden = _number(config, "hidden_size", file)
    if hidden % heads:
        allowed = f"a multiple of the {heads} heads, where there is no head_dim"
        raise InputError(f"--model {file}: hidden_size", hidden, allowed, "give --d")
    return hidden // heads


def _latent(config: Config, heads: int, file: str, whole: bool) -> dict[str, int | str | bool]:
    """The options of multi-head latent attention: of decoding, or, if not `whole`, of the heads of a prefill."""
    rank, rope = (_number(config, key, file) for key in ("kv_lora_rank", "qk_rope_head_dim"))
    if whole:
        return {"kv_heads": 1, "d": rank + rope, "dv": rank, "latent": True}
    nope, dv = (_number(config, key, file) for key in ("qk_nope_head_dim", "v_head_dim"))
    return {"kv_heads": heads, "d": nope + rope, "dv": dv}


def _window(config: Config, file: str) -> tuple[dict[str, int | str | bool], list[str]]:
    """The mask of a sliding window that all layers have, and a text on one that only some have."""
    if config.get("sliding_window") is None or config.get("use_sliding_window") is False:
        return {}, []
    window, kinds = _number(config, "sliding_window", file), config.get("layer_types")
    some = kinds if isinstance(kinds, list) else []
    full = config.get("model_type") in ALTERNATE or config.get("sliding_window_pattern") is not None
    full = any(kind != "sliding_attention" for kind in some) if some else full
    full |= not some and isinstance(config.get("max_window_layers"), int) and bool(config.get("use_sliding_window"))
    mask = f"causal&window:{window - 1}"
    if full:
        return {}, [f"some layers have a window, which is not taken: --mask '{mask}' is theirs"]
    return {"mask": mask}, []


# ---------------------------------------------------------------- types


def _cache(config: Config) -> tuple[dict[str, int | str | bool], list[str]]:
    """The type of cached keys and values with their scales, where the file says them, and a text on what is not taken.

    A `kv_cache_scheme` has them (compressed-tensors, ModelOpt), or a `kv_cache_quant_algo`. As a text, as "static", it
    says that scales are there, and not which type a server gives the cache.
    """
    quantized = config.get(QUANTIZED)
    if not isinstance(quantized, dict):
        return {}, []
    said = quantized.get("kv_cache_scheme", quantized.get("kv_cache_quant_algo"))
    if said is None:
        method = quantized.get("quant_method", "of no named method")
        return {}, [f"its quantization ({method}) is that of weights, which attention does not read"]
    scheme = said if isinstance(said, dict) else {}
    kind = CACHE_TYPES.get(f"{scheme.get('type')} {scheme.get('num_bits')}" if scheme else str(said))
    if kind is None:
        return {}, [f"no type of cached keys and values is taken from {json.dumps(said)}: --kv-dtype is theirs"]
    strategy, size = scheme.get("strategy"), scheme.get("group_size")
    if strategy == "tensor" or (strategy == "group" and isinstance(size, int) and size > 0):
        return {"kv_dtype": kind, "kv_scales": "tensor" if strategy == "tensor" else str(size)}, []
    by = f" (strategy {strategy})" if strategy else ""
    return {"kv_dtype": kind}, [f"the scales of cached keys and values{by} are not taken: --kv-scales is theirs"]
