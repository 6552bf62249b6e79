"""Which folders go with a browser: those that were made for it, and no others."""

from __future__ import annotations

from pathlib import Path

from parcelpost.scrapers.browser import processes


def a_profile(tmp_path: Path, name: str, link: Path) -> Path:
    profile = tmp_path / name
    profile.mkdir()
    (profile / "SingletonSocket").symlink_to(link / "SingletonSocket")
    return profile


def test_the_profile_and_chromiums_own_folder_are_removed(tmp_path: Path) -> None:
    sockets = tmp_path / "org.chromium.Chromium.abc123"
    sockets.mkdir()
    profile = a_profile(tmp_path, "playwright_chromiumdev_profile-abc", sockets)
    assert processes.profile_folders(str(profile)) == [profile, sockets]
    processes.remove_folders(processes.profile_folders(str(profile)))
    assert list(tmp_path.iterdir()) == []


def test_nobody_elses_folder_is_meant(tmp_path: Path) -> None:
    mine = tmp_path / "mine"
    mine.mkdir()
    assert processes.profile_folders("") == []
    assert processes.profile_folders(str(a_profile(tmp_path, "chromium", mine))) == []
    link = tmp_path / "playwright_chromiumdev_profile-link"
    link.symlink_to(mine)
    assert processes.profile_folders(str(link)) == []
    profile = a_profile(tmp_path, "playwright_chromiumdev_profile-abc", mine)
    assert processes.profile_folders(str(profile)) == [profile]
