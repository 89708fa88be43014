"""Resolving the server and its token, and parsing responses."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from muster import Client, Job, MusterError, Why
from muster.call import EventReader, Message, target
from muster.connection import resolve


def token() -> str:
    unchecked = "mst_t0123456789_" + "ab" * 32
    return unchecked + hashlib.sha256(unchecked.encode()).hexdigest()[:8]


def test_an_argument_overrides_the_variable_and_the_variable_the_default(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert Client().url == "http://127.0.0.1:8080"
    monkeypatch.setenv("MUSTER_SERVER", "")
    assert Client().url == "http://127.0.0.1:8080"
    monkeypatch.setenv("MUSTER_SERVER", "http://a:1/")
    assert Client().url == "http://a:1"
    assert Client("b:2").url == "http://b:2"


def test_an_address_is_split_into_host_port_and_base_path() -> None:
    connection = resolve("https://gpu.example.org/muster/", None, None, None)
    assert (connection.host, connection.port, connection.base, connection.is_loopback) == (
        "gpu.example.org",
        443,
        "/muster",
        False,
    )
    connection = resolve("[::1]:9000", None, None, None)
    assert (connection.authority, connection.is_loopback) == ("[::1]:9000", True)
    assert resolve("localhost", None, None, None).is_loopback


@pytest.mark.parametrize(
    "text", ["ftp://a", "http://", "http://a?b=c", "http://a b", "http://a:port", "[::1"]
)
def test_an_invalid_address_is_refused(text: str) -> None:
    with pytest.raises(MusterError, match="is not the address of a server"):
        Client(text)


def test_a_token_is_never_sent_without_encryption_to_another_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MUSTER_TOKEN", token())
    with pytest.raises(MusterError, match="without encryption"):
        Client("http://gpu.example.org")
    assert resolve("https://gpu.example.org", None, None, None).token == token()
    assert resolve("http://127.0.0.1:1", None, None, None).token == token()


@pytest.mark.parametrize("text", ["", "mst_x", "Bearer x", token()[:-1] + "x", token() + "\r\nX-Evil: 1"])
def test_a_damaged_token_is_refused_before_a_request_is_sent(text: str) -> None:
    with pytest.raises(MusterError, match="does not hold a token"):
        Client(token=text)


def test_the_local_token_is_used_only_for_loopback_addresses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "admin.token"
    file.write_text(token() + "\n")
    file.chmod(0o600)
    monkeypatch.setenv("MUSTER_DATA_DIR", str(tmp_path))
    assert resolve("http://localhost:1", None, None, None).token == token()
    assert resolve("https://gpu.example.org", None, None, None).token is None
    file.chmod(0o644)
    with pytest.raises(MusterError, match=r"can be read by others \(mode 0644\)"):
        Client("http://localhost:1")
    with pytest.raises(MusterError, match="cannot read"):
        Client(token_file=tmp_path / "nothing")


def test_path_segments_and_query_values_are_quoted() -> None:
    assert target("jobs", "../x?y=1 ä", "..", why="a&b", no=None, yes=True) == (
        "/api/v1/jobs/..%2Fx%3Fy%3D1%20%C3%A4/%2E%2E?why=a%26b&yes=true"
    )


def test_events_are_parsed_wherever_the_bytes_are_split() -> None:
    text = b': hello\n\nevent: log\nid: 7\ndata: {"a":1}\n\ndata: [1,\r\ndata:2]\r\n\r\n'
    for cut in range(len(text)):
        reader = EventReader()
        seen = [*reader.push(text[:cut]), *reader.push(text[cut:])]
        assert seen == [Message("log", {"a": 1}), Message("message", [1, 2])], cut


def test_missing_fields_have_defaults_and_unknown_fields_are_kept() -> None:
    job = Job.read(
        {"id": "job-1", "state": "running", "brand_new": [1], "reasons": [{"reason": "Busy", "x": 1}]}
    )
    assert (job.id, job.labels, job.extra) == ("job-1", {}, {"brand_new": [1]})
    assert job.reasons[0].reason == "Busy" and job.reasons[0].extra == {"x": 1}
    assert not job.has_ended and Job.read({"state": "failed"}).has_ended
    assert Job.read({"state": "running", "array": {"completed": 2}}).has_ended
    assert not Job.read({"array": {"completed": 2, "pending": 1}}).has_ended
    assert Why.read({"expected_start": None}).expected_start is None
    expected = Why.read({"expected_start": {"from": "a", "to": "b"}}).expected_start
    assert expected and (expected.to, expected.extra) == ("b", {"from": "a"})
    assert Job.read(["nonsense"]) == Job()
