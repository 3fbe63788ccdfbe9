"""A Hugging Face ``config.json`` as a strict, accountable source of sizes.

Every key that a reader takes is marked as used. A key that is absent takes the default of its class in
transformers (`class_defaults.json`) and is listed as an assumption; with no default there is no answer. When a
reader is done, `Config.finish` refuses the keys that nobody took and that look as if they changed a size: a key that
changes sizes is never ignored in silence.
"""

from __future__ import annotations

import json
import re
from functools import lru_cache
from importlib import resources
from typing import Any, NoReturn

from capplan.errors import InvalidFileError, UnsupportedError

MISSING: Any = object()

_SIZE_WORDS = re.compile(
    r"hidden|size|dim|head|layer|expert|rank|window|vocab|intermediate|kernel|state|conv|num_|^n_|group|freq|interval"
    r"|bias|tie_|tied|shared|moe|mlp|ffn|attn|attention|kv|mtp|nextn|vision|visual|audio|embed|norm|gate|sink|chunk|pattern"
    r"|block|topk|top_k|lora|depth|width|proj|ratio|latent|index|compress|memory|residual|mixer|ssm|mamba|linear"
)

HARMLESS = re.compile(
    r"^_|_token_id$|_token_ids$|_token_index$|_placeholder|^(return|use_cache|summary)|^add_(bos|eos|prefix|special)"
    r"|^output_(attentions|hidden|router|past|scores|logits)|drop|multiplier|_eps$|epsilon|^eps$"
    r"|_loss|aux_alpha|initializer|^init|scal(e|ing)|rope|rotary|softcap|activation|_act$|_act_fn$|act_func|_func$"
    r"|^(architectures|auto_map|model_type|transformers_version|torch_dtype|dtype|quantization_config|id2label|label2id"
    r"|task_specific_params|tokenizer_class|problem_type|chunk_size_feed_forward|pretraining_tp|topk_method|topk_group"
    r"|n_group|num_expert_group|norm_topk_prob|norm_topk|ep_size|seq_aux|moe_renormalize|use_grouped_topk"
    r"|gradient_checkpointing|position_embedding_type|pos_embedding_type|max_length|min_length|num_beams"
    r"|num_beam_groups|no_repeat_ngram_size|encoder_no_repeat_ngram_size|num_return_sequences|top_k|top_p|pruned_heads"
    r"|tie_encoder_decoder|is_decoder|is_encoder_decoder|image_size|in_channels|num_channels|in_chans|max_window_layers"
    r"|use_flash_attn|use_flash_attention|max_seq_len|model_max_length|max_sequence_length|seq_length|n_ctx|n_positions"
    r"|original_max_position_embeddings|initial_context_length|max_position_embeddings|layer_norm_epsilon"
    r"|attention_softmax_in_fp32|attn_implementation|_attn_implementation|attn_impl|cache_implementation"
    r"|attention_chunk_size|image_seq_length|video_seq_length|num_logits_to_keep|residual_in_fp32"
    r"|rescale_prenorm_residual|time_step_\w+|bf16|fp16|fp32|kv_cache_dtype|ignore_index|torchscript|use_bfloat16"
    r"|remove_invalid_values|rope_interleave\w*|clip_qkv|router_\w*coef|query_pre_attn_scalar|expert_dtype|output_gate_type)$"
)
"""Keys that never change a size: generation, initialisation, positions without a table, scaling, bookkeeping."""


@lru_cache(maxsize=1)
def class_defaults() -> dict[str, dict[str, Any]]:
    """Defaults of the configuration classes of transformers, by model type."""
    text = resources.files("capplan.describe").joinpath("class_defaults.json").read_text(encoding="utf-8")
    defaults: dict[str, dict[str, Any]] = json.loads(text)["defaults"]
    return defaults


