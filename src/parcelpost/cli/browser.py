"""The `parcelpost browser` commands: what browsers there are, whether they work, and sessions that people save."""

from __future__ import annotations

import typer

from parcelpost.cli import browser_doctor, browser_open, browser_profiles, browser_status
from parcelpost.cli.given import with_settings

app = typer.Typer(
    help="Look at the browsers, and save sessions for them.",
    no_args_is_help=True,
    rich_markup_mode=None,
    epilog="""
    Examples:

    \b
      parcelpost browser doctor
      parcelpost browser status
      parcelpost browser open --profile dixie https://qpublic.schneidercorp.com
    """,
)
app.command("status", epilog=browser_status.EXAMPLES)(with_settings(browser_status.status))
app.command("doctor", epilog=browser_doctor.EXAMPLES)(with_settings(browser_doctor.doctor))
app.command("open", epilog=browser_open.EXAMPLES)(with_settings(browser_open.open_))
app.command("profiles", epilog=browser_profiles.PROFILES_EXAMPLES)(with_settings(browser_profiles.profiles))
app.command("forget", epilog=browser_profiles.FORGET_EXAMPLES)(with_settings(browser_profiles.forget))
