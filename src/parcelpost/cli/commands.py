"""Every command of `parcelpost`: its name, where it is, and what it does in half a line."""

from __future__ import annotations

from parcelpost.cli.later import Later

COMMANDS = (
    Later(
        "demo",
        "demo:demo",
        "Scrape four invented counties, with kill -9 on the way.",
    ),
    Later(
        "init",
        "init_command:init",
        "Write a settings file with every key in it, parcelpost.toml.",
    ),
    Later("run", "run:run", "Fetch tasks, scrape, store every result and deliver it."),
    Later("add", "add_command:add", "Store a task for one parcel.", takes_settings=True),
    Later("import", "import_command:import_", "Store a task for every row of a file.", takes_settings=True),
    Later(
        "status",
        "status_command:status",
        "Show whether all is well, and otherwise what to do.",
        takes_settings=True,
    ),
    Later(
        "top",
        "top.command:top",
        "Show a live screen of the worker.",
        takes_settings=True,
    ),
    Later(
        "doctor",
        "doctor.command:doctor",
        "Check everything, and say what mends what is wrong.",
        takes_settings=True,
    ),
    Later(
        "tasks",
        "tasks.group:app",
        "List tasks, show one, try again, reject, delete.",
    ),
    Later(
        "results",
        "results.group:app",
        "List results, show one, send again, reject, delete.",
    ),
    Later(
        "log",
        "log_command:log",
        "Show the last rounds of sync.",
        takes_settings=True,
    ),
    Later(
        "export",
        "export_command:export",
        "Write the stored records as CSV, Excel, Parquet or a map.",
        takes_settings=True,
    ),
    Later("platforms", "platforms_command:app", "Show the platforms and how they do."),
    Later("scrape", "scrape_command:scrape", "Fetch one parcel's page and print its record as JSON."),
    Later("parse", "parse_command:parse", "Print the records of saved pages, one JSON line each."),
    Later(
        "reparse",
        "reparse_command:reparse",
        "Read the stored pages again with the parsers of now.",
        takes_settings=True,
    ),
    Later("store", "store:app", "Look at and care for the local store."),
    Later("config", "config:app", "Show and check the settings."),
    Later("gateway", "gateway:app", "Serve a gateway, fill its queue, and look after its workers."),
    Later("browser", "browser:app", "Look at the browsers, and save sessions for them."),
    Later(
        "firestore",
        "firestore:app",
        "What Firestore must know to be an upstream.",
    ),
    Later("simulate", "simulate_command:app", "What a worker deals with, on this machine and invented."),
)
