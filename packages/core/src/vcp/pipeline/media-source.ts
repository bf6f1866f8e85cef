/**
 * Where the pictures, sounds and films of a conversation come from: data URIs, bare base 64, addresses, files of
 * the session's workspace. Addresses are fetched through the guarded door only.
 */
import { GatewayError, toGatewayError } from "../../errors/gateway-error.ts";
import type { CallContext } from "../../context.ts";
import type { CoreDeps } from "../../core-deps.ts";
import { newId } from "../../ids.ts";
import { createWorkspace } from "../../workspace/workspace.ts";
import { classOf, sniffType, type MediaClass } from "./media-types.ts";
import { readWithin } from "../../read-body.ts";

export interface Media {
  readonly mediaType: string;
  readonly base64: string;
}

export interface MediaLimits {
  /** Of one file. */
  readonly bytes: number;
  /** Of all files of a conversation. */
  readonly totalBytes: number;
}

const fetchTimeoutMs = 30_000;
const maxRedirects = 3;

/** Reads the media of one conversation; each address once. */
export class MediaSource {
  readonly #deps: CoreDeps;
  readonly #context: CallContext;
  readonly #options: { readonly limits: MediaLimits; readonly signal: AbortSignal };
  readonly #known = new Map<string, Promise<Media>>();
  #total = 0;

  constructor(
    deps: CoreDeps,
    context: CallContext,
    options: { readonly limits: MediaLimits; readonly signal: AbortSignal },
  ) {
    this.#deps = deps;
    this.#context = context;
    this.#options = options;
  }

  /** @throws GatewayError `invalid_request`, `payload_too_large` */
  async open(source: string, wanted: MediaClass): Promise<Media> {
    const key = `${wanted} ${source}`;
    let opened = this.#known.get(key);
    if (opened === undefined) this.#known.set(key, (opened = this.#open(source, wanted)));
    const media = await opened;
    // One that is known is read no more, and yet sent in every part that names it.
    this.#count(bytesOf(media.base64));
    return media;
  }

  async #open(source: string, wanted: MediaClass): Promise<Media> {
    if (source.startsWith("data:")) return this.#dataUri(source, wanted);
    const workspacePath = workspacePathOf(source);
    if (workspacePath !== undefined) return this.#encode(await this.#fromWorkspace(workspacePath), { source, wanted });
    if (/^https?:\/\//i.test(source)) return this.#encode(await this.#fetch(source), { source, wanted });
    if (/^file:/i.test(source)) return this.#dataUri(await this.#fromFile(source), wanted);
    return this.#bareBase64(source, wanted);
  }

