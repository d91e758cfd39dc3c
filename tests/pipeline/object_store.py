"""A directory served as a bucket, for what ``pyarrow.fs`` asks of S3 to read: listings, sizes and ranges of bytes."""

from __future__ import annotations

import contextlib
import re
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, quote, unquote, urlsplit
from xml.sax.saxutils import escape

BUCKET = "journals"


@contextlib.contextmanager
def served(directory: Path, path: str) -> Iterator[str]:
    """The URI under which ``pyarrow.fs`` finds ``path`` in the directory; it holds a key, as such URIs may."""
    handler = type("Handler", (_Handler,), {"root": directory})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        where = quote(f"127.0.0.1:{server.server_port}", safe="")
        yield f"s3://somebody:hidden-key@{BUCKET}/{path}?scheme=http&region=us-east-1&endpoint_override={where}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class _Handler(BaseHTTPRequestHandler):
    root: Path
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        url = urlsplit(self.path)
        bucket, _, key = unquote(url.path).removeprefix("/").partition("/")
        if bucket != BUCKET:
            self._answer(404)
        elif not key:
            self._list({name: values[0] for name, values in parse_qs(url.query).items()})
        else:
            self._object(self.root / key)

    do_HEAD = do_GET

    def _object(self, file: Path) -> None:
        if not file.is_file():
            self._answer(404)
            return
        data = file.read_bytes()
        asked = re.match(r"bytes=(\d+)-(\d*)", self.headers.get("Range", ""))
        if asked is None:
            self._answer(200, data)
            return
        start, end = int(asked[1]), min(int(asked[2] or len(data)), len(data) - 1)
        if start >= len(data):
            self._answer(416)
            return
        self._answer(206, data[start : end + 1], {"Content-Range": f"bytes {start}-{end}/{len(data)}"})

    def _list(self, query: dict[str, str]) -> None:
        """ListObjectsV2, with everything on one page."""
        prefix, delimiter = query.get("prefix", ""), query.get("delimiter", "")
        keys = sorted(str(each.relative_to(self.root)) for each in self.root.rglob("*") if each.is_file())
        found, folders = [], set()
        for key in keys:
            if key.startswith(prefix):
                rest = key[len(prefix) :]
                if delimiter and delimiter in rest:
                    folders.add(prefix + rest.partition(delimiter)[0] + delimiter)
                else:
                    found.append(key)
        body = "".join(
            f"<Contents><Key>{escape(key)}</Key><Size>{(self.root / key).stat().st_size}</Size>"
            "<LastModified>2026-01-31T12:00:00.000Z</LastModified></Contents>"
            for key in found[: int(query.get("max-keys", "1000"))]
        )
        body += "".join(f"<CommonPrefixes><Prefix>{escape(each)}</Prefix></CommonPrefixes>" for each in sorted(folders))
        text = (
            '<?xml version="1.0"?><ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/">'
            f"<Name>{BUCKET}</Name><Prefix>{escape(prefix)}</Prefix><KeyCount>{len(found) + len(folders)}</KeyCount>"
            f"<MaxKeys>1000</MaxKeys><IsTruncated>false</IsTruncated>{body}</ListBucketResult>"
        )
        self._answer(200, text.encode(), {"Content-Type": "application/xml"})

    def _answer(self, status: int, data: bytes = b"", headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in {"Content-Length": str(len(data)), "ETag": '"1"', **(headers or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    def log_message(self, *arguments: Any) -> None:
        """Quiet."""
