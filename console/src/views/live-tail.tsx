/** The newest frames of a stream, decoded by what they are. */

import { useState } from "preact/hooks";

import type { Watch } from "../session/watch.js";
import type { Form } from "../state/decode.js";
import { decode, preview } from "../state/decode.js";
import type { Tailed } from "../state/tail.js";
import { bytes, exactTime } from "./format.js";
import { JsonTree } from "./json-tree.js";
import { Icon } from "./icons.js";
import { Badge, Button, Who } from "./parts.js";

const SHOWN = 40;
const FORMS: readonly Form[] = ["auto", "json", "text", "hex"];

export function LiveTail({ watch }: { watch: Watch }) {
  const [form, setForm] = useState<Form>("auto");
  const [chosen, choose] = useState<Tailed>();
  const { tail } = watch;
  if (!tail) return null;
  const frames = tail.frames.slice(0, SHOWN);
  return (
    <section class="tail" aria-labelledby="tail-title">
      <header>
        <h3 id="tail-title">Live tail</h3>
        <div class="segmented" role="group" aria-label="Show frames as">
          {FORMS.map((each) => (
            <Button key={each} kind="quiet" isPressed={each === form} act={() => setForm(each)}>
              {each}
            </Button>
          ))}
        </div>
        <Button
          name="pause-tail"
          act={() => {
            tail.pause(!tail.isPaused);
            watch.page.touch();
          }}
        >
          <Icon name={tail.isPaused ? "play" : "pause"} /> {tail.isPaused ? `Go on (${tail.skipped} skipped)` : "Pause"}
        </Button>
      </header>
      {frames.length === 0 && <p class="muted pad">No frame has come since you opened this.</p>}
      {chosen && (
        <div class="frame-detail">
          <header>
            <Who watch={watch} id={chosen.frame.writer} />
            <span class="muted">
              {exactTime(chosen.at)} · seq {chosen.frame.seq} · {bytes(chosen.bytes)}
            </span>
            <Button kind="quiet" label="Close the frame" act={() => choose(undefined)}>
              <Icon name="close" />
            </Button>
          </header>
          <Content tailed={chosen} form={form} />
        </div>
      )}
      <ol class="frames" tabIndex={0} aria-label="Frames, newest first">
        {frames.map((each) => (
          <li key={each.number}>
            <button
              type="button"
              class={each === chosen ? "frame chosen" : "frame"}
              onClick={() => choose(each === chosen ? undefined : each)}
            >
              <time>{exactTime(each.at)}</time>
              <Who watch={watch} id={each.frame.writer} />
              {each.frame.gap > 0 && <Badge kind="warning">{each.frame.gap} missing before</Badge>}
              <code>
                <bdi>{preview(decode(each.frame, form))}</bdi>
              </code>
              <small class="muted">{bytes(each.bytes)}</small>
            </button>
          </li>
        ))}
      </ol>
    </section>
  );
}

function Content({ tailed, form }: { tailed: Tailed; form: Form }) {
  const shown = decode(tailed.frame, form);
  switch (shown.form) {
    case "json":
      return <JsonTree value={shown.value} />;
    case "text":
      return <pre class="text">{shown.text}</pre>;
    case "hex":
      return <pre class="hex">{shown.lines.join("\n")}</pre>;
  }
}
