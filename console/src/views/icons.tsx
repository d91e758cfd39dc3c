/** The icons of the page, as lines on a square of 24. */

const PATHS = {
  timeline: "M3 6h9M8 12h13M3 18h6M14 18h5",
  streams: "M3 9c3-4 6-4 9 0s6 4 9 0M3 16c3-4 6-4 9 0s6 4 9 0",
  people: "M9 11a3.5 3.5 0 1 0 0-7 3.5 3.5 0 0 0 0 7ZM2.5 20c.5-4 3-6 6.5-6s6 2 6.5 6M16 4.500a3.5 3.5 0 0 1 0 6.500M18 14.500c2 .8 3.2 2.6 3.5 5.5",
  inbox: "M4 5h16v14H4zM4 14h5l1.5 2h3L15 14h5",
  gateway: "M4 20V11M10 20V4M16 20v-7M21 20H3",
  out: "M10 4H5v16h5M15 8l4 4-4 4M19 12H9",
  sun: "M12 16.500a4.5 4.5 0 1 0 0-9 4.5 4.5 0 0 0 0 9ZM12 2v2M12 20v2M2 12h2M20 12h2M5 5l1.4 1.400M17.6 17.6 19 19M5 19l1.4-1.400M17.6 6.4 19 5",
  moon: "M20 14.500A8.5 8.5 0 0 1 9.5 4 8.5 8.5 0 1 0 20 14.500Z",
  auto: "M12 3a9 9 0 1 0 0 18V3ZM12 3a9 9 0 0 1 0 18",
  back: "M15 5l-7 7 7 7",
  close: "M6 6l12 12M18 6 6 18",
  pause: "M8 5v14M16 5v14",
  play: "M7 5l12 7-12 7z",
  plus: "M12 5v14M5 12h14",
  minus: "M5 12h14",
  left: "M14 6l-6 6 6 6",
  right: "M10 6l6 6-6 6",
  send: "M4 12l16-8-6 16-3-7z",
  copy: "M9 9h11v11H9zM5 15H4V4h11v1",
} as const;

export type IconName = keyof typeof PATHS;

export function Icon({ name }: { name: IconName }) {
  return (
    <svg class="icon" viewBox="0 0 24 24" aria-hidden="true">
      <path d={PATHS[name]} />
    </svg>
  );
}
