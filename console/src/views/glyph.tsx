/** The sign of a kind of mark, as it is on the timeline. */

import type { MarkKind } from "../state/marks.js";
import { signOf } from "../timeline/glyphs.js";

export function Glyph({ kind }: { kind: MarkKind }) {
  const { path, isLine, colour } = signOf(kind);
  return (
    <svg class={`glyph ${colour} ${isLine ? "line" : "filled"}`} viewBox="-8 -8 16 16" aria-hidden="true">
      <path d={path} />
    </svg>
  );
}
