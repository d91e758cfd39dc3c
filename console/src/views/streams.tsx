/** All streams as a list, and one of them in detail. */

import { useEffect, useState } from "preact/hooks";

import { hashOf } from "../session/route.js";
import type { Watch } from "../session/watch.js";
import type { Track } from "../state/tracks.js";
import { bytes, rate } from "./format.js";
import { Icon } from "./icons.js";
import { Badge, Empty, Name, usePulse, Who } from "./parts.js";
import { Sparkline } from "./sparkline.js";
import { StreamDetail } from "./stream-detail.js";

const SECONDS = 60;
const MOST_LISTED = 300;

export function Streams({ watch, chosen }: { watch: Watch; chosen?: string }) {
  usePulse(watch.page);
  const [filter, setFilter] = useState("");
  const [hasEnded, setEnded] = useState(false);
  useEffect(() => {
    watch.follow(chosen);
    return () => watch.follow(undefined);
  }, [chosen]);
  const { tracks } = watch.model;
  const track = chosen === undefined ? undefined : tracks.get(chosen);
  const words = filter.toLowerCase();
  const found = tracks.all
    .filter((each) => each.isOpen || hasEnded)
    .filter(({ title, id, described }) => `${title} ${id} ${described.owner}`.toLowerCase().includes(words));

  return (
    <section class={chosen === undefined ? "view split" : "view split has-chosen"} aria-labelledby="streams-title">
      <div class="list-pane">
        <header class="view-head">
          <h1 id="streams-title">Streams</h1>
          <p class="muted">{tracks.open.length} open</p>
          <div class="tools">
            <input
              type="search"
              placeholder="Find"
              aria-label="Find streams"
              value={filter}
              onInput={(event) => setFilter(event.currentTarget.value)}
            />
            <label class="check">
              <input type="checkbox" checked={hasEnded} onChange={(event) => setEnded(event.currentTarget.checked)} />
              ended
            </label>
          </div>
        </header>
        {found.length === 0 && (
          <Empty title={filter ? "No such stream" : "No open streams"}>
            A stream shows here as soon as somebody opens it.
          </Empty>
        )}
        <ul class="cards">
          {found.slice(0, MOST_LISTED).map((each) => (
            <StreamCard key={each.id} watch={watch} track={each} isChosen={each.id === chosen} />
          ))}
        </ul>
        {found.length > MOST_LISTED && <p class="muted pad">and {found.length - MOST_LISTED} more: find by name</p>}
      </div>
      {chosen !== undefined && (
        <div class="detail-pane">
          <a class="button quiet back" href={hashOf("streams")}>
            <Icon name="back" /> All streams
          </a>
          {track ? (
            <StreamDetail key={track.id} watch={watch} track={track} />
          ) : (
            <Empty title="There is no such stream">It may have ended before this page was opened.</Empty>
          )}
        </div>
      )}
    </section>
  );
}

function StreamCard({ watch, track, isChosen }: { watch: Watch; track: Track; isChosen: boolean }) {
  const { described } = track;
  const counts = track.density.perSecond(Date.now(), SECONDS);
  const now = counts.slice(-5).reduce((sum, each) => sum + each, 0) / 5;
  return (
    <li>
      <a class={isChosen ? "card chosen" : "card"} href={hashOf("streams", track.id)} aria-current={isChosen || undefined}>
        <span class="card-title">
          <Name>{track.title}</Name>
          <Status track={track} />
        </span>
        <span class="card-sub">
          <Who watch={watch} id={described.owner} />
          <span class="muted">
            {described.writers.length} {described.writers.length === 1 ? "writer" : "writers"} ·{" "}
            {described.readers ? `${described.readers.length} readers` : "everyone reads"}
          </span>
        </span>
        <Sparkline values={counts} />
        <span class="card-rate">
          <b>{rate(now)}</b>/s
          <small class="muted">{bytes(track.bytes)}</small>
        </span>
      </a>
    </li>
  );
}

export function Status({ track }: { track: Track }) {
  if (track.ended) return <Badge>{track.ended.how}</Badge>;
  if (track.described.status === "ready") return <Badge kind="warning">announced</Badge>;
  if (!track.described.ownerConnected) return <Badge kind="warning">owner away</Badge>;
  return <Badge kind="good">live</Badge>;
}
