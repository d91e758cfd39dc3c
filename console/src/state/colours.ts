/** Which colour of the palette a participant has: the one that is used least, for as long as there is a free one. */

export const PALETTE_SIZE = 10;

export class Colours {
  readonly #given = new Map<string, number>();

  /** The number of the colour, from 0. The same participant always gets the same. */
  of(participant: string): number {
    let colour = this.#given.get(participant);
    if (colour === undefined) {
      colour = this.#given.size % PALETTE_SIZE;
      this.#given.set(participant, colour);
    }
    return colour;
  }
}
