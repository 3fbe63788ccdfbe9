"""How many requests the simulator serves a minute on one core. Run: python benchmarks/simulator_rate.py.

Llama-3.1-8B on one H100, prompts of 512 to 1,024 tokens, outputs of 128 to 256, Poisson arrivals near what the server
can do; the clock interpolates the kernel laws. What is asked: 200,000 a minute.
"""

from __future__ import annotations

import argparse
import time

from capplan.describe.batching import batching_rules
from capplan.questions.setting import resolve_setting
from capplan.questions.setting_memory import fitting_budget
from capplan.questions.simulate_request import SimulatedLoad, resolve_load
from capplan.serving.replica import Replica
from capplan.serving.server import ServerOptions, server_clock, server_config
from capplan.serving.simulator import simulate

ASKED = 200_000
LOADS = {
    "poisson, 20 a second": {"request_rate": 20.0},
    "128 clients": {"concurrency": 128},
    "poisson, shared prefixes": {"request_rate": 20.0, "prefixes": 50, "prefix_tokens": 400},
}


def rate(engine: str, requests: int, **load: object) -> tuple[float, int]:
    """(requests a minute of process time, steps)."""
    setting = resolve_setting("llama3.1-8b", "h100-sxm-80gb", engine=engine)
    rules, options = batching_rules(engine).rules, ServerOptions()
    asked = resolve_load(SimulatedLoad(isl="512-1024", osl="128-256", requests=requests, **load))  # type: ignore[arg-type]
    budget = fitting_budget(setting, asked.longest)
    replica = Replica(setting.spec, setting.machine, setting.sharding, setting.formats)
    config, clock = server_config(budget, rules, replica, options), server_clock(replica, budget.plan, rules, options)
    started = time.process_time()
    done = simulate(asked.arrivals(1), clock, config)
    return 60 * requests / (time.process_time() - started), done.steps


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=50_000)
    arguments = parser.parse_args()
    print(f"{'load':<28}{'engine':<10}{'requests a minute':>20}{'steps':>12}")
    for name, load in LOADS.items():
        for engine in ("vllm", "sglang", "trtllm"):
            found, steps = rate(engine, arguments.requests, **load)
            print(f"{name:<28}{engine:<10}{found:>20,.0f}{steps:>12,}{'' if found >= ASKED else '  below'}")


if __name__ == "__main__":
    main()
