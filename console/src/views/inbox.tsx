/** What waits for approval, what people say, and the tools that they offer. */

import { useEffect, useRef, useState } from "preact/hooks";

import type { Watch } from "../session/watch.js";
import type { Said } from "../state/inbox.js";
import { obstacleTo } from "../state/permits.js";
import { time } from "./format.js";
import { Icon } from "./icons.js";
import { attempt, Empty, usePulse, Who } from "./parts.js";
import { Proposals } from "./proposals.js";
import { Tools } from "./tools.js";

const SHOWN = 200;

export function Inbox({ watch }: { watch: Watch }) {
  usePulse(watch.page);
  const { inbox } = watch.model;
  useEffect(() => {
    inbox.unread = 0;
  });
  return (
    <section class="view" aria-labelledby="inbox-title">
      <header class="view-head">
        <h1 id="inbox-title">Inbox</h1>
        <p class="muted">{inbox.waiting === 0 ? "nothing waits" : `${inbox.waiting} to decide`}</p>
      </header>
      <div class="columns">
        <Proposals watch={watch} />
        <Chat watch={watch} said={inbox.said.slice(-SHOWN)} />
        <Tools watch={watch} />
      </div>
    </section>
  );
}

function Chat({ watch, said }: { watch: Watch; said: readonly Said[] }) {
  const [text, setText] = useState("");
  const list = useRef<HTMLOListElement>(null);
  const newest = said.at(-1);
  const obstacle = obstacleTo({ me: watch.me, capabilities: watch.space.capabilities }, "chat");
  useEffect(() => {
    // Whoever reads what is older stays there.
    const element = list.current;
    if (!element) return;
    const isAtEnd = element.scrollHeight - element.scrollTop - element.clientHeight < 200;
    if (isAtEnd || newest?.sender === watch.me) element.scrollTop = element.scrollHeight;
  }, [newest]);

  return (
    <section class="panel chat" aria-labelledby="chat-title">
      <h2 id="chat-title">Chat</h2>
      <ol ref={list} class="messages" tabIndex={0} aria-label="Messages" aria-live="polite">
        {said.length === 0 && (
          <li>
            <Empty title="Nobody has said anything yet" />
          </li>
        )}
        {said.map(({ id, at, sender, text: words, to }, index) => (
          <li key={`${id}${at}`} class={sender === watch.me ? "message mine" : "message"}>
            {said[index - 1]?.sender !== sender && <Who watch={watch} id={sender} />}
            <p>
              <bdi>{words}</bdi>
              <small>
                {time(at)}
                {to.length > 0 && ` to ${to.join(", ")}`}
              </small>
            </p>
          </li>
        ))}
      </ol>
      <form
        class="composer"
        onSubmit={(event) => {
          event.preventDefault();
          if (text.trim() === "") return;
          void attempt(async () => {
            await watch.space.chat(text);
            setText("");
          });
        }}
      >
        <input
          name="message"
          aria-label="Message"
          placeholder={obstacle ?? "Say something to everyone"}
          disabled={obstacle !== undefined}
          value={text}
          onInput={(event) => setText(event.currentTarget.value)}
        />
        <button type="submit" class="button primary" aria-label="Send" disabled={obstacle !== undefined}>
          <Icon name="send" />
        </button>
      </form>
    </section>
  );
}
