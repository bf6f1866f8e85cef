/** Handlers that `express` itself offers: bodies, and files of a folder. */
import { statSync } from "node:fs";
import { join } from "node:path";
import { parse as parseQuery } from "node:querystring";
import type { Next } from "./express-passage.ts";
import { nested, type PluginRequest } from "./express-request.ts";
import { fileBelow, sendPath, type PluginResponse } from "./express-response.ts";

type Middleware = (request: PluginRequest, response: PluginResponse, next: Next) => void;

/** As these take it: where the body is of their type and has not been read, it is read. */
function bodyReader(fits: (request: PluginRequest) => boolean, read: (bytes: Buffer) => unknown): Middleware {
  return (request, _response, next) => {
    if (request._body === true || !fits(request)) {
      next();
      return;
    }
    request._body = true;
    const parts: Buffer[] = [];
    request.on("data", (part: Buffer) => parts.push(part));
    request.once("error", next);
    request.once("end", () => {
      try {
        request.body = read(Buffer.concat(parts));
      } catch {
        next(Object.assign(new Error("The body cannot be read."), { status: 400 }));
        return;
      }
      next();
    });
  };
}

/** What a module says of the type, else the one that is usual. */
function typeOf(options: unknown, usual: string): (request: PluginRequest) => boolean {
  const named: unknown = typeof options === "object" && options !== null ? Reflect.get(options, "type") : undefined;
  if (typeof named === "function") return (request) => Reflect.apply(named, undefined, [request]) === true;
  const types = [named ?? usual].flat().filter((type) => typeof type === "string");
  return (request) => types.includes("*/*") || request.is(types) !== false;
}

export function json(options?: unknown): Middleware {
  const isJson = typeOf(options, "application/json");
  const fits = (request: PluginRequest): boolean =>
    isJson(request) || /\+json\b/.test(request.get("content-type") ?? "");
  return bodyReader(fits, (bytes): unknown => (bytes.byteLength === 0 ? {} : JSON.parse(bytes.toString("utf8"))));
}

export function urlencoded(options?: unknown): Middleware {
  return bodyReader(typeOf(options, "application/x-www-form-urlencoded"), (bytes) =>
    nested(parseQuery(bytes.toString("utf8"))),
  );
}

export function text(options?: unknown): Middleware {
  return bodyReader(typeOf(options, "text/plain"), (bytes) => bytes.toString("utf8"));
}

export function raw(options?: unknown): Middleware {
  return bodyReader(typeOf(options, "application/octet-stream"), (bytes) => bytes);
}

/** Files below `root`; what is not there is for the next handler. */
export function serveStatic(root: string, options?: unknown): Middleware {
  const index: unknown = typeof options === "object" && options !== null ? Reflect.get(options, "index") : undefined;
  const indexFile = typeof index === "string" ? index : "index.html";
  return (request, response, next) => {
    const asked = request.method === "GET" || request.method === "HEAD" ? decoded(request.path) : undefined;
    const found = asked === undefined ? undefined : fileBelow(root, asked);
    if (found === undefined || /(?:^|\/)\./.test(asked ?? "")) {
      next();
      return;
    }
    const isFolder = statSync(found, { throwIfNoEntry: false })?.isDirectory() === true;
    sendPath(response, isFolder && index !== false ? join(found, indexFile) : found, () => next());
  };
}

function decoded(path: string): string | undefined {
  try {
    return decodeURIComponent(path);
  } catch {
    return undefined;
  }
}
