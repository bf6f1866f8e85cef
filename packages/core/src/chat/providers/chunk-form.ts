/**
 * What the chunks of one answer have in common. Nearly every chunk differs from the one before in its text alone;
 * that can be told by comparing characters, for a third of what parsing costs.
 */

/** What cannot stand for itself in a JSON string, and a little more. */
const needsParsing = /["\\\p{Cc}]/u;
const contentKey = /"content":\s*"/g;

export class ChunkForm {
  /** Of a chunk that says one text and nothing else: what stands before the text, and after it. */
  #before = "";
  #after = "";
  #choice = 0;

  /** Of chunks of this form. */
  get choice(): number {
    return this.#choice;
  }

  /** @param data of a chunk that has been parsed and says nothing but `text` */
  learn(data: string, { text, choice }: { readonly text: string; readonly choice: number }): void {
    this.#before = "";
    const [place, ...others] = data.matchAll(contentKey);
    // Beside another key of that name nobody could say whose text it is.
    if (place === undefined || others.length > 0) return;
    const from = place.index + place[0].length;
    if (needsParsing.test(text) || !data.startsWith(`${text}"`, from)) return;
    this.#before = data.slice(0, from);
    this.#after = data.slice(from + text.length);
    this.#choice = choice;
  }

  /** The text of a chunk of the form that was learnt last; undefined: it has to be parsed. */
  textOf(data: string): string | undefined {
    const from = this.#before.length;
    const to = data.length - this.#after.length;
    if (from === 0 || to <= from || !data.startsWith(this.#before) || !data.endsWith(this.#after)) return undefined;
    const text = data.slice(from, to);
    return needsParsing.test(text) ? undefined : text;
  }
}
