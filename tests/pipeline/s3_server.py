"""A server that speaks S3, in a process of its own: that of moto, which keeps everything in memory."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

BUCKET = "bucket"
KEY, SECRET = "somebody", "hidden-key"


@contextlib.contextmanager
def s3_server(log: Path) -> Iterator[str]:
    """The address of a server with one empty bucket."""
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", "0"], stdout=output, stderr=output
        )
    try:
        while not (found := re.search(r"Running on (http://127\.0\.0\.1:\d+)", log.read_text())):
            assert process.poll() is None, log.read_text()
        made = urllib.request.Request(f"{found[1]}/{BUCKET}", method="PUT")
        urllib.request.urlopen(made).close()
        yield found[1]
    finally:
        process.kill()
        process.wait()


def environment(server: str) -> dict[str, str]:
    """What delta-rs needs to know, in the words of the tools of S3."""
    return {
        "AWS_ENDPOINT_URL": server,
        "AWS_ACCESS_KEY_ID": KEY,
        "AWS_SECRET_ACCESS_KEY": SECRET,
        "AWS_REGION": "us-east-1",
        "AWS_ALLOW_HTTP": "true",
    }


def upload(server: str, directory: Path, prefix: str) -> None:
    """Put everything below a directory into the bucket."""
    for file in sorted(path for path in directory.rglob("*") if path.is_file()):
        url = f"{server}/{BUCKET}/{prefix}/{file.relative_to(directory)}"
        # What has no type is a form to urllib, and moto waits for ever for the rest of one that is not text.
        headers = {"Content-Type": "application/octet-stream"}
        request = urllib.request.Request(url, data=file.read_bytes(), headers=headers, method="PUT")
        urllib.request.urlopen(request).close()


@contextlib.contextmanager
def with_environment(values: dict[str, str]) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
