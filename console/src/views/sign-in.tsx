/** Who are you: participant and token, then the space. */

import { useState } from "preact/hooks";

import type { SpaceEntry } from "../session/api.js";
import type { Credentials } from "../session/sign-in.js";
import { join, keep, spacesFor } from "../session/sign-in.js";
import type { Watch } from "../session/watch.js";
import { Mark } from "./mark.js";

interface Props {
  /** Why one has to sign in again. */
  readonly notice?: string;
  joined(watch: Watch): void;
}

export function SignIn({ notice, joined }: Props) {
  const [participant, setParticipant] = useState("");
  const [token, setToken] = useState("");
  const [isKept, setKept] = useState(false);
  const [problem, setProblem] = useState(notice);
  const [isBusy, setBusy] = useState(false);
  const [spaces, setSpaces] = useState<readonly SpaceEntry[]>();

  async function enter(entry: SpaceEntry): Promise<void> {
    const watch = await join(entry, token);
    if (isKept) keep({ participant: entry.participant, token, space: entry.id });
    joined(watch);
  }

  async function attempt(act: () => Promise<void>): Promise<void> {
    setBusy(true);
    setProblem(undefined);
    try {
      await act();
    } catch (error) {
      setProblem(error instanceof Error ? error.message : String(error));
      setBusy(false);
    }
  }

  async function submit(): Promise<void> {
    const credentials: Credentials = { participant: participant.trim(), token: token.trim() };
    const found = await spacesFor(credentials);
    const [only] = found;
    if (found.length === 1 && only) return enter(only);
    setSpaces(found);
    setBusy(false);
  }

  return (
    <main class="sign-in">
      <div class="sign-in-card">
        <h1>
          <Mark /> mewstream
        </h1>
        <p class="lead">Sign in to watch a space and take part in it.</p>
        {problem && (
          <p class="problem" role="alert">
            {problem}
          </p>
        )}
        {spaces ? (
          <section aria-label="Spaces">
            <p>Which space?</p>
            <ul class="spaces">
              {spaces.map((entry) => (
                <li key={entry.id}>
                  <button type="button" disabled={isBusy} onClick={() => void attempt(() => enter(entry))}>
                    <strong>
                      <bdi>{entry.name || entry.id}</bdi>
                    </strong>
                    <span>
                      as <bdi>{entry.participant}</bdi>
                    </span>
                    {entry.description && <small>{entry.description}</small>}
                  </button>
                </li>
              ))}
            </ul>
            <button type="button" class="button quiet" onClick={() => setSpaces(undefined)}>
              Somebody else
            </button>
          </section>
        ) : (
          <form
            onSubmit={(event) => {
              event.preventDefault();
              void attempt(submit);
            }}
          >
            <label>
              Participant
              <input
                name="participant"
                autocomplete="username"
                autocapitalize="none"
                spellcheck={false}
                placeholder="whoever the token belongs to"
                value={participant}
                onInput={(event) => setParticipant(event.currentTarget.value)}
              />
            </label>
            <label>
              Token
              <input
                name="token"
                type="password"
                required
                autocomplete="current-password"
                value={token}
                onInput={(event) => setToken(event.currentTarget.value)}
              />
            </label>
            <label class="check">
              <input type="checkbox" checked={isKept} onChange={(event) => setKept(event.currentTarget.checked)} />
              Keep me signed in until this tab is closed
            </label>
            <button type="submit" class="button primary wide" disabled={isBusy}>
              {isBusy ? "Signing in…" : "Sign in"}
            </button>
          </form>
        )}
      </div>
    </main>
  );
}
