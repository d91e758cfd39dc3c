/** Draws the timeline. It runs thirty times a second, so that it draws nothing that cannot be seen. */

import type { Density } from "../state/density.js";
import type { Mark } from "../state/marks.js";
import type { Outage } from "../state/outages.js";
import type { Span } from "../state/spans.js";
import { ticks } from "../state/window.js";
import { drawMark } from "./glyphs.js";
import type { Palette } from "./palette.js";
import type { Layout, Row } from "./rows.js";
import { placeOf } from "./rows.js";

export const AXIS = 24;
/** What happens right now must not be cut off at the edge. */
const MARGIN = 10;

export interface Scene {
  readonly width: number;
  readonly height: number;
  /** Where the names end and the time begins. */
  readonly gutter: number;
  /** How far the rows are scrolled up. */
  readonly scroll: number;
  readonly from: number;
  readonly to: number;
  readonly layout: Layout;
  readonly marks: readonly Mark[];
  readonly outages: readonly Outage[];
  /** Since when this page watches. */
  readonly begun: number;
  readonly palette: Palette;
  readonly folded: ReadonlySet<string>;
  colour(participant: string): string;
  /** The number of the mark that is pointed at. */
  readonly chosen?: number;
}

/** Where a mark was drawn, to find it again. */
export interface Drawn {
  readonly x: number;
  readonly y: number;
  readonly mark: Mark;
}

const SMALL = 11.5;

export function draw(context: CanvasRenderingContext2D, scene: Scene): Drawn[] {
  const { width, height, palette, layout, scroll } = scene;
  context.clearRect(0, 0, width, height);
  context.textBaseline = "middle";
  drawAxis(context, scene);

  context.save();
  context.beginPath();
  context.rect(0, AXIS, width, height - AXIS);
  context.clip();
  context.translate(0, AXIS - scroll);
  const seen = layout.rows.filter((row) => row.top + row.height > scroll && row.top < scroll + height - AXIS);
  drawBefore(context, scene);
  drawOutages(context, scene);
  for (const row of seen) drawRow(context, row, scene);
  const drawn = drawMarks(context, scene, new Set(seen));
  context.restore();

  context.fillStyle = palette.line;
  context.fillRect(0, AXIS - 1, width, 1);
  return drawn;
}

export function xOf({ gutter, width, from, to }: Scene, at: number): number {
  return gutter + ((at - from) / (to - from)) * (width - MARGIN - gutter);
}

function drawAxis(context: CanvasRenderingContext2D, scene: Scene): void {
  const { from, to, width, height, gutter, palette } = scene;
  context.font = `${SMALL}px ${palette.font}`;
  context.textAlign = "center";
  const isLong = to - from > 6 * 3600_000;
  const format = new Intl.DateTimeFormat(undefined, {
    hour: "2-digit",
    minute: "2-digit",
    second: isLong ? undefined : "2-digit",
    hourCycle: "h23",
  });
  for (const at of ticks(from, to, Math.max(2, (width - gutter) / 110))) {
    const x = Math.round(xOf(scene, at));
    context.fillStyle = palette.line;
    context.fillRect(x, AXIS, 1, height - AXIS);
    if (x < gutter + 28 || x > width - 28) continue;
    context.fillStyle = palette.muted;
    context.fillText(format.format(at), x, AXIS / 2);
  }
}

/** What was before this page was opened is not known, except that some streams were open. */
function drawBefore(context: CanvasRenderingContext2D, scene: Scene): void {
  const { begun, from, gutter, scroll, height, width, palette } = scene;
  if (begun <= from) return;
  const right = Math.min(width, xOf(scene, begun));
  context.fillStyle = palette.raised;
  context.globalAlpha = 0.45;
  context.fillRect(gutter, scroll, right - gutter, height);
  context.globalAlpha = 1;
  context.fillStyle = palette.muted;
  context.font = `${SMALL}px ${palette.font}`;
  context.textAlign = "right";
  if (right - gutter > 190) context.fillText("before this page was opened", right - 8, scroll + height - AXIS - 14);
}

/** A time without a connection is hatched: what is not there was perhaps not told. */
function drawOutages(context: CanvasRenderingContext2D, scene: Scene): void {
  const { outages, scroll, height, palette, gutter, from, to } = scene;
  for (const outage of outages) {
    const end = outage.to ?? to;
    if (end < from || outage.from > to) continue;
    const left = Math.max(gutter, xOf(scene, outage.from));
    const right = Math.max(left + 2, xOf(scene, Math.min(end, to)));
    context.save();
    context.beginPath();
    context.rect(left, scroll, right - left, height);
    context.clip();
    context.globalAlpha = 0.1;
    context.fillStyle = palette.bad;
    context.fillRect(left, scroll, right - left, height);
    context.globalAlpha = 0.35;
    context.strokeStyle = palette.bad;
    context.lineWidth = 1;
    context.beginPath();
    for (let x = left - height; x < right; x += 9) {
      context.moveTo(x, scroll + height);
      context.lineTo(x + height, scroll);
    }
    context.stroke();
    context.restore();
  }
}

