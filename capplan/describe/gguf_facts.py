"""A GGUF file's metadata and tensor table as a source of sizes, under the keys of its architecture."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from typing import NoReturn

from capplan.describe.gguf import GgufEntry, GgufFile
from capplan.errors import InvalidFileError, UnsupportedError

MAX_SIZE = 1 << 32
MAX_LAYERS = 4096
_BLOCK = re.compile(r"blk\.(\d{1,4})\.(.+)")


@dataclass(frozen=True)
class GgufFacts:
    """What a file says of its model.

    Args:
        file: its header.
        architecture: its ``general.architecture``, which is the prefix of the other keys.
    """

    file: GgufFile
    architecture: str

    def refuse(self, reason: str) -> NoReturn:
        """The architecture has something that isn't understood (exit 4)."""
        raise UnsupportedError(reason, where=self.file.name)

    def invalid(self, reason: str) -> NoReturn:
        """The metadata contradicts itself or the tensors (exit 2)."""
        raise InvalidFileError(reason, where=self.file.name)

    def optional(self, key: str) -> int | None:
        """A size; None where the key is absent. An array that has one value for all layers is that value."""
        value = self.file.metadata.get(f"{self.architecture}.{key}")
        if value is None:
            return None
        if isinstance(value, tuple):
            different = {item for item in value if item != 0}
            if len(set(value)) > 1 and len(different) != 1:
                self.refuse(f"{self.architecture}.{key} differs by layer, which is not understood")
            value = max(value, default=0)
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= MAX_SIZE:
            self.invalid(f"{self.architecture}.{key} must be a whole number")
        return value

    def size(self, key: str, default: int | None = None) -> int:
        """A size of at least 1; absent: `default`, or an error where there is none."""
        value = self.optional(key)
        value = default if value is None else value
        if value is None or value < 1:
            self.invalid(f"{self.architecture}.{key} is missing or zero")
        return value

    def per_layer(self, key: str) -> tuple[int, ...]:
        """A size for each layer, from one value or an array."""
        layers = self.layers
        value = self.file.metadata.get(f"{self.architecture}.{key}")
        if not isinstance(value, tuple):
            return (self.optional(key) or 0,) * layers
        if len(value) < layers or not all(type(item) is int and 0 <= item <= MAX_SIZE for item in value):
            self.invalid(f"{self.architecture}.{key} must have a whole number for each of {layers} layers")
        return tuple(int(item) for item in value[:layers])

    @property
    def layers(self) -> int:
        """``block_count``, MTP layers included."""
        count = self.size("block_count")
        if count > MAX_LAYERS:
            self.invalid(f"{count} layers are more than {MAX_LAYERS}")
        return count

    @cached_property
    def tensors(self) -> dict[str, GgufEntry]:
        """The tensors by name."""
        return {tensor.name: tensor for tensor in self.file.tensors}

    @cached_property
    def layer_names(self) -> dict[str, list[int]]:
        """For each name inside a layer (``attn_q.weight``), the layers that have it."""
        found: dict[str, list[int]] = {}
        for name in self.tensors:
            match = _BLOCK.fullmatch(name)
            if match:
                found.setdefault(match[2], []).append(int(match[1]))
        return found

    def has(self, *names: str) -> bool:
        """Whether some layer has a tensor of one of these names."""
        return any(name in self.layer_names for name in names)

    def layer_tensor(self, name: str) -> GgufEntry | None:
        """The first layer's tensor of this name."""
        layers = self.layer_names.get(name)
        return self.tensors[f"blk.{min(layers)}.{name}"] if layers else None

    @property
    def tied(self) -> bool:
        """Whether the head uses the token table: there is no ``output.weight``."""
        return "output.weight" not in self.tensors

    @property
    def vocabulary(self) -> int:
        """Rows of the token table."""
        table = self.tensors.get("token_embd.weight")
        if table is None or len(table.shape) != 2:
            self.invalid("there is no token table (token_embd.weight)")
        return table.shape[1]

    @property
    def heads(self) -> int:
        """Query heads of a layer."""
        return self.size("attention.head_count")

    @property
    def kv_heads(self) -> int:
        """Key/value heads of a layer that has attention."""
        return self.size("attention.head_count_kv", default=self.heads)

    @property
    def head_dim(self) -> int:
        """Elements of a head: ``key_length``, or an even share of the hidden size."""
        given = self.optional("attention.key_length")
        hidden, heads = self.size("embedding_length"), self.heads
        if given is None and hidden % heads:
            self.invalid(f"{heads} heads do not divide a hidden size of {hidden}")
        return given or hidden // heads
