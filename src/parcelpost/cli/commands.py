"""Every command of `parcelpost`: its name, where it is, and the first sentence of its help."""

from __future__ import annotations

from parcelpost.cli.later import Later

COMMANDS = (
    Later(
        "init",
        "init_command:init",
        "Write a settings file, parcelpost.toml, with every key in it; ask for what matters first.",
    ),
    Later("run", "run:run", "Fetch tasks, scrape, keep every result in the store, and deliver it in the background."),
    Later("store", "store:app", "Look at and care for the local store."),
    Later("config", "config:app", "Show and check the settings."),
    Later("gateway", "gateway:app", "Serve a gateway, fill its queue, and look after its workers."),
    Later("browser", "browser:app", "Look at the browsers, and save sessions for them."),
    Later(
        "firestore",
        "firestore:app",
        "What Firestore must know to be an upstream: rules, indexes, the layout of its collections.",
    ),
    Later("add", "add_command:add", "Store a task for one parcel.", takes_settings=True),
    Later("import", "import_command:import_", "Store a task for every row of a file.", takes_settings=True),
    Later(
        "status",
        "status_command:status",
        "Show how the worker is: queue, outbox, sync, storage, and what needs attention.",
        takes_settings=True,
    ),
    Later(
        "top",
        "top.command:top",
        "Show a live screen of the worker: queue, slots, outbox, sync, rates, platforms, browsers, errors.",
        takes_settings=True,
    ),
    Later(
        "tasks",
        "tasks.group:app",
        "The tasks of the store: list, show one, try again, reject, forget.",
    ),
    Later(
        "results",
        "results.group:app",
        "The results of the store: list, show one, send again, set aside, forget.",
    ),
    Later(
        "doctor",
        "doctor.command:doctor",
        "Check store, space, backups, deliveries, settings, clock, gateway and browser; say what mends what is wrong.",
        takes_settings=True,
    ),
    Later(
        "log",
        "log_command:log",
        "Show the last rounds of sync, the newest last: what was sent or fetched, how long it took, what went wrong.",
        takes_settings=True,
    ),
    Later("parse", "parse_command:parse", "Print the records of saved pages, one JSON line each."),
    Later("scrape", "scrape_command:scrape", "Fetch one parcel's page and print its record as JSON."),
    Later("platforms", "platforms_command:app", "The platforms and how they do; without a command they are listed."),
    Later("simulate", "simulate_command:app", "What a worker deals with, on this machine and invented."),
    Later(
        "reparse",
        "reparse_command:reparse",
        "Read the stored pages again with the parsers and field maps of now.",
        takes_settings=True,
    ),
    Later(
        "export",
        "export_command:export",
        "Write the stored records into files for others: parcels, liens and the like as tables.",
        takes_settings=True,
    ),
    Later(
        "demo",
        "demo:demo",
        "Scrape four invented counties, with kill -9 on the way, into a spreadsheet of parcels and one of liens.",
    ),
)
