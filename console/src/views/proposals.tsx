/** Requests that others propose, to approve or to reject. */

import { useState } from "preact/hooks";

import type { Capability, Proposed } from "mewstream";

import type { Watch } from "../session/watch.js";
import type { Entry } from "../state/inbox.js";
import { callText } from "../state/model.js";
import { obstacleTo } from "../state/permits.js";
import { exactTime } from "./format.js";
import { Badge, Button, Empty, Who } from "./parts.js";
import { tell } from "./toasts.js";

const SETTLED = 10;

export function Proposals({ watch }: { watch: Watch }) {
  const { proposals } = watch.model.inbox;
  const open = proposals.filter(({ state }) => state === "open");
  const settled = proposals.filter(({ state }) => state !== "open").slice(0, SETTLED);
  return (
    <section class="panel" aria-labelledby="proposals-title">
      <h2 id="proposals-title">Proposals</h2>
      {open.length === 0 && <Empty title="Nothing to decide">Agents propose here what they may not do by themselves.</Empty>}
      <ul class="proposals">
        {open.map((entry) => (
          <Proposal key={entry.proposed.proposal} watch={watch} entry={entry} />
        ))}
        {settled.map(({ proposed, state, by, reason, at }) => (
          <li key={proposed.proposal} class="proposal settled">
            <div class="proposal-head">
              <Who watch={watch} id={proposed.sender} /> <Badge kind={state === "fulfilled" ? "good" : ""}>{state}</Badge>
              <small class="muted">{exactTime(at)}</small>
            </div>
            <code>{callText(proposed.method, proposed.params)}</code>
            <p class="muted">
              by <bdi>{by}</bdi> {reason && <bdi>({reason})</bdi>}
            </p>
          </li>
        ))}
      </ul>
    </section>
  );
}

function Proposal({ watch, entry: { proposed, at } }: { watch: Watch; entry: Entry }) {
  const [target, setTarget] = useState(proposed.to[0] ?? "");
  const rights = { me: watch.me, capabilities: watch.space.capabilities };
  const obstacle = obstacleTo(rights, "mcp/request") ?? (target === "" ? "choose who is to carry it out" : undefined);
  const others = watch.model.people.present.filter(({ id }) => id !== proposed.sender);
  const allowed = capabilityFor(proposed);

  async function approve(): Promise<void> {
    // The result goes to whoever proposed it; here it is enough to know how it went.
    await watch.space.fulfil(proposed, { to: target });
    tell(`approved: ${target} has carried it out`);
  }

  return (
    <li class="proposal">
      <div class="proposal-head">
        <Who watch={watch} id={proposed.sender} />
        <small class="muted">{exactTime(at)}</small>
      </div>
      <code>{callText(proposed.method, proposed.params)}</code>
      <details>
        <summary>All of it</summary>
        <pre class="json">{JSON.stringify({ method: proposed.method, params: proposed.params }, null, 2).slice(0, 8000)}</pre>
      </details>
      {proposed.to.length === 0 && (
        <label>
          Carried out by
          <select value={target} onChange={(event) => setTarget(event.currentTarget.value)}>
            <option value="">choose…</option>
            {others.map(({ id }) => (
              <option key={id}>{id}</option>
            ))}
          </select>
        </label>
      )}
      <div class="buttons">
        <Button kind="primary" name="approve" obstacle={obstacle} act={approve}>
          Approve
        </Button>
        <Button
          name="always"
          label={`Approve, and let ${proposed.sender} do this without asking from now on`}
          obstacle={obstacle ?? obstacleTo(rights, "capability/grant")}
          act={async () => {
            await watch.space.grantCapabilities(proposed.sender, [allowed]);
            await approve();
          }}
        >
          Always allow
        </Button>
        <Button
          kind="danger"
          name="reject"
          obstacle={obstacleTo(rights, "mcp/reject")}
          act={() => watch.space.reject(proposed, { reason: "rejected in the console" })}
        >
          Reject
        </Button>
      </div>
    </li>
  );
}

/** What somebody needs to make this request without asking: this tool, or this method, and nothing more. */
function capabilityFor({ method, params }: Proposed): Capability {
  const name = (params as { name?: unknown } | undefined)?.name;
  const payload = method === "tools/call" && typeof name === "string" ? { method, params: { name } } : { method };
  return { kind: "mcp/request", payload };
}
