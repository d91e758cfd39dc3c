/** The canvas of the timeline: sizes, pointer and keyboard. What is drawn is in draw.ts. */

import { useEffect, useRef, useState } from "preact/hooks";

import type { Watch } from "../session/watch.js";
import type { Mark } from "../state/marks.js";
import { sentence } from "../state/marks.js";
import type { Window } from "../state/window.js";
import { endOf, live, pan, pause, zoom } from "../state/window.js";
import { exactTime } from "../views/format.js";
import type { Drawn, Scene } from "./draw.js";
import { AXIS, draw } from "./draw.js";
import type { Layout } from "./rows.js";
import { layout, rowAt } from "./rows.js";
import { onPalette, palette } from "./palette.js";

interface Props {
  readonly watch: Watch;
  readonly window: Window;
  setWindow(window: Window): void;
  readonly chosen?: number;
  choose(mark: Mark | undefined): void;
}

/** How near the pointer has to be to a mark. */
const REACH = 9;

export function TimelineCanvas({ watch, window, setWindow, chosen, choose }: Props) {
  const canvas = useRef<HTMLCanvasElement>(null);
  const [folded, setFolded] = useState<ReadonlySet<string>>(new Set());
  const [hint, setHint] = useState<{ x: number; y: number; text: string }>();
  // What the drawing reads: it runs outside of the components.
  const view = useRef({ window, chosen, folded, scroll: 0, layout: undefined as Layout | undefined, drawn: [] as Drawn[] });
  Object.assign(view.current, { window, chosen, folded });

  useEffect(() => watch.drawing.touch(), [window, chosen, folded]);
  useEffect(() => {
    const element = canvas.current as HTMLCanvasElement;
    const context = element.getContext("2d") as CanvasRenderingContext2D;
    let draws = 0;

    function redraw(): void {
      const { clientWidth: width, clientHeight: height } = element;
      const scale = devicePixelRatio || 1;
      if (element.width !== Math.round(width * scale) || element.height !== Math.round(height * scale)) {
        element.width = Math.round(width * scale);
        element.height = Math.round(height * scale);
      }
      const { window, folded, chosen } = view.current;
      const to = endOf(window, Date.now());
      const from = to - window.length;
      const rows = layout(watch.model.tracks.all, from, folded);
      view.current.scroll = Math.max(0, Math.min(view.current.scroll, rows.height - (height - AXIS)));
      const colours = palette();
      const scene: Scene = {
        ...{ width, height, from, to, folded, chosen, palette: colours, layout: rows },
        gutter: Math.min(190, Math.max(96, width * 0.22)),
        scroll: view.current.scroll,
        marks: watch.model.marks,
        outages: watch.model.outages.all,
        begun: watch.model.begun,
        colour: (participant) => colours.people[watch.colours.of(participant)] as string,
      };
      context.setTransform(scale, 0, 0, scale, 0, 0);
      view.current.layout = rows;
      view.current.drawn = draw(context, scene);
      element.dataset["draws"] = String(++draws);
      // Time goes by even where nothing happens: the next picture is due when it has moved by a pixel.
      if (window.end === undefined) setTimeout(watch.drawing.touch, Math.min(1000, window.length / width));
    }

    const size = new ResizeObserver(watch.drawing.touch);
    size.observe(element);
    const removers = [watch.drawing.on(redraw), onPalette(watch.drawing.touch), () => size.disconnect()];
    return () => removers.forEach((remove) => remove());
  }, [watch]);

  function nearest(x: number, y: number): Mark | undefined {
    let found: Mark | undefined;
    let least = REACH * REACH;
    for (const each of view.current.drawn) {
      const distance = (each.x - x) ** 2 + (each.y - y) ** 2;
      if (distance < least) [least, found] = [distance, each.mark];
    }
    return found;
  }

  function pointed({ offsetX: x, offsetY: y }: MouseEvent): void {
    const mark = nearest(x, y);
    const row = view.current.layout && rowAt(view.current.layout, y - AXIS + view.current.scroll);
    if (mark) setHint({ x, y, text: `${exactTime(mark.at)} ${sentence(mark, (id) => watch.model.title(id))}` });
    else if (row?.kind === "track") setHint({ x, y, text: `${row.track.title} (${row.track.id})` });
    else if (row?.kind === "lane") setHint({ x, y, text: laneText(row.lane.participant, row.lane.density?.total ?? 0) });
    else setHint(undefined);
  }

  function clicked({ offsetX: x, offsetY: y }: MouseEvent): void {
    const mark = nearest(x, y);
    const row = view.current.layout && rowAt(view.current.layout, y - AXIS + view.current.scroll);
    if (!mark && row?.kind === "track") {
      const next = new Set(folded);
      if (!next.delete(row.track.id)) next.add(row.track.id);
      setFolded(next);
    } else choose(mark);
  }

  /** Dragging moves time sideways, and the rows up and down. */
  function grabbed(down: PointerEvent): void {
    const element = canvas.current as HTMLCanvasElement;
    const begin = { window: pause(window, Date.now()), scroll: view.current.scroll };
    let isMoved = false;
    const moved = (event: PointerEvent): void => {
      const [right, below] = [event.clientX - down.clientX, event.clientY - down.clientY];
      if (!isMoved && Math.hypot(right, below) < 5) return;
      if (!isMoved) element.setPointerCapture(down.pointerId);
      isMoved = true;
      view.current.scroll = begin.scroll - below;
      if (Math.abs(right) > 4) setWindow(pan(begin.window, -right / element.clientWidth, Date.now()));
      watch.drawing.touch();
    };
    const up = (event: PointerEvent): void => {
      element.removeEventListener("pointermove", moved);
      if (!isMoved) clicked(event);
    };
    element.addEventListener("pointermove", moved);
    element.addEventListener("pointerup", up, { once: true });
    element.addEventListener("pointercancel", () => element.removeEventListener("pointermove", moved), { once: true });
  }

  function wheeled(event: WheelEvent): void {
    const element = canvas.current as HTMLCanvasElement;
    const now = Date.now();
    event.preventDefault();
    if (event.ctrlKey || event.metaKey) {
      setWindow(zoom(window, Math.exp(event.deltaY / 300), now, event.offsetX / element.clientWidth));
    } else if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) {
      setWindow(pan(window, (event.deltaX || event.deltaY) / element.clientWidth, now));
    } else {
      view.current.scroll += event.deltaY;
      watch.drawing.touch();
    }
  }

  useEffect(() => {
    // Not passive: the page itself must not scroll.
    const element = canvas.current as HTMLCanvasElement;
    element.addEventListener("wheel", wheeled, { passive: false });
    return () => element.removeEventListener("wheel", wheeled);
  }, [window]);

  function pressed(event: KeyboardEvent): void {
    const now = Date.now();
    const act = {
      ArrowLeft: () => setWindow(pan(window, -0.2, now)),
      ArrowRight: () => setWindow(pan(window, 0.2, now)),
      ArrowUp: () => (view.current.scroll -= 40),
      ArrowDown: () => (view.current.scroll += 40),
      "+": () => setWindow(zoom(window, 0.5, now)),
      "-": () => setWindow(zoom(window, 2, now)),
      " ": () => setWindow(window.end === undefined ? pause(window, now) : live(window)),
      End: () => setWindow(live(window)),
      "[": () => step(-1),
      "]": () => step(1),
    }[event.key];
    if (!act) return;
    event.preventDefault();
    act();
    watch.drawing.touch();
  }

  /** To the mark before or after the one that is chosen. */
  function step(by: number): void {
    const { marks } = watch.model;
    const at = marks.findIndex(({ number }) => number === chosen);
    const next = at < 0 ? marks.at(-1) : marks[Math.max(0, Math.min(marks.length - 1, at + by))];
    choose(next);
  }

  return (
    <div class="timeline-canvas">
      <canvas
        ref={canvas}
        tabIndex={0}
        role="application"
        aria-roledescription="timeline"
        aria-label="Timeline. Arrows move, plus and minus zoom, space pauses, brackets go from event to event. The list below has the same events as text."
        onPointerDown={grabbed}
        onPointerMove={pointed}
        onPointerLeave={() => setHint(undefined)}
        onKeyDown={pressed}
      />
      {hint && (
        <p class="hint" style={{ left: `${hint.x}px`, top: `${hint.y}px` }} aria-hidden="true">
          {hint.text}
        </p>
      )}
    </div>
  );
}

function laneText(participant: string, frames: number): string {
  return `${participant}: ${frames} ${frames === 1 ? "frame" : "frames"} seen here`;
}
