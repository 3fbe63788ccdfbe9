"""Read the options of serving engines from their own sources, without running them.

Run: python tools/engine_options.py ENGINE VERSION SOURCE, where SOURCE is the folder that holds the package (an
unpacked wheel or a checkout). Writes capplan/describe/engine_options/ENGINE.csv: one row an option with its spellings,
what kind of value it takes, and the values it is limited to.

    flag     takes no value                        switch   --name or --no-name
    integer  number  text  list  json              choice   one of `choices`
    field    no option: a field of AsyncEngineArgs (its type stands under `choices`)
    config   no option: a key of the YAML file that --config names (likewise)
"""

from __future__ import annotations

import ast
import csv
import sys
from collections.abc import Iterator
from pathlib import Path

TARGET = Path(__file__).parents[1] / "capplan" / "describe" / "engine_options"
COLUMNS = ("option", "aliases", "kind", "choices", "source")
Row = tuple[str, str, str, str, str]


def main() -> None:
    """Read one engine's sources and write its table."""
    engine, version, source = sys.argv[1], sys.argv[2], Path(sys.argv[3])
    rows = sorted(set(READERS[engine](source)))
    with (TARGET / f"{engine}.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(COLUMNS)
        writer.writerows((*row[:4], f"{engine} {version} {row[4]}") for row in rows)


def tree_of(path: Path) -> ast.Module:
    """The syntax tree of a file."""
    return ast.parse(path.read_text(encoding="utf-8"))


def literals(root: Path) -> dict[str, list[str]]:
    """Every ``Name = Literal[...]`` of a folder, those that it names included."""
    nodes = {
        node.targets[0].id: node.value
        for path in sorted(root.rglob("*.py"))
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and literal_values(node.value)
    }

    def resolved(name: str) -> list[str]:
        inner = [part.id for part in ast.walk(nodes[name]) if isinstance(part, ast.Name) and part.id in nodes]
        return literal_values(nodes[name]) + [value for part in inner for value in resolved(part)]

    return {name: resolved(name) for name in nodes}


def literal_values(node: ast.AST) -> list[str]:
    """The strings of ``Literal["a", "b"]``."""
    if isinstance(node, ast.Subscript) and getattr(node.value, "id", "") == "Literal":
        items = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        return [str(item.value) for item in items if isinstance(item, ast.Constant)]
    return []


def kind_of(annotation: str, known: dict[str, list[str]]) -> tuple[str, str]:
    """(kind, choices) of a type annotation, as the engines' own rules choose them."""
    tree = ast.parse(annotation, mode="eval").body
    names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    choices = [value for node in ast.walk(tree) for value in literal_values(node)]
    choices += [value for name in names for value in known.get(name, [])]
    if "bool" in names:
        return "switch", ""
    if choices:
        return "choice", " ".join(dict.fromkeys(choices))
    if names & {"list", "List", "tuple", "set"}:
        return "list", ""
    for name, kind in (("int", "integer"), ("float", "number"), ("dict", "json"), ("Dict", "json"), ("str", "text")):
        if name in names:
            return kind, ""
    return "json" if any(name.endswith("Config") for name in names) else "text", ""


def fields_of(module: ast.Module) -> Iterator[tuple[str, str, str]]:
    """(class, field, annotation) of every annotated field."""
    for node in module.body:
        if isinstance(node, ast.ClassDef):
            for item in node.body:
                if isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name):
                    yield node.name, item.target.id, ast.unparse(item.annotation)


def vllm(source: Path) -> Iterator[Row]:
    """vLLM: arguments of EngineArgs.add_cli_args and of the front end, typed by the fields of its configurations."""
    config = source / "vllm" / "config"
    known = literals(source / "vllm")
    types = {
        (cls, field): annotation
        for path in sorted(config.glob("*.py"))
        for cls, field, annotation in fields_of(tree_of(path))
    }
    path = source / "vllm" / "engine" / "arg_utils.py"
    tree, where = tree_of(path), "vllm/engine/arg_utils.py"
    owner = {
        node.targets[0].id: node.value.args[0].id
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign)
        and isinstance(node.targets[0], ast.Name)
        and isinstance(node.value, ast.Call)
        and getattr(node.value.func, "id", "") == "get_kwargs"
        and isinstance(node.value.args[0], ast.Name)
    }
    for call in calls(tree, "add_argument"):
        names = [arg.value for arg in call.args if isinstance(arg, ast.Constant) and str(arg.value).startswith("-")]
        field = next((taken for key in call.keywords for taken in [_taken(key.value, owner)] if taken), None)
        kind, choices = kind_of(types[field], known) if field else own_kind(call)
        if names:
            yield names[0], " ".join(names[1:]), kind, choices, where
    for cls, field_name, annotation in fields_of(tree):
        if cls in ("EngineArgs", "AsyncEngineArgs"):
            yield field_name, "", "field", kind_of(annotation, known)[0], where
    front = source / "vllm" / "entrypoints" / "common" / "cli_args.py"
    for cls, field_name, annotation in fields_of(tree_of(front)):
        if cls.endswith("Args"):
            kind, choices = kind_of(annotation, known)
            yield option(field_name), "", kind, choices, "vllm/entrypoints/common/cli_args.py"
    for call in calls(tree_of(front), "add_argument"):
        names = [arg.value for arg in call.args if isinstance(arg, ast.Constant) and str(arg.value).startswith("-")]
        if names:
            yield (names[0], " ".join(names[1:]), *own_kind(call), "vllm/entrypoints/common/cli_args.py")


