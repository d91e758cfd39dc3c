/** The page: signed out, or watching a space. */

import { useEffect, useState } from "preact/hooks";

import { CloseCode } from "mewstream";

import { forget, join, kept, spacesFor } from "../session/sign-in.js";
import type { Watch } from "../session/watch.js";
import { Shell } from "./shell.js";
import { SignIn } from "./sign-in.js";
import { Toasts } from "./toasts.js";

type State =
  | { readonly is: "returning" }
  | { readonly is: "out"; readonly notice?: string }
  | { readonly is: "in"; readonly watch: Watch };

export function App() {
  const [state, setState] = useState<State>(kept() ? { is: "returning" } : { is: "out" });

  function enter(watch: Watch): void {
    setState({ is: "in", watch });
    void watch.space.closed.then((error) => {
      if (!error) return;
      watch.stop();
      if (error.code === CloseCode.KICKED) forget();
      const why = error.code === CloseCode.KICKED ? "You were removed from the space." : "The connection has ended.";
      setState({ is: "out", notice: `${why} ${error.message}` });
    });
  }

  useEffect(() => {
    if (state.is !== "returning") return;
    void comeBack().then(enter, (error: Error) => {
      forget();
      setState({ is: "out", notice: error.message });
    });
  }, []);

  async function leave(watch: Watch): Promise<void> {
    forget();
    setState({ is: "out" });
    await watch.leave();
  }

  return (
    <>
      {state.is === "in" && <Shell watch={state.watch} leave={() => void leave(state.watch)} />}
      {state.is === "out" && <SignIn key={state.notice} notice={state.notice} joined={enter} />}
      {state.is === "returning" && <p class="returning">Coming back…</p>}
      <Toasts />
    </>
  );
}

/** Joins the space of before, after the page was loaded again. */
async function comeBack(): Promise<Watch> {
  const before = kept();
  if (!before) throw new Error("sign in again");
  const spaces = await spacesFor(before);
  const entry = spaces.find(({ id }) => id === before.space);
  if (!entry) throw new Error(`there is no space ${before.space} any more`);
  return join(entry, before.token);
}
