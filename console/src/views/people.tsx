/** Who is here, what they may do, and what was refused to them. */

import { useState } from "preact/hooks";

import { hashOf } from "../session/route.js";
import type { Watch } from "../session/watch.js";
import type { Person } from "../state/people.js";
import { obstacleTo } from "../state/permits.js";
import { duration, exactTime } from "./format.js";
import { InviteDialog } from "./invite.js";
import { Badge, Button, Empty, usePulse, Who } from "./parts.js";
import { tell } from "./toasts.js";

const MOST_LISTED = 400;
const MOST_REFUSALS = 30;
const PRESENCE = {
  here: ["here", "good"],
  suspended: ["reconnecting", "warning"],
  invited: ["invited", "accent"],
  gone: ["not here", ""],
} as const;

export function People({ watch, chosen }: { watch: Watch; chosen?: string }) {
  usePulse(watch.page);
  const [filter, setFilter] = useState("");
  const [isInviting, setInviting] = useState(false);
  const { people } = watch.model;
  const found = people.all.filter(({ id }) => id.toLowerCase().includes(filter.toLowerCase()));
  const rights = { me: watch.me, capabilities: watch.space.capabilities };
  return (
    <section class="view" aria-labelledby="people-title">
      <header class="view-head">
        <h1 id="people-title">People</h1>
        <p class="muted">{people.present.length} here</p>
        <div class="tools">
          <input
            type="search"
            placeholder="Find"
            aria-label="Find people"
            value={filter}
            onInput={(event) => setFilter(event.currentTarget.value)}
          />
          <Button kind="primary" name="invite" obstacle={obstacleTo(rights, "space/invite")} act={() => setInviting(true)}>
            Invite
          </Button>
        </div>
      </header>
      <ul class="people">
        {found.slice(0, MOST_LISTED).map((person) => (
          <PersonCard key={person.id} watch={watch} person={person} isOpen={person.id === chosen} />
        ))}
      </ul>
      {found.length > MOST_LISTED && <p class="muted pad">and {found.length - MOST_LISTED} more: find by name</p>}
      <Refusals watch={watch} />
      {isInviting && <InviteDialog watch={watch} close={() => setInviting(false)} />}
    </section>
  );
}

function PersonCard({ watch, person, isOpen }: { watch: Watch; person: Person; isOpen: boolean }) {
  const { id, presence, since, capabilities, isPaused, refusals } = person;
  const rights = { me: watch.me, capabilities: watch.space.capabilities };
  const isHere = presence === "here" || presence === "suspended";
  const absent = isHere ? undefined : `${id} is not here`;
  const [label, kind] = PRESENCE[presence];
  const writes = watch.model.tracks.open.filter(({ described }) => described.writers.includes(id));
  return (
    <li class={isOpen ? "person chosen" : "person"}>
      <div class="person-head">
        <Who watch={watch} id={id} />
        <Badge kind={kind}>{label}</Badge>
        {isPaused && <Badge kind="warning">paused</Badge>}
        {refusals > 0 && <Badge kind="bad">{refusals} refused</Badge>}
        {since !== undefined && <small class="muted">{duration(Date.now() - since)}</small>}
      </div>
      <p class="writes">
        {writes.length === 0 ? (
          <span class="muted">may write to no stream</span>
        ) : (
          <>
            <span class="muted">may write to</span>{" "}
            {writes.slice(0, 8).map((track) => (
              <a key={track.id} class="chip" href={hashOf("streams", track.id)}>
                <bdi>{track.title}</bdi>
              </a>
            ))}
            {writes.length > 8 && <span class="muted">and {writes.length - 8} more</span>}
          </>
        )}
      </p>
      <details>
        <summary>
          {capabilities.length} {capabilities.length === 1 ? "capability" : "capabilities"}
        </summary>
        <ul class="capabilities">
          {capabilities.map((each, index) => (
            <li key={index}>
              <code>{each.kind}</code> {each.payload !== undefined && <code>{JSON.stringify(each.payload)}</code>}
            </li>
          ))}
        </ul>
      </details>
      {id !== watch.me && isHere && (
        <div class="buttons">
          {isPaused ? (
            <Button
              name={`resume-${id}`}
              obstacle={absent ?? obstacleTo(rights, "participant/resume")}
              act={() => watch.space.send("participant/resume", {}, { to: id })}
            >
              Let go on
            </Button>
          ) : (
            <Button
              name={`pause-${id}`}
              obstacle={absent ?? obstacleTo(rights, "participant/pause")}
              act={() =>
                watch.space.send("participant/pause", { reason: "paused in the console", timeout_seconds: 60 }, { to: id })
              }
            >
              Pause for a minute
            </Button>
          )}
          <Button
            kind="danger"
            name={`kick-${id}`}
            obstacle={absent ?? obstacleTo(rights, "space/kick")}
            act={async () => {
              await watch.space.kick(id, { reason: "removed in the console" });
              tell(`${id} was removed from the space`);
            }}
          >
            Kick
          </Button>
        </div>
      )}
    </li>
  );
}

function Refusals({ watch }: { watch: Watch }) {
  const refusals = watch.model.refusals.slice(-MOST_REFUSALS).reverse();
  return (
    <section class="refusals" aria-labelledby="refusals-title">
      <h2 id="refusals-title">Last refusals</h2>
      {!watch.observes && (
        <p class="muted">
          Those of others are told to holders of the capability <code>gateway/observe</code>.
        </p>
      )}
      {refusals.length === 0 ? (
        <Empty title="Nothing was refused" />
      ) : (
        <div class="scroll" tabIndex={0}>
          <table>
            <thead>
              <tr>
                <th>Time</th>
                <th>Who</th>
                <th>What</th>
                <th>Why</th>
                <th class="number">Times</th>
              </tr>
            </thead>
            <tbody>
              {refusals.map(({ at, participant, kind, error, message, stream, count }, index) => (
                <tr key={index}>
                  <td>{exactTime(at)}</td>
                  <td>
                    <Who watch={watch} id={participant} />
                  </td>
                  <td>
                    {kind} {stream && <bdi>{watch.model.title(stream)}</bdi>}
                  </td>
                  <td>
                    <Badge kind="bad">{error}</Badge> <bdi>{message}</bdi>
                  </td>
                  <td class="number">{count}</td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
    </section>
  );
}
