/** What the tests of the model are made of: events as the client tells them. */

const BUILT = new URL("../.test-build/console/src/", import.meta.url);

/** A module of the sources, compiled. */
export function load(path) {
  return import(new URL(`${path}.js`, BUILT));
}

export function stream(id, fields = {}) {
  return {
    ...{ id, owner: "ann", ownerConnected: true, writers: ["ann"], status: "live", formats: [] },
    ...{ conditions: new Map(), writeRequests: [], delegations: [], metadata: {} },
    ...fields,
  };
}

let seq = 0;

export function message(kind, payload = {}, fields = {}) {
  seq++;
  return { kind, id: `m${seq}`, ts: "", from: "system:gateway", to: [], correlationId: [], payload, seq, ...fields };
}

/** A change of the right to write. */
export function right(type, streamId, participant, writers, more = {}) {
  const payload = { authorized_writers: writers };
  return { type, stream: streamId, participant, by: "ann", message: message("stream/write-granted", payload), ...more };
}

export function spans(found) {
  return found.all.map(({ from, to }) => [from, to]);
}
