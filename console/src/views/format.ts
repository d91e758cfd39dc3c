/** Numbers and times as people read them. */

const clock = new Intl.DateTimeFormat(undefined, {
  hour: "2-digit",
  minute: "2-digit",
  second: "2-digit",
  hourCycle: "h23",
});

export function time(at: number): string {
  return clock.format(at);
}

/** With tenths of a second. */
export function exactTime(at: number): string {
  return `${clock.format(at)}.${String(Math.floor(at / 100) % 10)}`;
}

export function duration(ms: number): string {
  const seconds = Math.max(0, Math.round(ms / 1000));
  if (seconds < 60) return `${seconds} s`;
  const minutes = Math.floor(seconds / 60);
  if (minutes < 60) return `${minutes} min`;
  const hours = Math.floor(minutes / 60);
  return hours < 48 ? `${hours} h ${minutes % 60} min` : `${Math.floor(hours / 24)} days`;
}

export function count(value: number): string {
  if (value < 10_000) return String(Math.round(value));
  if (value < 1e6) return `${(value / 1e3).toFixed(1)} k`;
  return value < 1e9 ? `${(value / 1e6).toFixed(1)} M` : `${(value / 1e9).toFixed(1)} G`;
}

export function rate(value: number): string {
  return value > 0 && value < 10 ? value.toFixed(1) : count(value);
}

export function bytes(value: number): string {
  if (value < 1024) return `${Math.round(value)} B`;
  if (value < 1 << 20) return `${(value / 1024).toFixed(1)} KiB`;
  return value < 2 ** 30 ? `${(value / (1 << 20)).toFixed(1)} MiB` : `${(value / 2 ** 30).toFixed(1)} GiB`;
}
