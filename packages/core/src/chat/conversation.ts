/**
 * The messages of a chat as its back end is to see them. The loop puts turns behind them; what the gateway itself has
 * put in, late results and pictures, is taken out again where a back end refuses it.
 */
import { GatewayError } from "../errors/gateway-error.ts";
import type { JsonObject } from "../json.ts";
import { leaveOut, type LateResults } from "./late-results.ts";
import type { OpenedChat } from "./opened-chat.ts";
import { isOfPictures, makeRoom, takePicturesOut } from "./pictures.ts";
import { isRefusal, mayRefusePictures } from "./providers/route.ts";

export class Conversation {
  readonly messages: JsonObject[];
  /** So many of them came with the request. */
  #given: number;
  readonly #lateInFull: LateResults;
  /** As `messages` tell of them. */
  #late: LateResults;
  #givesLateUp = false;
  /** Until a back end refuses them. */
  #showsPictures: boolean;

  constructor({ messages, late, context }: OpenedChat) {
    this.messages = [...messages];
    this.#given = messages.length;
    this.#lateInFull = late;
    this.#late = late;
    this.#showsPictures = context.config.settings.show_result_pictures;
  }

  get showsPictures(): boolean {
    return this.#showsPictures;
  }

  /** Calls whose late results it tells of. */
  get lateIds(): readonly string[] {
    return this.#late.ids;
  }

  /** Does the model see more than the request said? */
  get tellsMore(): boolean {
    return this.#late.messages.length > 0 || this.messages.length > this.#given;
  }

  /** What a request that goes on with the turn has to be given beside its own messages; the first `late` tell of late results. */
  added(): { readonly before: readonly JsonObject[]; readonly late: number } {
    const late = this.#late.messages.filter((message) => this.#showsPictures || !isOfPictures(message));
    return { before: [...late, ...this.messages.slice(this.#given)], late: late.length };
  }

  add(...messages: readonly JsonObject[]): void {
    this.messages.push(...messages);
    makeRoom(this.messages);
  }

  /** Another agent goes on: where one has instructions and the other has none, there is one more or less of the given ones. */
  goOnWith(messages: readonly JsonObject[]): void {
    this.#given += messages.length - this.messages.length;
    this.messages.splice(0, this.messages.length, ...messages);
  }

  /** After a back end has refused it: without pictures, else with less of late results. False: there is nothing to leave out. */
  sayLess(failure: GatewayError): boolean {
    if (mayRefusePictures(failure)) {
      const left = takePicturesOut(this.messages);
      this.#given -= left.filter((at) => at < this.#given).length;
      if (left.length > 0) {
        this.#showsPictures = false;
        return true;
      }
    }
    if (!isRefusal(failure) || !this.#tellsLateInFull) return false;
    const less = leaveOut(this.messages, this.#late);
    this.#late = less ?? this.#late;
    return less !== undefined;
  }

  /** A model has answered: told of late results in short, what it does then, and how that ends, is no reason to tell it again. */
  answered(): void {
    if (!this.#tellsLateInFull) this.#givesLateUp = true;
  }

  /** What the model would have made of late results is in no answer yet: the next request tells of them again. */
  tellLateAgain(): void {
    if (!this.#givesLateUp) this.#late = { ...this.#late, ids: [] };
  }

  /**
   * Why the chat has failed. An answer that was refused after it had begun cannot be asked for with less, and told again, late
   * results would end every answer of the session in the same way.
   */
  explain(error: GatewayError, isCancelled: boolean): GatewayError {
    const { code, message, details } = error;
    const { ids } = this.#late;
    if (this.#tellsLateInFull && isRefusal(error) && details.extra?.["before_first_byte"] === false)
      this.#givesLateUp = ids.length > 0;
    if (!this.#givesLateUp || isCancelled) return error;
    const told = `The model was told of results that came late, which are not told again: ${ids.join(", ")}. GET /v1/calls/{id}/result has them.`;
    return new GatewayError(code, `${message} ${told}`, details);
  }

  /** Calls whose late results need not be told again; where there is no answer, only those that could not be told better. */
  lateTold(hasAnswer: boolean): readonly string[] {
    return hasAnswer || this.#givesLateUp ? this.#late.ids : [];
  }

  get #tellsLateInFull(): boolean {
    return this.#late === this.#lateInFull;
  }
}
