"""Read one YAML file strictly, keep where everything stands, and validate it against a model.

The scalars are those of the YAML 1.2 core schema: ``1e12`` and ``4.8e3`` are numbers, ``017`` is
seventeen, ``12:30`` and ``no`` are strings. Duplicate keys, NaN, infinities, unknown tags, merge
keys, aliases that grow without end and deep nesting are refused. The parser walks libyaml's event
stream with an explicit stack, so that no input can exhaust the interpreter's own stack.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar, get_args, get_type_hints

import yaml

from capplan.errors import InvalidFileError, NotFoundError, did_you_mean

if TYPE_CHECKING:
    from pydantic import ValidationError

M = TypeVar("M")

KeyPath = tuple[str | int, ...]

MAX_FILE_BYTES = 4 << 20
MAX_DEPTH = 40
MAX_NODES = 200_000

_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_INT = re.compile(r"[-+]?[0-9]+\Z")
_HEX_OR_OCTAL = re.compile(r"0(x[0-9a-fA-F]+|o[0-7]+)\Z")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?\Z")
_NOT_FINITE = re.compile(r"[-+]?\.(inf|Inf|INF)\Z|\.(nan|NaN|NAN)\Z")
_UNKNOWN_KEY = ("extra_forbidden", "unexpected_keyword_argument")
"""pydantic's names for a key that no field has; it is told first, since a misspelt key is also a missing one."""
_CORE_TAGS = {f"tag:yaml.org,2002:{name}" for name in ("str", "int", "float", "bool", "null", "map", "seq")}


@dataclass(frozen=True)
class Document:
    """The plain data of a YAML file, with the line and column of every value."""

    path: Path
    data: dict[str, Any]
    marks: dict[KeyPath, tuple[int, int]]

    def where(self, key_path: KeyPath = ()) -> str:
        """``file:line:column`` of a value, or of its nearest parent that stands in the file."""
        path = tuple(key_path)
        while path and path not in self.marks:
            path = path[:-1]
        line, column = self.marks.get(path, (1, 1))
        return f"{self.path}:{line}:{column}"


def read_yaml(path: Path) -> Document:
    """Read one YAML mapping from `path`.

    Raises:
        NotFoundError: no such file.
        InvalidFileError: not UTF-8, too large, not YAML, not a mapping, or one of the refused features.
    """
    return parse_yaml(read_text(path), path)


def read_text(path: Path, most_bytes: int = MAX_FILE_BYTES) -> str:
    """The UTF-8 text of a file of at most `most_bytes`; of devices and pipes, which tell no size, no more is read."""
    try:
        with path.open("rb") as file:
            data = file.read(most_bytes + 1)
        if len(data) > most_bytes:
            raise InvalidFileError(f"the file is larger than {most_bytes} bytes", where=str(path))
        return data.decode("utf-8").replace("\r\n", "\n").replace("\r", "\n")
    except FileNotFoundError:
        raise NotFoundError(f"there is no file {path}", where=str(path)) from None
    except IsADirectoryError:
        raise InvalidFileError("this is a folder, not a file", where=str(path)) from None
    except UnicodeDecodeError as error:
        raise InvalidFileError(f"the file is not UTF-8 text: {error.reason}", where=str(path)) from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise InvalidFileError(f"the file cannot be read: {reason}", where=str(path)) from None


def parse_yaml(text: str, path: Path) -> Document:
    """Parse the text of a YAML file; see `read_yaml`."""
    builder = _Builder(path)
    try:
        for event in yaml.parse(text, Loader=_LOADER):
            builder.take(event)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f"{path}:{mark.line + 1}:{mark.column + 1}" if mark else str(path)
        raise InvalidFileError(f"this is not valid YAML: {error.problem or error}", where=where) from None
    except yaml.YAMLError as error:
        raise InvalidFileError(f"this is not valid YAML: {error}", where=str(path)) from None
    if not isinstance(builder.root, dict):
        raise InvalidFileError("the file must hold one mapping of keys to values", where=f"{path}:1:1")
    return Document(path, builder.root, builder.marks)


