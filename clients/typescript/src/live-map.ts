import { Emitter } from "./emitter.js";

/** The events of a {@link LiveMap}. */
export interface LiveMapEvents<Value> {
  added: Value;
  /** Something about it is different now. */
  changed: Value;
  removed: Value;
}

/** A map by id that is kept up to date, and tells of its changes. */
export class LiveMap<Value> implements ReadonlyMap<string, Value> {
  readonly #values = new Map<string, Value>();
  readonly #aliases = new Map<string, string>();
  readonly #emitter = new Emitter<LiveMapEvents<Value>>();

  /**
   * Calls `listener` for every change of this type from now on. What the map holds already is not told.
   *
   * @returns a function that removes the listener.
   */
  on<Type extends keyof LiveMapEvents<Value>>(type: Type, listener: (value: Value) => void): () => void {
    return this.#emitter.on(type, listener);
  }

  get size(): number {
    return this.#values.size;
  }

  /** What has this id, or this alias in the case of streams; undefined where there is none. */
  get(name: string): Value | undefined {
    return this.#values.get(name) ?? this.#values.get(this.#aliases.get(name) ?? "");
  }

  has(name: string): boolean {
    return this.get(name) !== undefined;
  }

  keys(): MapIterator<string> {
    return this.#values.keys();
  }

  values(): MapIterator<Value> {
    return this.#values.values();
  }

  entries(): MapIterator<[string, Value]> {
    return this.#values.entries();
  }

  forEach(callback: (value: Value, id: string, map: ReadonlyMap<string, Value>) => void): void {
    this.#values.forEach((value, id) => callback(value, id, this));
  }

  [Symbol.iterator](): MapIterator<[string, Value]> {
    return this.entries();
  }

  /** @internal */
  set(id: string, value: Value, alias?: string): void {
    const type = this.#values.has(id) ? "changed" : "added";
    this.#values.set(id, value);
    if (alias !== undefined) this.#aliases.set(alias, id);
    this.#emitter.emit(type, value);
  }

  /** @internal */
  delete(id: string): Value | undefined {
    const value = this.#values.get(id);
    if (value === undefined) return undefined;
    this.#values.delete(id);
    for (const [alias, of] of this.#aliases) if (of === id) this.#aliases.delete(alias);
    this.#emitter.emit("removed", value);
    return value;
  }

  /** @internal */
  changed(id: string): void {
    const value = this.#values.get(id);
    if (value !== undefined) this.#emitter.emit("changed", value);
  }
}
