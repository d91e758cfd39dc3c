/** Which view is shown. It is the fragment of the address, so that a view can be marked and gone back from. */

export const VIEWS = ["timeline", "streams", "people", "inbox", "gateway"] as const;
export type View = (typeof VIEWS)[number];

export interface Route {
  readonly view: View;
  /** What is chosen in it: the id of a stream or a participant. */
  readonly chosen?: string;
}

export function routeOf(hash: string): Route {
  const [name = "", chosen] = hash.replace(/^#\/?/, "").split("/");
  const view = VIEWS.find((each) => each === name) ?? "timeline";
  if (!chosen) return { view };
  try {
    return { view, chosen: decodeURIComponent(chosen) };
  } catch {
    return { view };
  }
}

export function hashOf(view: View, chosen?: string): string {
  return chosen === undefined ? `#/${view}` : `#/${view}/${encodeURIComponent(chosen)}`;
}
