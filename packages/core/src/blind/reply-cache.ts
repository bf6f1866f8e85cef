/**
 * Replies of reads that came with a validator, kept by this process and confirmed by the back end every
 * time they are used again (CHAT-14): the repetition asks whether anything has changed, and a 304 saves
 * the body. Nothing is used without asking, so instances need not tell each other of writes.
 */
import { createHash } from "node:crypto";
import { canonicalJson } from "../json.ts";
import type { EgressResponse } from "../ports/egress.ts";
import type { InvocationContext, ToolCall, ToolReply } from "../tools/tool-call.ts";
import { findCredential } from "./credential-resolver.ts";

interface Entry {
  readonly etag: string | undefined;
  readonly lastModified: string | undefined;
  readonly reply: ToolReply;
  /** All that it takes, not only its body: there would be no end to replies without one. */
  readonly bytes: number;
  /** Tenant and service: a write there makes it void. */
  readonly place: string;
}

export interface KeptReply {
  readonly reply: ToolReply;
  readonly conditions: readonly (readonly [name: string, value: string])[];
}

const mostBytes = 33_554_432;
/** A reply that takes more than this would push out too many others. */
const mostBytesEach = 1_048_576;
/** What an entry takes beside its texts: key, objects, places in the maps. With it the bytes bound the number, too. */
const bytesOfEntry = 1_024;

export class ReplyCache {
  readonly #entries = new Map<string, Entry>();
  /** Keys by place, so that a write looks at nothing but what was read there. */
  readonly #places = new Map<string, Set<string>>();
  #bytes = 0;

  /** Is anything kept of what was read there? */
  has(place: string): boolean {
    return this.#places.has(place);
  }

  /** An earlier reply, and the headers that ask whether it is still the right one. */
  find(key: string): KeptReply | undefined {
    const entry = this.#entries.get(key);
    if (entry === undefined) return undefined;
    // Moved to the end: the first is the least recently used.
    this.#entries.delete(key);
    this.#entries.set(key, entry);
    return {
      reply: { ...entry.reply, reused: "cache" },
      conditions: [
        ...(entry.etag === undefined ? [] : [["if-none-match", entry.etag] as const]),
        ...(entry.lastModified === undefined ? [] : [["if-modified-since", entry.lastModified] as const]),
      ],
    };
  }

  keep(key: string, place: string, answered: { readonly response: EgressResponse; readonly reply: ToolReply }): void {
    const { response, reply } = answered;
    this.#drop(key);
    const etag = oneValue(response, "etag");
    const lastModified = oneValue(response, "last-modified");
    const bytes = bytesOf([key, reply.body, reply.mediaType, reply.forModel, etag, lastModified]);
    if (!hasValidator(response) || bytes > mostBytesEach || forbidsKeeping(response)) return;
    this.#entries.set(key, { etag, lastModified, reply, bytes, place });
    const here = this.#places.get(place);
    if (here === undefined) this.#places.set(place, new Set([key]));
    else here.add(key);
    this.#bytes += bytes;
    for (const oldest of this.#entries.keys()) {
      if (this.#bytes <= mostBytes) break;
      this.#drop(oldest);
    }
  }

  /** A write may have changed whatever was read there. */
  forget(place: string): void {
    for (const key of this.#places.get(place) ?? []) this.#drop(key);
  }

  #drop(key: string): void {
    const entry = this.#entries.get(key);
    if (entry === undefined) return;
    this.#entries.delete(key);
    this.#bytes -= entry.bytes;
    const here = this.#places.get(entry.place);
    here?.delete(key);
    if (here?.size === 0) this.#places.delete(entry.place);
  }
}

function bytesOf(parts: readonly (string | Uint8Array | undefined)[]): number {
  const bytes = parts.map((part) => (typeof part === "string" ? part.length * 2 : (part?.byteLength ?? 0)));
  return bytes.reduce((sum, size) => sum + size, bytesOfEntry);
}

/** Everything that may change the reply: who asks, with which secrets, for what, by which definition; hashed, since arguments may be long. */
export function cacheKey(call: ToolCall, context: InvocationContext): string {
  const { tenant, caller } = context;
  const secrets = call.tool.requiredCredentials.map((name) => findCredential(context, name) ?? null);
  const asked = canonicalJson([tenant, caller.id, caller.userId ?? null, call.tool.hash, call.arguments, secrets]);
  return createHash("sha256").update(asked).digest("base64url");
}

/** Without one nothing can be asked about it again. */
export function hasValidator(response: EgressResponse): boolean {
  return response.headers["etag"] !== undefined || response.headers["last-modified"] !== undefined;
}

function forbidsKeeping(response: EgressResponse): boolean {
  const control = oneValue(response, "cache-control")?.toLowerCase() ?? "";
  return /\bno-store\b/.test(control) || oneValue(response, "vary")?.trim() === "*";
}

function oneValue(response: EgressResponse, name: string): string | undefined {
  const value = response.headers[name];
  return typeof value === "string" ? value : value?.[0];
}
