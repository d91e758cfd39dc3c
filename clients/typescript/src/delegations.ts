import type { JsonObject } from "./wire.js";
import { integer, object, string, strings } from "./wire.js";

type Delegations = readonly JsonObject[];

/** The chains of delegation in the description of a stream after a grant or a revoke that is told of a participant. */
export function delegationsAfterRight(known: Delegations, participant: string, told: JsonObject): JsonObject[] {
  const writers = new Set(strings(told["authorized_writers"]));
  const depth = integer(object(told["delegate"])["depth"]) ?? 0;
  const isInChain = writers.has(participant) && (depth > 0 || (told["parent"] ?? undefined) !== undefined);
  const entry = { participant_id: participant, by: told["by"], depth };
  const before = known.findIndex((each) => nameOf(each) === participant);
  const found = known.flatMap((each) => (nameOf(each) !== participant ? [each] : isInChain ? [entry] : []));
  if (before < 0 && isInChain) found.push(entry);
  return narrowed(
    found.filter((each) => writers.has(nameOf(each))),
    participant,
  );
}

/** After a transfer, the new owner needs no delegation, and those at the end of a chain hold their right from it. */
export function delegationsAfterTransfer(known: Delegations, newOwner: string): JsonObject[] {
  return known.filter((each) => nameOf(each) !== newOwner && (each["by"] !== newOwner || Boolean(each["depth"])));
}

/** Nobody has more depth than one less than who it has the right from. */
function narrowed(known: Delegations, participant: string): JsonObject[] {
  const depths = new Map(known.map((each) => [nameOf(each), integer(each["depth"]) ?? 0]));
  const pending = [participant];
  for (let above = pending.pop(); above !== undefined; above = pending.pop()) {
    const limit = depths.get(above);
    if (limit === undefined) continue;
    for (const each of known) {
      const name = nameOf(each);
      if (each["by"] !== above || name === above || (depths.get(name) ?? 0) < limit) continue;
      depths.set(name, Math.max(0, limit - 1));
      if (limit > 0) pending.push(name);
    }
  }
  return known.map((each) => ({ ...each, depth: depths.get(nameOf(each)) }));
}

function nameOf(each: JsonObject): string {
  return string(each["participant_id"]) ?? "";
}