function drawRow(context: CanvasRenderingContext2D, row: Row, scene: Scene): void {
  const { palette, gutter, width, folded } = scene;
  const middle = row.top + row.height / 2;
  context.textAlign = "left";
  if (row.kind === "space") {
    label(context, "People and messages", 12, middle, gutter - 18, palette.muted, `600 ${SMALL}px ${palette.font}`);
    return;
  }
  if (row.kind === "track") {
    const { track } = row;
    context.globalAlpha = track.isOpen ? 1 : 0.6;
    context.fillStyle = palette.raised;
    context.beginPath();
    context.roundRect(4, row.top, width - 8, row.height, 6);
    context.fill();
    triangle(context, 14, middle, folded.has(track.id), palette.muted);
    label(context, track.title, 24, middle, gutter - 32, palette.text, `600 12.5px ${palette.font}`);
    if (folded.has(track.id)) bars(context, scene, row, palette.muted, track.density);
    life(context, scene, row);
    context.globalAlpha = 1;
    return;
  }
  const { lane } = row;
  const colour = scene.colour(lane.participant);
  branch(context, row.top, row.height, row.isLast, palette.line);
  context.fillStyle = colour;
  context.beginPath();
  context.arc(30, middle, 4, 0, 2 * Math.PI);
  context.fill();
  label(context, lane.participant, 40, middle, gutter - 48, palette.text, `12px ${palette.font}`);
  for (const span of lane.rights.all) {
    context.globalAlpha = 0.16;
    band(context, scene, span, row.top + 3, row.height - 6, colour);
    context.globalAlpha = 0.55;
    band(context, scene, span, row.top + row.height - 4, 1, colour);
  }
  context.globalAlpha = 1;
  for (const span of lane.owned.all) band(context, scene, span, row.top + 2, 2, colour);
  bars(context, scene, row, colour, lane.density);
}

/** A thin line for as long as a stream is open. */
function life(context: CanvasRenderingContext2D, scene: Scene, row: Row & { kind: "track" }): void {
  const { track } = row;
  const span = { from: track.openedAt, to: track.ended?.at };
  band(context, scene, span, row.top + row.height - 2, 2, scene.palette.line);
}

function band(
  context: CanvasRenderingContext2D,
  scene: Scene,
  { from, to }: Span,
  top: number,
  height: number,
  colour: string,
): void {
  if ((to ?? Infinity) < scene.from || from > scene.to) return;
  const left = Math.max(scene.gutter, xOf(scene, from));
  const right = Math.max(left + 1, xOf(scene, Math.min(to ?? scene.to, scene.to)));
  context.fillStyle = colour;
  context.beginPath();
  context.roundRect(left, top, right - left, height, Math.min(4, height / 2));
  context.fill();
}

/** How many frames came: the height of a bar grows with their rate, and slower the more there are. */
function bars(
  context: CanvasRenderingContext2D,
  scene: Scene,
  row: Row,
  colour: string,
  density: Density | undefined,
): void {
  const { from, to, gutter, width } = scene;
  const perPixel = (to - from) / (width - MARGIN - gutter);
  const bottom = row.top + row.height - 4;
  const room = row.height - 9;
  context.fillStyle = colour;
  context.beginPath();
  density?.between(from, to, perPixel, (at, bucket, count) => {
    const x = xOf(scene, at);
    const wide = Math.max(1, bucket / perPixel - (bucket / perPixel > 3 ? 1 : 0));
    const left = Math.max(gutter, x);
    const tall = Math.max(2, room * Math.min(1, Math.log1p((count * 1000) / bucket) / Math.log1p(120)));
    if (x + wide > left) context.rect(left, bottom - tall, x + wide - left, tall);
  });
  context.fill();
}

function drawMarks(context: CanvasRenderingContext2D, scene: Scene, seen: ReadonlySet<Row>): Drawn[] {
  const { marks, from, to, gutter, layout, palette, chosen } = scene;
  const drawn: Drawn[] = [];
  for (const mark of marks) {
    if (mark.at < from || mark.at > to) continue;
    const row = placeOf(mark, layout);
    if (!row || !seen.has(row)) continue;
    const x = xOf(scene, mark.at);
    if (x < gutter) continue;
    const y = row.top + row.height / 2;
    drawMark(context, mark.kind, x, y, palette);
    if (mark.number === chosen) {
      context.strokeStyle = palette.text;
      context.lineWidth = 1.5;
      context.beginPath();
      context.arc(x, y, 9, 0, 2 * Math.PI);
      context.stroke();
    }
    drawn.push({ x, y: y - scene.scroll + AXIS, mark });
  }
  return drawn;
}

function label(
  context: CanvasRenderingContext2D,
  text: string,
  x: number,
  y: number,
  room: number,
  colour: string,
  font: string,
): void {
  context.font = font;
  context.fillStyle = colour;
  context.fillText(fitted(context, text, room), x, y);
}

const fits = new Map<string, string>();

/** The text, cut where it is too long. Measuring is slow, so that it is done once. */
function fitted(context: CanvasRenderingContext2D, text: string, room: number): string {
  const key = `${context.font}|${Math.round(room)}|${text}`;
  let found = fits.get(key);
  if (found === undefined) {
    found = text.length > 200 ? text.slice(0, 200) : text;
    while (found.length > 1 && context.measureText(found).width > room) found = `${found.slice(0, -2)}…`;
    if (fits.size > 2000) fits.clear();
    fits.set(key, found);
  }
  return found;
}

function triangle(context: CanvasRenderingContext2D, x: number, y: number, isFolded: boolean, colour: string): void {
  context.fillStyle = colour;
  context.beginPath();
  if (isFolded) {
    context.moveTo(x - 2, y - 4);
    context.lineTo(x + 3, y);
    context.lineTo(x - 2, y + 4);
  } else {
    context.moveTo(x - 4, y - 2);
    context.lineTo(x + 4, y - 2);
    context.lineTo(x, y + 3);
  }
  context.fill();
}

function branch(context: CanvasRenderingContext2D, top: number, height: number, isLast: boolean, colour: string): void {
  context.strokeStyle = colour;
  context.lineWidth = 1;
  context.beginPath();
  context.moveTo(14.5, top);
  context.lineTo(14.5, top + (isLast ? height / 2 : height));
  context.moveTo(14.5, Math.round(top + height / 2) + 0.5);
  context.lineTo(23, Math.round(top + height / 2) + 0.5);
  context.stroke();
}
