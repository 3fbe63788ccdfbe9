"""The command ``capplan``: finds the one module that answers, and turns every mistake into one clear block."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

COMMANDS: dict[str, tuple[str, str]] = {
    "kv": ("kv", "Bytes of the KV cache and states."),
    "weights": ("weights", "Parameters and bytes of the weights."),
    "fit": ("fit", "Whether a model fits on a device, and how many requests at once."),
    "import-log": ("import_log", "An engine's start-up log beside capplan's figures."),
    "roofline": ("roofline", "Every operator under a device's roof, decode by batch and prefill."),
    "step": ("step", "One engine step as a ledger with times."),
    "prefill": ("prefill", "Time to the first token of one prompt."),
    "decode": ("decode", "Time per output token of one batch."),
    "attention-pairs": ("attention_pairs", "Query-key pairs with and without a KV cache."),
    "plan": ("plan", "The cheapest deployments that hold an SLO, and why the others fail."),
    "sweep": ("sweep", "Every load on every deployment, into a file."),
    "compare": ("compare", "Plans, costs or estimates side by side."),
    "diff": ("diff", "What a change costs a month, line by line."),
    "cost": ("cost", "Dollars a token and a month, and break-even against APIs."),
    "estimate": ("estimate", "TTFT, TPOT and throughput of a server under a load, with intervals."),
    "simulate": ("simulate", "A server's scheduler step by step: percentiles, goodput, KV usage."),
    "validate": ("validate", "capplan's error on your own measurements."),
    "advise": ("advise", "What to change next, each item with its predicted gain."),
    "speculate": ("speculate", "What speculative decoding gains, at each batch."),
    "models": ("models", "List, show, import and validate model descriptions."),
    "prices": ("prices", "What GPUs and tokens cost: list, show, import."),
    "gpus": ("gpus", "List, show and validate GPU descriptions."),
    "profiles": ("profiles", "List and show profiles of measured devices."),
    "calibrate": ("calibrate", "Measure this device or a server, fit a profile, and prove it."),
}
"""Every command: the module in `capplan.cli` that holds it, and what it does. Only the one asked for is imported."""


def main() -> None:
    """The console entry point."""
    sys.exit(run(sys.argv[1:]))


def run(arguments: Sequence[str]) -> int:
    """Run one command line and return its exit code; nothing but a bug escapes as an exception."""
    from capplan.cli.streams import UnwritableError, silence, take_any_text

    take_any_text()
    try:
        return _run(list(arguments))
    except BrokenPipeError:
        silence(sys.stdout)
        return 0
    except UnwritableError as error:
        return _report(error, as_json=False)


def _run(arguments: list[str]) -> int:
    from capplan.cli.streams import NO_ROOM, UnwritableError, silence, tell, write
    from capplan.errors import CapplanError, UsageError

    as_json, debug = "--json" in arguments, "--debug" in arguments
    try:
        if arguments in (["--version"], ["-V"]):
            from capplan import __version__

            write(f"capplan {__version__}")
            return 0
        return _invoke(arguments)
    except (BrokenPipeError, UnwritableError):
        raise
    except CapplanError as error:
        return _report(error, as_json)
    except KeyboardInterrupt:
        tell("interrupted")
        return 130
    except SystemExit as left:
        if not isinstance(left.__context__, BrokenPipeError):  # so the parser leaves when nobody reads its help
            raise
        raise left.__context__ from None
    except Exception as error:
        if type(error).__name__ == "NoArgsIsHelpError":
            write(error.ctx.get_help())  # type: ignore[attr-defined]
            return 0
        if isinstance(error, OSError) and error.errno in NO_ROOM:
            silence(sys.stdout)
            raise UnwritableError(error) from None
        usage = _usage_message(error)
        if usage is not None:
            return _report(UsageError(usage[0], where=usage[1], hint=usage[2]), as_json)
        if type(error).__name__ == "Abort":
            return 130
        if debug:
            raise
        tell(f"bug: {type(error).__name__}: {error} (run with --debug for the traceback)")
        return 70


def _invoke(arguments: list[str]) -> int:
    if arguments and arguments[0] in COMMANDS:
        from importlib import import_module

        from capplan.cli.quick import quick

        command = getattr(import_module(f"capplan.cli.{COMMANDS[arguments[0]][0]}"), "command", None)
        plain = quick(command, arguments[1:]) if command is not None else None
        if command is not None and plain is not None:
            code = command(**plain)
            sys.stdout.flush()
            return int(code)
    from capplan.cli.group import build

    code = build(COMMANDS).main(args=arguments, prog_name="capplan", standalone_mode=False)
    sys.stdout.flush()
    return code if isinstance(code, int) else 0


def _report(error: Any, as_json: bool) -> int:
    from capplan.cli.output import print_error

    print_error(error, json=as_json)
    return int(error.exit_code)


def _usage_message(error: Exception) -> tuple[str, str, str] | None:
    """What the argument parser found wrong, where, and a hint; None when the error is not the parser's."""
    if not hasattr(error, "format_message") or not hasattr(error, "ctx"):
        return None
    context = error.ctx
    command = context.command_path if context is not None else "capplan"
    near = list(getattr(error, "possibilities", None) or [])
    spelled = list(getattr(getattr(error, "param", None), "opts", None) or [])
    option = getattr(error, "option_name", None) or (spelled[0] if spelled else None)
    where = f"{command}: {option}" if option else command
    message = str(error.format_message()).split(" Did you mean")[0].split(" (Possible")[0].rstrip(".")
    hint = f"did you mean {', '.join(near)}?" if near else f"{command} --help"
    return message[:1].lower() + message[1:], where, hint
