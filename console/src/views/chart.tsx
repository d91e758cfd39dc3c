/** A curve over time, drawn by uPlot. */

import { useEffect, useRef } from "preact/hooks";
import uPlot from "uplot";

import { onPalette, palette } from "../timeline/palette.js";
import { time } from "./format.js";

interface Props {
  readonly title: string;
  /** The newest value, as text. */
  readonly value: string;
  readonly times: readonly number[];
  readonly values: readonly number[];
  format(value: number): string;
}

const HEIGHT = 120;

export function Chart({ title, value, times, values, format }: Props) {
  const frame = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | null>(null);
  const data: uPlot.AlignedData = [times.map((at) => at / 1000), [...values]];

  useEffect(() => {
    const element = frame.current as HTMLDivElement;
    const make = (): void => {
      plot.current?.destroy();
      plot.current = new uPlot(optionsFor(element.clientWidth, format), data, element);
    };
    make();
    const size = new ResizeObserver(() => plot.current?.setSize({ width: element.clientWidth, height: HEIGHT }));
    size.observe(element);
    const remove = onPalette(make);
    return () => {
      remove();
      size.disconnect();
      plot.current?.destroy();
      plot.current = null;
    };
  }, []);
  useEffect(() => plot.current?.setData(data));

  return (
    <figure class="chart">
      <figcaption>
        {title} <b>{value}</b>
      </figcaption>
      <div ref={frame} aria-hidden="true" />
    </figure>
  );
}

function optionsFor(width: number, format: (value: number) => string): uPlot.Options {
  const { accent, muted, line, font } = palette();
  const axis = { stroke: muted, font: `11px ${font}`, grid: { stroke: line, width: 1 }, ticks: { show: false } };
  return {
    width,
    height: HEIGHT,
    legend: { show: false },
    cursor: { show: false },
    padding: [8, 8, 0, 0],
    scales: { y: { range: (_, __, most) => [0, Math.max(1, most * 1.15)] } },
    axes: [
      { ...axis, size: 24, space: 90, values: (_, splits) => splits.map((each) => time(each * 1000)) },
      { ...axis, size: 64, space: 34, values: (_, splits) => splits.map(format) },
    ],
    series: [{}, { stroke: accent, width: 1.5, fill: `color-mix(in srgb, ${accent} 15%, transparent)`, points: { show: false } }],
  };
}
