"""The token: where it comes from, and that nobody sees it."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from parcelpost.errors import InvalidSettings
from parcelpost.settings.schema import GatewaySettings
from parcelpost.settings.secrets import Secret, read_token

TOKEN = "s3cret-Token_1.2~/+="


def token_file(folder: Path, content: bytes, mode: int = 0o600) -> GatewaySettings:
    path = folder / "token"
    path.write_bytes(content)
    path.chmod(mode)
    return GatewaySettings(token_file=str(path))


def revealed(secret: Secret | None) -> str:
    assert secret is not None
    return secret.reveal()


def test_a_secret_is_shown_only_on_demand() -> None:
    secret = Secret(TOKEN)
    assert secret.reveal() == TOKEN
    assert TOKEN not in f"{secret} {secret!r} {[secret]}"
    with pytest.raises(TypeError, match="cannot be pickled"):
        pickle.dumps(secret)


def test_without_a_token_there_is_none() -> None:
    token = read_token(GatewaySettings(), {"PARCELPOST_GATEWAY_TOKEN": " "})
    assert (token.secret, token.state, token.warnings) == (None, "not set", ())


def test_the_environment_goes_before_the_file(tmp_path: Path) -> None:
    settings = token_file(tmp_path, b"other")
    token = read_token(settings, {"PARCELPOST_GATEWAY_TOKEN": f"{TOKEN}\n"})
    assert (revealed(token.secret), token.state) == (TOKEN, "set (environment)")
    assert TOKEN not in repr(token)


@pytest.mark.parametrize("content", [TOKEN, f"{TOKEN}\n", f"\r\n  {TOKEN}\r\n"])
def test_the_file_is_stripped(tmp_path: Path, content: str) -> None:
    token = read_token(token_file(tmp_path, content.encode()), {})
    assert (revealed(token.secret), token.warnings) == (TOKEN, ())
    assert token.state == f"set (file {tmp_path / 'token'})"


@pytest.mark.parametrize(("mode", "count"), [(0o600, 0), (0o640, 0), (0o644, 1), (0o602, 1)])
def test_a_file_that_every_user_can_read_or_write_is_a_warning(tmp_path: Path, mode: int, count: int) -> None:
    token = read_token(token_file(tmp_path, TOKEN.encode(), mode), {})
    assert revealed(token.secret) == TOKEN
    assert len(token.warnings) == count
    assert all("chmod 600" in warning and TOKEN not in warning for warning in token.warnings)


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"", "is empty"),
        (b" \n", "is empty"),
        (b"s3cret one", "contains a space, a line break or a non-ASCII character"),
        (b"s3cret\none", "contains a space, a line break or a non-ASCII character"),
        (b"s3cret\xc3\xbc", "contains a space, a line break or a non-ASCII character"),
        (b"s3cret\0", "contains a space, a line break or a non-ASCII character"),
        (b"s3cret" * 10_000, "is longer than 8 KiB"),
    ],
)
def test_a_file_that_holds_no_token_is_an_error_that_does_not_repeat_it(
    tmp_path: Path, content: bytes, problem: str
) -> None:
    with pytest.raises(InvalidSettings) as error:
        read_token(token_file(tmp_path, content), {})
    assert str(error.value) == f"gateway.token_file {tmp_path / 'token'} {problem}"
    assert error.value.hint
    assert "s3cret" not in f"{error.value}{error.value.hint}"


@pytest.mark.parametrize("value", ["s3cret one", "s3cret\tone", "s3cretü", "s3cret\udcff"])
def test_a_bad_token_in_the_environment_is_an_error_that_does_not_repeat_it(value: str) -> None:
    with pytest.raises(InvalidSettings, match=r"^PARCELPOST_GATEWAY_TOKEN contains a space") as error:
        read_token(GatewaySettings(), {"PARCELPOST_GATEWAY_TOKEN": value})
    assert "s3cret" not in str(error.value)


def test_a_file_that_cannot_be_read_is_an_error(tmp_path: Path) -> None:
    for path in (tmp_path / "none", tmp_path):
        with pytest.raises(InvalidSettings, match="cannot be read"):
            read_token(GatewaySettings(token_file=str(path)), {})


def test_an_endless_file_is_read_no_further_than_a_token_can_be() -> None:
    with pytest.raises(InvalidSettings, match="is longer than 8 KiB"):
        read_token(GatewaySettings(token_file="/dev/zero"), {})
