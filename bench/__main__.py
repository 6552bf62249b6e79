"""Measures Parcelpost and compares it with alternatives, one subcommand per benchmark."""

from __future__ import annotations

import argparse
import sys

from bench import browser, coupling, dashboard, export, layers, nation, overhead, report, startup, sync
from bench.gateway import command as gateway
from bench.mutate import command as mutate
from bench.parse import command as parse
from bench.scrape import command as scrape
from bench.store import command as store

BENCHMARKS = (
    scrape,
    store,
    overhead,
    coupling,
    sync,
    gateway,
    nation,
    parse,
    mutate,
    layers,
    browser,
    startup,
    export,
    dashboard,
)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    for module in BENCHMARKS:
        command = commands.add_parser(module.NAME, help=module.HELP)
        command.add_argument("--json", action="store_true", help="print one JSON document instead of tables")
        command.add_argument("--quick", action="store_true", help="measure less: quicker and less exact")
        command.add_argument("--strict", action="store_true", help="exit with 1 if a target is missed")
        module.add_arguments(command)
        command.set_defaults(run=module.run)
    arguments = parser.parse_args()
    outcome: report.Report = arguments.run(arguments)
    print(outcome.as_json() if arguments.json else outcome.as_text())
    return 1 if arguments.strict and not all(target.met for target in outcome.targets) else 0


if __name__ == "__main__":
    sys.exit(main())
