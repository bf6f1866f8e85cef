/**
 * What a call is carried out with, and what came of it: in messages of the link where it fits into one, else over links
 * to where the gateway keeps such things.
 */
import { setTimeout as sleep } from "node:timers/promises";
import { parseJson } from "@toolyard/core/json";
import { readAll } from "@toolyard/core/ports/blob-store";
import type { Egress } from "@toolyard/core/ports/egress";
import type { Log } from "@toolyard/core/ports/log";
import type { Executed } from "./executor.ts";
import { AnsweredError, inputSchema, readAccepted, readDone, readUpload, type NodeInput } from "./frames.ts";
import type { NodeLink } from "./link.ts";
import { messageOf } from "./message-of.ts";

/** A result that fits into a frame together with the rest of its message. */
const longestInline = 24_000;
const transferMs = 300_000;
/** To have the arguments of a call, and the pause after the first; each is twice the one before. */
const mostTries = 4;
const tryAgainMs = 250;

/** Of which call, and under which number it was given to this node. */
interface Carried {
  readonly id: string;
  readonly callId: string;
}

export interface RunTransfersOptions {
  readonly link: NodeLink;
  /** Names this run of the program. */
  readonly instance: string;
  readonly egress: Egress;
  readonly log: Log;
}

export class RunTransfers {
  readonly #options: RunTransfersOptions;

  constructor(options: RunTransfersOptions) {
    this.#options = options;
  }

  /** Asking again is allowed, and gives a new link. @returns undefined: it is not to be begun */
  async inputOf({ id, callId }: Carried, signal: AbortSignal): Promise<NodeInput | undefined> {
    const accept = { type: "node.accept", run: id, instance: this.#options.instance };
    for (let tries = 1; ; tries += 1) {
      try {
        const answer = await this.#options.link.ask(accept, readAccepted);
        if (answer?.type !== "node.accepted") return undefined;
        return answer.input ?? inputSchema.parse(parseJson(await this.#download(answer.input_url ?? "")));
      } catch (thrown) {
        if (thrown instanceof AnsweredError || tries === mostTries || signal.aborted) throw thrown;
        const reason = messageOf(thrown);
        this.#options.log.log("warn", "arguments did not come and are asked for again", { call_id: callId, reason });
        await sleep(tryAgainMs * 2 ** (tries - 1));
      }
    }
  }

  /** Until the gateway has it, over as many connections as it takes. */
  async deliver({ id: run }: Carried, { status, mediaType, output, message }: Executed): Promise<void> {
    const bytes = Buffer.from(output, "utf8");
    const said = { status, media_type: mediaType, ...(message === undefined ? {} : { message }) };
    const { instance, link } = this.#options;
    const own = { run, instance };
    // What JSON makes of it counts, which can be six times as long.
    const isInline = Buffer.byteLength(JSON.stringify(output)) <= longestInline;
    const refusal = isInline ? undefined : await this.#upload(own, bytes, mediaType);
    const result =
      refusal === undefined
        ? { ...said, ...(isInline ? { output } : { uploaded: true }) }
        : { status: "failed", media_type: "text/plain", message: refusal };
    await link.ask({ type: "node.result", ...own, ...result }, readDone);
  }

  /** @returns why it cannot be kept */
  async #upload(
    own: { readonly run: string; readonly instance: string },
    bytes: Buffer,
    mediaType: string,
  ): Promise<string | undefined> {
    const wanted = { type: "node.upload", ...own, bytes: bytes.byteLength, media_type: mediaType };
    for (let pauseMs = 500; ; pauseMs = Math.min(30_000, pauseMs * 2)) {
      try {
        const link = await this.#options.link.ask(wanted, readUpload);
        // It has stopped, and what it would say next is not heard either.
        if (link === undefined) return undefined;
        if (this.#options.link.store === undefined) await this.store(link.url, link.headers, bytes);
        else await this.#options.link.store(own.run, bytes, mediaType);
        return undefined;
      } catch (thrown) {
        if (thrown instanceof AnsweredError) return thrown.message;
        this.#options.log.log("warn", "a result was not uploaded and will be again", { reason: messageOf(thrown) });
        await sleep(pauseMs);
      }
    }
  }

  async #download(url: string): Promise<string> {
    const { status, body } = await this.request("GET", url);
    if (status !== 200) throw new Error(`the arguments were answered with ${status}`);
    return Buffer.from(body).toString("utf8");
  }

  /** Puts a body where a link of the gateway leads. */
  async store(url: string, headers: Readonly<Record<string, string>>, body: Uint8Array): Promise<void> {
    const { status } = await this.request("PUT", url, { headers, body });
    // Something is there already where an earlier try was not heard of.
    if (status >= 300 && status !== 409 && status !== 412) throw new Error(`the upload was answered with ${status}`);
  }

  /** Of links that the gateway has given. */
  async request(
    method: string,
    url: string,
    { headers = {}, body }: { readonly headers?: Readonly<Record<string, string>>; readonly body?: Uint8Array } = {},
  ): Promise<{ readonly status: number; readonly body: Uint8Array }> {
    const answer = await this.#options.egress.request({
      method,
      url,
      headers: Object.entries(headers),
      timeoutMs: transferMs,
      ...(body === undefined ? {} : { body }),
    });
    return { status: answer.status, body: await readAll(answer.body) };
  }
}
