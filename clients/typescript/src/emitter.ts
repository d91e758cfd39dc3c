type Listener<Event> = (event: Event) => void;

/** Calls a listener. Its exception is reported as uncaught, as platforms do, and does not disturb who calls it. */
export function notify<Event>(listener: Listener<Event> | null, event: Event): void {
  try {
    listener?.(event);
  } catch (error) {
    queueMicrotask(() => {
      throw error;
    });
  }
}

/** Listeners by type of event. `Events` maps each type to what its listeners get. */
export class Emitter<Events> {
  readonly #listeners = new Map<keyof Events, Set<Listener<never>>>();

  /**
   * Calls `listener` for every event of this type from now on, right when it happens. An exception of a listener is
   * reported as uncaught and disturbs nothing else.
   *
   * @returns a function that removes the listener.
   */
  on<Type extends keyof Events>(type: Type, listener: Listener<Events[Type]>): () => void {
    const listeners = this.#listeners.get(type) ?? new Set();
    this.#listeners.set(type, listeners.add(listener));
    return () => void listeners.delete(listener);
  }

  /** @internal */
  emit<Type extends keyof Events>(type: Type, event: Events[Type]): void {
    for (const listener of [...(this.#listeners.get(type) ?? [])] as Listener<Events[Type]>[]) {
      notify(listener, event);
    }
  }
}
