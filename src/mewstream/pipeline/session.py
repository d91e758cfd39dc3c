"""A Spark session as the pipeline needs it. Any other works too, after ``mewstream.pipeline.register(spark)``."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path

from pyspark.sql import SparkSession

from mewstream.pipeline.java import use_java
from mewstream.pipeline.source import register

_TASKS_PER_CORE = 4
LOG_SETTINGS = Path(__file__).with_name("log4j2.properties")
_POOLS = Path(__file__).with_name("fairscheduler.xml")
_GIB = 1 << 30
_LOGGING = f"-Dlog4j2.configurationFile={LOG_SETTINGS.as_uri()}"
#: A stage becomes one method, and Java would leave a large one interpreted: several times slower.
_WHOLE = "-XX:-DontCompileHugeMethods"
#: The batches of our source come whole from Arrow. To check each value as Spark reads it takes about 4 % of a copy.
_TRUSTED = ("-Darrow.enable_unsafe_memory_access=true", "-Darrow.enable_null_check_for_get=false")
#: Long passes over many rows that die young: what counts is the whole, and not the longest pause.
_COLLECTOR = "-XX:+UseParallelGC"
_JAVA = (_WHOLE, *_TRUSTED, _COLLECTOR)
#: The thorough compiler takes more than it gives within the first minutes; the quick one makes more code.
_QUICK = ("-XX:TieredStopAtLevel=1", "-XX:ReservedCodeCacheSize=256m")


def spark_session(
    master: str | None = None,
    app_name: str = "mewstream",
    *,
    is_short: bool = False,
    config: Mapping[str, str] | None = None,
) -> SparkSession:
    """A session that knows the source ``mew``. Without a ``master`` it runs here, on all cores. One that ``is_short``
    is for little work: Java compiles quickly and not well. ``config`` has the last word on every setting. Raises
    :class:`~mewstream.pipeline.errors.PipelineError` with one line where there is no Java."""
    use_java()
    python = os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    settings = {
        "spark.master": master or "local[*, 2]",
        "spark.app.name": app_name,
        "spark.pyspark.python": python,
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.adaptive.enabled": "true",
        # Views are named and described by participants: ${env:...} in their words would show the environment.
        "spark.sql.variable.substitute": "false",
        "spark.ui.showConsoleProgress": "false",
        # A batch of all tables compiles more than the hundred that Spark keeps, and the next one needs them again.
        "spark.sql.codegen.cache.maxEntries": "2000",
        # The passes of a batch go on side by side, and a short one is not to wait for all of a long one.
        "spark.scheduler.mode": "FAIR",
        "spark.scheduler.allocation.file": _POOLS.as_uri(),
        # Rows come from Python in large batches: a scan of the journal takes a tenth less than with 64 KiB.
        "spark.buffer.size": str(1 << 20),
        # Tasks that are few and long leave cores idle at their end.
        "spark.sql.files.minPartitionNum": str(_TASKS_PER_CORE * (os.cpu_count() or 2)),
        # Groups with lists in them, of which a batch has more than the hundred that Spark keeps without sorting.
        "spark.sql.objectHashAggregate.sortBased.fallbackThreshold": "100000",
        "spark.driver.extraJavaOptions": " ".join([_LOGGING, *_JAVA, *(_QUICK if is_short else ())]),
        "spark.executor.extraJavaOptions": " ".join(_JAVA),
    }
    if settings["spark.master"].startswith("local"):
        settings |= _local_settings()
    settings |= config or {}
    builder = SparkSession.builder
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    register(spark)
    return spark


def _local_settings() -> dict[str, str]:
    """Nobody but this machine is asked or answered, and the one process there is gets a fair share of it."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.memory": f"{min(max(memory // 4, _GIB), 4 * _GIB) >> 20}m",
        "spark.sql.shuffle.partitions": str(os.cpu_count() or 2),
        "spark.ui.enabled": "false",
    }
