/** The signs by which marks are told apart, by form and not by colour alone. */

import type { MarkKind } from "../state/marks.js";
import type { ColourName, Palette } from "./palette.js";

/** Outlines around the origin. Those of lines are not filled. */
const FORMS = {
  up: "M0-5 5 4H-5Z",
  down: "M0 5 5-4H-5Z",
  diamond: "M0-5 5 0 0 5-5 0Z",
  square: "M-4-4H4V4H-4Z",
  dot: "M-4 0a4 4 0 1 0 8 0a4 4 0 1 0-8 0Z",
  bar: "M-1.5-5H1.5V5H-1.5Z",
  bubble: "M-5-4H5V2H1L-2 5V2H-5Z",
  ring: "M-3.5 0a3.5 3.5 0 1 0 7 0a3.5 3.5 0 1 0-7 0Z",
  cross: "M-4-4 4 4M4-4-4 4",
  swap: "M-5-2H5L2-5M5 2H-5L-2 5",
} as const;
type Form = keyof typeof FORMS;

const LINES: ReadonlySet<Form> = new Set<Form>(["ring", "cross", "swap"]);

const SIGNS: Readonly<Record<MarkKind, readonly [Form, ColourName]>> = {
  opened: ["dot", "good"],
  started: ["dot", "good"],
  closed: ["square", "muted"],
  granted: ["up", "good"],
  revoked: ["down", "bad"],
  readGranted: ["up", "muted"],
  readRevoked: ["down", "muted"],
  transferred: ["swap", "accent"],
  asked: ["diamond", "warning"],
  denied: ["cross", "warning"],
  refused: ["cross", "bad"],
  gap: ["bar", "warning"],
  joined: ["dot", "good"],
  suspended: ["ring", "warning"],
  left: ["ring", "muted"],
  invited: ["ring", "accent"],
  kicked: ["cross", "bad"],
  paused: ["bar", "warning"],
  continued: ["dot", "good"],
  chat: ["bubble", "accent"],
  proposed: ["diamond", "warning"],
  fulfilled: ["up", "good"],
  rejected: ["down", "bad"],
  withdrawn: ["ring", "muted"],
  disconnected: ["cross", "bad"],
  resumed: ["dot", "good"],
};

/** The kinds of marks that the legend explains. */
export const LEGEND: readonly (readonly [MarkKind, string])[] = [
  ["granted", "granted"],
  ["revoked", "revoked"],
  ["transferred", "new owner"],
  ["asked", "asks"],
  ["refused", "refused"],
  ["opened", "begins, joins"],
  ["closed", "ends"],
  ["left", "leaves"],
  ["chat", "chat"],
];

export interface Sign {
  /** The data of an SVG path around the origin, about ten wide and high. */
  readonly path: string;
  readonly isLine: boolean;
  readonly colour: ColourName;
}

export function signOf(kind: MarkKind): Sign {
  const [form, colour] = SIGNS[kind];
  return { path: FORMS[form], isLine: LINES.has(form), colour };
}

const paths = new Map<string, Path2D>();

export function drawMark(context: CanvasRenderingContext2D, kind: MarkKind, x: number, y: number, colours: Palette): void {
  const { path: data, isLine, colour } = signOf(kind);
  let path = paths.get(data);
  if (!path) paths.set(data, (path = new Path2D(data)));
  context.save();
  context.translate(x, y);
  context.lineJoin = "round";
  // A rim in the colour of the surface keeps it apart from what is below.
  context.lineWidth = isLine ? 5 : 3;
  context.strokeStyle = colours.surface;
  context.stroke(path);
  context.lineWidth = 2;
  context.strokeStyle = context.fillStyle = colours[colour];
  if (isLine) context.stroke(path);
  else context.fill(path);
  context.restore();
}
