"""One HTTP request on plain asyncio: enough for the API of a gateway, which answers each with one small document."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import Mapping
from urllib.parse import quote, urlsplit

import h11

TIMEOUT_SECONDS = 30.0
CONNECT_SECONDS = 10.0
#: The largest answer that is accepted; pages of lists are far smaller.
MAX_ANSWER_BYTES = 64 << 20
_READ_BYTES = 64 << 10
#: What may stand in a target; "%" because it was quoted before, where that was needed.
_UNQUOTED = "/%?&=;:@!$'()*+,~"


class RequestFailed(Exception):
    """There is no answer. ``is_connected`` says whether there was a connection at all."""

    def __init__(self, reason: str, *, is_connected: bool) -> None:
        super().__init__(reason)
        self.is_connected = is_connected


async def request(method: str, url: str, *, headers: Mapping[str, str], body: bytes = b"") -> tuple[int, bytes]:
    """Send a request on a connection of its own, and return the status and the body of the answer.

    Redirects are not followed. Raises RequestFailed, and TimeoutError if the whole takes longer than
    ``TIMEOUT_SECONDS``."""
    async with asyncio.timeout(TIMEOUT_SECONDS):
        reader, writer = await _connect(url)
        try:
            return await _exchange(reader, writer, method, url, headers, body)
        except (OSError, h11.RemoteProtocolError) as error:
            raise RequestFailed(str(error) or type(error).__name__, is_connected=True) from None
        finally:
            writer.close()
            with contextlib.suppress(OSError):  # the answer is there, or its error is on its way
                await writer.wait_closed()


async def _connect(url: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    parts = urlsplit(url)
    has_tls = parts.scheme == "https"
    try:
        async with asyncio.timeout(CONNECT_SECONDS):
            return await asyncio.open_connection(
                parts.hostname,
                parts.port or (443 if has_tls else 80),
                ssl=ssl.create_default_context() if has_tls else None,
                limit=_READ_BYTES,
            )
    except ssl.SSLCertVerificationError as error:
        raise RequestFailed(f"its certificate is not trusted ({error.verify_message})", is_connected=True) from None
    except ssl.SSLError as error:
        raise RequestFailed(f"it does not speak TLS ({error.reason or error})", is_connected=True) from None
    except TimeoutError:
        raise
    except UnicodeError:
        raise RequestFailed("that is no name of a host", is_connected=False) from None
    except OSError as error:
        raise RequestFailed(error.strerror or str(error), is_connected=False) from None


async def _exchange(
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    method: str,
    url: str,
    headers: Mapping[str, str],
    body: bytes,
) -> tuple[int, bytes]:
    parts = urlsplit(url)
    target = quote((parts.path or "/") + (f"?{parts.query}" if parts.query else ""), safe=_UNQUOTED)
    fields = {"Host": parts.netloc, "Accept": "application/json", "Connection": "close", **headers}
    if body:
        fields |= {"Content-Type": "application/json", "Content-Length": str(len(body))}
    connection = h11.Connection(h11.CLIENT)
    head = connection.send(h11.Request(method=method, target=target, headers=list(fields.items())))
    content = connection.send(h11.Data(data=body)) if body else b""
    end = connection.send(h11.EndOfMessage())
    writer.write((head or b"") + (content or b"") + (end or b""))
    await writer.drain()
    status, answer = 0, bytearray()
    while True:
        event = connection.next_event()
        if event is h11.NEED_DATA:
            connection.receive_data(await reader.read(_READ_BYTES))
        elif isinstance(event, h11.Response):
            status = event.status_code
        elif isinstance(event, h11.Data):
            answer += event.data
            if len(answer) > MAX_ANSWER_BYTES:
                raise RequestFailed(f"its answer is larger than {MAX_ANSWER_BYTES} bytes", is_connected=True)
        elif isinstance(event, h11.EndOfMessage):
            return status, bytes(answer)
        elif isinstance(event, h11.ConnectionClosed):
            raise RequestFailed("it was closed without an answer", is_connected=True)