  #dataUri(source: string, wanted: MediaClass): Media {
    const head = /^data:([^;,]*)((?:;[^;,]*)*),/.exec(source.slice(0, 500));
    if (head === null) throw invalid("A data URI of the conversation has no comma after its type");
    const [all, type = "", parameters = ""] = head;
    const text = source.slice(all.length);
    const isBase64 = /;base64$/i.test(parameters);
    const base64 = isBase64 ? plainBase64(text) : Buffer.from(decoded(text)).toString("base64");
    return this.#media(base64, { declared: type.toLowerCase(), wanted, shown: `data:${type}` });
  }

  #bareBase64(source: string, wanted: MediaClass): Media {
    const base64 = source.length < 16 ? undefined : plainBase64OrNothing(source);
    if (base64 === undefined) {
      throw invalid(`'${shorten(source)}' is neither an address, a data URI, a file nor base 64`);
    }
    return this.#media(base64, { declared: "", wanted, shown: "base 64" });
  }

  #encode(
    { bytes, mediaType }: { readonly bytes: Uint8Array; readonly mediaType?: string },
    { source, wanted }: { readonly source: string; readonly wanted: MediaClass },
  ): Media {
    const base64 = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength).toString("base64");
    return this.#media(base64, { declared: mediaType ?? "", wanted, shown: shorten(source) });
  }

  /** What the bytes are beats what they are called; what is neither is refused: a page is no picture. */
  #media(
    base64: string,
    { declared, wanted, shown }: { readonly declared: string; readonly wanted: MediaClass; readonly shown: string },
  ): Media {
    const most = this.#options.limits.bytes;
    if (bytesOf(base64) > most) throw tooLarge(`'${shown}' has more than ${most} bytes`, most);
    const sniffed = sniffType(Buffer.from(base64.slice(0, 32), "base64"));
    const mediaType = sniffed !== undefined && classOf(sniffed) === wanted ? sniffed : declared;
    // Films and sounds come as `image_url`, too, where a back end takes them there.
    if (classOf(mediaType) === undefined) {
      if (sniffed !== undefined) return { mediaType: sniffed, base64 };
      throw invalid(`'${shown}' is no ${wanted}: its content is of no known type`);
    }
    return { mediaType, base64 };
  }

  #count(bytes: number): void {
    const { limits } = this.#options;
    this.#total += bytes;
    if (this.#total <= limits.totalBytes) return;
    throw tooLarge(
      `The media of the conversation have more than ${limits.totalBytes} bytes together`,
      limits.totalBytes,
    );
  }

  async #fetch(url: string): Promise<{ readonly bytes: Uint8Array; readonly mediaType?: string }> {
    const shown = shorten(url);
    const { signal } = this.#options;
    let response;
    try {
      response = await this.#deps.egress.request({
        method: "GET",
        url,
        headers: [
          ["accept", "image/*, audio/*, video/*, */*;q=0.1"],
          ["user-agent", "toolyard"],
        ],
        timeoutMs: fetchTimeoutMs,
        maxRedirects,
        signal,
        span: this.#context.span,
      });
    } catch (thrown) {
      if (signal.aborted) throw thrown;
      const error = toGatewayError(thrown);
      throw invalid(`'${shown}' cannot be fetched: ${error.message.replace(/\.$/, "")}`, error);
    }
    if (response.status !== 200) {
      await response.body[Symbol.asyncIterator]().return?.();
      throw invalid(`'${shown}' cannot be fetched: its host answered ${response.status}`);
    }
    const type = response.headers["content-type"];
    const [mediaType] = (typeof type === "string" ? type : "").toLowerCase().split(";");
    const bytes = await this.#read(response.body, shown);
    return { bytes, mediaType: mediaType?.trim() ?? "" };
  }

  async #fromWorkspace({
    session,
    path,
  }: WorkspacePath): Promise<{ readonly bytes: Uint8Array; readonly mediaType?: string }> {
    if (session !== this.#context.sessionId) {
      throw invalid(`'/mcp_workspaces/${shorten(session)}' is not the workspace of this request's 'session_id'`);
    }
    const { file, body } = await createWorkspace(this.#deps).read({ tenant: this.#context.tenant, session, path });
    return { bytes: await this.#read(body, path), mediaType: file.mediaType };
  }

  /** Of the session's workspace, or of a node that gives files of its directory; never of this machine. */
  async #fromFile(url: string): Promise<string> {
    const { fileAt } = await import("../files/file-arguments.ts");
    const call = { id: newId("call"), attempt: 1 };
    const file = await fileAt(this.#deps, call, { ...this.#context, signal: this.#options.signal }, url);
    if (file !== undefined) return file;
    throw invalid(
      `'${shorten(url)}' is neither in the session's workspace nor on a connected node; put it there, or send it as a data URI`,
    );
  }

  /** Stops reading where it is too much. */
  #read(body: AsyncIterable<Uint8Array>, shown: string): Promise<Uint8Array> {
    const most = this.#options.limits.bytes;
    return readWithin(body, most, () => tooLarge(`'${shown}' has more than ${most} bytes`, most));
  }
}

function bytesOf(base64: string): number {
  return Math.floor((base64.length * 3) / 4);
}

interface WorkspacePath {
  readonly session: string;
  readonly path: string;
}

/** `/mcp_workspaces/{session}/{path}`, as answers call the workspace, with or without `file://` before it. */
function workspacePathOf(source: string): WorkspacePath | undefined {
  const [, session, path] = /^(?:file:\/\/)?\/mcp_workspaces\/([^/]+)\/(.+)$/.exec(source) ?? [];
  if (session === undefined || path === undefined) return undefined;
  return source.startsWith("file:") ? { session, path: decoded(path) } : { session, path };
}

function decoded(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    throw invalid(`'${shorten(text)}' is not percent-encoded text`);
  }
}

function plainBase64(text: string): string {
  const plain = plainBase64OrNothing(text);
  if (plain === undefined) throw invalid("A data URI of the conversation is not base 64");
  return plain;
}

/** Without line ends, in the alphabet that back ends take. */
function plainBase64OrNothing(text: string): string | undefined {
  const plain = /[\s_-]/.test(text) ? text.replaceAll(/\s+/g, "").replaceAll("-", "+").replaceAll("_", "/") : text;
  return /^[A-Za-z0-9+/]*={0,2}$/.test(plain) && plain.length % 4 !== 1 ? plain : undefined;
}

/** Without what may be secret in it: queries carry keys. */
function shorten(text: string): string {
  const plain = text.replace(/[?#].*$/s, "");
  return plain.length > 120 ? `${plain.slice(0, 120)}…` : plain;
}

function invalid(what: string, cause?: unknown): GatewayError {
  return new GatewayError("invalid_request", `${what}.`, { param: "messages", cause });
}

function tooLarge(what: string, limit: number): GatewayError {
  return new GatewayError("payload_too_large", `${what} (setting 'media_bytes').`, {
    param: "messages",
    extra: { limit_bytes: limit },
  });
}
