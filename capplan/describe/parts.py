"""How descriptions become objects: frozen dataclasses that pydantic validates and that load fast without it.

A description class is a frozen dataclass derived from `Part`. A file that a user hands in is validated by pydantic
(`validated`): strict whole numbers, no unknown keys, tagged unions, errors with their place. The shipped catalog,
which the test suite validates in full, is loaded by `hydrated`: the same classes with the same checks between
fields, from the same annotations, without pydantic's import and schema building, which cost more than the answer.

The annotations' metadata (`Whole`, `TaggedUnion`, `OneOrMany`) speak to both.
"""

from __future__ import annotations

import types
import typing
from dataclasses import MISSING, dataclass, fields, is_dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

if TYPE_CHECKING:
    from pydantic import GetCoreSchemaHandler, TypeAdapter
    from pydantic_core import CoreSchema

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class Part:
    """A piece of a description: immutable, built by keyword, strict about its keys."""

    __pydantic_config__: ClassVar[dict[str, Any]] = {"extra": "forbid", "allow_inf_nan": False}


@dataclass(frozen=True)
class Whole:
    """A whole number from `least` to 2^32, as such: no booleans, no strings, no 4096.0."""

    least: int
    most: int = 1 << 32

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        from pydantic_core import core_schema

        return core_schema.int_schema(strict=True, ge=self.least, le=self.most)

    def take(self, value: Any) -> int:
        """The value, or ValueError."""
        if isinstance(value, bool) or not isinstance(value, int) or not self.least <= value <= self.most:
            raise ValueError(f"must be a whole number from {self.least} to {self.most}, not {value!r}")
        return value


@dataclass(frozen=True)
class TaggedUnion:
    """One of several description classes, told by the key `tag`."""

    tag: str

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        from pydantic_core import core_schema

        choices: dict[typing.Hashable, CoreSchema] = {
            name: handler.generate_schema(member) for name, member in self.members(source).items()
        }
        return core_schema.tagged_union_schema(choices, discriminator=self.tag)

    def members(self, union: Any) -> dict[str, type]:
        """The classes of a union by the default of their tag."""
        return {
            str(field.default): member
            for member in typing.get_args(union)
            for field in fields(member)
            if field.name == self.tag
        }


class OneOrMany:
    """A tuple whose single item may stand in the file without the brackets of a list; absent or null: empty."""

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        from pydantic_core import core_schema

        return core_schema.no_info_before_validator_function(self.as_list, handler(source))

    @staticmethod
    def as_list(value: Any) -> Any:
        """The value as a list."""
        if value is None:
            return []
        return [value] if isinstance(value, dict) or is_dataclass(value) else value


@cache
def adapter(kind: Any) -> TypeAdapter[Any]:
    """Pydantic's validator of a description class."""
    from pydantic import TypeAdapter

    return TypeAdapter(kind)


def validated(kind: type[T], data: Any) -> T:
    """The data as a description, validated by pydantic.

    Raises:
        pydantic.ValidationError: what does not fit.
    """
    subject: Any = kind
    result: T = adapter(subject).validate_python(data)
    return result


def hydrated(kind: type[T], data: Any) -> T:
    """The data as a description, from a file that the test suite has validated.

    Raises:
        ValueError: a key that is unknown or missing, or a value of the wrong kind.
    """
    result: T = _hydrate(kind, data)
    return result


@cache
def _hints(kind: type) -> dict[str, Any]:
    return typing.get_type_hints(kind, include_extras=True)


def _hydrate(kind: Any, value: Any) -> Any:
    """`value` as what the annotation `kind` says."""
    if is_dataclass(kind):
        return _hydrate_part(kind, value)
    origin = typing.get_origin(kind)
    arguments = typing.get_args(kind)
    if origin is typing.Annotated:
        return _hydrate_annotated(arguments[0], arguments[1:], value)
    if origin is tuple:
        if not isinstance(value, (list, tuple)):
            raise ValueError(f"must be a list, not {value!r}")
        return tuple(_hydrate(arguments[0], item) for item in value)
    if origin is dict:
        if not isinstance(value, dict):
            raise ValueError(f"must be a mapping, not {value!r}")
        return {key: _hydrate(arguments[1], item) for key, item in value.items()}
    if origin in (typing.Union, types.UnionType):
        return _hydrate_union(arguments, value)
    if origin is typing.Literal:
        if value not in arguments:
            raise ValueError(f"must be one of {', '.join(map(str, arguments))}, not {value!r}")
        return value
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if kind is not Any and not isinstance(value, kind):
        raise ValueError(f"must be {kind.__name__}, not {value!r}")
    return value


def _hydrate_annotated(kind: Any, metadata: tuple[Any, ...], value: Any) -> Any:
    for item in metadata:
        if isinstance(item, Whole):
            return item.take(value)
        if isinstance(item, TaggedUnion):
            members = item.members(kind)
            tag = value.get(item.tag) if isinstance(value, dict) else None
            if tag not in members:
                raise ValueError(f"{item.tag} must be one of {', '.join(members)}, not {tag!r}")
            return _hydrate_part(members[tag], value)
        if isinstance(item, OneOrMany):
            value = item.as_list(value)
    return _hydrate(kind, value)


def _hydrate_union(choices: tuple[Any, ...], value: Any) -> Any:
    """The first choice that the value fits."""
    if value is None and type(None) in choices:
        return None
    problem = ValueError("no choice")
    for choice in choices:
        if choice is not type(None):
            try:
                return _hydrate(choice, value)
            except ValueError as error:
                problem = error
    raise problem


def _hydrate_part(kind: Any, value: Any) -> Any:
    if not isinstance(value, dict):
        raise ValueError(f"must be a mapping, not {value!r}")
    hints = _hints(kind)
    names = {field.name: field for field in fields(kind)}
    unknown = [key for key in value if key not in names]
    if unknown:
        raise ValueError(f"unknown key {unknown[0]!r}")
    for name, field in names.items():
        if name not in value and field.default is MISSING and field.default_factory is MISSING:
            raise ValueError(f"the key {name!r} is missing")
    return kind(**{key: _hydrate(hints[key], item) for key, item in value.items()})
