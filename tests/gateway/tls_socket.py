"""The bare socket over TLS: one write is one record."""

from __future__ import annotations

import asyncio
import ssl
from pathlib import Path
from typing import NamedTuple

import trustme
from raw_socket import RawSocket

from support import TIMEOUT


class Certificates(NamedTuple):
    cert: Path
    key: Path
    trust: ssl.SSLContext

    @property
    def options(self) -> tuple[str, ...]:
        """For ``mewstream serve``."""
        return ("--tls-cert", str(self.cert), "--tls-key", str(self.key))


def issue_certificates(directory: Path) -> Certificates:
    """Of an authority of our own, for this machine."""
    authority = trustme.CA()
    issued = authority.issue_cert("localhost", "127.0.0.1")
    cert, key = directory / "cert.pem", directory / "key.pem"
    for number, blob in enumerate(issued.cert_chain_pems):
        blob.write_to_path(cert, append=number > 0)
    issued.private_key_pem.write_to_path(key)
    trust = ssl.create_default_context()
    authority.configure_trust(trust)
    return Certificates(cert, key, trust)


class TlsSocket(RawSocket):
    """Everything that a :class:`RawSocket` can do, after a handshake."""

    _object: ssl.SSLObject

    @classmethod
    async def secured(cls, port: int, trust: ssl.SSLContext, *, receive_buffer: int | None = None) -> TlsSocket:
        self = await cls.open(port, receive_buffer=receive_buffer)
        assert isinstance(self, cls)
        self._received, self._sent = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._object = trust.wrap_bio(self._received, self._sent, server_hostname="localhost")
        while True:
            try:
                self._object.do_handshake()
                break
            except ssl.SSLWantReadError:
                await self._flush()
                if not await self._receive(TIMEOUT):
                    raise ConnectionResetError("the connection ended within its handshake") from None
        await self._flush()
        return self

    async def send(self, data: bytes) -> None:
        if data:
            self._object.write(data)
            await self._flush()

    async def _flush(self) -> None:
        if data := self._sent.read():
            await super().send(data)

    async def _fill(self, within: float) -> bool:
        while True:
            try:
                data = self._object.read(1 << 18)
            except ssl.SSLWantReadError:
                if not await self._receive(within):
                    return False
            except ssl.SSLError:
                return False
            else:
                self._buffer += data
                return bool(data)

    async def _receive(self, within: float) -> bool:
        """What has come as it was encrypted."""
        try:
            data = await asyncio.wait_for(asyncio.get_running_loop().sock_recv(self.sock, 1 << 18), within)
        except ConnectionError:
            return False
        self._received.write(data)
        return bool(data)
