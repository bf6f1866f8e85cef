/**
 * Where an imported API is: one base address, fixed when it is imported and shown to whoever imports it.
 * A document is foreign input, so an operation that names another origin is not imported unless the
 * caller lists that origin: credentials must not follow a document to wherever it points.
 */
import { GatewayError } from "../../errors/gateway-error.ts";
import { isJsonObject, type JsonObject, type JsonValue } from "../../json.ts";
import { ownMember } from "../../tools/json-schema/document.ts";
import { cutText, withoutEndSlashes } from "../text.ts";
import type { ApiDocument } from "./document.ts";
import { textMember } from "./operation.ts";

export interface ServerOptions {
  /** The caller's own base address, which beats the document. */
  readonly baseUrl?: string | undefined;
  /** Values for `{variables}` in server addresses. */
  readonly variables: Readonly<Record<string, string>>;
}

export interface BaseAddress {
  /** Without a slash at its end. */
  readonly url: string;
  readonly origin: string;
  /** Other servers of the document, which are not used. */
  readonly others: readonly string[];
}

/** @throws GatewayError `invalid_request` with param `base_url` where no server can be told */
export function chooseBase(document: ApiDocument, options: ServerOptions): BaseAddress {
  const listed = readServers(serversOf(document), document, options);
  if (options.baseUrl !== undefined) {
    const url = parseAddress(options.baseUrl, undefined);
    if (url === undefined) {
      throw noBase("is no http or https address without user name, query and fragment");
    }
    return { ...url, others: listed.addresses.map((address) => address.url) };
  }
  const [first, ...others] = listed.addresses;
  if (first === undefined) {
    const reason = listed.problems[0] ?? "the document names no server";
    throw noBase(`is needed: ${reason}`);
  }
  return { ...first, others: others.map(({ url }) => url) };
}

/** Address of an operation with servers of its own: the first that is the import's origin or an allowed one. */
export function chooseOperationBase(
  document: ApiDocument,
  servers: readonly JsonValue[],
  options: ServerOptions & { readonly base: BaseAddress; readonly allowedOrigins: ReadonlySet<string> },
): { readonly url: string } | { readonly refused: string } {
  const { base, allowedOrigins } = options;
  const listed = readServers(servers, document, options);
  const usable = listed.addresses.find(({ origin }) => origin === base.origin || allowedOrigins.has(origin));
  if (usable !== undefined) return { url: usable.url };
  const [other] = listed.addresses;
  if (other === undefined) return { refused: listed.problems[0] ?? "its server cannot be told" };
  return {
    refused: `its server ${other.origin} is not the import's origin ${base.origin}; list it in 'allowed_origins' to import it nevertheless`,
  };
}

/** In the form of OpenAPI 3, preferred first. */
function serversOf(document: ApiDocument): readonly JsonValue[] {
  if (document.version !== "2.0") {
    const servers = ownMember(document.root, "servers");
    return Array.isArray(servers) && servers.length > 0 ? servers : [{ url: "/" }];
  }
  const host = textMember(document.root, "host");
  const basePath = textMember(document.root, "basePath") ?? "/";
  if (host === undefined) return [{ url: basePath }];
  const declared = ownMember(document.root, "schemes");
  const schemes = Array.isArray(declared) ? declared.filter((scheme) => scheme === "https" || scheme === "http") : [];
  const own = document.url === undefined ? "https" : new URL(document.url).protocol.slice(0, -1);
  const preferred = schemes.length === 0 ? [own] : schemes.sort().reverse();
  return preferred.map((scheme) => ({ url: `${scheme}://${host}${basePath.startsWith("/") ? "" : "/"}${basePath}` }));
}

interface Address {
  readonly url: string;
  readonly origin: string;
}

interface ReadServers {
  readonly addresses: readonly Address[];
  readonly problems: readonly string[];
}

function readServers(servers: readonly JsonValue[], document: ApiDocument, options: ServerOptions): ReadServers {
  const addresses: Address[] = [];
  const problems: string[] = [];
  for (const server of servers) {
    const template = textMember(server, "url") ?? "/";
    const filled = fillVariables(template, server, options.variables);
    if (typeof filled !== "string") {
      problems.push(filled.problem);
      continue;
    }
    const address = parseAddress(filled, document.url);
    if (address !== undefined) addresses.push(address);
    else
      problems.push(
        `the server '${cutText(filled, 200)}' is relative or no http address, and the document's own address is not known`,
      );
  }
  return { addresses, problems };
}

function fillVariables(
  template: string,
  server: JsonValue,
  given: Readonly<Record<string, string>>,
): string | { readonly problem: string } {
  const declared = ownMember(server, "variables");
  let problem: string | undefined;
  const filled = template.replaceAll(/\{([^{}]*)\}/g, (_whole, name: string) => {
    const own = Object.hasOwn(given, name) ? given[name] : undefined;
    const value = own ?? defaultOf(isJsonObject(declared) ? declared : {}, name);
    if (value === undefined)
      problem ??= `the server's variable '${name}' has no default; give it in 'server_variables'`;
    return value ?? "";
  });
  return problem === undefined ? filled : { problem };
}

function defaultOf(declared: JsonObject, name: string): string | undefined {
  const value = ownMember(ownMember(declared, name), "default");
  return typeof value === "string" || typeof value === "number" ? String(value) : undefined;
}

function parseAddress(text: string, base: string | undefined): Address | undefined {
  // A host without a scheme (`//api.example.com`) is spoken to as its document was got, else safely.
  const url = URL.parse(base === undefined && text.startsWith("//") ? `https:${text}` : text, base);
  if (url === null || !/^https?:$/.test(url.protocol) || url.username !== "" || url.password !== "") return undefined;
  if (url.search !== "" || url.hash !== "") return undefined;
  return { url: withoutEndSlashes(url.origin + url.pathname), origin: url.origin };
}

function noBase(problem: string): GatewayError {
  return new GatewayError("invalid_request", `'base_url' ${problem}.`, { param: "base_url" });
}
