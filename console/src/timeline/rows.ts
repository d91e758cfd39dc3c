/** What the timeline shows, from top to bottom. */

import type { Mark, MarkKind } from "../state/marks.js";
import type { Lane, Track } from "../state/tracks.js";

export type Row =
  | { readonly kind: "space"; readonly top: number; readonly height: number }
  | { readonly kind: "track"; readonly top: number; readonly height: number; readonly track: Track }
  | {
      readonly kind: "lane";
      readonly top: number;
      readonly height: number;
      readonly track: Track;
      readonly lane: Lane;
      readonly isLast: boolean;
    };

export interface Layout {
  readonly rows: readonly Row[];
  readonly height: number;
  /** The rows of streams, by id, and those of their participants. */
  readonly places: ReadonlyMap<string, { readonly track: Row; readonly lanes: ReadonlyMap<string, Row> }>;
}

const SPACE = 34;
const TRACK = 30;
const LANE = 26;
const GAP = 8;

/** Streams that had ended before `from` are left out, and lanes where nothing can be seen since then. */
export function layout(tracks: readonly Track[], from: number, folded: ReadonlySet<string>): Layout {
  const rows: Row[] = [{ kind: "space", top: 0, height: SPACE }];
  const places = new Map<string, { track: Row; lanes: Map<string, Row> }>();
  let top = SPACE + GAP;
  for (const track of tracks) {
    if (track.ended && track.ended.at < from) continue;
    const heading: Row = { kind: "track", top, height: TRACK, track };
    const ofLanes = new Map<string, Row>();
    places.set(track.id, { track: heading, lanes: ofLanes });
    rows.push(heading);
    top += TRACK;
    const lanes = folded.has(track.id) ? [] : lanesOf(track, from);
    lanes.forEach((lane, index) => {
      const row: Row = { kind: "lane", top, height: LANE, track, lane, isLast: index === lanes.length - 1 };
      ofLanes.set(lane.participant, row);
      rows.push(row);
      top += LANE;
    });
    top += GAP;
  }
  return { rows, height: top, places };
}

/** The owner first, then in the order in which they got the right. */
function lanesOf(track: Track, from: number): Lane[] {
  const lanes = [...track.lanes.values()].filter((lane) => isSeen(lane, from));
  return [...lanes.filter((lane) => lane.owned.isOpen), ...lanes.filter((lane) => !lane.owned.isOpen)];
}

function isSeen({ rights, owned, density }: Lane, from: number): boolean {
  const reaches = (to: number | undefined): boolean => to === undefined || to >= from;
  return (
    (rights.all.length > 0 && reaches(rights.all.at(-1)?.to)) ||
    (owned.all.length > 0 && reaches(owned.all.at(-1)?.to)) ||
    (density !== undefined && density.newest >= from)
  );
}

export function rowAt({ rows }: Layout, y: number): Row | undefined {
  return rows.find((row) => y >= row.top && y < row.top + row.height);
}

const OF_LANES: ReadonlySet<MarkKind> = new Set<MarkKind>([
  ...(["granted", "revoked", "readGranted", "readRevoked", "transferred", "refused", "asked", "denied"] as const),
]);

/** Where a mark is shown: on the lane of whom it is about, else on its stream, else at the top. */
export function placeOf(mark: Mark, { rows, places }: Layout): Row | undefined {
  if (mark.stream === undefined) return rows[0];
  const found = places.get(mark.stream);
  if (!found) return mark.kind === "refused" ? rows[0] : undefined;
  return (OF_LANES.has(mark.kind) ? found.lanes.get(mark.who ?? "") : undefined) ?? found.track;
}
