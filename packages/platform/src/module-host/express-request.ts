/** Requests as modules know them from `express`. */
import { IncomingMessage } from "node:http";
import { parse as parseQuery } from "node:querystring";

export class PluginRequest extends IncomingMessage {
  declare baseUrl: string;
  declare originalUrl: string;
  declare params: Readonly<Record<string, string>>;
  declare body: unknown;
  /** The body has been read, and is in `body`. */
  declare _body: boolean | undefined;

  get path(): string {
    return (this.url ?? "/").split("?", 1)[0] ?? "/";
  }

  get query(): Record<string, unknown> {
    const at = (this.url ?? "").indexOf("?");
    return at < 0 ? {} : nested(parseQuery((this.url ?? "").slice(at + 1)));
  }

  get ip(): string | undefined {
    return this.socket.remoteAddress;
  }

  get ips(): readonly string[] {
    return [];
  }

  get protocol(): string {
    return String(this.headers["x-forwarded-proto"] ?? "http");
  }

  get secure(): boolean {
    return this.protocol === "https";
  }

  get hostname(): string {
    return String(this.headers.host ?? "").replace(/:\d+$/, "");
  }

  get host(): string {
    return String(this.headers.host ?? "");
  }

  get xhr(): boolean {
    return String(this.headers["x-requested-with"] ?? "").toLowerCase() === "xmlhttprequest";
  }

  get(name: string): string | undefined {
    const lower = name.toLowerCase();
    const value = this.headers[lower === "referrer" ? "referer" : lower];
    return Array.isArray(value) ? value.join(", ") : value;
  }

  header(name: string): string | undefined {
    return this.get(name);
  }

  /** The type among these that the body has. */
  is(...types: readonly (string | readonly string[])[]): string | false {
    const own = (this.get("content-type") ?? "").split(";", 1)[0]?.trim().toLowerCase() ?? "";
    return types.flat().find((type) => fits(own, type)) ?? false;
  }

  /** The first of these types that the client takes. */
  accepts(...types: readonly (string | readonly string[])[]): string | false {
    const taken = (this.get("accept") ?? "*/*").split(",").map((each) => each.split(";", 1)[0]?.trim() ?? "");
    return types.flat().find((type) => taken.some((each) => each === "*/*" || fits(fullType(type), each))) ?? false;
  }
}

const shortTypes: Readonly<Record<string, string>> = {
  json: "application/json",
  urlencoded: "application/x-www-form-urlencoded",
  multipart: "multipart/*",
  text: "text/plain",
  html: "text/html",
};

function fullType(type: string): string {
  return shortTypes[type] ?? type;
}

function fits(own: string, wanted: string): boolean {
  const full = fullType(wanted);
  if (full.endsWith("/*")) return own.startsWith(full.slice(0, -1));
  return own !== "" && own === full;
}

/** `a[b]=1` and `a[]=1` are an object and a list. */
export function nested(flat: Readonly<Record<string, unknown>>): Record<string, unknown> {
  const all: Record<string, unknown> = {};
  for (const [name, value] of Object.entries(flat)) {
    const [, first = name, key] = /^([^[\]]+)\[([^[\]]*)\]$/.exec(name) ?? [];
    if (first === "__proto__" || key === "__proto__") continue;
    if (key === undefined) all[first] = value;
    else if (key === "") all[first] = [value].flat();
    else all[first] = { ...objectOf(all[first]), [key]: value };
  }
  return all;
}

function objectOf(value: unknown): object {
  return typeof value === "object" && value !== null ? value : {};
}

/** Adds what is missing, once. */
export function extendRequest(incoming: IncomingMessage): PluginRequest {
  if (incoming instanceof PluginRequest) return incoming;
  const request: unknown = Object.setPrototypeOf(incoming, PluginRequest.prototype);
  if (!(request instanceof PluginRequest)) throw new TypeError("a request cannot be extended");
  request.baseUrl = "";
  request.originalUrl = request.url ?? "/";
  request.params = {};
  return request;
}
