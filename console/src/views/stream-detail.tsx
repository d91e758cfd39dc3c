/** One stream: who may do what with it, what flows, and what one can do about it. */

import { useState } from "preact/hooks";

import type { Stream } from "mewstream";

import type { Watch } from "../session/watch.js";
import { chains } from "../state/chains.js";
import { obstacleToManage } from "../state/permits.js";
import type { Track } from "../state/tracks.js";
import { bytes, count, duration, rate, time } from "./format.js";
import { LiveTail } from "./live-tail.js";
import { Badge, Button, Fact, Facts, Name, Who } from "./parts.js";
import { RightsForm } from "./rights-form.js";
import { Sparkline } from "./sparkline.js";
import { Status } from "./streams.js";
import { tell } from "./toasts.js";
import { Wishes } from "./wishes.js";

export function StreamDetail({ watch, track }: { watch: Watch; track: Track }) {
  const { described } = track;
  const stream = watch.space.streams.get(track.id);
  const rights = { me: watch.me, capabilities: watch.space.capabilities };
  const obstacle = track.ended ? "it has ended" : obstacleToManage(rights, described.owner);
  const counts = track.density.perSecond(Date.now(), 60);
  return (
    <article class="detail" aria-labelledby="stream-title">
      <header class="detail-head">
        <h2 id="stream-title">
          <Name>{track.title}</Name> <Status track={track} />
        </h2>
        <p class="muted">
          {track.id}
          {described.description && described.description !== track.title && (
            <>
              {" "}
              · <bdi>{described.description}</bdi>
            </>
          )}
        </p>
      </header>
      <div class="figures">
        <Figure name="frames a second" value={rate(sum(counts.slice(-5)) / 5)} />
        <Figure name="in the last minute" value={count(sum(counts))} />
        <Figure name="seen in all" value={count(track.density.total)} />
        <Figure name="bytes" value={bytes(track.bytes)} />
        <Figure name="missed" value={count(track.missed)} isBad={track.missed > 0} />
        <Sparkline values={counts} />
      </div>
      <Facts>
        <Fact name="Owner">
          <Who watch={watch} id={described.owner} /> {!described.ownerConnected && <Badge kind="warning">away</Badge>}
        </Fact>
        <Fact name="Opened">
          {time(track.openedAt)} ({duration(Date.now() - track.openedAt)} ago)
        </Fact>
        <Fact name="Reads">
          {described.readers ? described.readers.map((id) => <Who key={id} watch={watch} id={id} />) : "everyone"}
        </Fact>
        {described.contentType && <Fact name="Content">{described.contentType}</Fact>}
        {described.formats.length > 0 && (
          <Fact name="Formats">
            {described.formats.map(({ id, mimeType }) => (
              <Badge key={id}>
                {id}
                {mimeType ? ` (${mimeType})` : ""}
              </Badge>
            ))}
          </Fact>
        )}
        {track.ended && (
          <Fact name="Ended">
            {time(track.ended.at)} {track.ended.by && `by ${track.ended.by}`} {track.ended.reason}
          </Fact>
        )}
      </Facts>
      <section aria-labelledby="writers-title">
        <h3 id="writers-title">Who may write</h3>
        <ul class="writers">
          {chains(described.writers, described.delegations).map(({ id, level }) => (
            <Writer key={id} watch={watch} track={track} stream={stream} id={id} level={level} obstacle={obstacle} />
          ))}
        </ul>
        {stream && !track.ended && <Wishes watch={watch} stream={stream} obstacle={obstacle} />}
        {stream && !track.ended && <RightsForm watch={watch} stream={stream} obstacle={obstacle} />}
      </section>
      <LiveTail watch={watch} />
      <Metadata metadata={described.metadata} />
    </article>
  );
}

interface WriterProps {
  readonly watch: Watch;
  readonly track: Track;
  readonly stream: Stream | undefined;
  readonly id: string;
  /** How far below the owner's own grants it is in a chain of delegation. */
  readonly level: number;
  readonly obstacle: string | undefined;
}

function Writer({ watch, track, stream, id, level, obstacle }: WriterProps) {
  const { described } = track;
  const isOwner = id === described.owner;
  const conditions = described.conditions.get(id);
  const delegation = described.delegations.find(({ participant }) => participant === id);
  const frames = track.lanes.get(id)?.density?.total ?? 0;
  const person = watch.model.people.get(id);
  return (
    <li style={{ paddingLeft: `${Math.min(level, 6) * 20}px` }}>
      {level > 0 && <span class="muted">↳</span>}
      <Who watch={watch} id={id} />
      {delegation && delegation.depth > 0 && <Badge kind="accent">may pass it on</Badge>}
      {isOwner && <Badge kind="accent">owner</Badge>}
      {person?.presence !== "here" && <Badge kind="warning">{person?.presence ?? "gone"}</Badge>}
      {conditions && <Badge>{conditionText(conditions)}</Badge>}
      <span class="muted">{count(frames)} frames seen</span>
      {stream && !track.ended && (
        <Button
          kind="danger"
          name={`revoke-${id}`}
          label={`Revoke the right of ${id}`}
          obstacle={isOwner ? "the owner cannot lose the right: make another the owner first" : obstacle}
          act={async () => {
            await stream.revoke(id, { reason: "revoked in the console" });
            tell(`${id} may not write to ${track.title} any more`);
          }}
        >
          Revoke
        </Button>
      )}
    </li>
  );
}

function conditionText({ expiresAt, maxFrames, framesLeft }: { expiresAt?: string; maxFrames?: number; framesLeft?: number }) {
  const parts = [
    expiresAt && `until ${time(Date.parse(expiresAt))}`,
    maxFrames !== undefined && `${maxFrames} frames${framesLeft === undefined ? "" : `, ${framesLeft} left`}`,
  ];
  return parts.filter(Boolean).join(", ");
}

function Figure({ name, value, isBad }: { name: string; value: string; isBad?: boolean }) {
  return (
    <div class={isBad ? "figure bad" : "figure"}>
      <b>{value}</b>
      <span>{name}</span>
    </div>
  );
}

function Metadata({ metadata }: { metadata: Readonly<Record<string, unknown>> }) {
  const [isShown, show] = useState(false);
  const entries = Object.entries(metadata).filter(([name]) => name !== "metadata");
  if (entries.length === 0) return null;
  return (
    <details onToggle={(event) => show(event.currentTarget.open)}>
      <summary>What its request said</summary>
      {isShown && <pre class="json">{JSON.stringify(Object.fromEntries(entries), null, 2).slice(0, 8000)}</pre>}
    </details>
  );
}

function sum(values: readonly number[]): number {
  return values.reduce((total, each) => total + each, 0);
}
