/** Answers to what a server asks of this client, a few at a time: how much it asks must not decide how much is held. */
const mostAtOnce = 8;
const mostWaiting = 100;

/** The server goes on asking without taking the answers. */
export class AsksTooMuch extends Error {
  override readonly name = "AsksTooMuch";

  constructor() {
    super("asks for more at once than it takes answers to");
  }
}

/** Those of one stream. */
export class ServerAnswers {
  readonly #send: (text: string) => Promise<void>;
  readonly #waiting: string[] = [];
  #underWay = 0;

  /** @param send may fail: whether the server gets its answer is its own concern */
  constructor(send: (text: string) => Promise<void>) {
    this.#send = send;
  }

  /** @throws AsksTooMuch */
  add(text: string): void {
    if (this.#underWay < mostAtOnce) void this.#sendAll(text);
    else if (this.#waiting.length < mostWaiting) this.#waiting.push(text);
    else throw new AsksTooMuch();
  }

  async #sendAll(first: string): Promise<void> {
    this.#underWay += 1;
    for (let text: string | undefined = first; text !== undefined; text = this.#waiting.shift()) {
      await this.#send(text).catch(() => undefined);
    }
    this.#underWay -= 1;
  }
}
