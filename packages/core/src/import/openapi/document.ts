/**
 * An OpenAPI 3.0, 3.1 or Swagger 2.0 document and where its references lead. Nothing is loaded here:
 * other documents are known only where they were fetched before (`external.ts`), files never.
 */
import { GatewayError } from "../../errors/gateway-error.ts";
import { isJsonObject, type JsonObject, type JsonValue } from "../../json.ts";
import { ownMember } from "../../tools/json-schema/document.ts";
import { eachContainer } from "../walk.ts";

export type ApiVersion = "2.0" | "3.0" | "3.1";

/** A value and the document it stands in. */
export interface Located {
  readonly value: JsonValue;
  /** Address of its document; empty for the main one. */
  readonly base: string;
}

export interface Resolved extends Located {
  /** One text for one place, to notice circles. */
  readonly key: string;
}

/** References to references that are followed. */
const longestChain = 50;

/** The field of a request that brings a document. */
export type DocumentParam = "openapi" | "url";

export class ApiDocument {
  readonly root: JsonObject;
  readonly version: ApiVersion;
  /** Where it was read from. */
  readonly url: string | undefined;
  /** For errors. */
  readonly param: DocumentParam;
  readonly #others: ReadonlyMap<string, JsonValue>;
  readonly #anchors = new Map<string, ReadonlyMap<string, JsonObject>>();

  /** @throws GatewayError `invalid_request` for what is no document of these versions */
  constructor(
    root: JsonValue,
    options: {
      readonly url?: string | undefined;
      readonly others?: ReadonlyMap<string, JsonValue>;
      readonly param?: DocumentParam;
    },
  ) {
    this.param = options.param ?? "openapi";
    const version = isJsonObject(root) ? versionOf(root) : undefined;
    if (!isJsonObject(root) || version === undefined) throw notOpenApi(this.param);
    this.root = root;
    this.version = version;
    this.url = options.url;
    this.#others = options.others ?? new Map<string, JsonValue>();
  }

  /**
   * @param home schema around the reference that brings its own `$defs`, which some writers refer to
   * @returns undefined for what is not there, or in a document that is not known
   */
  resolve(reference: string, base: string, home?: JsonObject): Resolved | undefined {
    const at = reference.indexOf("#");
    const address = at < 0 ? reference : reference.slice(0, at);
    const fragment = at < 0 ? "" : reference.slice(at + 1);
    const target = address === "" ? base : absoluteAddress(address, base === "" ? this.url : base);
    const root = this.#rootOf(target);
    if (target === undefined || root === undefined) return undefined;
    const found =
      fragment === "" || fragment.startsWith("/") ? walk(root, fragment) : this.#anchored(target, root, fragment);
    if (found !== undefined) return { value: found, base: target, key: `${target}#${fragment}` };
    const local = home === undefined ? undefined : walk(home, fragment);
    return local === undefined ? undefined : { value: local, base: target, key: `${target}#local${fragment}` };
  }

  /** What a value refers to, for objects that are no schemas. */
  follow(located: Located): Located | undefined {
    let at: Located | undefined = located;
    for (let steps = 0; at !== undefined && steps < longestChain; steps += 1) {
      const reference = ownMember(at.value, "$ref");
      if (typeof reference !== "string") return at;
      at = this.resolve(reference, at.base);
    }
    return undefined;
  }

  #rootOf(address: string | undefined): JsonValue | undefined {
    if (address === "" || (address !== undefined && address === this.url)) return this.root;
    return address === undefined ? undefined : this.#others.get(address);
  }

  #anchored(address: string, root: JsonValue, name: string): JsonObject | undefined {
    let anchors = this.#anchors.get(address);
    if (anchors === undefined) {
      anchors = collectAnchors(root);
      this.#anchors.set(address, anchors);
    }
    return anchors.get(name);
  }
}

function versionOf(root: JsonObject): ApiVersion | undefined {
  const { openapi, swagger } = root;
  if (typeof openapi === "string" && openapi.startsWith("3.0")) return "3.0";
  if (typeof openapi === "string" && openapi.startsWith("3.")) return "3.1";
  return swagger === "2.0" || swagger === 2 ? "2.0" : undefined;
}

function notOpenApi(param: DocumentParam): GatewayError {
  return new GatewayError(
    "invalid_request",
    `'${param}' ${param === "url" ? "leads to what is" : "is"} no OpenAPI 3.0 or 3.1 and no Swagger 2.0 document: it needs a field 'openapi' or 'swagger' with the version.`,
    { param },
  );
}

/** Without its fragment; undefined where there is no base to start from. */
export function absoluteAddress(address: string, base: string | undefined): string | undefined {
  const url = URL.parse(address, base);
  if (url === null) return undefined;
  url.hash = "";
  return url.href;
}

function walk(root: JsonValue, pointer: string): JsonValue | undefined {
  let at: JsonValue | undefined = root;
  for (const part of pointer.split("/").slice(1)) {
    at = ownMember(at, decodePart(part));
    if (at === undefined) return undefined;
  }
  return at;
}

function decodePart(part: string): string {
  const unescaped = part.replaceAll("~1", "/").replaceAll("~0", "~");
  if (!unescaped.includes("%")) return unescaped;
  try {
    return decodeURIComponent(part).replaceAll("~1", "/").replaceAll("~0", "~");
  } catch {
    return unescaped;
  }
}

function collectAnchors(root: JsonValue): ReadonlyMap<string, JsonObject> {
  const anchors = new Map<string, JsonObject>();
  for (const container of eachContainer(root)) {
    if (!isJsonObject(container)) continue;
    for (const keyword of ["$anchor", "$dynamicAnchor"]) {
      const anchor = ownMember(container, keyword);
      if (typeof anchor === "string") anchors.set(anchor, container);
    }
  }
  return anchors;
}
