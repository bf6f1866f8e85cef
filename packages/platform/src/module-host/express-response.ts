/** Responses as modules know them from `express`. */
import { createReadStream, statSync } from "node:fs";
import { ServerResponse } from "node:http";
import { basename, isAbsolute, resolve, sep } from "node:path";
import { mediaTypeOf } from "./media-types.ts";
import type { PluginRequest } from "./express-request.ts";

type Done = (problem?: unknown) => void;
type HeaderValue = string | number | readonly string[];

interface CookieOptions {
  readonly maxAge?: number;
  readonly expires?: Date;
  readonly path?: string;
  readonly domain?: string;
  readonly httpOnly?: boolean;
  readonly secure?: boolean;
  readonly sameSite?: string | boolean;
}

export class PluginResponse extends ServerResponse<PluginRequest> {
  declare locals: Record<string, unknown>;

  status(code: number): this {
    this.statusCode = code;
    return this;
  }

  sendStatus(code: number): this {
    return this.status(code).type("text/plain").send(String(code));
  }

  set(name: string | Readonly<Record<string, HeaderValue>>, value?: HeaderValue): this {
    if (typeof name === "string") this.setHeader(name, value ?? "");
    else for (const [each, given] of Object.entries(name)) this.setHeader(each, given);
    return this;
  }

  header(name: string, value: HeaderValue): this {
    return this.set(name, value);
  }

  get(name: string): unknown {
    return this.getHeader(name);
  }

  append(name: string, value: string | readonly string[]): this {
    const before = this.getHeader(name);
    const list = before === undefined ? [] : [before].flat().map(String);
    this.setHeader(name, [...list, ...[value].flat()]);
    return this;
  }

  vary(name: string): this {
    return this.append("vary", name);
  }

  type(type: string): this {
    this.setHeader(
      "content-type",
      type.includes("/") ? withCharset(type) : withCharset(mediaTypeOf(`.${type.replace(/^\./, "")}`)),
    );
    return this;
  }

  contentType(type: string): this {
    return this.type(type);
  }

  location(url: string): this {
    return this.set("location", url);
  }

  links(links: Readonly<Record<string, string>>): this {
    const all = Object.entries(links).map(([rel, url]) => `<${url}>; rel="${rel}"`);
    return this.set("link", all.join(", "));
  }

  send(body?: unknown): this {
    if (body === undefined || body === null) {
      this.end();
      return this;
    }
    if (typeof body === "string") {
      if (!this.hasHeader("content-type")) this.type("text/html");
      return endWith(this, Buffer.from(body, "utf8"));
    }
    if (body instanceof Uint8Array) {
      if (!this.hasHeader("content-type")) this.type("application/octet-stream");
      return endWith(this, body);
    }
    return this.json(body);
  }

  json(body: unknown): this {
    if (!this.hasHeader("content-type")) this.type("application/json");
    return endWith(this, Buffer.from(JSON.stringify(body) ?? "null", "utf8"));
  }

  redirect(...args: readonly (string | number)[]): void {
    const url = args.find((each) => typeof each === "string") ?? "/";
    const status = args.find((each) => typeof each === "number") ?? 302;
    this.status(Number(status))
      .location(String(url))
      .type("text/plain")
      .send(`Redirecting to ${String(url)}`);
  }

  cookie(name: string, value: unknown, options: CookieOptions = {}): this {
    const text = typeof value === "string" ? value : `j:${JSON.stringify(value)}`;
    return this.append("set-cookie", `${name}=${encodeURIComponent(text)}${cookieWords(options)}`);
  }

  clearCookie(name: string, options: CookieOptions = {}): this {
    return this.cookie(name, "", { ...options, expires: new Date(1) });
  }

  attachment(fileName?: string): this {
    if (fileName !== undefined && !this.hasHeader("content-type")) this.type(mediaTypeOf(fileName));
    const name = fileName === undefined ? "" : `; filename="${basename(fileName).replaceAll(/["\\\r\n]/g, "_")}"`;
    return this.set("content-disposition", `attachment${name}`);
  }

