/** The last minute as a small curve. */

import { useEffect, useRef } from "preact/hooks";

import { palette } from "../timeline/palette.js";

export function Sparkline({ values }: { values: readonly number[] }) {
  const canvas = useRef<HTMLCanvasElement>(null);
  useEffect(() => {
    const element = canvas.current as HTMLCanvasElement;
    const { clientWidth: width, clientHeight: height } = element;
    const scale = devicePixelRatio || 1;
    element.width = width * scale;
    element.height = height * scale;
    const context = element.getContext("2d") as CanvasRenderingContext2D;
    context.scale(scale, scale);
    const most = Math.max(1, ...values);
    const step = width / (values.length - 1);
    context.beginPath();
    values.forEach((value, index) => context.lineTo(index * step, height - 1.5 - (value / most) * (height - 3)));
    context.lineWidth = 1.5;
    context.lineJoin = "round";
    context.strokeStyle = palette().accent;
    context.stroke();
    context.lineTo(width, height);
    context.lineTo(0, height);
    context.globalAlpha = 0.15;
    context.fillStyle = palette().accent;
    context.fill();
  });
  return <canvas ref={canvas} class="sparkline" role="img" aria-label={`${values.at(-1) ?? 0} frames a second`} />;
}
