/** Which time the timeline shows. */

const SHORTEST = 2_000;
const LONGEST = 24 * 3600_000;

export interface Window {
  /** How many milliseconds are shown. */
  readonly length: number;
  /** The right edge; undefined: now, so that it moves. */
  readonly end?: number;
}

export const INITIAL: Window = { length: 60_000 };

export function endOf(window: Window, now: number): number {
  return window.end ?? now;
}

/** Shows more or less time. The time at `place`, from 0 at the left to 1 at the right, stays where it is. */
export function zoom(window: Window, factor: number, now: number, place = 1): Window {
  const length = Math.min(LONGEST, Math.max(SHORTEST, window.length * factor));
  if (window.end === undefined && place === 1) return { length };
  const end = endOf(window, now);
  return clipped({ length, end: end - (window.length - length) * (1 - place) }, now);
}

/** Moves by a part of what is shown; forward past the present, it moves along with the present again. */
export function pan(window: Window, part: number, now: number): Window {
  return clipped({ length: window.length, end: endOf(window, now) + part * window.length }, now);
}

/** Stops where it is. */
export function pause(window: Window, now: number): Window {
  return { length: window.length, end: endOf(window, now) };
}

export function live(window: Window): Window {
  return { length: window.length };
}

function clipped({ length, end }: { length: number; end: number }, now: number): Window {
  return end >= now ? { length } : { length, end };
}

/** Times at which the axis has a label: a handful of round ones. */
export function ticks(from: number, to: number, most: number): number[] {
  const steps = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14_400, 43_200, 86_400];
  const step = (steps.find((each) => (to - from) / (each * 1000) <= most) ?? 86_400) * 1000;
  // Round in the time of whoever looks, not in UTC.
  const shift = new Date(to).getTimezoneOffset() * 60_000;
  const found: number[] = [];
  for (let at = Math.ceil((from - shift) / step) * step + shift; at <= to; at += step) found.push(at);
  return found;
}