  download(path: string, ...rest: readonly unknown[]): void {
    const name = rest.find((each) => typeof each === "string");
    this.attachment(typeof name === "string" ? name : path);
    this.sendFile(isAbsolute(path) ? path : resolve(path), ...rest.filter((each) => typeof each !== "string"));
  }

  /** `sendFile(path, options?, done?)` */
  sendFile(path: string, ...rest: readonly unknown[]): void {
    const done = toDone(
      rest.find((each) => typeof each === "function"),
      this,
    );
    const options = rest.find((each) => typeof each === "object" && each !== null);
    const root: unknown = typeof options === "object" && options !== null ? Reflect.get(options, "root") : undefined;
    const file = fileBelow(typeof root === "string" ? root : undefined, path);
    if (file === undefined) {
      done(Object.assign(new Error("Forbidden"), { status: 403 }));
      return;
    }
    sendPath(this, file, done);
  }
}

function endWith<R extends ServerResponse>(response: R, bytes: Uint8Array): R {
  if (!response.hasHeader("transfer-encoding")) response.setHeader("content-length", bytes.byteLength);
  response.end(bytes);
  return response;
}

function withCharset(type: string): string {
  return /^(?:text\/|application\/(?:json|javascript)$)/.test(type) && !type.includes("charset")
    ? `${type}; charset=utf-8`
    : type;
}

function cookieWords({ maxAge, expires, path = "/", domain, httpOnly, secure, sameSite }: CookieOptions): string {
  const words = [
    `Path=${path}`,
    ...(maxAge === undefined ? [] : [`Max-Age=${Math.floor(maxAge / 1_000)}`]),
    ...(expires === undefined ? [] : [`Expires=${expires.toUTCString()}`]),
    ...(domain === undefined ? [] : [`Domain=${domain}`]),
    ...(httpOnly === true ? ["HttpOnly"] : []),
    ...(secure === true ? ["Secure"] : []),
    ...(typeof sameSite === "string" ? [`SameSite=${sameSite}`] : []),
  ];
  return words.map((word) => `; ${word}`).join("");
}

/** Undefined: it lies elsewhere. */
export function fileBelow(root: string | undefined, path: string): string | undefined {
  if (path.includes("\0")) return undefined;
  if (root === undefined) return isAbsolute(path) ? path : undefined;
  const file = resolve(root, `.${sep}${path}`);
  return file === resolve(root) || file.startsWith(resolve(root) + sep) ? file : undefined;
}

/** @param done with what kept it from being sent */
export function sendPath(response: PluginResponse, file: string, done: Done): void {
  const stat = statSync(file, { throwIfNoEntry: false });
  if (stat?.isFile() !== true) {
    done(Object.assign(new Error("Not Found"), { status: 404 }));
    return;
  }
  if (!response.hasHeader("content-type")) response.type(mediaTypeOf(file));
  response.setHeader("content-length", stat.size);
  response.setHeader("last-modified", stat.mtime.toUTCString());
  if (response.req.method === "HEAD") {
    response.end();
    return;
  }
  const stream = createReadStream(file);
  stream.once("error", done);
  stream.pipe(response);
}

function toDone(given: unknown, response: PluginResponse): Done {
  if (typeof given === "function") return (problem) => void Reflect.apply(given, undefined, [problem]);
  return () => {
    if (!response.headersSent) response.status(404).type("text/plain").send("Not Found");
  };
}

/** Adds what is missing, once. */
export function extendResponse(outgoing: ServerResponse, request: PluginRequest): PluginResponse {
  if (outgoing instanceof PluginResponse) return outgoing;
  const response: unknown = Object.setPrototypeOf(outgoing, PluginResponse.prototype);
  if (!(response instanceof PluginResponse)) throw new TypeError("a response cannot be extended");
  response.locals = {};
  Object.assign(request, { res: response });
  return response;
}
