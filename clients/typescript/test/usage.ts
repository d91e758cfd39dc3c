/** A program that only has to compile: the types say what the documents say. */

import type { Frame, SpaceEvent, WebSocketConstructor } from "mewstream";
import { connect, RefusedError, StreamNotFoundError } from "mewstream";

/** Fails to compile where the two types differ; `any` differs from everything. */
type Same<A, B> = (<T>() => T extends A ? 1 : 2) extends <T>() => T extends B ? 1 : 2 ? true : never;
const same = <A, B>(_: Same<A, B>): void => undefined;

export async function program(): Promise<void> {
  const space = await connect("ws://127.0.0.1:8080", {
    space: "demo",
    token: async () => "secret",
    reconnect: { attempts: 3 },
    WebSocket: globalThis.WebSocket satisfies WebSocketConstructor,
  });
  const stream = await space.open({ description: "typed", onSlow: "latest", autoGrant: ["player1"] });
  for await (const frame of space.subscribe(stream, { onSlow: "latest", maxPending: 2 })) {
    same<typeof frame, Frame>(true);
    const parsed = frame.json();
    same<typeof parsed, unknown>(true);
    const { x } = frame.json<{ x: number }>();
    same<typeof x, number>(true);
    same<typeof frame.data, Uint8Array>(true);
  }
  // @ts-expect-error: there is no such policy
  space.subscribe(stream, { onSlow: "pause" });
  // @ts-expect-error: there is no such option
  await space.open({ desired_id: "x" });
  space.on("writeGranted", (event) => same<typeof event.participant, string>(true));
  // @ts-expect-error: there is no such event
  space.on("write-granted", () => undefined);
  space.on("*", (event) => describe(event));
  for (const [id, participant] of space.participants) same<typeof participant.id, typeof id>(true);
  try {
    await stream.close();
  } catch (error) {
    if (error instanceof StreamNotFoundError) same<typeof error.code, string>(true);
    else if (error instanceof RefusedError) console.log(error.code, error.details["stream_id"]);
  }
}

function describe(event: SpaceEvent): string {
  switch (event.type) {
    case "chat":
      return event.text;
    case "streamOpened":
      return event.stream.owner;
    case "resumed":
      return String(event.recovered);
    default:
      return event.type;
  }
}
