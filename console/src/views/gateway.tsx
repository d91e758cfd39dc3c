/** The figures of the whole gateway. */

import { useEffect, useRef, useState } from "preact/hooks";

import type { Figures as Told } from "../session/api.js";
import type { Watch } from "../session/watch.js";
import type { Sample } from "../state/figures.js";
import { Figures } from "../state/figures.js";
import { Chart } from "./chart.js";
import { bytes, count, duration, rate } from "./format.js";
import { Badge, Empty, Fact, Facts } from "./parts.js";

const ASK_MS = 1000;

export function GatewayView({ watch }: { watch: Watch }) {
  const figures = useRef(new Figures());
  const [told, setTold] = useState<Told>();
  const [problem, setProblem] = useState<string>();

  useEffect(() => {
    if (!watch.observes) return;
    const ask = async (): Promise<void> => {
      try {
        const answer = await watch.api.figures();
        figures.current.add(sampleOf(answer));
        setTold(answer);
        setProblem(undefined);
      } catch (error) {
        setProblem(error instanceof Error ? error.message : String(error));
      }
    };
    void ask();
    const timer = setInterval(() => void ask(), ASK_MS);
    return () => clearInterval(timer);
  }, [watch]);

  return (
    <section class="view" aria-labelledby="gateway-title">
      <header class="view-head">
        <h1 id="gateway-title">Gateway</h1>
        {told && (
          <p class="muted">
            mewstream {told.version} · up for {duration(told.uptime * 1000)}
          </p>
        )}
      </header>
      {!watch.observes && (
        <Empty title="Not for everyone">
          The figures of the whole gateway are for holders of the capability <code>gateway/observe</code>.
        </Empty>
      )}
      {problem && (
        <p class="problem" role="alert">
          {problem}
        </p>
      )}
      {told && <Panels told={told} figures={figures.current} />}
    </section>
  );
}

function Panels({ told, figures }: { told: Told; figures: Figures }) {
  const { rates } = figures;
  const times = rates.map(({ at }) => at);
  const newest = rates.at(-1);
  return (
    <>
      <div class="charts">
        <Chart
          title="Frames in, a second"
          value={rate(newest?.frames ?? 0)}
          times={times}
          values={rates.map(({ frames }) => frames)}
          format={count}
        />
        <Chart
          title="Deliveries, a second"
          value={rate(newest?.deliveries ?? 0)}
          times={times}
          values={rates.map(({ deliveries }) => deliveries)}
          format={count}
        />
        <Chart
          title="Processor"
          value={`${((newest?.cpu ?? 0) * 100).toFixed(0)} %`}
          times={times}
          values={rates.map(({ cpu }) => cpu * 100)}
          format={(value) => `${value.toFixed(0)} %`}
        />
        <Chart
          title="Memory"
          value={bytes(newest?.memory ?? 0)}
          times={times}
          values={rates.map(({ memory }) => memory)}
          format={bytes}
        />
      </div>
      <div class="panels">
        <Connections told={told} />
        <Journal told={told} />
        <SlowReaders told={told} />
        <Closes told={told} />
      </div>
      <SpacesTable told={told} />
    </>
  );
}

function Connections({ told: { connections } }: { told: Told }) {
  return (
    <section class="panel" aria-label="Connections">
      <h2>Connections</h2>
      <Facts>
        <Fact name="WebSocket">{connections.websocket}</Fact>
        <Fact name="HTTP">{connections.http}</Fact>
        <Fact name="Waiting to be sent">{bytes(connections.unsent_bytes + connections.unsent_http_bytes)}</Fact>
      </Facts>
    </section>
  );
}

function Journal({ told: { journal } }: { told: Told }) {
  const kind = { ok: "good", failing: "bad" }[journal.status] ?? "warning";
  return (
    <section class="panel" aria-label="Journal">
      <h2>
        Journal <Badge kind={kind}>{journal.status}</Badge>
      </h2>
      {journal.status === "none" ? (
        <p class="muted">Nothing is kept on disk: a restart loses everything.</p>
      ) : (
        <Facts>
          <Fact name="Durability">{journal.durability}</Fact>
          <Fact name="Size">{bytes(journal.bytes ?? 0)}</Fact>
          <Fact name="Free on the disk">{bytes(journal.free_bytes ?? 0)}</Fact>
        </Facts>
      )}
    </section>
  );
}

function SlowReaders({ told }: { told: Told }) {
  return (
    <section class="panel" aria-label="Slow readers">
      <h2>Slow readers</h2>
      {told.slow_readers.length === 0 ? (
        <p class="muted">Everyone keeps up.</p>
      ) : (
        <ul class="plain">
          {told.slow_readers.map(({ space, participant, unsent_bytes: unsent, frames_dropped: dropped }) => (
            <li key={`${space} ${participant}`}>
              <bdi>{participant}</bdi> <span class="muted">in {space}</span>: {bytes(unsent)} waiting, {count(dropped)} dropped
            </li>
          ))}
        </ul>
      )}
    </section>
  );
}

function Closes({ told: { connections } }: { told: Told }) {
  const closed = Object.entries({ ...connections.closed, ...connections.refused }).filter(([, times]) => times > 0);
  return (
    <section class="panel" aria-label="Closed connections">
      <h2>Closed by the gateway</h2>
      {closed.length === 0 ? (
        <p class="muted">None.</p>
      ) : (
        <Facts>
          {closed.map(([reason, times]) => (
            <Fact key={reason} name={reason.replaceAll("_", " ")}>
              {count(times)}
            </Fact>
          ))}
        </Facts>
      )}
    </section>
  );
}

function SpacesTable({ told }: { told: Told }) {
  return (
    <section class="panel" aria-label="Spaces">
      <h2>Spaces</h2>
      <div class="scroll" tabIndex={0}>
        <table>
          <thead>
            <tr>
              <th>Space</th>
              <th class="number">Present</th>
              <th class="number">Connected</th>
              <th class="number">Streams</th>
              <th class="number">Frames</th>
              <th class="number">Bytes</th>
              <th class="number">Deliveries</th>
              <th class="number">Dropped</th>
              <th class="number">Refusals</th>
            </tr>
          </thead>
          <tbody>
            {told.spaces.map((space) => (
              <tr key={space.id}>
                <td>
                  <bdi>{space.name || space.id}</bdi>
                </td>
                <td class="number">{space.participants}</td>
                <td class="number">{space.connected}</td>
                <td class="number">{space.streams}</td>
                <td class="number">{count(space.frames)}</td>
                <td class="number">{bytes(space.frame_bytes)}</td>
                <td class="number">{count(space.deliveries)}</td>
                <td class="number">{count(space.frames_dropped)}</td>
                <td class="number">{count(space.refusals)}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </section>
  );
}

function sampleOf({ started, uptime, process, connections, spaces }: Told): Sample {
  const sum = (key: "frames" | "frame_bytes" | "deliveries" | "frames_dropped"): number =>
    spaces.reduce((total, space) => total + space[key], 0);
  return {
    at: Date.parse(started) + uptime * 1000,
    cpuSeconds: process.cpu_seconds,
    memory: process.memory_bytes ?? 0,
    connections: connections.websocket,
    frames: sum("frames"),
    bytes: sum("frame_bytes"),
    deliveries: sum("deliveries"),
    dropped: sum("frames_dropped"),
  };
}