class _Container:
    """A mapping or sequence that is still open in the event stream."""

    def __init__(self, value: dict[str, Any] | list[Any], path: KeyPath, anchor: str | None) -> None:
        self.value = value
        self.path = path
        self.anchor = anchor
        self.key: str | None = None


class _Builder:
    """Builds plain data from YAML events, one event at a time."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.root: Any = None
        self.marks: dict[KeyPath, tuple[int, int]] = {}
        self.stack: list[_Container] = []
        self.anchors: dict[str, tuple[Any, int]] = {}
        self.nodes = 0
        self.documents = 0

    def fail(self, event: yaml.Event, message: str, hint: str = "") -> NoReturn:
        line, column = _place(event)
        raise InvalidFileError(message, where=f"{self.path}:{line}:{column}", hint=hint)

    def take(self, event: yaml.Event) -> None:
        if isinstance(event, yaml.DocumentStartEvent):
            self.documents += 1
            if self.documents > 1:
                self.fail(event, "the file holds more than one document", "one entity a file")
        elif isinstance(event, yaml.ScalarEvent):
            self.take_scalar(event)
        elif isinstance(event, (yaml.MappingStartEvent, yaml.SequenceStartEvent)):
            self.check_tag(event)
            value: dict[str, Any] | list[Any] = {} if isinstance(event, yaml.MappingStartEvent) else []
            path = self.place(event, value)
            if len(self.stack) >= MAX_DEPTH:
                self.fail(event, f"values are nested more than {MAX_DEPTH} deep")
            self.stack.append(_Container(value, path, event.anchor))
        elif isinstance(event, (yaml.MappingEndEvent, yaml.SequenceEndEvent)):
            closed = self.stack.pop()
            if closed.anchor:
                self.anchors[closed.anchor] = (closed.value, _count_nodes(closed.value))
        elif isinstance(event, yaml.AliasEvent):
            self.take_alias(event)

    def check_tag(self, event: yaml.NodeEvent) -> None:
        tag = getattr(event, "tag", None)
        if tag not in (None, "!") and tag not in _CORE_TAGS:
            self.fail(event, f"the tag {tag} is not supported", "write plain values")

    def take_scalar(self, event: yaml.ScalarEvent) -> None:
        self.check_tag(event)
        parent = self.stack[-1] if self.stack else None
        if parent is not None and isinstance(parent.value, dict) and parent.key is None:
            self.take_key(event, parent)
            return
        value = event.value if event.style or event.tag in ("!", "tag:yaml.org,2002:str") else self.resolve(event)
        self.place(event, value)
        if event.anchor:
            self.anchors[event.anchor] = (value, 1)

    def take_key(self, event: yaml.ScalarEvent, parent: _Container) -> None:
        if event.value == "<<" and not event.style:
            self.fail(event, "merge keys (<<) are not supported", "write the keys out")
        if event.value in parent.value:
            self.fail(event, f"the key {event.value!r} stands twice in this mapping", "keep one of them")
        parent.key = event.value

    def take_alias(self, event: yaml.AliasEvent) -> None:
        if event.anchor not in self.anchors:
            self.fail(event, f"the alias *{event.anchor} has no anchor that is complete before it")
        parent = self.stack[-1] if self.stack else None
        if parent is not None and isinstance(parent.value, dict) and parent.key is None:
            self.fail(event, "an alias cannot be a key")
        value, nodes = self.anchors[event.anchor]
        self.nodes += nodes
        self.place(event, value)

    def place(self, event: yaml.Event, value: Any) -> KeyPath:
        """Put a value where the stream stands, and note its mark."""
        self.nodes += 1
        if self.nodes > MAX_NODES:
            self.fail(event, f"the file expands to more than {MAX_NODES} values")
        path: KeyPath = ()
        if not self.stack:
            self.root = value
        else:
            parent = self.stack[-1]
            if isinstance(parent.value, list):
                path = (*parent.path, len(parent.value))
                parent.value.append(value)
            elif parent.key is None:
                self.fail(event, "a mapping's key must be a plain name")
            else:
                path = (*parent.path, parent.key)
                parent.value[parent.key] = value
                parent.key = None
        self.marks[path] = _place(event)
        return path

    def resolve(self, event: yaml.ScalarEvent) -> str | int | float | bool | None:
        """A plain scalar by the YAML 1.2 core schema."""
        text = event.value
        if text in ("", "~", "null", "Null", "NULL"):
            return None
        if text in ("true", "True", "TRUE", "false", "False", "FALSE"):
            return text.lower() == "true"
        if _INT.match(text):
            if len(text) > 40:
                self.fail(event, "the number has more than 40 digits")
            return int(text)
        if _HEX_OR_OCTAL.match(text) and len(text) <= 40:
            return int(text, 0)
        if _FLOAT.match(text):
            number = float(text)
            if number in (float("inf"), float("-inf")):
                self.fail(event, f"the number {text} is too large")
            return number
        if _NOT_FINITE.match(text):
            self.fail(event, f"{text} is not a usable number", "leave an unknown value out")
        return str(text)


def _place(event: yaml.Event) -> tuple[int, int]:
    """Line and column of an event, from 1."""
    mark = event.start_mark
    return (mark.line + 1, mark.column + 1) if mark is not None else (1, 1)


def _count_nodes(value: Any) -> int:
    """The number of values in a container, aliases counted as often as they expand."""
    count, todo = 0, [value]
    while todo and count <= MAX_NODES:
        item = todo.pop()
        count += 1
        if isinstance(item, dict):
            todo.extend(item.values())
        elif isinstance(item, list):
            todo.extend(item)
    return count


def validate(model: type[M], document: Document) -> M:
    """The document as an instance of a pydantic model or of a description class.

    Raises:
        InvalidFileError: with ``file:line:column``, what was expected and, for an unknown key, the nearest one.
    """
    from pydantic import ValidationError

    from capplan.describe.parts import validated

    try:
        return validated(model, document.data)
    except ValidationError as error:
        raise _as_file_error(model, document, error) from None


def _as_file_error(model: type[Any], document: Document, error: ValidationError) -> InvalidFileError:
    problems = error.errors(include_url=False)
    first = next((problem for problem in problems if problem["type"] in _UNKNOWN_KEY), problems[0])
    path = _document_path(document.data, first["loc"])
    name = ".".join(str(part) for part in path) or "the file"
    hint = ""
    if first["type"] in _UNKNOWN_KEY:
        message = f"unknown key {path[-1]!r} in {'.'.join(map(str, path[:-1])) or 'the file'}"
        hint = did_you_mean(str(path[-1]), _field_names(model))
    elif first["type"] == "missing":
        message = f"the key {name!r} is missing"
    else:
        detail = str(first["msg"]).removeprefix("Value error, ")
        message = f"{name}: {detail[:1].lower()}{detail[1:]}"
    more = error.error_count() - 1
    if more:
        hint = "; ".join(part for part in (hint, f"{more} more error{'s' if more > 1 else ''} after this one") if part)
    return InvalidFileError(message, where=document.where(path), hint=hint)


def _document_path(data: Any, loc: tuple[str | int, ...]) -> KeyPath:
    """Pydantic's location without the names of union members, which stand in no file."""
    path: list[str | int] = []
    for index, part in enumerate(loc):
        inside = (isinstance(data, dict) and part in data) or (
            isinstance(data, list) and isinstance(part, int) and part < len(data)
        )
        if inside:
            data = data[part]
            path.append(part)
        elif index == len(loc) - 1 and isinstance(part, str) and isinstance(data, dict):
            path.append(part)
    return tuple(path)


def _field_names(model: type[Any]) -> list[str]:
    """Every field name that the model tree knows: good enough to suggest from."""
    names: set[str] = set()
    todo: list[Any] = [model]
    seen: set[int] = set()
    while todo:
        kind = todo.pop()
        if id(kind) in seen:
            continue
        seen.add(id(kind))
        if hasattr(kind, "model_fields") or is_dataclass(kind):
            hints = get_type_hints(kind)
            names.update(hints)
            todo.extend(hints.values())
        else:
            todo.extend(get_args(kind))
    return sorted(names)
