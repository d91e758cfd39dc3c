/**
 * What the participant of this page may do. It is only to spare people buttons that would be refused: the gateway
 * decides. So where the answer is not certain, such as with a capability that depends on the payload, it is yes.
 */

import type { Capability } from "mewstream";

/** Undefined where one may; otherwise why not, as the end of a sentence. */
export type Obstacle = string | undefined;

export function holds(capabilities: readonly Capability[], kind: string): boolean {
  let isHeld = false;
  for (const { kind: pattern, payload } of capabilities) {
    if (pattern.startsWith("!")) {
      if (payload === undefined && matches(pattern.slice(1), kind)) return false;
    } else if (matches(pattern, kind)) isHeld = true;
  }
  return isHeld;
}

/** A glob, of which `*` is any text, or an exact kind. */
export function matches(pattern: string, kind: string): boolean {
  const [first = "", ...rest] = pattern.split("*");
  if (rest.length === 0) return first === kind;
  if (!kind.startsWith(first)) return false;
  const last = rest.pop() ?? "";
  let at = first.length;
  for (const part of rest) {
    const found = kind.indexOf(part, at);
    if (found < 0) return false;
    at = found + part.length;
  }
  return kind.length - last.length >= at && kind.endsWith(last);
}

interface Rights {
  readonly me: string;
  readonly capabilities: readonly Capability[];
}

/** Whether one may grant, revoke, transfer and close. */
export function obstacleToManage({ me, capabilities }: Rights, owner: string): Obstacle {
  if (owner === me || holds(capabilities, "space/manage-streams")) return undefined;
  return `only ${owner}, who owns it, and managers of the space may`;
}

/** Whether one may send messages of a kind. */
export function obstacleTo({ capabilities }: Rights, kind: string): Obstacle {
  return holds(capabilities, kind) ? undefined : `that takes the capability ${kind}`;
}
