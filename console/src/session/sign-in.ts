/** Who uses this page. The token is kept in memory, or in the storage of this tab if asked, and never in an address. */

import { connect } from "mewstream";

import type { SpaceEntry } from "./api.js";
import { Api } from "./api.js";
import { Watch } from "./watch.js";

export interface Credentials {
  /** Empty: whoever the token belongs to. */
  readonly participant: string;
  readonly token: string;
}

interface Kept extends Credentials {
  readonly space: string;
}

const KEY = "mewstream";

/** The spaces that one may join with a token, as this participant. */
export async function spacesFor({ participant, token }: Credentials): Promise<readonly SpaceEntry[]> {
  const spaces = await new Api(token).spaces();
  const found = spaces.filter((space) => participant === "" || space.participant === participant);
  if (found.length === 0) {
    const owners = [...new Set(spaces.map((space) => space.participant))].join(", ");
    throw new Error(`this token belongs to ${owners}, not to ${participant}`);
  }
  return found;
}

export async function join(entry: SpaceEntry, token: string): Promise<Watch> {
  const space = await connect(location.origin, {
    space: entry.id,
    participant: entry.participant,
    token,
    reconnect: { first: 300, most: 5000 },
    heartbeat: 10_000,
  });
  return new Watch(space, token, entry.id, entry.name);
}

export function keep(kept: Kept): void {
  try {
    sessionStorage.setItem(KEY, JSON.stringify(kept));
  } catch {
    // Where nothing can be stored, one signs in again.
  }
}

export function kept(): Kept | undefined {
  try {
    const found = JSON.parse(sessionStorage.getItem(KEY) ?? "null") as Kept | null;
    return found ?? undefined;
  } catch {
    return undefined;
  }
}

export function forget(): void {
  try {
    sessionStorage.removeItem(KEY);
  } catch {
    // Nothing was stored.
  }
}
