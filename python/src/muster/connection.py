"""How to reach the server: from arguments, environment variables, then the files of a server on this machine.

The rules are those of the command line.
"""

from __future__ import annotations

import hashlib
import ipaddress
import os
import ssl
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from muster.error import MusterError

DEFAULT_SERVER = "http://127.0.0.1:8080"
_DEFAULT_DATA_DIR = "./muster-data"
_SECRET_DIGITS = 64
_CHECKSUM_DIGITS = 8
_TOKEN_FILE_BYTES_MAX = 4_096


@dataclass(frozen=True)
class Connection:
    """Address, trust and credentials of a server."""

    url: str
    """The address as given, with its scheme."""
    host: str
    port: int
    base: str
    """The path before `/api`; usually empty."""
    is_loopback: bool
    tls: ssl.SSLContext | None
    token: str | None = field(repr=False)

    @property
    def authority(self) -> str:
        """Host and port in the form of the `Host` header."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def resolve(
    url: str | None,
    token: str | None,
    token_file: str | os.PathLike[str] | None,
    ca_file: str | os.PathLike[str] | None,
) -> Connection:
    """Resolve the address of the server, the token and the trusted certificates."""
    url = url or os.environ.get("MUSTER_SERVER") or DEFAULT_SERVER
    scheme, host, port, base, url = _parse_address(url)
    is_loopback = _is_loopback(host)
    data_dir = Path(os.environ.get("MUSTER_DATA_DIR") or _DEFAULT_DATA_DIR)
    secret = _token(token, token_file, data_dir if is_loopback else None)
    if secret and scheme == "http" and not is_loopback:
        hint = "use an https:// address, or reach the server through a tunnel on this machine"
        raise MusterError("not-encrypted", f"will not send a token to {url} without encryption", hint)
    own_ca = data_dir / "tls" / "ca.pem"
    trusted = (
        ca_file or os.environ.get("MUSTER_CA_FILE") or (own_ca if is_loopback and own_ca.is_file() else None)
    )
    tls = _tls(trusted) if scheme == "https" else None
    return Connection(url, host, port, base, is_loopback, tls, secret)


def _parse_address(text: str) -> tuple[str, str, int, str, str]:
    whole = text if "://" in text else f"http://{text}"
    try:
        parts = urlsplit(whole)
        port = parts.port
    except ValueError:
        raise _invalid_address(text, "it cannot be parsed") from None
    if parts.scheme not in ("http", "https"):
        raise _invalid_address(text, "only http and https are supported")
    if not parts.hostname or parts.query or any(character.isspace() for character in whole):
        raise _invalid_address(text, "it needs a host and no query")
    port = port or (443 if parts.scheme == "https" else 80)
    return parts.scheme, parts.hostname, port, parts.path.rstrip("/"), whole.rstrip("/")


def _invalid_address(text: str, why: str) -> MusterError:
    hint = "write it like `http://127.0.0.1:8080` or `https://muster.example.org`"
    return MusterError("no-address", f"`{text}` is not the address of a server: {why}", hint)


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _token(given: str | None, file: str | os.PathLike[str] | None, own_dir: Path | None) -> str | None:
    """The given token, else a token file, else the variable, else the file of a server on this machine."""
    if given is not None:
        return _validated(given, "the token")
    file = file or os.environ.get("MUSTER_TOKEN_FILE")
    if file:
        return _read_token(Path(file))
    if text := os.environ.get("MUSTER_TOKEN"):
        return _validated(text, "MUSTER_TOKEN")
    # Only for loopback addresses: the token of the local server is not sent to another machine.
    if own_dir is not None and (own := own_dir / "admin.token").is_file():
        return _read_token(own)
    return None


def _read_token(path: Path) -> str:
    try:
        with path.open("rb") as file:
            # The mode of the open file: the path could be replaced between a check and the read.
            mode = os.fstat(file.fileno()).st_mode & 0o7777
            text = file.read(_TOKEN_FILE_BYTES_MAX).decode()
    except (OSError, UnicodeDecodeError) as error:
        raise MusterError("no-token", f"cannot read `{path}`: {error}") from error
    if os.name == "posix" and mode & 0o077:
        hint = f"run `chmod 600 {path}`, and revoke the token if it was ever exposed"
        raise MusterError("no-token", f"`{path}` can be read by others (mode {mode:04o})", hint)
    return _validated(text, f"`{path}`")


def _validated(text: str, where: str) -> str:
    """The token, if its format and checksum are right."""
    text = text.strip()
    prefix, _, rest = text.partition("_")
    _, _, secret = rest.partition("_")
    unchecked, digits = text[:-_CHECKSUM_DIGITS], text[-_CHECKSUM_DIGITS:]
    whole = prefix == "mst" and len(secret) == _SECRET_DIGITS + _CHECKSUM_DIGITS and text.isascii()
    if whole and hashlib.sha256(unchecked.encode()).hexdigest()[:_CHECKSUM_DIGITS] == digits:
        return text
    hint = "it begins with `mst_`; `muster token create NAME` creates one"
    raise MusterError("no-token", f"{where} does not hold a token, or was damaged in copying", hint)


def _tls(ca_file: str | os.PathLike[str] | None) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=os.fspath(ca_file) if ca_file else None)
    except (OSError, ssl.SSLError) as error:
        raise MusterError("no-ca-file", f"cannot read certificates from `{ca_file}`: {error}") from error
