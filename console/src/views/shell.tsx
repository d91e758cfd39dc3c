/** What surrounds every view: where one is, whether there is a connection, and the way to the other views. */

import { useEffect, useState } from "preact/hooks";

import type { Route, View } from "../session/route.js";
import { hashOf, routeOf, VIEWS } from "../session/route.js";
import { applyTheme, setTheme, theme } from "../session/theme.js";
import type { Watch } from "../session/watch.js";
import { costOf } from "../state/outages.js";
import { paletteChanged } from "../timeline/palette.js";
import { duration, time } from "./format.js";
import { GatewayView } from "./gateway.js";
import type { IconName } from "./icons.js";
import { Icon } from "./icons.js";
import { Inbox } from "./inbox.js";
import { Mark } from "./mark.js";
import { Button, usePulse, Who } from "./parts.js";
import { People } from "./people.js";
import { Streams } from "./streams.js";
import { Timeline } from "./timeline.js";

const TITLES: Readonly<Record<View, string>> = {
  timeline: "Timeline",
  streams: "Streams",
  people: "People",
  inbox: "Inbox",
  gateway: "Gateway",
};

export function Shell({ watch, leave }: { watch: Watch; leave: () => void }) {
  usePulse(watch.page);
  const route = useRoute();
  useEffect(() => {
    document.title = `${TITLES[route.view]} · ${watch.spaceName || watch.spaceId} · mewstream`;
  }, [route.view]);
  const { inbox } = watch.model;
  const counts: Partial<Record<View, number>> = { inbox: inbox.waiting + (route.view === "inbox" ? 0 : inbox.unread) };

  return (
    <div class="shell">
      <a class="skip" href="#main" onClick={focusMain}>
        Skip to the content
      </a>
      <header class="bar">
        <Mark />
        <div class="where">
          <strong>
            <bdi>{watch.spaceName || watch.spaceId}</bdi>
          </strong>
          <Connection watch={watch} />
        </div>
        <div class="me">
          <Who watch={watch} id={watch.me} />
          <ThemeButton />
          <Button kind="quiet" label="Sign out" act={leave}>
            <Icon name="out" />
          </Button>
        </div>
      </header>
      <nav class="nav" aria-label="Views">
        {VIEWS.map((view, index) => (
          <a
            key={view}
            href={hashOf(view)}
            aria-current={route.view === view ? "page" : undefined}
            title={`${TITLES[view]} (${index + 1})`}
          >
            <Icon name={view as IconName} />
            <span>{TITLES[view]}</span>
            {counts[view] ? <b class="count">{counts[view]}</b> : null}
          </a>
        ))}
      </nav>
      <main id="main" class="main" tabIndex={-1}>
        <OutageBanner watch={watch} />
        <Chosen watch={watch} route={route} />
      </main>
    </div>
  );
}

function Chosen({ watch, route }: { watch: Watch; route: Route }) {
  switch (route.view) {
    case "timeline":
      return <Timeline watch={watch} />;
    case "streams":
      return <Streams watch={watch} chosen={route.chosen} />;
    case "people":
      return <People watch={watch} chosen={route.chosen} />;
    case "inbox":
      return <Inbox watch={watch} />;
    case "gateway":
      return <GatewayView watch={watch} />;
  }
}

function focusMain(event: Event): void {
  event.preventDefault();
  document.getElementById("main")?.focus();
}

/** The numbers 1 to 5 go to the views, unless one is typing. */
function useRoute(): Route {
  const [route, setRoute] = useState(routeOf(location.hash));
  useEffect(() => {
    const changed = (): void => setRoute(routeOf(location.hash));
    const pressed = (event: KeyboardEvent): void => {
      const view = VIEWS[Number(event.key) - 1];
      const isTyping = event.target instanceof HTMLElement && event.target.closest("input, textarea, select, dialog");
      if (!view || isTyping || event.ctrlKey || event.metaKey || event.altKey) return;
      location.hash = hashOf(view);
    };
    addEventListener("hashchange", changed);
    addEventListener("keydown", pressed);
    return () => {
      removeEventListener("hashchange", changed);
      removeEventListener("keydown", pressed);
    };
  }, []);
  return route;
}

function Connection({ watch }: { watch: Watch }) {
  const { outages, people } = watch.model;
  if (outages.isOut) {
    return (
      <span class="connection out">
        <i /> disconnected
      </span>
    );
  }
  return (
    <span class="connection">
      <i /> live · {people.present.length} here
    </span>
  );
}

/** Says that what is shown is old, and afterwards what was missed. */
function OutageBanner({ watch }: { watch: Watch }) {
  const [read, setRead] = useState(0);
  const { outages } = watch.model;
  const { newest } = outages;
  if (!newest || newest.from === read) return null;
  if (newest.to === undefined) {
    return (
      <div class="banner bad" role="alert">
        <p>
          <strong>Disconnected for {duration(Date.now() - newest.from)}.</strong> What you see is from{" "}
          {time(newest.from)}. Trying to connect again… <small>{newest.reason}</small>
        </p>
      </div>
    );
  }
  return (
    <div class={`banner ${newest.recovered ? "good" : "warning"}`} role="status">
      <p>
        <strong>Connected again.</strong> {costOf(newest)}
      </p>
      <Button kind="quiet" label="Dismiss" act={() => setRead(newest.from)}>
        <Icon name="close" />
      </Button>
    </div>
  );
}

function ThemeButton() {
  const [chosen, setChosen] = useState(theme());
  useEffect(() => applyTheme(chosen), []);
  const next = { system: "light", light: "dark", dark: "system" } as const;
  const icons = { system: "auto", light: "sun", dark: "moon" } as const;
  return (
    <Button
      kind="quiet"
      label={`Colours: ${chosen}`}
      act={() => {
        setTheme(next[chosen]);
        setChosen(next[chosen]);
        paletteChanged();
      }}
    >
      <Icon name={icons[chosen]} />
    </Button>
  );
}
