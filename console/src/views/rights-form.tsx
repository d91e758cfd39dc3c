/** Grant, transfer and close, with a reason that everyone can read. */

import { useState } from "preact/hooks";

import type { Stream } from "mewstream";

import type { Watch } from "../session/watch.js";
import type { Obstacle } from "../state/permits.js";
import { Dialog } from "./dialog.js";
import { attempt, Button } from "./parts.js";
import { tell } from "./toasts.js";

interface Props {
  readonly watch: Watch;
  readonly stream: Stream;
  readonly obstacle: Obstacle;
}

export function RightsForm({ watch, stream, obstacle }: Props) {
  const [who, setWho] = useState("");
  const [reason, setReason] = useState("");
  const [frames, setFrames] = useState("");
  const [seconds, setSeconds] = useState("");
  const [isClosing, setClosing] = useState(false);
  const nobody = who === "" ? "choose a participant first" : undefined;
  const name = stream.alias ?? stream.id;
  const why = { reason: reason || undefined };
  const people = watch.model.people.present;

  async function done(text: string, act: () => Promise<unknown>): Promise<void> {
    await act();
    tell(text);
    setReason("");
  }

  const conditions = {
    maxFrames: Number(frames) > 0 ? Number(frames) : undefined,
    expiresAt: Number(seconds) > 0 ? new Date(Date.now() + Number(seconds) * 1000) : undefined,
  };
  return (
    <div class="rights" role="group" aria-label="Change rights">
      <div class="fields">
        <label>
          Participant
          <select name="who" value={who} onChange={(event) => setWho(event.currentTarget.value)}>
            <option value="">choose…</option>
            {people.map(({ id }) => (
              <option key={id} value={id}>
                {id}
              </option>
            ))}
          </select>
        </label>
        <label class="grow">
          Reason
          <input
            name="reason"
            maxLength={200}
            placeholder="for everyone to read"
            value={reason}
            onInput={(event) => setReason(event.currentTarget.value)}
          />
        </label>
        <label class="short">
          For seconds
          <input
            type="number"
            min="1"
            placeholder="no end"
            value={seconds}
            onInput={(event) => setSeconds(event.currentTarget.value)}
          />
        </label>
        <label class="short">
          Frames
          <input
            type="number"
            min="1"
            placeholder="any"
            value={frames}
            onInput={(event) => setFrames(event.currentTarget.value)}
          />
        </label>
      </div>
      <div class="buttons">
        <Button
          kind="primary"
          name="grant"
          obstacle={obstacle ?? nobody}
          act={() => done(`${who} may write to ${name} now`, () => stream.grant(who, { ...why, ...conditions }))}
        >
          Grant write
        </Button>
        <Button
          name="hand-over"
          label="Gives the right of the one who writes now, beside the owner, to this participant"
          obstacle={obstacle ?? nobody}
          act={() => done(`${name} was handed over to ${who}`, () => stream.handOver(who, why))}
        >
          Hand over
        </Button>
        <Button
          name="transfer"
          obstacle={obstacle ?? nobody}
          act={() => done(`${who} owns ${name} now`, () => stream.transfer(who, why))}
        >
          Make owner
        </Button>
        {stream.readers && (
          <Button
            name="grant-read"
            obstacle={obstacle ?? nobody}
            act={() => done(`${who} may read ${name} now`, () => stream.grantRead(who, why))}
          >
            Grant read
          </Button>
        )}
        <Button kind="danger" name="close" obstacle={obstacle} act={() => setClosing(true)}>
          Close stream
        </Button>
      </div>
      {isClosing && (
        <Dialog title={`Close ${name}?`} close={() => setClosing(false)}>
          <p>It ends for everyone, and cannot be opened again.</p>
          <div class="buttons">
            <Button
              kind="danger"
              name="close-now"
              act={async () => {
                if (await attempt(() => stream.close(why))) setClosing(false);
              }}
            >
              Close it
            </Button>
            <Button act={() => setClosing(false)}>Keep it</Button>
          </div>
        </Dialog>
      )}
    </div>
  );
}