class Config:
    """One level of a configuration.

    Args:
        data: the keys and values.
        model_type: whose class defaults fill the gaps; None: no defaults.
        where: the file, and the path of keys to this level, for errors.
    """

    def __init__(self, data: dict[str, Any], model_type: str | None, where: str, path: str = "") -> None:
        self.data = data
        self.model_type = model_type
        self.where = where
        self.path = path
        self.used: set[str] = set()
        self.assumptions: list[str] = []
        self.children: list[Config] = []
        self._defaults = class_defaults().get(model_type, {}) if model_type else {}

    def locate(self, key: str) -> str:
        """``file: key`` for an error."""
        return f"{self.where}: {self.path}{key}"

    def refuse(self, key: str, reason: str, hint: str = "") -> NoReturn:
        """The architecture or the value is not understood (exit 4)."""
        raise UnsupportedError(reason, where=self.locate(key), hint=hint)

    def invalid(self, key: str, reason: str) -> NoReturn:
        """The value contradicts what the key means (exit 2)."""
        raise InvalidFileError(reason, where=self.locate(key))

    def has(self, key: str) -> bool:
        """Whether the key stands in the file with a value other than null."""
        return self.data.get(key) is not None

    def raw(self, *names: str, default: Any = MISSING) -> Any:
        """The value of the first name that stands in the file, else the class default, else `default`.

        A key that stands in the file as null is null: transformers takes it so, too.
        """
        for name in names:
            if name in self.data:
                self.used.update(names)
                return self.data[name]
        self.used.update(names)
        for name in names:
            if name in self._defaults:
                value = self._defaults[name]
                if value is not None and value is not False:
                    self.assume(f"{name} = {json.dumps(value)}", "transformers' default for its class")
                return value
        if default is MISSING:
            self.refuse(names[0], f"the configuration has no {names[0]!r}, and its class has no default for it")
        return default

    def assume(self, what: str, why: str) -> None:
        """Note a value that does not stand in the file."""
        line = f"{self.path}{what} ({why})"
        if line not in self.assumptions:
            self.assumptions.append(line)

    def size(self, *names: str, default: Any = MISSING) -> int:
        """A positive integer."""
        value = self.optional_size(*names, default=default)
        if value is None:
            self.refuse(names[0], f"{names[0]!r} is null, and there is no other way to know it")
        return value

    def optional_size(self, *names: str, default: Any = None) -> int | None:
        """A positive integer, or None."""
        value = self.count_or_none(*names, default=default)
        if value == 0:
            self.invalid(names[0], f"{names[0]} must be at least 1, not 0")
        return value

    def count(self, *names: str, default: Any = MISSING) -> int:
        """An integer of at least 0; null counts as 0."""
        return self.count_or_none(*names, default=default) or 0

    def count_or_none(self, *names: str, default: Any = None) -> int | None:
        """An integer of at least 0, or None."""
        value = self.raw(*names, default=default)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int):
            self.invalid(names[0], f"{names[0]} must be a whole number, not {_show(value)}")
        if not 0 <= value <= 1 << 32:
            self.invalid(names[0], f"{names[0]} must be between 0 and 2^32, not {_show(value)}")
        return value

    def flag(self, *names: str, default: Any = MISSING) -> bool:
        """True or false; null counts as false."""
        value = self.raw(*names, default=default)
        if value is None:
            return False
        if isinstance(value, bool) or value in (0, 1):
            return bool(value)
        self.invalid(names[0], f"{names[0]} must be true or false, not {_show(value)}")

    def text(self, *names: str, default: Any = MISSING) -> str | None:
        """A string, or None."""
        value = self.raw(*names, default=default)
        if value is None or isinstance(value, str):
            return value
        self.invalid(names[0], f"{names[0]} must be a string, not {_show(value)}")

    def number(self, *names: str, default: Any = MISSING) -> float | None:
        """A number of at most 2^32 either way, or None."""
        value = self.raw(*names, default=default)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not abs(value) <= 1 << 32:
            self.invalid(names[0], f"{names[0]} must be a number within 2^32, not {_show(value)}")
        return value

    def items(self, *names: str, default: Any = None, length: int | None = None) -> list[Any] | None:
        """A list (of `length` items, where it is told), or None."""
        value = self.raw(*names, default=default)
        if value is None:
            return None
        if not isinstance(value, list):
            self.invalid(names[0], f"{names[0]} must be a list, not {_show(value)}")
        if length is not None and len(value) != length:
            self.invalid(names[0], f"{names[0]} has {len(value)} items where {length} are expected")
        return value

    def sub(
        self,
        key: str,
        model_type: str | None = None,
        *,
        fixed: bool = False,
        absent: dict[str, Any] | None = None,
    ) -> Config:
        """A nested configuration.

        Args:
            key: where it stands.
            model_type: whose class defaults fill its gaps where its own ``model_type`` is none that has any.
            fixed: its class is that of `model_type` whatever its own ``model_type`` says.
            absent: what it holds where the key is absent or null, before the class defaults.
        """
        value = self.data.get(key)
        self.used.add(key)
        if value is None:
            value = absent or {}
            for name in value:
                self.assume(f"{key}.{name} = {json.dumps(value[name])}", "transformers' default for its class")
        if not isinstance(value, dict):
            self.invalid(key, f"{key} must be a mapping, not {_show(value)}")
        return self._child(value, f"{self.path}{key}.", model_type, fixed)

    def subs(self, key: str, length: int) -> list[Config]:
        """Nested configurations in a list of `length`."""
        values = self.items(key, default=MISSING, length=length)
        children = []
        for index, value in enumerate(values or []):
            if not isinstance(value, dict):
                self.invalid(key, f"{key}[{index}] must be a mapping, not {_show(value)}")
            children.append(self._child(value, f"{self.path}{key}[{index}].", None, fixed=False))
        return children

    def _child(self, value: dict[str, Any], path: str, model_type: str | None, fixed: bool) -> Config:
        own_type = value.get("model_type")
        known = isinstance(own_type, str) and own_type in class_defaults()
        kind = own_type if known and not fixed else model_type
        child = Config(value, kind, self.where, path)
        self.children.append(child)
        return child

    def typed(self, model_type: str) -> Config:
        """The same level with the class defaults of another model type; both count what either takes."""
        twin = Config(self.data, model_type, self.where, self.path)
        twin.used, twin.assumptions, twin.children = self.used, self.assumptions, self.children
        return twin

    def level(self, data: dict[str, Any], model_type: str) -> Config:
        """This level's `data` as another class reads it, for files from before the two were nested."""
        child = Config(data, model_type, self.where, self.path)
        self.children.append(child)
        return child

    def ignore(self, *names: str) -> None:
        """Keys that this architecture has and that change no size."""
        self.used.update(names)

    def all_assumptions(self) -> list[str]:
        """The assumptions of this level and of the levels below it."""
        return [*self.assumptions, *(line for child in self.children for line in child.all_assumptions())]

    def finish(self) -> None:
        """Refuse a key that nobody took, that is switched on, and whose name says that it may change a size."""
        for key, value in self.data.items():
            switched_off = value is None or value is False or value in ("", [], {}) or value == 0
            if key in self.used or switched_off or HARMLESS.search(key):
                continue
            if _SIZE_WORDS.search(key):
                self.refuse(
                    key,
                    f"{self.model_type or 'this architecture'} is not known to have the key {key!r} "
                    f"(= {_show(value)}), which may change sizes",
                    "if it changes none, remove it from the configuration or pass --ignore-key " + key,
                )
        for child in self.children:
            child.finish()


def _show(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
