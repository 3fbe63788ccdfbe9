"""A quantisation configuration as a strict source of values: each is checked, and errors name its key."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, NoReturn

from capplan.describe.formats import BF16, NumberFormat
from capplan.describe.module_names import ModuleNames
from capplan.errors import InvalidFileError, UnsupportedError, did_you_mean

MAX_NAMES = 200_000


@dataclass(frozen=True)
class Section:
    """One mapping of a quantisation configuration.

    Args:
        data: its keys and values.
        where: the file and the path of keys to it.
        model_format: the number format of the model's unquantised weights.
    """

    data: dict[str, Any]
    where: str
    model_format: NumberFormat = BF16

    def locate(self, key: str) -> str:
        """``file: path.key`` for an error."""
        return f"{self.where}.{key}"

    def invalid(self, key: str, expected: str) -> NoReturn:
        """The value isn't what its key means (exit 2)."""
        raise InvalidFileError(f"{key} must be {expected}, not {self.data.get(key)!r:.60}", where=self.locate(key))

    def unsupported(self, key: str, what: str, known: Collection[str] = ()) -> NoReturn:
        """The value is well formed and not understood (exit 4)."""
        value = str(self.data.get(key))
        raise UnsupportedError(
            f"{what} {value[:60]!r} is not supported", where=self.locate(key), hint=did_you_mean(value, known)
        )

    def text(self, *keys: str, default: str = "") -> str:
        """A string; absent or null: `default`."""
        for key in keys:
            value = self.data.get(key)
            if value is not None:
                return value if isinstance(value, str) else self.invalid(key, "a string")
        return default

    def flag(self, *keys: str, default: bool = False) -> bool:
        """True or false; absent or null: `default`."""
        for key in keys:
            value = self.data.get(key)
            if value is not None:
                return value if isinstance(value, bool) else self.invalid(key, "true or false")
        return default

    def integer(self, *keys: str, default: int | None = None, among: Collection[int] = ()) -> int:
        """A whole number; absent or null: `default`, or an error where there is none."""
        for key in keys:
            value = self.data.get(key)
            if value is None:
                continue
            if isinstance(value, bool) or not isinstance(value, int) or abs(value) > 1 << 32:
                self.invalid(key, "a whole number")
            if among and value not in among:
                self.unsupported(key, f"{key} =")
            return value
        if default is None:
            self.invalid(keys[0], "given")
        return default

    def group_size(self, *keys: str, default: int | None = None) -> int | None:
        """Columns per group; -1 (and null, where `default` says so): the whole row, as None."""
        size = self.integer(*keys, default=default)
        if size == -1:
            return None
        if size < 1:
            self.invalid(keys[0], "at least 1, or -1 for one group a row")
        return size

    def names(self, *keys: str) -> list[str]:
        """A list of strings; absent or null: empty."""
        for key in keys:
            value = self.data.get(key)
            if value is None:
                continue
            if not isinstance(value, list) or not all(isinstance(name, str) for name in value):
                self.invalid(key, "a list of module names")
            if len(value) > MAX_NAMES:
                self.invalid(key, f"a list of at most {MAX_NAMES} module names")
            return value
        return []

    def modules(self, *keys: str, anywhere: bool = True) -> ModuleNames:
        """The modules that a list names."""
        return ModuleNames.of(self.names(*keys), anywhere=anywhere, where=self.locate(keys[0]))

    def sub(self, key: str) -> Section | None:
        """A nested mapping; absent or null: None."""
        value = self.data.get(key)
        if value is None:
            return None
        if not isinstance(value, dict):
            self.invalid(key, "a mapping")
        return Section(value, self.locate(key), self.model_format)

    def subs(self, key: str) -> dict[str, Section]:
        """A mapping of mappings; absent or null: empty."""
        outer = self.sub(key)
        if outer is None:
            return {}
        found = {}
        for name in outer.data:
            inner = outer.sub(name)
            if inner is not None:
                found[name] = inner
        return found
