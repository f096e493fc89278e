"""The numbers of a process without a door of its own."""

import asyncio

import httpx
import pytest

from deerflow.errors import ConfigError
from deerflow.observability import meters
from deerflow.observability.meters import Meters
from deerflow.observability.serving import serve_metrics


async def test_numbers_are_served_to_this_machine_only() -> None:
    numbers = Meters()
    numbers.add(meters.RUNS, "success")

    async with serve_metrics(0, numbers) as port, httpx.AsyncClient(trust_env=False) as client:
        url = f"http://127.0.0.1:{port}"
        page = await client.get(f"{url}/metrics")
        stranger = await client.get(f"{url}/metrics", headers={"Host": "evil.example.org"})
        elsewhere = await client.get(f"{url}/api/threads")
        written = await client.post(f"{url}/metrics")

    assert page.status_code == 200
    assert 'deerflow_runs_total{status="success"} 1.0' in page.text
    assert [stranger.status_code, elsewhere.status_code, written.status_code] == [403, 404, 404]


@pytest.mark.parametrize("sent", [b"\x00" * 100_000, b"GET /metrics HTTP/1.1\r\n", b"\r\n\r\n"])
async def test_who_speaks_no_http_harms_nobody(sent: bytes) -> None:
    async with serve_metrics(0, Meters()) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        try:
            writer.write(sent)
            writer.write_eof()
            answer = await reader.read()
        except ConnectionError:
            answer = b""
        finally:
            writer.close()
        async with httpx.AsyncClient(trust_env=False) as client:
            after = await client.get(f"http://localhost:{port}/metrics")

    assert not answer.startswith(b"HTTP/1.1 200")
    assert after.status_code == 200


async def test_a_port_in_use_is_said_and_none_is_none() -> None:
    async with serve_metrics(0, Meters()) as port, serve_metrics(None, Meters()) as nothing:
        with pytest.raises(ConfigError, match=f"cannot listen on 127.0.0.1:{port}"):
            await serve_metrics(port, Meters()).__aenter__()

    assert nothing is None
