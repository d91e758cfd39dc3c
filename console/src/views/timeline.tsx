/** The live timeline, and the same as a list of sentences. */

import { useState } from "preact/hooks";

import type { Watch } from "../session/watch.js";
import type { Mark, MarkKind } from "../state/marks.js";
import { sentence } from "../state/marks.js";
import type { Window } from "../state/window.js";
import { endOf, INITIAL, live, pan, pause, zoom } from "../state/window.js";
import { TimelineCanvas } from "../timeline/canvas.js";
import { LEGEND } from "../timeline/glyphs.js";
import { duration, exactTime, time } from "./format.js";
import { Glyph } from "./glyph.js";
import { Icon } from "./icons.js";
import { Button, Empty, usePulse } from "./parts.js";

const LISTED = 200;

/** What stays while other views are open. */
const remembered: { window: Window } = { window: INITIAL };

export function Timeline({ watch }: { watch: Watch }) {
  usePulse(watch.page);
  const [window, show] = useState(remembered.window);
  const [chosen, choose] = useState<Mark>();
  const [filter, setFilter] = useState("");
  const now = Date.now();
  const isLive = window.end === undefined;

  function setWindow(next: Window): void {
    remembered.window = next;
    show(next);
  }

  function goTo(mark: Mark | undefined): void {
    choose(mark);
    if (!mark) return;
    const end = endOf(window, Date.now());
    if (mark.at < end - window.length || mark.at > end) setWindow({ length: window.length, end: mark.at + window.length / 2 });
    else if (isLive) setWindow(pause(window, Date.now()));
  }

  const { tracks } = watch.model;
  return (
    <section class="view timeline" aria-labelledby="timeline-title">
      <header class="view-head">
        <h1 id="timeline-title">Timeline</h1>
        <p class="muted">
          {isLive ? (
            <span class="live-badge">live</span>
          ) : (
            <span class="paused-badge">until {time(endOf(window, now))}</span>
          )}{" "}
          · {duration(window.length)}
        </p>
        <div class="tools" role="toolbar" aria-label="Time">
          <Button kind="quiet" label="Back in time" act={() => setWindow(pan(window, -0.5, Date.now()))}>
            <Icon name="left" />
          </Button>
          <Button
            label={isLive ? "Pause" : "Go to now"}
            act={() => setWindow(isLive ? pause(window, Date.now()) : live(window))}
          >
            <Icon name={isLive ? "pause" : "play"} /> {isLive ? "Pause" : "Live"}
          </Button>
          <Button kind="quiet" label="Forward in time" act={() => setWindow(pan(window, 0.5, Date.now()))}>
            <Icon name="right" />
          </Button>
          <Button kind="quiet" label="Show less time" act={() => setWindow(zoom(window, 0.5, Date.now()))}>
            <Icon name="plus" />
          </Button>
          <Button kind="quiet" label="Show more time" act={() => setWindow(zoom(window, 2, Date.now()))}>
            <Icon name="minus" />
          </Button>
        </div>
      </header>
      <ul class="legend" aria-label="What the signs mean">
        {LEGEND.map(([kind, text]) => (
          <li key={kind}>
            <Glyph kind={kind as MarkKind} /> {text}
          </li>
        ))}
        <li>
          <i class="swatch right" /> may write
        </li>
        <li>
          <i class="swatch owner" /> owns
        </li>
        <li>
          <i class="swatch writes" /> writes
        </li>
      </ul>
      <TimelineCanvas
        watch={watch}
        window={window}
        setWindow={setWindow}
        chosen={chosen?.number}
        choose={goTo}
      />
      {tracks.all.length === 0 && (
        <Empty title="No streams yet">As soon as somebody opens one, it shows here: who may write to it, and who does.</Empty>
      )}
      <Events watch={watch} filter={filter} setFilter={setFilter} chosen={chosen} choose={goTo} />
    </section>
  );
}

interface EventsProps {
  readonly watch: Watch;
  readonly filter: string;
  setFilter(filter: string): void;
  readonly chosen?: Mark;
  choose(mark: Mark): void;
}

function Events({ watch, filter, setFilter, chosen, choose }: EventsProps) {
  const words = filter.toLowerCase();
  const found: (readonly [Mark, string])[] = [];
  const { marks } = watch.model;
  for (let at = marks.length - 1; at >= 0 && found.length < LISTED; at--) {
    const mark = marks[at] as Mark;
    const text = sentence(mark, (id) => watch.model.title(id));
    if (text.toLowerCase().includes(words)) found.push([mark, text]);
  }
  return (
    <section class="events" aria-labelledby="events-title">
      <header>
        <h2 id="events-title">Events</h2>
        <input
          type="search"
          placeholder="Find"
          aria-label="Find events"
          value={filter}
          onInput={(event) => setFilter(event.currentTarget.value)}
        />
      </header>
      {found.length === 0 && <p class="muted pad">{filter ? "Nothing like that." : "Nothing has happened yet."}</p>}
      <ol class="event-list" tabIndex={0} aria-label="Events, newest first">
        {found.map(([mark, text]) => (
          <li key={mark.number}>
            <button
              type="button"
              class={mark.number === chosen?.number ? "event chosen" : "event"}
              onClick={() => choose(mark)}
            >
              <time>{exactTime(mark.at)}</time>
              <Glyph kind={mark.kind} />
              <span>
                <bdi>{text}</bdi>
              </span>
            </button>
          </li>
        ))}
      </ol>
    </section>
  );
}
