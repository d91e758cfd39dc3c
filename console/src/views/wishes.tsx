/** Those who ask for the right to write to a stream, to be answered; and asking oneself. */

import type { Stream } from "mewstream";

import type { Watch } from "../session/watch.js";
import type { Obstacle } from "../state/permits.js";
import { Button, Who } from "./parts.js";
import { tell } from "./toasts.js";

interface Props {
  readonly watch: Watch;
  readonly stream: Stream;
  readonly obstacle: Obstacle;
}

export function Wishes({ watch, stream, obstacle }: Props) {
  const { writeRequests, writers } = stream;
  const isAsking = writeRequests.some(({ participant }) => participant === watch.me);
  return (
    <>
      <ul aria-label="Those who ask to write">
        {writeRequests.map(({ participant, reason }) => (
          <li key={participant} class="wish">
            <Who watch={watch} id={participant} /> <span>asks to write</span>
            {reason && <bdi class="muted">{reason}</bdi>}
            <div class="buttons">
              <Button
                kind="primary"
                name={`grant-${participant}`}
                obstacle={obstacle}
                act={() => stream.grant(participant, { reason: "asked for it" })}
              >
                Grant
              </Button>
              <Button
                kind="danger"
                name={`deny-${participant}`}
                obstacle={obstacle}
                act={() => stream.denyWrite(participant, { reason: "denied in the console" })}
              >
                Deny
              </Button>
            </div>
          </li>
        ))}
      </ul>
      {!writers.includes(watch.me) && !isAsking && (
        <div class="buttons">
          <Button
            name="ask"
            act={async () => {
              await stream.ask();
              tell(`${stream.owner} and everyone else can see that you ask`);
            }}
          >
            Ask to write
          </Button>
        </div>
      )}
    </>
  );
}
