/** The writers of a stream as a tree: below each who may pass its right on, those who hold it from it. */

import type { Delegation } from "mewstream";

export interface Link {
  readonly id: string;
  /** How many there are above it in its chain. */
  readonly level: number;
}

export function chains(writers: readonly string[], delegations: readonly Delegation[]): Link[] {
  const delegates = new Set(delegations.filter(({ depth }) => depth > 0).map(({ participant }) => participant));
  const above = new Map<string, string>();
  for (const { participant, by } of delegations) if (delegates.has(by) && by !== participant) above.set(participant, by);
  const found = new Map<string, Link>();
  const add = (id: string, level: number): void => {
    if (found.has(id)) return; // nobody is below itself, whatever is told
    found.set(id, { id, level });
    for (const each of writers) if (above.get(each) === id) add(each, level + 1);
  };
  for (const each of writers) if (!above.has(each)) add(each, 0);
  for (const each of writers) add(each, 0);
  return [...found.values()];
}
