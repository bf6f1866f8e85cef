/** A whole document: its base address, its operations, and what cannot become a tool, with the reason. */
import { GatewayError } from "../../errors/gateway-error.ts";
import { ownMember } from "../../tools/json-schema/document.ts";
import type { Candidate, ReadSource, Skipped } from "../candidate.ts";
import { isWanted, type Filters } from "../filters.ts";
import { importLimits } from "../limits.ts";
import { shortHash, toToolName } from "../names.ts";
import type { Pace } from "../../pace.ts";
import { tidyStart } from "../text.ts";
import { ImportWork } from "../work.ts";
import type { ApiDocument, DocumentParam } from "./document.ts";
import { isKeyParameter } from "./key-parameters.ts";
import { textMember, type ApiOperation, type ApiParameter } from "./operation.ts";
import { keysOfPath, readOperations } from "./operations.ts";
import { keyPlaces, placeKey, proposeAuth, schemesOf, type AuthOverrides } from "./security.ts";
import { chooseBase, chooseOperationBase, type BaseAddress, type ServerOptions } from "./servers.ts";
import { toCandidate, Unsupported, type DefinitionOptions, type KeyUse } from "./to-definition.ts";

export interface OpenApiOptions extends ServerOptions, Filters {
  readonly documentId?: string | undefined;
  readonly prefix: string;
  readonly auth: AuthOverrides;
  readonly allowedOrigins: ReadonlySet<string>;
  readonly pace: Pace;
}

/** @throws GatewayError `invalid_request` where it has no server, or more operations than the limit */
export async function readOpenApi(document: ApiDocument, options: OpenApiOptions): Promise<ReadSource> {
  const base = chooseBase(document, options);
  const candidates: Candidate[] = [];
  const skipped: Skipped[] = [];
  const present = new Set<string>();
  const places = keyPlaces(document);
  const keyUse = (parameter: ApiParameter, isOpen: boolean): KeyUse | undefined => {
    const isOfScheme = places.has(placeKey(parameter.in, parameter.name));
    // What is asked for in any case may as well be named.
    if (!isOfScheme && !isKeyParameter(parameter, isOpen || parameter.required)) return undefined;
    return parameter.required || (!isOfScheme && options.auth.config === null) ? "asked for" : "left out";
  };
  const work = new ImportWork();
  const gaps: string[] = [];
  for (const operation of readOperations(document, { onGap: (path) => gaps.push(path), work })) {
    if (present.size === importLimits.operations) throw tooMany(document.param);
    const { key, method, path } = operation;
    const label = `${method} ${path}`;
    if (present.has(key)) {
      skipped.push({ key, label, reason: "an earlier operation has the same method and path" });
      continue;
    }
    present.add(key);
    if (!isWanted(operation, options)) continue;
    await options.pace.turn();
    const read = readOne(document, operation, { ...options, base, keyUse, work });
    if (typeof read === "string") skipped.push({ key, label, reason: read });
    else candidates.push(read);
  }
  // What cannot be read now is not gone.
  for (const key of gaps.flatMap(keysOfPath)) present.add(key);
  const info = ownMember(document.root, "info");
  const title = textMember(info, "title");
  return {
    document: {
      id: options.documentId ?? defaultId(document, title),
      title: title === undefined ? null : tidyStart(title, 256).text,
      version: textMember(info, "version") ?? null,
      baseUrl: base.url,
      origin: base.origin,
      otherServers: base.others,
    },
    candidates,
    skipped,
    present,
    warnings: [
      ...gaps.map((path) => `The path '${path}' refers to something that is not known; it is left out.`).slice(0, 20),
      ...warningsOf(document, { present, candidates, auth: options.auth }),
    ],
  };
}

/** @returns the reason where it cannot become a tool */
function readOne(
  document: ApiDocument,
  operation: ApiOperation,
  options: OpenApiOptions & {
    readonly base: BaseAddress;
    readonly keyUse: DefinitionOptions["keyUse"];
    readonly work: ImportWork;
  },
): Candidate | string {
  const { base, prefix, keyUse, work, auth: overrides } = options;
  const own =
    operation.servers === undefined ? { url: base.url } : chooseOperationBase(document, operation.servers, options);
  if ("refused" in own) return own.refused;
  const auth = proposeAuth(operation, { document, origin: new URL(own.url).origin, overrides });
  try {
    return toCandidate(operation, { document, base: own.url, auth, prefix, keyUse, work });
  } catch (error) {
    if (error instanceof Unsupported) return error.message;
    throw error;
  }
}

/** What the same document is recognised by the next time: its address, else its title. */
function defaultId(document: ApiDocument, title: string | undefined): string {
  if (document.url === undefined) {
    const slug = toToolName(title ?? "")
      .toLowerCase()
      .slice(0, 100);
    return slug === "" ? `untitled-${shortHash(title ?? "", 8)}` : slug;
  }
  const url = new URL(document.url);
  // A query may hold a secret.
  const query = url.search === "" ? "" : `?${shortHash(url.search, 12)}`;
  return `${url.origin}${url.pathname}${query}`.slice(0, 500);
}

interface Found {
  readonly present: ReadonlySet<string>;
  readonly candidates: readonly Candidate[];
  readonly auth: AuthOverrides;
}

function warningsOf(document: ApiDocument, { present, candidates, auth }: Found): readonly string[] {
  const warnings: string[] = [];
  if (present.size === 0) warnings.push("The document has no operations.");
  const isOverridden = auth.config !== undefined || auth.scheme !== undefined;
  const isOpen = candidates.every((candidate) => candidate.auth.credentials.length === 0);
  if (Object.keys(schemesOf(document)).length === 0 && isOpen && !isOverridden) {
    warnings.push(
      "The document declares no securitySchemes: tools are called without credentials; give 'auth.config' to change that.",
    );
  }
  return warnings;
}

function tooMany(param: DocumentParam): GatewayError {
  return new GatewayError(
    "invalid_request",
    `The document has more than ${importLimits.operations} operations; split it.`,
    { param },
  );
}