def _taken(node: ast.AST, owner: dict[str, str]) -> tuple[str, str] | None:
    """The (class, field) whose type an argument takes: ``**kwargs_of_class["field"]``, alone or within a dict."""
    for part in ast.walk(node):
        if isinstance(part, ast.Subscript) and getattr(part.value, "id", "") in owner:
            key = part.slice
            if isinstance(key, ast.Constant):
                return owner[part.value.id], str(key.value)  # type: ignore[attr-defined]
    return None


def sglang(source: Path) -> Iterator[Row]:
    """SGLang: the annotated fields of its argument groups."""
    folder = source / "sglang" / "srt" / "arg_groups"
    known = literals(source / "sglang")
    lists = constant_lists(folder / "choices.py")
    for path in sorted((folder / "fields").glob("*.py")):
        for _, field, annotation in fields_of(tree_of(path)):
            node = ast.parse(annotation, mode="eval").body
            if not (isinstance(node, ast.Subscript) and getattr(node.value, "id", "") in ("A", "Annotated")):
                continue
            assert isinstance(node.slice, ast.Tuple)
            meta = next((item for item in node.slice.elts[1:] if getattr(item, "func", None) is not None), None)
            given = {key.arg: key.value for key in meta.keywords} if isinstance(meta, ast.Call) else {}
            if isinstance(meta, ast.Call) and getattr(meta.func, "id", "") != "Arg":
                continue
            if "no_cli" in given:
                continue
            kind, choices = kind_of(ast.unparse(node.slice.elts[0]), known)
            if kind == "switch":
                kind = "flag"
            own = given.get("choices")
            named = lists.get(getattr(own, "id", ""), []) if own is not None else []
            if isinstance(own, ast.List):
                named = [str(item.value) for item in own.elts if isinstance(item, ast.Constant)]
            if own is not None:
                kind, choices = ("choice", " ".join(named)) if named else ("text", "")
            name = str(given["cli_name"].value) if "cli_name" in given else option(field)  # type: ignore[attr-defined]
            aliases = given.get("aliases")
            others = [item.value for item in aliases.elts] if isinstance(aliases, ast.List) else []  # type: ignore[attr-defined]
            yield name, " ".join(map(str, others)), kind, choices, str(path.relative_to(source))
    for call in calls(tree_of(source / "sglang" / "srt" / "server_args.py"), "add_argument"):
        names = [str(arg.value) for arg in call.args if isinstance(arg, ast.Constant)]
        if names:
            yield (names[0], " ".join(names[1:]), *own_kind(call), "sglang/srt/server_args.py")


def constant_lists(path: Path) -> dict[str, list[str]]:
    """Every ``NAME = ["a", "b"]`` of a file."""
    found = {}
    for node in tree_of(path).body:
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.List) and isinstance(node.targets[0], ast.Name):
            found[node.targets[0].id] = [str(item.value) for item in node.value.elts if isinstance(item, ast.Constant)]
    return found


def trtllm(source: Path) -> Iterator[Row]:
    """TensorRT-LLM: the click options of ``trtllm-serve serve``."""
    path = source / "tensorrt_llm" / "commands" / "serve.py"
    for function in tree_of(path).body:
        if isinstance(function, ast.FunctionDef) and function.name == "serve":
            for call in function.decorator_list:
                if isinstance(call, ast.Call) and getattr(call.func, "attr", "") == "option":
                    names = [str(arg.value) for arg in call.args if isinstance(arg, ast.Constant)]
                    names = [name for name in names if name.startswith("-")]
                    yield (names[0], " ".join(names[1:]), *click_kind(call), "tensorrt_llm/commands/serve.py")


def click_kind(call: ast.Call) -> tuple[str, str]:
    """(kind, choices) of a click option."""
    given = {key.arg: key.value for key in call.keywords}
    if "is_flag" in given:
        return "flag", ""
    kinds = {"int": "integer", "float": "number"}
    values = (
        [item.value for item in ast.walk(given["type"]) if isinstance(item, ast.Constant)] if "type" in given else []
    )
    if isinstance(given.get("type"), ast.Call) and all(isinstance(value, str) for value in values) and values:
        return "choice", " ".join(map(str, values))
    return kinds.get(getattr(given.get("type"), "id", ""), "text"), ""


def own_kind(call: ast.Call) -> tuple[str, str]:
    """(kind, choices) of an argparse option that says so itself."""
    given = {key.arg: key.value for key in call.keywords}
    action = ast.unparse(given["action"]) if "action" in given else ""
    if "store_" in action:
        return "flag", ""
    if "BooleanOptional" in action:
        return "switch", ""
    if isinstance(given.get("choices"), ast.List):
        return "choice", " ".join(str(item.value) for item in given["choices"].elts)  # type: ignore[attr-defined]
    kinds = {"int": "integer", "float": "number"}
    return kinds.get(getattr(given.get("type"), "id", ""), "text"), ""


def calls(tree: ast.AST, name: str) -> Iterator[ast.Call]:
    """Every call of a method of that name."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and getattr(node.func, "attr", "") == name:
            yield node


def option(field: str) -> str:
    """``tp_size`` as ``--tp-size``."""
    return f"--{field.replace('_', '-')}"


READERS = {"vllm": vllm, "sglang": sglang, "trtllm": trtllm}


if __name__ == "__main__":
    main()
