/**
 * Answers with stored bytes as they are, whole or by range, without holding them in memory (CHAT-19).
 * They come from tools and users, so no browser may take them for a page of ours.
 */
import { toAttachment } from "@toolyard/core/attachment";
import type { PresignedRequest } from "@toolyard/core/ports/blob-store";
import { headerOf, hostOf, type AppContext } from "./app-env.ts";
import { parseByteRange, type ByteRange } from "./byte-range.ts";
import { isKnown } from "./entity-tag.ts";
import { answerThroughSink } from "./sink.ts";

export interface StoredBytes {
  readonly bytes: number;
  readonly mediaType: string;
  /** Changes with the content; without quotes. */
  readonly etag?: string;
  readonly fileName: string;
  /** Opened before the head is sent, so that what is gone can still be answered as an error. */
  readonly open: (range: ByteRange | undefined) => Promise<AsyncIterable<Uint8Array>>;
  /** Where a client is sent from a host whose answers may not be that large. */
  readonly link?: () => Promise<PresignedRequest>;
}

/** For the declarations of routes: the bytes have a media type of their own. */
export const ofAnyType = ["application/octet-stream", "*/*"] as const;

export const tooLargeHere = {
  description: "More than this host can answer with (a function: 50 MB): 'Location' is a link that needs no key",
} as const;

export const knownToClient = { description: "The client has it: its etag is among those of 'If-None-Match'" } as const;

/** Of what a function streams, all but 6 MB go at 2 MB/s, and it has a minute. */
const largestStreamed = 50_000_000;

export async function answerBytes(c: AppContext, stored: StoredBytes): Promise<Response> {
  const etag = stored.etag === undefined ? undefined : `"${stored.etag.replaceAll(/[^\w.:-]/g, "_")}"`;
  if (etag !== undefined && isKnown(c, etag)) return c.body(null, 304, { etag });
  const range = parseByteRange(wantedRange(c, etag), stored.bytes);
  const headers: Record<string, string> = {
    "content-type": headerValue(stored.mediaType) ?? "application/octet-stream",
    "content-disposition": toAttachment(stored.fileName),
    "content-security-policy": "sandbox; default-src 'none'",
    "accept-ranges": "bytes",
    ...(etag === undefined ? {} : { etag }),
  };
  if (range === "unsatisfiable") {
    return c.body(null, 416, { ...headers, "content-range": `bytes */${stored.bytes}` });
  }
  const status = range === undefined ? 200 : 206;
  const whole = { ...headers, ...lengthHeaders(range, stored.bytes) };
  // Small enough for every host, and no answer that a sink could take away from the router.
  if (c.req.raw.method === "HEAD") return c.body(null, status, whole);
  const { lambda } = hostOf(c);
  const length = range === undefined ? stored.bytes : range.end - range.start;
  if (stored.link !== undefined && lambda !== undefined && length > largestStreamed) {
    // The method and the range stay the same.
    return c.redirect((await stored.link()).url, 307);
  }
  const body = await stored.open(range);
  return answerThroughSink(c, async (sink) => {
    sink.head(status, whole);
    let sent = 0;
    for await (const part of body) {
      if (sink.closed) return;
      sent += part.length;
      await sink.write(part);
    }
    // A client would wait for the rest on a connection that stays open.
    if (sent < length) throw new Error("what is stored is shorter than its record says");
  });
}

/** A range of an older version is worth nothing (`If-Range`). */
function wantedRange(c: AppContext, etag: string | undefined): string | undefined {
  const condition = headerOf(c, "if-range");
  return condition === undefined || condition === etag ? headerOf(c, "range") : undefined;
}

function lengthHeaders(range: ByteRange | undefined, size: number): Record<string, string> {
  if (range === undefined) return { "content-length": String(size) };
  return {
    "content-length": String(range.end - range.start),
    "content-range": `bytes ${range.start}-${range.end - 1}/${size}`,
  };
}

function headerValue(text: string): string | undefined {
  return /^[\x20-\x7e]{1,256}$/.test(text) ? text : undefined;
}
