"""On a real standalone cluster: a master and two workers, each a process of its own, give the same tables."""

from __future__ import annotations

import os
import re
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import psutil
import pyspark
import pytest
from journals import lively
from pyspark.sql import SparkSession
from running import QUICK, PipelineProcess, assert_same, bring_up_to_date, tables_of

HOST = "127.0.0.1"
SPARK = Path(pyspark.__file__).parent


@contextmanager
def daemon(name: str, log: Path, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    command = [str(SPARK / "bin" / "spark-class"), name, "--host", HOST, *arguments]
    # Java compiles quickly, and the executors that a worker starts do so too.
    settings = {"SPARK_LOCAL_IP": HOST, "SPARK_DAEMON_MEMORY": "256m", "JDK_JAVA_OPTIONS": QUICK}
    environment = {**os.environ, "SPARK_HOME": str(SPARK), **settings}
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, env=environment)
    try:
        yield process
    finally:
        whole = psutil.Process(process.pid).children(recursive=True) if process.poll() is None else []
        process.terminate()
        process.wait(30)
        _, alive = psutil.wait_procs(whole, timeout=20)
        for each in alive:
            each.kill()


def said(log: Path, pattern: str, process: subprocess.Popen[bytes]) -> str:
    deadline = time.monotonic() + 120
    while not (found := re.search(pattern, log.read_text(errors="replace"))):
        assert process.poll() is None, log.read_text(errors="replace")[-2000:]
        assert time.monotonic() < deadline, log.read_text(errors="replace")[-2000:]
        time.sleep(0.1)
    return found[1]


@pytest.fixture
def master(tmp_path: Path) -> Iterator[str]:
    with ExitStack() as stack:
        log = tmp_path / "master.log"
        process = stack.enter_context(
            daemon("org.apache.spark.deploy.master.Master", log, "--port", "0", "--webui-port", "0")
        )
        url = said(log, r"Starting Spark master at (spark://\S+)", process)
        for number in (1, 2):
            worker = tmp_path / f"worker-{number}.log"
            arguments = (
                "--cores",
                "1",
                "--memory",
                "1g",
                "--webui-port",
                "0",
                "--work-dir",
                str(tmp_path / f"w{number}"),
            )
            process = stack.enter_context(daemon("org.apache.spark.deploy.worker.Worker", worker, *arguments, url))
            said(worker, r"Successfully registered with master (\S+)", process)
        yield url


def test_the_same_tables(spark: SparkSession, master: str, journal_of: Callable[..., Path], tmp_path: Path) -> None:
    journal = journal_of(lively(200, seed=41), lively(100, space="other", seed=42), seal=True)
    settings = {"master": master, "max_records": 200}
    with PipelineProcess(journal, tmp_path / "cluster", tmp_path / "log", **settings) as pipeline:
        assert int(pipeline.wait_for("end")[1]) >= 2
        assert pipeline.process.wait() == 0
    # Both took part: each worker has run an executor of this application.
    assert all(list((tmp_path / f"w{number}").glob("app-*/*")) for number in (1, 2))
    bring_up_to_date(spark, journal, tmp_path / "expected")
    assert_same(tables_of(tmp_path / "cluster"), tables_of(tmp_path / "expected"))
