/** Invites somebody new. The token is shown once, and kept nowhere. */

import { useState } from "preact/hooks";

import type { Invitation } from "mewstream";

import type { Watch } from "../session/watch.js";
import { Dialog } from "./dialog.js";
import { Icon } from "./icons.js";
import { attempt, Button } from "./parts.js";
import { tell } from "./toasts.js";

const KINDS: readonly (readonly [string, string])[] = [
  ["chat", "may chat"],
  ["mcp/proposal", "may propose"],
  ["mcp/request", "may call tools"],
  ["stream/request", "may open streams"],
  ["reasoning/*", "may think aloud"],
];

export function InviteDialog({ watch, close }: { watch: Watch; close: () => void }) {
  const [id, setId] = useState("");
  const [kinds, setKinds] = useState<ReadonlySet<string>>(new Set(["chat"]));
  const [made, setMade] = useState<Invitation>();

  function toggle(kind: string): void {
    const next = new Set(kinds);
    if (!next.delete(kind)) next.add(kind);
    setKinds(next);
  }

  if (made) {
    return (
      <Dialog title={`${made.participant} is invited`} close={close}>
        <p>This token is shown only now. Whoever has it can join as {made.participant}.</p>
        <div class="token">
          <code data-name="token">{made.token}</code>
          <Button
            label="Copy the token"
            act={async () => {
              await navigator.clipboard.writeText(made.token);
              tell("copied");
            }}
          >
            <Icon name="copy" />
          </Button>
        </div>
        {made.url && (
          <p class="muted">
            Address: <code>{made.url}</code>
          </p>
        )}
      </Dialog>
    );
  }
  return (
    <Dialog title="Invite somebody" close={close}>
      <form
        onSubmit={(event) => {
          event.preventDefault();
          const capabilities = [...kinds].map((kind) => ({ kind }));
          void attempt(async () => setMade(await watch.space.invite(id.trim(), { capabilities })));
        }}
      >
        <label>
          Name
          <input name="invitee" required spellcheck={false} value={id} onInput={(event) => setId(event.currentTarget.value)} />
        </label>
        <fieldset>
          <legend>Capabilities</legend>
          {KINDS.map(([kind, text]) => (
            <label key={kind} class="check">
              <input type="checkbox" checked={kinds.has(kind)} onChange={() => toggle(kind)} /> {text}{" "}
              <code class="muted">{kind}</code>
            </label>
          ))}
        </fieldset>
        <div class="buttons">
          <button type="submit" class="button primary">
            Invite
          </button>
          <Button act={close}>Cancel</Button>
        </div>
      </form>
    </Dialog>
  );
}
